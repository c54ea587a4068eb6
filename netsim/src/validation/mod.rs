//! Validation: makes an [`Experiment`] of a scenario's text, or says which key is wrong, and why.
//!
//! Some of it takes the fabric as it is drawn and the workload, so it stands above both.

mod fabric;
mod outage;
mod port;
mod traffic;
mod transport;

use self::{
    fabric::check_fabric,
    outage::check_outages,
    port::{check_credit_queue, check_port},
    traffic::{MAX_MESSAGES, check_list, check_traffic},
    transport::{check_length, check_transport},
};
use crate::{
    engine::{event_queue::HORIZON_NS, packet::PRIORITIES},
    fabric::{Network, outage::Outages},
    scenario::{
        BalanceSettings, BalancingPolicy, CongestionControl, Experiment, FarKnowledge, HostMap,
        Overrides, Scenario, ScenarioError, Sizes, Source, Traffic, TransportSettings,
    },
    workload::{Workload, messages_per_second},
};

/// A key and what is wrong with it.
#[derive(Debug)]
struct Problem {
    key: String,
    problem: String,
}

type Checked = Result<(), Problem>;

impl Source {
    /// Reads and checks the scenario, with what goes before the file.
    ///
    /// # Errors
    /// When something in it is wrong, with the key.
    pub fn experiment(&self, overrides: &Overrides) -> Result<Experiment, ScenarioError> {
        let scenario = self.with_overrides(overrides)?;
        let problem = |key: String, problem: String| ScenarioError::Value {
            file: self.file.clone(),
            key,
            problem,
        };
        let distributions = self.distributions(&scenario)?;
        check_network(&scenario).map_err(|it| problem(it.key, it.problem))?;
        let graph = self.graph(&scenario)?;
        let hosts = match (&graph, &scenario.fabric) {
            (Some(graph), _) => HostMap::of_graph(graph),
            (None, Some(fabric)) => HostMap::of_fabric(fabric),
            (None, None) => HostMap::default(),
        };
        check(&scenario, &hosts).map_err(|it| problem(it.key, it.problem))?;
        let lists = self.lists(&scenario)?;
        let files = self.fingerprints(&scenario);
        let experiment = Experiment {
            name: self.name.clone(),
            scheme: overrides.scheme.clone(),
            seed: scenario.seed,
            scenario,
            graph,
            hosts,
            lists,
            files,
            distributions,
            paper_machine: self.paper_machine,
        };
        if experiment.needs_paper_machine() && self.paper_machine.is_none() {
            return Err(problem(
                "transport.cloudburst.mode = \"paper\"".to_owned(),
                "the paper's machine is not part of netsim; `cargo xtask reproduce` runs it, or set mode = \"native\"".to_owned(),
            ));
        }
        check_experiment(&experiment).map_err(|it| problem(it.key, it.problem))?;
        Ok(experiment)
    }
}

/// Checks that there is one network, and no more of a topology than it has.
fn check_network(scenario: &Scenario) -> Checked {
    match (&scenario.fabric, &scenario.topology) {
        (Some(fabric), None) => {
            check_fabric(fabric)?;
            check_outages(fabric)
        }
        (None, Some(_)) => check_topology(scenario),
        (None, None) => require(false, "fabric", || {
            "there is no network; add a table [fabric] or [topology]".to_owned()
        }),
        (Some(_), Some(_)) => require(false, "topology", || {
            "there is a table [fabric] too; a scenario has one of them".to_owned()
        }),
    }
}

/// Checks what needs leaves and spines.
fn check_topology(scenario: &Scenario) -> Checked {
    let transports = [
        Some(&scenario.transport),
        scenario.background_transport.as_ref(),
    ];
    for transport in transports.into_iter().flatten() {
        let is_cloudburst = transport.control == CongestionControl::Cloudburst;
        require(!is_cloudburst, "transport.control = \"cloudburst\"", || {
            "its endpoints name their paths by spines; take a [fabric]".to_owned()
        })?;
        let has_credits = transport.control == CongestionControl::ExpressPass;
        require(!has_credits, "transport.control = \"expresspass\"", || {
            "data take the way of their credits back, for which there are leaves and spines; take a [fabric]".to_owned()
        })?;
    }
    let far = match scenario.balance.tr.far {
        FarKnowledge::Acks => return Ok(()),
        FarKnowledge::Exact => "exact",
        FarKnowledge::Nothing => "nothing",
    };
    require(false, &format!("balance.tr.far = \"{far}\""), || {
        "behind a next hop there are several paths; take \"acks\", or a [fabric]".to_owned()
    })
}

/// Checks what the file alone can tell.
fn check(scenario: &Scenario, hosts: &HostMap) -> Checked {
    check_balance(&scenario.balance)?;
    check_transport("transport", &scenario.transport)?;
    if let Some(transport) = &scenario.background_transport {
        check_transport("background_transport", transport)?;
        let is_cloudburst = transport.control == CongestionControl::Cloudburst;
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
    check_credits(scenario)?;
    if let Some(until) = scenario.until_ms {
        let most = HORIZON_NS as f64 / 1e6;
        in_range("until_ms", until, 1e-6, most)?;
    }
    in_range("warm_up_ms", scenario.warm_up_ms, 0.0, 1e5)?;
    let has_iterations = scenario.traffic.iter().any(|it| it.collective().is_some());
    require(
        scenario.warm_up_ms == 0.0 || !has_iterations,
        "warm_up_ms",
        || {
            "collective operations are measured by iterations, each as it is; leave it out"
                .to_owned()
        },
    )?;
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
        check_traffic(&format!("traffic[{index}]"), traffic, hosts)?;
    }
    Ok(())
}

/// Checks what flows with credits take of ports and leaves.
fn check_credits(scenario: &Scenario) -> Checked {
    let own = scenario.background_transport.as_ref();
    for transport in [Some(&scenario.transport), own].into_iter().flatten() {
        if transport.control != CongestionControl::ExpressPass {
            continue;
        }
        check_credit_queue("port", &scenario.port, transport)?;
        if let Some(port) = &scenario.host_port {
            check_credit_queue("host_port", port, transport)?;
        }
        require(
            scenario.balance.policy == BalancingPolicy::Ecmp,
            "balance.policy",
            || {
                "data take the way of their credits back, which no policy but `ecmp` sees to"
                    .to_owned()
            },
        )?;
    }
    Ok(())
}

/// Checks what takes the fabric and the workload as they are drawn.
fn check_experiment(experiment: &Experiment) -> Checked {
    let scenario = &experiment.scenario;
    let mut network = Network::new(experiment, None);
    Outages::new(scenario.fabric.as_ref(), &network).end_all(&mut network);
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
                Sizes::Distribution(_) | Sizes::File(_) => experiment.distributions[index]
                    .as_ref()
                    .map_or(0, |it| it.at(1.0)),
            },
            Traffic::Incast { bytes, .. } | Traffic::Message { bytes, .. } => *bytes,
            Traffic::RingAllReduce(it) | Traffic::TreeAllReduce(it) | Traffic::AllToAll(it) => {
                it.bytes
            }
            Traffic::List { .. } => check_list(experiment, index, traffic)?,
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
        let per_second = messages_per_second(experiment, index, traffic);
        let in_warm_up = scenario.warm_up_ms / 1e3 * per_second;
        in_range(
            &format!("traffic[{index}]: messages in warm_up_ms"),
            in_warm_up,
            0.0,
            f64::from(MAX_MESSAGES),
        )?;
        let seconds = scenario.warm_up_ms / 1e3 + f64::from(*messages) / per_second;
        let most = HORIZON_NS as f64 / 2e9;
        require(
            seconds < most,
            &format!("traffic[{index}].messages = {messages}"),
            || format!("they take {seconds:.0} s to start, and a run ends before {most:.0} s"),
        )?;
    }
    let workload = Workload::new(experiment);
    require(
        scenario.warm_up_ms == 0.0 || workload.measured > 0,
        "warm_up_ms",
        || "no message is due after it, so that there would be no result; take less".to_owned(),
    )?;
    let last = workload.last_ns();
    require(last < HORIZON_NS / 2, "traffic", || {
        format!("a message starts at {last} ns, and a run ends at {HORIZON_NS}")
    })
}

fn check_balance(balance: &BalanceSettings) -> Checked {
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

fn check_priority(key: &str, priority: u8) -> Checked {
    below(
        &format!("{key}.priority"),
        priority.into(),
        PRIORITIES.into(),
        "priorities",
    )
}

fn below(key: &str, value: u16, count: u16, what: &str) -> Checked {
    require(value < count, &format!("{key} = {value}"), || {
        format!("there are {count} {what}, numbered from 0")
    })
}

fn in_range(key: &str, value: f64, least: f64, most: f64) -> Checked {
    require(
        (least..=most).contains(&value),
        &format!("{key} = {value}"),
        || format!("it must lie between {least} and {most}"),
    )
}

fn require(holds: bool, key: &str, problem: impl FnOnce() -> String) -> Checked {
    if holds {
        return Ok(());
    }
    Err(Problem {
        key: key.to_owned(),
        problem: problem(),
    })
}

fn full_packet(transport: &TransportSettings) -> u32 {
    u32::from(transport.mss_bytes) + u32::from(transport.header_bytes)
}
