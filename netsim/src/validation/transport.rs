//! Checks of the keys of hosts.

use super::{Checked, Problem, check_priority, full_packet, in_range, require};
use crate::{
    engine::packet::PRIORITIES,
    scenario::{
        CloudburstMode, CloudburstSchedule, CongestionControl, Scenario, TransportSettings,
    },
};

const MIN_MSS_BYTES: f64 = 64.0;
const MAX_PACKET_BYTES: u32 = 9_216;
/// 100,000 segments: far beyond any bandwidth-delay product here.
const MAX_WINDOW: u32 = 100_000;
/// A round takes all of them, and a message seldom has more symbols.
const MAX_PATHS: u8 = 64;

pub(super) fn check_transport(table: &str, transport: &TransportSettings) -> Checked {
    let it = transport;
    let at_least_one = |key: &str, value: u64| {
        require(value > 0, &format!("{table}.{key} = 0"), || {
            "it must be at least 1".to_owned()
        })
    };
    at_least_one("initial_window", it.initial_window.into())?;
    at_least_one("max_window", it.max_window.into())?;
    at_least_one("dupack_threshold", it.dupack_threshold.into())?;
    at_least_one("rto_min_us", it.rto_min_us)?;
    at_least_one("mss_bytes", it.mss_bytes.into())?;
    at_least_one("header_bytes", it.header_bytes.into())?;
    at_least_one("replicas", it.replicas.into())?;
    at_least_one("subflows", it.subflows.into())?;
    in_range(
        &format!("{table}.mss_bytes"),
        f64::from(it.mss_bytes),
        MIN_MSS_BYTES,
        65_535.0,
    )?;
    in_range(
        &format!("{table}.max_window"),
        f64::from(it.max_window),
        1.0,
        f64::from(MAX_WINDOW),
    )?;
    in_range(
        &format!("{table}.rto_min_us"),
        it.rto_min_us as f64,
        1.0,
        60e6,
    )?;
    in_range(
        &format!("{table}.dctcp_gain_shift"),
        f64::from(it.dctcp_gain_shift),
        0.0,
        16.0,
    )?;
    in_range(
        &format!("{table}.dctcp_initial_alpha"),
        it.dctcp_initial_alpha,
        0.0,
        1.0,
    )?;
    let packet = f64::from(full_packet(it));
    in_range(
        &format!("{table}.mss_bytes + header_bytes"),
        packet,
        1.0,
        f64::from(MAX_PACKET_BYTES),
    )?;
    in_range(
        &format!("{table}.replicas"),
        f64::from(it.replicas),
        1.0,
        16.0,
    )?;
    in_range(
        &format!("{table}.subflows"),
        f64::from(it.subflows),
        1.0,
        64.0,
    )?;
    require(
        it.join_round_trips == 0 || it.subflows > 1,
        &format!("{table}.join_round_trips = {}", it.join_round_trips),
        || "there is no other subflow that could join; set subflows".to_owned(),
    )?;
    require(
        it.replicas == 1 || it.subflows == 1,
        &format!("{table}.replicas"),
        || "replicated messages cannot have subflows too; set one of them to 1".to_owned(),
    )?;
    let has_windows = !matches!(
        it.control,
        CongestionControl::Cloudburst | CongestionControl::ExpressPass
    );
    require(
        !it.handshake || (has_windows && it.subflows == 1),
        &format!("{table}.handshake = true"),
        || "subflows, credits and Cloudburst begin otherwise; leave it out".to_owned(),
    )?;
    let rises = it.pias_bytes.windows(2).all(|pair| pair[0] < pair[1]);
    require(
        rises && it.pias_bytes.len() < usize::from(PRIORITIES),
        &format!("{table}.pias_bytes"),
        || {
            format!(
                "at most {} thresholds, each above the one before",
                PRIORITIES - 1
            )
        },
    )?;
    check_priority(table, it.priority)?;
    if let Some(pace) = &it.pace {
        let key = format!("{table}.pace");
        in_range(&format!("{key}.every_us"), pace.every_us, 0.001, 1e6)?;
        in_range(&format!("{key}.bytes"), pace.bytes as f64, packet, 1e12)?;
    }
    check_expresspass(table, it)?;
    check_cloudburst(table, it)
}

fn check_expresspass(table: &str, transport: &TransportSettings) -> Checked {
    let it = &transport.expresspass;
    let key = |key: &str| format!("{table}.expresspass.{key}");
    // Less would take longer than a run has, and above 1 no share is.
    in_range(&key("alpha"), it.alpha, 1e-4, 1.0)?;
    in_range(&key("w_min"), it.w_min, 1e-6, 1.0)?;
    in_range(&key("w_max"), it.w_max, it.w_min, 1.0)?;
    in_range(&key("w_init"), it.w_init, it.w_min, it.w_max)?;
    in_range(&key("target_loss"), it.target_loss, 0.0, 0.9)?;
    in_range(&key("jitter"), it.jitter, 0.0, 1.0)?;
    in_range(&key("timeout_us"), it.timeout_us, 1.0, 1e6)?;
    let bytes = f64::from(it.credit_bytes);
    in_range(&key("credit_bytes"), bytes, 1.0, 1_500.0)?;
    let is_one = transport.replicas == 1 && transport.subflows == 1 && transport.pace.is_none();
    require(
        transport.control != CongestionControl::ExpressPass || is_one,
        &format!("{table}.control = \"expresspass\""),
        || {
            "its flows go one to a message, as credits come; remove replicas, subflows and pace"
                .to_owned()
        },
    )
}

fn check_cloudburst(table: &str, transport: &TransportSettings) -> Checked {
    let it = &transport.cloudburst;
    let key = |key: &str| format!("{table}.cloudburst.{key}");
    in_range(&key("share"), it.share, 1e-6, 1.0)?;
    in_range(
        &key("initial_round_trip_us"),
        it.initial_round_trip_us,
        10.0,
        1e6,
    )?;
    in_range(&key("encode_ns"), it.encode_ns as f64, 0.0, 1e9)?;
    in_range(&key("decode_ns"), it.decode_ns as f64, 0.0, 1e9)?;
    if let Some(paths) = it.paths {
        in_range(&key("paths"), f64::from(paths), 1.0, f64::from(MAX_PATHS))?;
    }
    let is_paper_code = matches!(
        it.schedule,
        Some(CloudburstSchedule::Uniform | CloudburstSchedule::Fixed)
    );
    require(
        !is_paper_code || it.mode == CloudburstMode::Paper,
        &key("schedule"),
        || "the paper's codes are for mode `paper`: they end at 64 symbols".to_owned(),
    )?;
    if transport.control != CongestionControl::Cloudburst {
        return Ok(());
    }
    let config = it.config(1_000_000_000, 1);
    config.validate().map_err(|error| Problem {
        key: format!("{table}.cloudburst"),
        problem: error.to_string(),
    })?;
    let flows =
        transport.replicas > 1 || transport.subflows > 1 || !transport.pias_bytes.is_empty();
    require(
        !flows && transport.pace.is_none(),
        &format!("{table}.control = \"cloudburst\""),
        || {
            "it has no flows, so that nothing can be said of copies, subflows, thresholds or pace"
                .to_owned()
        },
    )
}

/// Checks that Cloudburst can carry a message of that size.
pub(super) fn check_length(key: &str, bytes: u64, scenario: &Scenario) -> Checked {
    let transport = &scenario.transport;
    let most = transport.cloudburst.max_message_bytes();
    let fits = transport.control != CongestionControl::Cloudburst || bytes <= most;
    require(fits, &format!("{key} = {bytes}"), || {
        format!(
            "Cloudburst carries messages of up to {most} bytes in this mode; take smaller ones, or set background_transport for bulk"
        )
    })
}
