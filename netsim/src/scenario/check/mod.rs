//! What must hold of a scenario beyond its shape.

use splitter_common::balance::MAX_PATHS;

use super::{
    Balance, Control, Discipline, Experiment, Fabric, Hosts, Port, Scenario, Sizes, Traffic,
    Transport,
    check_transport::{check_length, check_transport},
    outage,
};
use crate::{
    core::{packet::PRIORITIES, wheel::HORIZON_NS},
    fabric::{Network, outage::Outages},
    workload::{Workload, messages_per_second},
};

/// A key and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) key: String,
    pub(crate) problem: String,
}

pub(super) type Checked = Result<(), Problem>;

/// More ports than this have no number in a packet.
const MAX_PORTS: usize = u16::MAX as usize;
const MAX_MESSAGES: u32 = 10_000_000;
/// In segments of the least size it still has a number for each.
const MAX_MESSAGE_BYTES: u64 = 100_000_000_000;
/// What a leaf knows of its paths to another takes some 600 bytes.
const MAX_PAIRS: usize = 250_000;

/// What can be told from the file alone.
pub(crate) fn check(scenario: &Scenario) -> Checked {
    check_fabric(&scenario.fabric)?;
    outage::check(&scenario.fabric)?;
    check_balance(&scenario.balance)?;
    check_transport("transport", &scenario.transport)?;
    if let Some(transport) = &scenario.background_transport {
        check_transport("background_transport", transport)?;
        let is_cloudburst = transport.control == Control::Cloudburst;
        require(!is_cloudburst, "background_transport.control", || {
            "bulk is no traffic for Cloudburst; take `dctcp` or `reno`".to_owned()
        })?;
    }
    check_port("port", &scenario.port, &scenario.transport)?;
    if let Some(port) = &scenario.host_port {
        check_port("host_port", port, &scenario.transport)?;
        require(port.shared.is_none(), "host_port.shared", || {
            "hosts have one port, which shares its buffer with nothing; remove it".to_owned()
        })?;
    }
    if let Some(until) = scenario.until_ms {
        let most = HORIZON_NS as f64 / 1e6;
        in_range("until_ms", until, 1e-6, most)?;
    }
    let rises = scenario.classes_bytes.windows(2).all(|it| it[0] < it[1]);
    require(rises, "classes_bytes", || {
        "each must be larger than the one before".to_owned()
    })?;
    require(!scenario.traffic.is_empty(), "traffic", || {
        "nothing is sent; add a [[traffic]]".to_owned()
    })?;
    let only_background = scenario
        .traffic
        .iter()
        .all(|it| matches!(it, Traffic::Background { .. }));
    require(
        !only_background || scenario.until_ms.is_some(),
        "until_ms",
        || "background traffic never ends; say when to stop".to_owned(),
    )?;
    for (index, traffic) in scenario.traffic.iter().enumerate() {
        check_traffic(&format!("traffic[{index}]"), traffic, &scenario.fabric)?;
    }
    Ok(())
}

/// What takes drawing and distributions.
pub(crate) fn check_experiment(experiment: &Experiment) -> Checked {
    let scenario = &experiment.scenario;
    let mut network = Network::new(scenario, experiment.seed);
    Outages::new(&scenario.fabric, &network).end_all(&mut network);
    if let Some((leaf, to_leaf)) = network.unreachable() {
        return Err(Problem {
            key: "fabric.path, fabric.failed and fabric.outage".to_owned(),
            problem: format!(
                "hosts of leaf {to_leaf} cannot be reached from leaf {leaf}: no spine has working \
                 links to both (seed {}); fail fewer",
                experiment.seed
            ),
        });
    }
    for (index, traffic) in scenario.traffic.iter().enumerate() {
        let largest = match traffic {
            Traffic::Poisson { sizes, .. } => match sizes {
                Sizes::Fixed(bytes) => *bytes,
                Sizes::OneOf(all) => all.iter().copied().max().unwrap_or(0),
                Sizes::Distribution(_) => experiment.distributions[index]
                    .as_ref()
                    .map_or(0, |it| it.at(1.0)),
            },
            Traffic::Incast { bytes, .. } | Traffic::Message { bytes, .. } => *bytes,
            Traffic::Background { .. } if scenario.background_transport.is_some() => 0,
            Traffic::Background { bytes, .. } => *bytes,
        };
        check_length(&format!("traffic[{index}]: bytes"), largest, scenario)?;
        let Traffic::Poisson {
            messages,
            request_bytes,
            ..
        } = traffic
        else {
            continue;
        };
        let key = format!("traffic[{index}].request_bytes");
        check_length(&key, request_bytes.unwrap_or(0), scenario)?;
        let seconds = f64::from(*messages) / messages_per_second(experiment, index, traffic);
        let most = HORIZON_NS as f64 / 2e9;
        require(
            seconds < most,
            &format!("traffic[{index}].messages = {messages}"),
            || format!("they take {seconds:.0} s to start, and a run ends before {most:.0} s"),
        )?;
    }
    let last = Workload::new(experiment).last_ns();
    require(last < HORIZON_NS / 2, "traffic", || {
        format!("a message starts at {last} ns, and a run ends at {HORIZON_NS}")
    })
}

fn check_fabric(fabric: &Fabric) -> Checked {
    for (key, value) in [
        ("fabric.leaves", fabric.leaves),
        ("fabric.spines", fabric.spines),
        ("fabric.hosts_per_leaf", fabric.hosts_per_leaf),
    ] {
        require(value > 0, &format!("{key} = 0"), || {
            "there must be at least one".to_owned()
        })?;
    }
    let [leaves, spines, hosts] =
        [fabric.leaves, fabric.spines, fabric.hosts_per_leaf].map(usize::from);
    let ports = 2 * leaves * (spines + hosts);
    require(ports <= MAX_PORTS, "fabric", || {
        format!("{ports} ports are more than {MAX_PORTS}; take fewer leaves, spines or hosts")
    })?;
    require(
        spines <= MAX_PATHS,
        &format!("fabric.spines = {spines}"),
        || format!("policies choose among at most {MAX_PATHS} paths"),
    )?;
    require(
        leaves * leaves <= MAX_PAIRS,
        &format!("fabric.leaves = {leaves}"),
        || format!("they make more than {MAX_PAIRS} pairs with paths between them; take fewer"),
    )?;
    check_rate("fabric.host_gbps", fabric.host_gbps)?;
    check_rate("fabric.uplink_gbps", fabric.uplink_gbps)?;
    in_range("fabric.link_delay_us", fabric.link_delay_us, 0.0, 1e6)?;
    require(
        fabric.failed < fabric.spines,
        &format!("fabric.failed = {}", fabric.failed),
        || format!("of {spines} spines at least one must work, or no host is reachable"),
    )?;
    if let Some(slow) = &fabric.slow {
        require(
            slow.paths <= fabric.spines,
            &format!("fabric.slow.paths = {}", slow.paths),
            || format!("there are {spines} spines"),
        )?;
        in_range("fabric.slow.rtt_ratio", slow.rtt_ratio, 1.0, 1000.0)?;
    }
    for (index, path) in fabric.path.iter().enumerate() {
        let key = format!("fabric.path[{index}]");
        below(&format!("{key}.spine"), path.spine, fabric.spines, "spines")?;
        if let Some(leaf) = path.leaf {
            below(&format!("{key}.leaf"), leaf, fabric.leaves, "leaves")?;
        }
        in_range(
            &format!("{key}.extra_delay_us"),
            path.extra_delay_us,
            0.0,
            1e6,
        )?;
        if let Some(gbps) = path.gbps {
            check_rate(&format!("{key}.gbps"), gbps)?;
        }
    }
    Ok(())
}

fn check_balance(balance: &Balance) -> Checked {
    let us = |key: &str, value: Option<f64>| {
        value.map_or(Ok(()), |it| {
            in_range(&format!("balance.{key}"), it, 0.0, 1e9)
        })
    };
    us("letflow_gap_us", Some(balance.letflow_gap_us))?;
    us("tr.guard_us", balance.tr.guard_us)?;
    us("tr.slack_us", balance.tr.slack_us)?;
    us("tr.timeout_us", balance.tr.timeout_us)
}

fn check_rate(key: &str, gbps: f64) -> Checked {
    require(
        (1e-3..=3200.0).contains(&gbps),
        &format!("{key} = {gbps}"),
        || {
            "a link needs a capacity between 0.001 and 3200 Gbit/s; to take it out, say `failed = true` \
         of its path"
            .to_owned()
        },
    )
}

fn check_port(key: &str, port: &Port, transport: &Transport) -> Checked {
    let packet = full_packet(transport);
    let holds_one = |key: &str, bytes: u32| {
        require(bytes >= packet, &format!("{key} = {bytes}"), || {
            format!("the port would never let a full packet of {packet} bytes pass")
        })
    };
    holds_one(&format!("{key}.buffer_bytes"), port.buffer_bytes)?;
    let has_queues = matches!(port.discipline, Discipline::Priority | Discipline::Wrr);
    require(
        has_queues != port.queue.is_empty(),
        &format!("{key}.queue"),
        || "the disciplines `priority` and `wrr` need queues, and the others have none".to_owned(),
    )?;
    require(
        port.queue.len() <= usize::from(PRIORITIES),
        &format!("{key}.queue"),
        || format!("a port has at most {PRIORITIES} queues"),
    )?;
    for (index, queue) in port.queue.iter().enumerate() {
        let key = format!("{key}.queue[{index}]");
        in_range(
            &format!("{key}.weight"),
            f64::from(queue.weight),
            1.0,
            1000.0,
        )?;
        if let Some(bytes) = queue.buffer_bytes {
            holds_one(&format!("{key}.buffer_bytes"), bytes)?;
        }
    }
    if let Some(shared) = &port.shared {
        in_range(&format!("{key}.shared.alpha"), shared.alpha, 0.001, 1024.0)?;
        let room = shared.buffer_bytes as f64 * shared.alpha;
        in_range(
            &format!("{key}.shared.buffer_bytes * alpha"),
            room,
            f64::from(packet),
            1e12,
        )?;
    }
    Ok(())
}

fn check_traffic(key: &str, traffic: &Traffic, fabric: &Fabric) -> Checked {
    match traffic {
        Traffic::Poisson {
            sizes,
            load,
            per_second,
            messages,
            hosts,
            request_bytes,
            priority,
        } => {
            check_sizes(key, sizes)?;
            match (load, per_second) {
                (Some(load), None) => {
                    let positive = *load > 0.0 && *load <= 1.0;
                    require(positive, &format!("{key}.load = {load}"), || {
                        "a load is a share of the senders' links: more than 0, at most 1".to_owned()
                    })?;
                }
                (None, Some(rate)) => in_range(&format!("{key}.per_second"), *rate, 1e-3, 1e12)?,
                _ => {
                    return Err(Problem {
                        key: key.to_owned(),
                        problem: "say either `load` or `per_second`".to_owned(),
                    });
                }
            }
            let most = f64::from(MAX_MESSAGES);
            in_range(&format!("{key}.messages"), f64::from(*messages), 1.0, most)?;
            if let Some(bytes) = request_bytes {
                check_bytes(&format!("{key}.request_bytes"), *bytes)?;
            }
            check_priority(key, *priority)?;
            check_hosts(key, *hosts, fabric)
        }
        Traffic::Background {
            bytes,
            hosts,
            priority,
        } => {
            check_bytes(&format!("{key}.bytes"), *bytes)?;
            check_priority(key, *priority)?;
            check_hosts(key, *hosts, fabric)
        }
        Traffic::Incast {
            senders,
            to,
            bytes,
            at_us,
            rounds,
            every_us,
            priority,
        } => {
            in_range(
                &format!("{key}.senders"),
                f64::from(*senders),
                1.0,
                65_535.0,
            )?;
            require(fabric.leaves > 1, &format!("{key}.senders"), || {
                "senders are at other leaves than the receiver, and there is one leaf".to_owned()
            })?;
            below(&format!("{key}.to"), *to, host_count(fabric), "hosts")?;
            check_bytes(&format!("{key}.bytes"), *bytes)?;
            in_range(&format!("{key}.at_us"), *at_us, 0.0, 1e12)?;
            in_range(&format!("{key}.every_us"), *every_us, 0.0, 1e12)?;
            in_range(&format!("{key}.rounds"), f64::from(*rounds), 1.0, 1e5)?;
            let messages = u64::from(*senders) * u64::from(*rounds);
            require(
                messages <= u64::from(MAX_MESSAGES),
                &format!("{key}.rounds = {rounds}"),
                || format!("{messages} messages are more than {MAX_MESSAGES}"),
            )?;
            check_priority(key, *priority)
        }
        Traffic::Message {
            from,
            to,
            bytes,
            at_us,
            priority,
        } => {
            below(&format!("{key}.from"), *from, host_count(fabric), "hosts")?;
            below(&format!("{key}.to"), *to, host_count(fabric), "hosts")?;
            require(from != to, &format!("{key}.to = {to}"), || {
                "a host does not send to itself".to_owned()
            })?;
            check_bytes(&format!("{key}.bytes"), *bytes)?;
            in_range(&format!("{key}.at_us"), *at_us, 0.0, 1e12)?;
            check_priority(key, *priority)
        }
    }
}

fn check_sizes(key: &str, sizes: &Sizes) -> Checked {
    match sizes {
        Sizes::Fixed(bytes) => check_bytes(&format!("{key}.sizes"), *bytes),
        Sizes::OneOf(all) => {
            require(!all.is_empty(), &format!("{key}.sizes"), || {
                "the list of sizes is empty".to_owned()
            })?;
            all.iter()
                .try_for_each(|it| check_bytes(&format!("{key}.sizes"), *it))
        }
        Sizes::Distribution(_) => Ok(()),
    }
}

fn check_hosts(key: &str, hosts: Hosts, fabric: &Fabric) -> Checked {
    let count = host_count(fabric);
    match hosts {
        Hosts::Split { senders } => require(
            senders > 0 && senders < count,
            &format!("{key}.hosts.senders = {senders}"),
            || format!("of {count} hosts at least one must send and one receive"),
        ),
        Hosts::Leaves { from, to } => {
            below(&format!("{key}.hosts.from"), from, fabric.leaves, "leaves")?;
            below(&format!("{key}.hosts.to"), to, fabric.leaves, "leaves")?;
            require(
                from != to || fabric.hosts_per_leaf > 1,
                &format!("{key}.hosts"),
                || "a host does not send to itself, and its leaf has no other".to_owned(),
            )
        }
        Hosts::All => require(count > 1, &format!("{key}.hosts"), || {
            "there is one host, and nobody to send to".to_owned()
        }),
        Hosts::OtherLeaves => require(fabric.leaves > 1, &format!("{key}.hosts"), || {
            "there is one leaf, and nobody behind another".to_owned()
        }),
    }
}

fn check_bytes(key: &str, bytes: u64) -> Checked {
    in_range(key, bytes as f64, 1.0, MAX_MESSAGE_BYTES as f64)
}

pub(super) fn check_priority(key: &str, priority: u8) -> Checked {
    below(
        &format!("{key}.priority"),
        priority.into(),
        PRIORITIES.into(),
        "priorities",
    )
}

pub(super) fn below(key: &str, value: u16, count: u16, what: &str) -> Checked {
    require(value < count, &format!("{key} = {value}"), || {
        format!("there are {count} {what}, numbered from 0")
    })
}

pub(super) fn in_range(key: &str, value: f64, least: f64, most: f64) -> Checked {
    require(
        (least..=most).contains(&value),
        &format!("{key} = {value}"),
        || format!("it must lie between {least} and {most}"),
    )
}

pub(super) fn require(holds: bool, key: &str, problem: impl FnOnce() -> String) -> Checked {
    if holds {
        return Ok(());
    }
    Err(Problem {
        key: key.to_owned(),
        problem: problem(),
    })
}

pub(super) fn full_packet(transport: &Transport) -> u32 {
    u32::from(transport.mss_bytes) + u32::from(transport.header_bytes)
}

fn host_count(fabric: &Fabric) -> u16 {
    fabric.leaves.saturating_mul(fabric.hosts_per_leaf)
}
