//! Scenarios: the keys of their files, and those that are built in.
//!
//! Data alone. The module `validation` makes an [`Experiment`] of it.

mod balance;
mod cloudburst;
mod embedded;
mod error;
mod experiment;
mod expresspass;
mod fabric;
mod fingerprint;
mod host_map;
mod outage;
mod port;
mod source;
mod topology;
mod traffic;
mod transport;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    balance::*,
    cloudburst::*,
    embedded::{Embedded, embedded},
    error::ScenarioError,
    experiment::Experiment,
    expresspass::*,
    fabric::*,
    outage::Outage,
    port::*,
    source::{Overrides, Source, StartMachine},
    topology::TopologySettings,
    traffic::*,
    transport::*,
};
pub(crate) use self::{host_map::HostMap, topology::Graph};

/// A scenario: fabric, queues, balancing, transport and traffic.
///
/// Every field is a key of the file, under the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Purpose of the scenario, in a sentence.
    pub about: String,
    /// Seed of the random numbers; `--seed` goes before it.
    #[serde(default = "one")]
    pub seed: u64,
    /// End of the run, in simulated milliseconds, whatever is still in flight. Without it the run
    /// ends when all messages have arrived.
    #[serde(default)]
    pub until_ms: Option<f64>,
    /// Messages that are due in the first so many milliseconds are sent, but are in no result; Poisson traffic has its
    /// `messages` after them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm_up_ms: f64,
    /// Size classes that completion times are reported for: the largest of each but the last, in
    /// bytes.
    #[serde(default = "classes")]
    pub classes_bytes: Vec<u64>,
    /// Leaves, spines, hosts and links. This or `topology`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricSettings>,
    /// Another topology than leaf-spine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologySettings>,
    /// How switches choose among paths.
    #[serde(default)]
    pub balance: BalanceSettings,
    /// Ports of leaves and spines.
    #[serde(default)]
    pub port: PortSettings,
    /// Ports of hosts; without it as those of switches.
    #[serde(default)]
    pub host_port: Option<PortSettings>,
    /// Senders and receivers of messages.
    #[serde(default)]
    pub transport: TransportSettings,
    /// Senders and receivers of background traffic; without it as those of the rest.
    #[serde(default)]
    pub background_transport: Option<TransportSettings>,
    /// Messages that hosts send.
    pub traffic: Vec<Traffic>,
    /// Named changes to the keys above, to be compared: `--scheme NAME` lays one over the rest of
    /// the file.
    #[serde(default, skip_serializing)]
    pub schemes: BTreeMap<String, toml::Table>,
}

impl Scenario {
    /// From when on messages are in the results, in ns.
    pub(crate) fn warm_up_ns(&self) -> u64 {
        (self.warm_up_ms * 1e6) as u64
    }

    /// Names of the files that it is made of besides its own, distributions of sizes aside.
    pub(crate) fn files(&self) -> Vec<&str> {
        let topology = self.topology.as_ref().and_then(|it| it.file.as_deref());
        let lists = self.traffic.iter().filter_map(|it| match it {
            Traffic::List { file, .. }
            | Traffic::Poisson {
                sizes: Sizes::File(SizeFile { file, .. }),
                ..
            } => Some(&**file),
            _ => None,
        });
        topology.into_iter().chain(lists).collect()
    }

    /// All settings, defaults included, without the schemes that were not taken.
    pub(crate) fn settings(&self) -> Self {
        Self {
            schemes: BTreeMap::default(),
            balance: self.balance.resolved(),
            ..self.clone()
        }
    }
}

/// TR's, section Large-scale evaluation.
fn classes() -> Vec<u64> {
    vec![100_000, 1_000_000]
}

fn one() -> u64 {
    1
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}
