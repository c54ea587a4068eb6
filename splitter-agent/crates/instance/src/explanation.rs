//! Why a flow goes where it goes, put together from what the kernel and the flow table say.
//!
//! [`explain`] decides and knows neither; who calls it has asked.

use serde::Serialize;
use splitter_config::{Config, SiteName, SteeringMode};
use splitter_datapath::flows::FlowRow;
use splitter_netlink::InterfaceName;
use splitter_policy::config::Unit;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_steering::Placement;
use splitter_steering::routes::{Arrival, Trace};

mod endpoint;

pub use self::endpoint::{Endpoint, EndpointError};

/// Holds all that is known of a flow and of the instance that may split it.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Whether the programs are loaded.
    pub is_up: bool,
    /// The interfaces that packets are split on.
    pub attached: Vec<InterfaceName>,
    /// The site that its destination lies at, where sites are listed.
    pub site: Option<SiteName>,
    /// Where the classes of that site are placed.
    pub placement: Placement,
    /// The threshold that the programs hold it against; none while they are not loaded.
    pub threshold: Option<FlowThreshold>,
    /// By which way packets of the source come; none where no source is named.
    pub arrival: Option<Arrival>,
    /// Flows of the table between these ends, those with the most packets first.
    pub flows: Vec<FlowRow>,
    /// How many there are in all.
    pub flows_matching: u64,
    /// Whether the table has the other direction of the flow.
    pub has_other_direction: bool,
    /// What the kernel does with its packets, for each interface that they may come in by.
    pub traces: Vec<Trace>,
}

/// Why a flow goes where it goes.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The instance.
    pub name: String,
    /// Where the flow comes from; null where it was not said.
    pub source: Option<Endpoint>,
    /// Where it goes.
    pub destination: Endpoint,
    /// The site that it goes to; null where sites are not listed, or it goes to none.
    pub site: Option<SiteName>,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Why, in words.
    pub why: String,
    /// What to do where it is not split.
    pub remedy: Option<String>,
    /// Flows of the table between these ends, those with the most packets first.
    pub flows: Vec<FlowState>,
    /// How many there are in all.
    pub flows_matching: u64,
    /// What the kernel does with packets of each class.
    pub paths: Vec<Trace>,
    /// What would change where it goes, in words.
    pub changes: Vec<String>,
}

/// The threshold that flows to an address go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowThreshold {
    /// Packets or bytes up to which a flow is short.
    pub count: u64,
    /// Which of them it counts.
    pub unit: Unit,
}

/// Tells whether a flow is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Each class leaves by the tunnels that are meant for it.
    Split,
    /// It is not split, whether that is meant or not.
    NotSplit,
    /// It cannot be told.
    Unknown,
}

/// A flow of the table, and what comes next for it.
#[derive(Debug, Clone, Serialize)]
pub struct FlowState {
    /// What the table has.
    #[serde(flatten)]
    pub row: FlowRow,
    /// Where it stands, in words.
    pub state: String,
}

/// Why it goes where it goes: the first reason that stands in the way of being split, or none.
#[must_use]
pub fn explain(
    config: &Config,
    source: Option<Endpoint>,
    destination: Endpoint,
    facts: Facts,
) -> Explanation {
    let judgement = judge(config, source, destination, &facts);
    let changes = match judgement.verdict {
        Verdict::Split => changes(config, &facts),
        _ => Vec::new(),
    };
    let threshold = facts.threshold;
    let state = |row| FlowState {
        state: state(&row, config, threshold),
        row,
    };
    // What the kernel would do is no split as long as nothing is marked.
    let is_split = facts.is_up && !config.shadow;
    let path = |path: Trace| Trace {
        is_split: path.is_split && is_split,
        ..path
    };
    Explanation {
        name: config.name.to_string(),
        source,
        destination,
        site: facts.site,
        verdict: judgement.verdict,
        why: judgement.why,
        remedy: judgement.remedy,
        flows: facts.flows.into_iter().map(state).collect(),
        flows_matching: facts.flows_matching,
        paths: facts.traces.into_iter().map(path).collect(),
        changes,
    }
}

struct Judgement {
    verdict: Verdict,
    why: String,
    remedy: Option<String>,
}

impl Judgement {
    fn not_split(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::NotSplit,
            why: why.into(),
            remedy: Some(remedy.into()),
        }
    }
}

fn judge(
    config: &Config,
    source: Option<Endpoint>,
    destination: Endpoint,
    facts: &Facts,
) -> Judgement {
    if config.shadow {
        return Judgement::not_split(
            "this instance is a shadow: it measures, and neither marks nor routes anything",
            "take `shadow` out of the configuration",
        );
    }
    if !facts.is_up {
        return Judgement::not_split(
            format!("the instance `{}` is down", config.name),
            "bring it up with `splitter run` or `splitter up`",
        );
    }
    // What the table knows has come in by an interface of the site, whatever routes say.
    let from_elsewhere = source.filter(|_| facts.flows.is_empty());
    if let Some(source) = from_elsewhere
        && let Some(judgement) = wrong_side(config, source, destination, facts)
    {
        return judgement;
    }
    let lan = |trace: &Trace| trace.lan.clone();
    let unattached = facts.traces.iter().map(lan);
    if let Some(lan) = { unattached }.find(|it| !facts.attached.contains(it)) {
        return Judgement::not_split(
            format!("no program of this instance is attached to {lan}, so nothing is marked there"),
            "`splitter plan` shows what `splitter up` would mend",
        );
    }
    if let Some(trace) = facts.traces.iter().find(|it| !it.is_split) {
        let classes = classes_that_are_not(&facts.traces);
        let problem = trace
            .problem
            .as_deref()
            .unwrap_or("the kernel does not say why");
        return Judgement {
            verdict: Verdict::NotSplit,
            why: format!("{classes}{problem}"),
            remedy: trace.remedy.clone(),
        };
    }
    if facts.traces.is_empty() {
        return Judgement {
            verdict: Verdict::Unknown,
            why: "the kernel cannot be asked, because no interface of the site has an address of \
                  this family"
                .to_owned(),
            remedy: Some("name the source: `splitter explain SOURCE DESTINATION`".to_owned()),
        };
    }
    let placement = &facts.placement;
    let no_choice = no_choice(&facts.traces);
    let by_class = config.balancers().is_none() || no_choice.is_some();
    if placement.short == placement.long && by_class {
        return Judgement::not_split(
            format!(
                "both classes are in {} now, because a tunnel is dead",
                placement.short
            ),
            "see `splitter status` for the tunnels; the class returns by itself",
        );
    }
    Judgement {
        verdict: Verdict::Split,
        why: match (config.balancers(), no_choice) {
            (Some(_), Some(reason)) => format!(
                "each class leaves by a tunnel that is meant for it; no packet chooses: {reason}"
            ),
            (Some(balancers), None) if balancers.keep_to_classes() => balancers.to_string(),
            (Some(balancers), None) if config.steering.mode == SteeringMode::Redirect => {
                format!("{balancers} among the tunnels that they can be redirected into")
            }
            (Some(balancers), None) => format!("{balancers} among the tunnels that are alive"),
            (None, _) => "each class leaves by a tunnel that is meant for it".to_owned(),
        },
        remedy: None,
    }
}

/// Why no packet chooses, where some would by the configuration.
fn no_choice(traces: &[Trace]) -> Option<&str> {
    match traces.iter().any(|it| it.balance.is_some()) {
        true => None,
        false => traces.iter().find_map(|it| it.no_choice.as_deref()),
    }
}

/// Says that packets of this source are not this border's to split.
fn wrong_side(
    config: &Config,
    source: Endpoint,
    destination: Endpoint,
    facts: &Facts,
) -> Option<Judgement> {
    let lan: Vec<_> = config.lan.iter().map(ToString::to_string).collect();
    let (lan, address) = (lan.join(", "), source.address);
    match facts.arrival.as_ref()? {
        Arrival::Lan(_) | Arrival::Unknown => None,
        Arrival::Own => Some(Judgement::not_split(
            format!("{address} is the border's own address, and what it sends itself is not split"),
            format!("name a source behind {lan}"),
        )),
        Arrival::Tunnel(device) => {
            let known = match facts.has_other_direction {
                true => ", whose flow is in this border's table",
                false => "",
            };
            Some(Judgement::not_split(
                format!(
                    "{address} is behind {device}, a tunnel: the border at its own site splits this \
                     direction, and this one what comes in by {lan}"
                ),
                format!(
                    "ask there, or ask here for the other direction{known}: `splitter explain \
                     {destination} {source}`"
                ),
            ))
        }
        Arrival::Other(device) => Some(Judgement::not_split(
            format!("{address} is behind {device}, and what comes in by {lan} alone is split"),
            format!("add {device} to `lan` if the site is behind it"),
        )),
    }
}

/// Names the classes that are not split where the others are.
fn classes_that_are_not(traces: &[Trace]) -> String {
    let split = |class: Class| {
        let mut of_class = traces.iter().filter(|it| it.class == class.name());
        of_class.all(|it| it.is_split)
    };
    match Class::ALL.map(split) {
        [true, false] => "long flows go elsewhere: ".to_owned(),
        [false, true] => "short flows go elsewhere: ".to_owned(),
        _ => String::new(),
    }
}

/// Where a flow of the table stands.
fn state(row: &FlowRow, config: &Config, threshold: Option<FlowThreshold>) -> String {
    let (class, tunnel) = (row.class, row.tunnel);
    let idle_timeout = config.flows.idle_timeout;
    let balancers = config.balancers();
    // The table notes no tunnel that a packet chose.
    let place = match balancers {
        Some(_) => class.to_owned(),
        None => format!("{class}, in the {tunnel} tunnel"),
    };
    if row.finished {
        return format!("{place}; it has ended (FIN or RST)");
    }
    if row.idle_s >= idle_timeout.as_secs_f64() {
        return format!(
            "{place}; silent for {:.0} s, so its next packet begins a new flow",
            row.idle_s
        );
    }
    if class == Class::Short.name() {
        return match threshold {
            Some(threshold) => format!("{place}; long from {} on", first_long(threshold)),
            None => place,
        };
    }
    if balancers.is_some() || tunnel == TunnelRole::Long.name() || config.is_shared() {
        return place;
    }
    format!(
        "{place} until its packets there have left; {} ms after it became long {}",
        config.handover.max_wait.as_millis(),
        match config.drops_to_drain() {
            true => "it is made to pause for that, by drops",
            false => "it leaves in any case",
        }
    )
}

/// The first packet, or byte, of a flow that is a long one's.
fn first_long(threshold: FlowThreshold) -> String {
    let first = threshold.count.saturating_add(1);
    match threshold.unit == Unit::BYTES {
        true => format!("byte {first}"),
        false => format!("packet {first}"),
    }
}

fn changes(config: &Config, facts: &Facts) -> Vec<String> {
    let mut changes = Vec::new();
    if let Some(threshold) = facts.threshold {
        let site = config
            .sites
            .iter()
            .find(|it| Some(&it.name) == facts.site.as_ref());
        let by = match site.filter(|it| it.threshold.is_some()) {
            Some(site) => format!("the threshold of the site {}", site.name),
            None => "`splitter set threshold N`".to_owned(),
        };
        let first = first_long(threshold);
        changes.push(format!("a flow is long from {first} on ({by})"));
    }
    changes.push(format!(
        "after {} s without a packet it begins anew as a short one (flows.idle_timeout_s)",
        config.flows.idle_timeout.as_secs_f64()
    ));
    if config.is_shared() && config.balancers().is_none() {
        changes.push(
            "the tunnels are shared: a long flow is placed where there is room, and either class \
             may be in either tunnel"
                .to_owned(),
        );
    }
    if config.health.enabled {
        changes.push(
            match config.balancers() {
                Some(_) => "a tunnel that is dead is not chosen (`splitter status`)",
                None => {
                    "where all tunnels of its class are dead, it takes those of the other class \
                     (`splitter status`)"
                }
            }
            .to_owned(),
        );
    }
    if config.steering.mode == SteeringMode::Redirect {
        changes.push(
            match config.balancers() {
                Some(_) => {
                    "packets are put into the device of the tunnel that they choose without the network \
                     stack where that can be done; what opens a connection, is a fragment or is longer than \
                     the smallest tunnel takes chooses none, and takes this route (`splitter status` counts both)"
                }
                None => {
                    "packets are put into the device of this route without the network stack where that \
                     can be done (`splitter status` counts both)"
                }
            }
            .to_owned(),
        );
    }
    changes
}

#[cfg(test)]
mod tests;
