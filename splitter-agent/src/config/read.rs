//! From the document to the configuration: each section in turn, then what they say together.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use splitter_common::config::Config as Policy;

use super::document::{Document, Section, boolean, integer, string, word};
use super::health::{health, peer, peers_have_a_key};
use super::leaf::{absolute_path, address, interface, next_hop, prefix, socket_address};
use super::{
    Advise, AttachMode, Config, Demotion, Family, Flows, Gateways, InterfaceName, InvalidValue,
    Metrics, Mistake, PacketLog, Protocol, Routes, RulePriority, TableId, Threshold, ThresholdUnit,
    Tunnel, TunnelPolicy,
};

mod marks;
mod share;

const THRESHOLD: Threshold = Threshold::Fixed(NonZeroU32::new(40).unwrap());
const TABLE_SIZE: NonZeroU32 = NonZeroU32::new(1 << 20).unwrap();
const MAX_TABLE_SIZE: u32 = 1 << 24;
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Beyond a day the kernel's coarse clock could wrap round between two packets.
const MAX_IDLE_TIMEOUT_S: u32 = 86_400;
const GUARD_WITH_RATE: Duration = Duration::from_nanos(Policy::DEFAULT_GUARD_NS);
const GUARD_WITHOUT_RATE: Duration = Duration::from_nanos(Policy::DEFAULT_GAP_NS);
const SWEEP: Duration = Duration::from_secs(5);
const MAX_SWEEP_S: u32 = 3_600;
const ADVISED_PACKETS: [u32; 2] = [10, 1_000];
const ADVISED_BYTES: [u32; 2] = [15_000, 1_500_000];
const ADVISE_PERIOD: Duration = Duration::from_secs(60);
const RTT: Duration = Duration::from_millis(20);
const MAX_GUARD_US: u32 = 10_000_000;
const CAP_WITH_RATES: Duration = Duration::from_nanos(Policy::DEFAULT_CAP_NS);
const CAP_WITHOUT_RATES: Duration = Duration::from_nanos(Policy::DEFAULT_BLIND_CAP_NS);
const CAP_SHARED: Duration = Duration::from_nanos(Policy::DEFAULT_SHARED_CAP_NS);
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
    let short = tunnel(&document.section("short"), TableId::SHORT);
    let long = tunnel(&document.section("long"), TableId::LONG);
    let flows = flows(&document.section("flows"));
    let states_rate = |tunnel: &Option<Tunnel>| {
        let tunnel = tunnel.as_ref();
        tunnel.is_some_and(|tunnel| tunnel.rate_mbit.is_some())
    };
    let rates = (states_rate(&short), states_rate(&long));
    if flows.threshold == Threshold::Auto && rates != (true, true) {
        document.section("flows").contradiction(
            "threshold",
            "without the rates of both tunnels no load is known to recommend a threshold for"
                .to_owned(),
            "set short.rate_mbit and long.rate_mbit, or give a number",
        );
    }
    let share = share::share(&document.section("share"));
    let defaults = DemotionDefaults::new(rates, policy, share.queue);
    let demotion = demotion(&document.section("demotion"), &defaults);
    let advise = advise(&document.section("advise"), flows.unit);
    let marks = marks::marks(&document.section("marks"), policy);
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
        demotion,
        advise,
        share,
        marks,
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

fn tunnel(section: &Section<'_, '_>, table: TableId) -> Option<Tunnel> {
    let remedy = "name the tunnel's interface, such as device = \"wan0\"";
    let device = section.required("device", remedy, interface);
    let gateway = gateways(section);
    let table = section
        .optional("table", |value| {
            integer(value, 0..=u32::MAX, &format!("(the default is {table})"))?.try_into()
        })
        .unwrap_or(table);
    let rate_mbit = section.optional("rate_mbit", |value| {
        integer(value, 0..=1_000_000, "")?.try_into().map_err(|_| {
            InvalidValue::new(
                "a tunnel of rate 0 would never drain",
                "give its rate in Mbit/s, or leave the key out if it is not known",
            )
        })
    });
    Some(Tunnel {
        device: device?,
        gateway,
        table,
        rate_mbit,
        peer: peer(section),
    })
}

fn gateways(section: &Section<'_, '_>) -> Gateways {
    let mut gateways = Gateways::default();
    let list = section.list(
        "gateway",
        [
            "the list names no next hop",
            "name one, or leave the key out for a point-to-point device",
        ],
        |value| address(value).and_then(next_hop),
    );
    for gateway in list.unwrap_or_default() {
        let before = match gateway {
            IpAddr::V4(v4) => gateways.v4.replace(v4).map(IpAddr::V4),
            IpAddr::V6(v6) => gateways.v6.replace(v6).map(IpAddr::V6),
        };
        if let Some(before) = before {
            section.contradiction(
                "gateway",
                format!("{before} and {gateway} are of the same family"),
                "give at most one IPv4 and one IPv6 next hop",
            );
        }
    }
    gateways
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
    let sweep = section.optional("sweep_s", |value| {
        let seconds = integer(value, 1..=MAX_SWEEP_S, "seconds (the default is 5)")?;
        Ok(Duration::from_secs(seconds.into()))
    });
    Flows {
        threshold: threshold.unwrap_or(THRESHOLD),
        unit: section
            .optional("unit", |value| word(ThresholdUnit::WORDS, value))
            .unwrap_or_default(),
        protocols: protocols(section),
        idle_timeout: idle_timeout.unwrap_or(IDLE_TIMEOUT),
        sweep: sweep.unwrap_or(SWEEP),
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

/// What a demotion is without its section.
struct DemotionDefaults {
    guard: Duration,
    cap: Duration,
    long_queue: Duration,
    knows_short_rate: bool,
}

impl DemotionDefaults {
    /// `rates` tells whether that of the short and that of the long tunnel are known, `queue` what
    /// the agent's own queues hold.
    fn new(rates: (bool, bool), policy: TunnelPolicy, queue: Duration) -> Self {
        let (guard, cap) = match rates {
            (true, true) => (GUARD_WITH_RATE, CAP_WITH_RATES),
            (true, false) => (GUARD_WITH_RATE, CAP_WITHOUT_RATES),
            (false, _) => (GUARD_WITHOUT_RATE, CAP_WITHOUT_RATES),
        };
        let (cap, long_queue) = match policy {
            TunnelPolicy::Dedicated => (cap, LONG_QUEUE),
            // A little less than all, for what a packet's header takes.
            TunnelPolicy::Share => (CAP_SHARED, queue * 9 / 10),
        };
        Self {
            guard,
            cap,
            long_queue,
            knows_short_rate: rates.0,
        }
    }
}

fn demotion(section: &Section<'_, '_>, defaults: &DemotionDefaults) -> Demotion {
    let guard = section.optional("guard_us", |value| {
        let guard = integer(value, 0..=MAX_GUARD_US, "microseconds")?;
        if guard == 0 && !defaults.knows_short_rate {
            return Err(InvalidValue::new(
                "without short.rate_mbit this is the gap to wait for, and any packet follows a gap of 0",
                "set short.rate_mbit, or leave guard_us out (then it is 10000)",
            ));
        }
        Ok(Duration::from_micros(guard.into()))
    });
    let cap = section.optional("cap_ms", |value| {
        let cap = integer(value, 1..=MAX_CAP_MS, "milliseconds")?;
        Ok(Duration::from_millis(cap.into()))
    });
    let long_queue = section.optional("long_queue_ms", |value| {
        let queue = integer(value, 0..=MAX_CAP_MS, "milliseconds (the default is 5)")?;
        Ok(Duration::from_millis(queue.into()))
    });
    let demotion = Demotion {
        guard: guard.unwrap_or_else(|| defaults.guard.min(cap.unwrap_or(defaults.cap))),
        cap: cap.unwrap_or(defaults.cap),
        long_queue: long_queue.unwrap_or(defaults.long_queue),
    };
    if demotion.guard > demotion.cap {
        let (guard_us, cap_ms) = (demotion.guard.as_micros(), demotion.cap.as_millis());
        section.contradiction(
            "guard_us",
            format!("the guard of {guard_us} us is longer than the cap of {cap_ms} ms, so only the cap would ever count"),
            "make guard_us smaller or cap_ms larger",
        );
    }
    demotion
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

fn devices_differ(document: &Document<'_>, config: &Config) {
    let (top, long) = (document.top(), document.section("long"));
    if config.short.device == config.long.device {
        long.contradiction(
            "device",
            format!("the short tunnel is on {}, too", config.short.device),
            "put the two tunnels on different devices",
        );
    }
    if config.lan.iter().any(|lan| lan.as_str() == "lo") {
        top.contradiction(
            "lan",
            "nothing arrives from the site on lo".to_owned(),
            "list only interfaces that face the site",
        );
    }
    for (name, tunnel) in [("short", &config.short), ("long", &config.long)] {
        if config.lan.contains(&tunnel.device) {
            top.contradiction(
                "lan",
                format!("{} is the device of the {name} tunnel", tunnel.device),
                "list only interfaces that face the site",
            );
        }
    }
    if config.short.table == config.long.table {
        long.contradiction(
            "table",
            format!("the short tunnel has table {}, too", config.short.table),
            "give each tunnel a table of its own (the defaults are 10401 and 10402)",
        );
    }
}

fn families_agree(document: &Document<'_>, config: &Config) {
    let (short, long) = (config.short.gateway, config.long.gateway);
    let explicit = !short.is_point_to_point() && !long.is_point_to_point();
    for family in [Family::V4, Family::V6] {
        let (on_short, on_long) = (short.carries(family), long.carries(family));
        if explicit && on_short != on_long {
            let (section, has, lacks) = if on_short {
                ("long", "short", "long")
            } else {
                ("short", "long", "short")
            };
            document.section(section).contradiction(
                "gateway",
                format!("the {has} tunnel has an {family} next hop and the {lacks} tunnel has none, so {family} could not be split"),
                "give both tunnels a next hop of the family, or neither",
            );
        }
    }
    for net in config.routes.destinations.iter().flatten() {
        let family = Family::of(net);
        if !short.carries(family) && !long.carries(family) {
            document.section("routes").contradiction(
                "destinations",
                format!("{net} cannot be reached, because no tunnel has an {family} next hop"),
                "add the next hop to short.gateway and long.gateway, or remove the prefix",
            );
        }
    }
}

fn duplicate<T: PartialEq>(list: &[T]) -> Option<&T> {
    list.iter()
        .enumerate()
        .find(|(index, item)| list[..*index].contains(item))
        .map(|(_, item)| item)
}
