//! Checks of the keys of traffic.

use flow_workload::{Collective, Operation};

use super::{Checked, Problem, below, check_priority, in_range, require};
use crate::{
    engine::packet::PRIORITIES,
    scenario::{CollectiveTraffic, Experiment, HostMap, Sizes, Traffic, TrafficPattern},
};

pub(super) const MAX_MESSAGES: u32 = 10_000_000;
/// Longest message: in segments of the least size each still has a number.
const MAX_MESSAGE_BYTES: u64 = 100_000_000_000;

pub(super) fn check_traffic(key: &str, traffic: &Traffic, map: &HostMap) -> Checked {
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
            check_hosts(key, *hosts, map)
        }
        Traffic::Background {
            bytes,
            hosts,
            priority,
        } => {
            check_bytes(&format!("{key}.bytes"), *bytes)?;
            check_priority(key, *priority)?;
            check_hosts(key, *hosts, map)
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
            require(map.rack_count() > 1, &format!("{key}.senders"), || {
                "senders are at other leaves than the receiver, and there is one leaf".to_owned()
            })?;
            below(&format!("{key}.to"), *to, host_count(map), "hosts")?;
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
            below(&format!("{key}.from"), *from, host_count(map), "hosts")?;
            below(&format!("{key}.to"), *to, host_count(map), "hosts")?;
            require(from != to, &format!("{key}.to = {to}"), || {
                "a host does not send to itself".to_owned()
            })?;
            check_bytes(&format!("{key}.bytes"), *bytes)?;
            in_range(&format!("{key}.at_us"), *at_us, 0.0, 1e12)?;
            check_priority(key, *priority)
        }
        Traffic::RingAllReduce(it) => check_collective(key, Operation::RingAllReduce, it, map),
        Traffic::TreeAllReduce(it) => check_collective(key, Operation::TreeAllReduce, it, map),
        Traffic::AllToAll(it) => check_collective(key, Operation::AllToAll, it, map),
        Traffic::List {
            from_us, priority, ..
        } => {
            in_range(&format!("{key}.from_us"), *from_us, 0.0, 1e12)?;
            check_priority(key, *priority)
        }
    }
}

fn check_collective(
    key: &str,
    operation: Operation,
    traffic: &CollectiveTraffic,
    map: &HostMap,
) -> Checked {
    check_bytes(&format!("{key}.bytes"), traffic.bytes)?;
    if let Some(ranks) = traffic.ranks {
        let hosts = map.count();
        require(
            usize::from(ranks) <= hosts,
            &format!("{key}.ranks = {ranks}"),
            || format!("there are {hosts} hosts"),
        )?;
    }
    let collective = Collective::new(operation, traffic.settings(map.count()));
    let collective = collective.map_err(|error| Problem {
        key: key.to_owned(),
        problem: error.to_string(),
    })?;
    let iterations = f64::from(traffic.iterations);
    in_range(&format!("{key}.iterations"), iterations, 1.0, 1e6)?;
    let messages = u64::from(traffic.iterations) * collective.transfers();
    require(
        messages <= u64::from(MAX_MESSAGES),
        &format!("{key}.iterations = {}", traffic.iterations),
        || format!("{messages} transfers are more than {MAX_MESSAGES}"),
    )?;
    in_range(&format!("{key}.compute_us"), traffic.compute_us, 0.0, 1e8)?;
    let pauses = traffic.compute_us * iterations;
    in_range(&format!("{key}.compute_us * iterations"), pauses, 0.0, 1e8)?;
    in_range(&format!("{key}.at_us"), traffic.at_us, 0.0, 1e12)?;
    check_priority(key, traffic.priority)
}

/// Checks a list of flows against the hosts that there are. Returns its largest flow.
pub(super) fn check_list(
    experiment: &Experiment,
    index: usize,
    traffic: &Traffic,
) -> Result<u64, Problem> {
    let Traffic::List {
        file,
        priority,
        from_us,
        ..
    } = traffic
    else {
        return Ok(0);
    };
    let problem = |problem: String| Problem {
        key: format!("traffic[{index}].file = {file:?}"),
        problem,
    };
    let hosts = experiment.hosts.count() as u32;
    let mut largest = 0;
    let list = &experiment.lists[&index];
    for (number, flow) in list.flows.iter().enumerate() {
        // The line is what an editor goes to.
        let wrong = |what: String| {
            let line = list.line(number).unwrap_or_default();
            problem(format!("line {line}, flow {number}: {what}"))
        };
        if let Some(host) = [flow.from, flow.to].into_iter().find(|it| *it >= hosts) {
            return Err(wrong(format!(
                "there is no host {host}; there are {hosts}, numbered from 0"
            )));
        }
        if flow.bytes > MAX_MESSAGE_BYTES {
            return Err(wrong(format!(
                "{} bytes are more than {MAX_MESSAGE_BYTES}",
                flow.bytes
            )));
        }
        if u16::from(*priority) + u16::from(flow.priority) >= u16::from(PRIORITIES) {
            return Err(wrong(format!(
                "there are {PRIORITIES} priorities, numbered from 0"
            )));
        }
        largest = largest.max(flow.bytes);
    }
    let last_us = list.flows.iter().map(|it| it.start_ns).max();
    let last_us = last_us.unwrap_or(0) as f64 / 1e3;
    if last_us < *from_us {
        return Err(problem(format!(
            "no flow begins at from_us = {from_us} or later; the last one begins at {last_us} us"
        )));
    }
    Ok(largest)
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
        Sizes::File(it) => {
            let unit = f64::from(it.unit_bytes);
            in_range(&format!("{key}.sizes.unit_bytes"), unit, 1.0, 65_536.0)
        }
    }
}

fn check_hosts(key: &str, hosts: TrafficPattern, map: &HostMap) -> Checked {
    let leaves = map.rack_count() as u16;
    let count = host_count(map);
    match hosts {
        TrafficPattern::Split { senders } => require(
            senders > 0 && senders < count,
            &format!("{key}.hosts.senders = {senders}"),
            || format!("of {count} hosts at least one must send and one receive"),
        ),
        TrafficPattern::Leaves { from, to } => {
            below(&format!("{key}.hosts.from"), from, leaves, "leaves")?;
            below(&format!("{key}.hosts.to"), to, leaves, "leaves")?;
            require(
                from != to || map.rack(from).len() > 1,
                &format!("{key}.hosts"),
                || "a host does not send to itself, and its leaf has no other".to_owned(),
            )
        }
        TrafficPattern::All => require(count > 1, &format!("{key}.hosts"), || {
            "there is one host, and no receiver".to_owned()
        }),
        TrafficPattern::OtherLeaves => require(leaves > 1, &format!("{key}.hosts"), || {
            "there is one leaf, and no receiver at another".to_owned()
        }),
    }
}

fn check_bytes(key: &str, bytes: u64) -> Checked {
    in_range(key, bytes as f64, 1.0, MAX_MESSAGE_BYTES as f64)
}

fn host_count(map: &HostMap) -> u16 {
    // Hosts have ports, which have 16 bits.
    map.count() as u16
}
