//! From the document to the configuration: each section in turn, then what they say together.

use std::num::NonZeroU32;
use std::time::Duration;

use splitter_advise::ThresholdUnit;
use splitter_netlink::InterfaceName;
use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::TunnelRole;

use super::document::{Document, Section};
use super::health::{health, peers_have_a_key};
use super::leaf::{
    absolute_path, boolean, integer, interface, prefix, socket_address, string, word,
};
use super::tunnels::{devices_differ, families_agree, tunnels};
use super::{
    Advise, AttachMode, Config, Flows, Handover, InvalidValue, Metrics, Mistake, PacketLog,
    Protocol, Routes, RulePriority, Threshold, TunnelPolicy, Tunnels,
};

mod marks;
mod share;
mod steering;

const THRESHOLD: Threshold = Threshold::Fixed(NonZeroU32::new(40).unwrap());
const TABLE_SIZE: NonZeroU32 = NonZeroU32::new(1 << 20).unwrap();
const MAX_TABLE_SIZE: u32 = 1 << 24;
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Beyond a day the kernel's coarse clock could wrap round between two packets.
const MAX_IDLE_TIMEOUT_S: u32 = 86_400;
const GUARD_WITH_RATE: Duration = Duration::from_nanos(PolicyConfig::DEFAULT_DRAIN_MARGIN_NS);
const GUARD_WITHOUT_RATE: Duration = Duration::from_nanos(PolicyConfig::DEFAULT_GAP_NS);
const SWEEP: Duration = Duration::from_secs(5);
const MAX_SWEEP_S: u32 = 3_600;
const ADVISED_PACKETS: [u32; 2] = [10, 1_000];
const ADVISED_BYTES: [u32; 2] = [15_000, 1_500_000];
const ADVISE_PERIOD: Duration = Duration::from_secs(60);
const RTT: Duration = Duration::from_millis(20);
const MAX_GUARD_US: u32 = 10_000_000;
const CAP_WITH_RATES: Duration = Duration::from_nanos(PolicyConfig::DEFAULT_MAX_WAIT_NS);
const CAP_WITHOUT_RATES: Duration = Duration::from_nanos(PolicyConfig::DEFAULT_BLIND_MAX_WAIT_NS);
const CAP_SHARED: Duration = Duration::from_nanos(PolicyConfig::DEFAULT_SHARED_MAX_WAIT_NS);
const LONG_QUEUE: Duration = Duration::from_millis(5);
const MAX_CAP_MS: u32 = 60_000;
const METRICS_ADDRESS: &str = "127.0.0.1:9461";

/// Parses `text`, which messages call `name`.
pub(super) fn config(text: &str, name: &str) -> Result<Config, Vec<Mistake>> {
    let document = Document::new(text, name);
    let config = if document.is_toml() {
        sections(&document)
    } else {
        None
    };
    let mistakes = document.finish();
    match config {
        Some(config) if mistakes.is_empty() => Ok(config),
        _ => Err(mistakes),
    }
}

/// `None` only where something required is missing or wrong, which the document has noted.
fn sections(document: &Document<'_>) -> Option<Config> {
    let top = document.top();
    let name = top
        .optional("name", |value| string(value)?.try_into())
        .unwrap_or_default();
    let runtime_dir = top
        .optional("runtime_dir", absolute_path)
        .unwrap_or(Config::DEFAULT_RUNTIME_DIR.into());
    let bpffs = top
        .optional("bpffs", absolute_path)
        .unwrap_or("/sys/fs/bpf".into());
    let policy = top
        .optional("policy", |value| word(TunnelPolicy::WORDS, value))
        .unwrap_or_default();
    let lan = lan(&top);
    let shadow = top.optional("shadow", boolean).unwrap_or_default();
    let short = tunnels(document, TunnelRole::Short);
    let long = tunnels(document, TunnelRole::Long);
    let flows = flows(&document.section("flows"));
    let rates = Rates::of(short.as_ref(), long.as_ref());
    threshold_can_be_found(document, &flows, rates);
    let share = share::share(&document.section("share"));
    let defaults = HandoverDefaults::new(rates, policy, share.queue);
    let handover = handover(&document.section("handover"), &defaults);
    let advise = advise(&document.section("advise"), flows.unit);
    let marks = marks::marks(&document.section("marks"), policy);
    let steering = steering::steering(&document.section("steering"));
    let attach = document
        .section("attach")
        .optional("mode", |value| word(AttachMode::WORDS, value));
    let routes = routes(&document.section("routes"));
    let health = health(&document.section("health"));
    let metrics = metrics(&document.section("metrics"));
    let log = document
        .section("log")
        .optional("packets", |value| word(PacketLog::WORDS, value));

    let config = Config {
        name,
        runtime_dir,
        bpffs,
        policy,
        lan: lan?,
        shadow,
        short: short?,
        long: long?,
        flows,
        handover,
        advise,
        share,
        marks,
        steering,
        attach: attach.unwrap_or_default(),
        routes,
        health,
        metrics,
        packet_log: log.unwrap_or_default(),
    };
    devices_differ(document, &config);
    families_agree(document, &config);
    peers_have_a_key(document, &config);
    share::check(document, &config);
    steering::check(document, &config);
    Some(config)
}

fn lan(top: &Section<'_, '_>) -> Option<Vec<InterfaceName>> {
    const REMEDY: &str = "name the interfaces that face the site, such as lan = [\"eth0\"]";
    top.required("lan", REMEDY, |_| Ok(()))?;
    let lan = top.list(
        "lan",
        ["without an interface nothing would be split", REMEDY],
        interface,
    )?;
    if let Some(twice) = duplicate(&lan) {
        top.contradiction(
            "lan",
            format!("{twice} is listed twice"),
            "name each interface once",
        );
    }
    Some(lan)
}

fn flows(section: &Section<'_, '_>) -> Flows {
    let threshold = section.optional("threshold", |value| {
        const HINT: &str = "(the default is 40), or \"auto\"";
        if value.as_str() == Some("auto") {
            return Ok(Threshold::Auto);
        }
        let number = integer(value, 0..=u32::MAX, HINT)?.try_into();
        number.map(Threshold::Fixed).map_err(|_| {
            InvalidValue::new(
                "a threshold of 0 would make every packet long",
                "give 1 or more (the default is 40)",
            )
        })
    });
    let table_size = section.optional("table_size", |value| {
        let size = integer(value, 16..=MAX_TABLE_SIZE, "flows (the default is 1048576)")?;
        NonZeroU32::new(size)
            .ok_or_else(|| InvalidValue::new("the table would be empty", "give 16 or more"))
    });
    let idle_timeout = section.optional("idle_timeout_s", |value| {
        let seconds = integer(value, 1..=MAX_IDLE_TIMEOUT_S, "seconds (the default is 30)")?;
        Ok(Duration::from_secs(seconds.into()))
    });
    let sweep = section.optional("sweep_interval_s", |value| {
        let seconds = integer(value, 1..=MAX_SWEEP_S, "seconds (the default is 5)")?;
        Ok(Duration::from_secs(seconds.into()))
    });
    Flows {
        threshold: threshold.unwrap_or(THRESHOLD),
        unit: section
            .optional("unit", |value| word(ThresholdUnit::NAMES, value))
            .unwrap_or_default(),
        protocols: protocols(section),
        idle_timeout: idle_timeout.unwrap_or(IDLE_TIMEOUT),
        sweep_interval: sweep.unwrap_or(SWEEP),
        table_size: table_size.unwrap_or(TABLE_SIZE),
    }
}

fn protocols(section: &Section<'_, '_>) -> Vec<Protocol> {
    const REMEDY: &str = "list \"tcp\" and any of \"udp\", \"esp\", \"gre\", each once";
    let empty = ["without a protocol nothing would be split", REMEDY];
    let read = |value: &_| word(Protocol::WORDS, value);
    let Some(list) = section.list("protocols", empty, read) else {
        return vec![Protocol::Tcp];
    };
    if let Some(twice) = duplicate(&list) {
        section.contradiction("protocols", format!("{twice} is listed twice"), REMEDY);
    } else if !list.is_empty() && !list.contains(&Protocol::Tcp) {
        section.contradiction("protocols", "TCP is always split".to_owned(), REMEDY);
    }
    list
}

/// What is known of the rates of the tunnels.
#[derive(Debug, Clone, Copy)]
struct Rates {
    /// Whether it is known when packets of the short class have drained.
    short: bool,
    /// Whether both classes have a single tunnel whose rate is known.
    both: bool,
    /// Whether a class has several tunnels.
    has_several: bool,
}

impl Rates {
    fn of(short: Option<&Tunnels>, long: Option<&Tunnels>) -> Self {
        let is_known = |it: &Tunnels| it.slowest_rate_mbit().is_some();
        let is_single = |it: &Tunnels| it.only().is_some() && is_known(it);
        Self {
            short: short.is_some_and(is_known),
            both: short.is_some_and(is_single) && long.is_some_and(is_single),
            has_several: [short, long]
                .into_iter()
                .flatten()
                .any(Tunnels::are_several),
        }
    }
}

fn threshold_can_be_found(document: &Document<'_>, flows: &Flows, rates: Rates) {
    if flows.threshold != Threshold::Auto || rates.both {
        return;
    }
    let (problem, remedy) = match rates.has_several {
        true => (
            "a threshold is recommended by a model of one tunnel for each class, and a class has \
             several",
            "give a number",
        ),
        false => (
            "without the rates of both tunnels no load is known to recommend a threshold for",
            "set short.rate_mbit and long.rate_mbit, or give a number",
        ),
    };
    let section = document.section("flows");
    section.contradiction("threshold", problem.to_owned(), remedy);
}

/// What a handover is without its section.
struct HandoverDefaults {
    drain_margin: Duration,
    max_wait: Duration,
    long_queue: Duration,
    knows_short_rate: bool,
}

impl HandoverDefaults {
    /// `queue` is what the agent's own queues hold.
    fn new(rates: Rates, policy: TunnelPolicy, queue: Duration) -> Self {
        let drain_margin = match rates.short {
            true => GUARD_WITH_RATE,
            false => GUARD_WITHOUT_RATE,
        };
        let max_wait = match rates.both {
            true => CAP_WITH_RATES,
            false => CAP_WITHOUT_RATES,
        };
        let (max_wait, long_queue) = match policy {
            TunnelPolicy::Dedicated => (max_wait, LONG_QUEUE),
            // A little less than all, for what a packet's header takes.
            TunnelPolicy::Share => (CAP_SHARED, queue * 9 / 10),
        };
        Self {
            drain_margin,
            max_wait,
            long_queue,
            knows_short_rate: rates.short,
        }
    }
}

fn handover(section: &Section<'_, '_>, defaults: &HandoverDefaults) -> Handover {
    let drain_margin = section.optional("drain_margin_us", |value| {
        let drain_margin = integer(value, 0..=MAX_GUARD_US, "microseconds")?;
        if drain_margin == 0 && !defaults.knows_short_rate {
            return Err(InvalidValue::new(
                "without short.rate_mbit this is the gap to wait for, and any packet follows a gap of 0",
                "set short.rate_mbit, or leave drain_margin_us out (then it is 10000)",
            ));
        }
        Ok(Duration::from_micros(drain_margin.into()))
    });
    let max_wait = section.optional("max_wait_ms", |value| {
        let max_wait = integer(value, 1..=MAX_CAP_MS, "milliseconds")?;
        Ok(Duration::from_millis(max_wait.into()))
    });
    let long_queue = section.optional("long_queue_ms", |value| {
        let queue = integer(value, 0..=MAX_CAP_MS, "milliseconds (the default is 5)")?;
        Ok(Duration::from_millis(queue.into()))
    });
    let handover = Handover {
        drain_margin: drain_margin.unwrap_or_else(|| {
            defaults
                .drain_margin
                .min(max_wait.unwrap_or(defaults.max_wait))
        }),
        max_wait: max_wait.unwrap_or(defaults.max_wait),
        long_queue: long_queue.unwrap_or(defaults.long_queue),
    };
    if handover.drain_margin > handover.max_wait {
        let (drain_margin_us, max_wait_ms) = (
            handover.drain_margin.as_micros(),
            handover.max_wait.as_millis(),
        );
        section.contradiction(
            "drain_margin_us",
            format!("the drain margin of {drain_margin_us} us is longer than the longest wait of {max_wait_ms} ms, so only that would ever count"),
            "make drain_margin_us smaller or max_wait_ms larger",
        );
    }
    handover
}

fn advise(section: &Section<'_, '_>, unit: ThresholdUnit) -> Advise {
    let [min, max] = match unit {
        ThresholdUnit::Packets => ADVISED_PACKETS,
        ThresholdUnit::Bytes => ADVISED_BYTES,
    };
    let bound = |key, default: u32| {
        let hint = format!("{unit} (the default is {default})");
        let given = section.optional(key, |value| integer(value, 1..=u32::MAX, &hint));
        NonZeroU32::new(given.unwrap_or(default)).unwrap_or(NonZeroU32::MIN)
    };
    let period = section.optional("period_s", |value| {
        let seconds = integer(value, 1..=86_400, "seconds (the default is 60)")?;
        Ok(Duration::from_secs(seconds.into()))
    });
    let rtt = section.optional("rtt_ms", |value| {
        let rtt = integer(value, 1..=10_000, "milliseconds (the default is 20)")?;
        Ok(Duration::from_millis(rtt.into()))
    });
    let advise = Advise {
        min: bound("min", min),
        max: bound("max", max),
        period: period.unwrap_or(ADVISE_PERIOD),
        rtt: rtt.unwrap_or(RTT),
    };
    if advise.min > advise.max {
        section.contradiction(
            "min",
            format!(
                "the lowest threshold, {}, is above the highest, {}",
                advise.min, advise.max
            ),
            "make min smaller or max larger",
        );
    }
    advise
}

fn routes(section: &Section<'_, '_>) -> Routes {
    let destinations = section.list(
        "destinations",
        [
            "without a destination nothing would be routed into the tunnels",
            "name prefixes, or leave the key out for all that has no more specific route",
        ],
        prefix,
    );
    if let Some(list) = &destinations
        && let Some(twice) = duplicate(list)
    {
        section.contradiction(
            "destinations",
            format!("{twice} is listed twice"),
            "name each prefix once",
        );
    }
    let rule_priority = section.optional("rule_priority", |value| {
        let hint = "(the default is 1000)";
        integer(value, 1..=RulePriority::MAX, hint)?.try_into()
    });
    Routes {
        destinations,
        rule_priority: rule_priority.unwrap_or(RulePriority::DEFAULT),
    }
}

fn metrics(section: &Section<'_, '_>) -> Metrics {
    let address = section.optional("address", socket_address);
    let flow_addresses = section.optional("flow_addresses", boolean);
    Metrics {
        address: address.unwrap_or_else(|| METRICS_ADDRESS.parse().expect("a valid constant")),
        flow_addresses: flow_addresses.unwrap_or_default(),
    }
}

fn duplicate<T: PartialEq>(list: &[T]) -> Option<&T> {
    list.iter()
        .enumerate()
        .find(|(index, item)| list[..*index].contains(item))
        .map(|(_, item)| item)
}
