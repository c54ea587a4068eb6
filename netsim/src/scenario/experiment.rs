//! Experiments: scenarios that can run.

use std::{collections::BTreeMap, sync::Arc};

use flow_workload::{FlowList, SizeDistribution, distribution_names};

use super::{
    CloudburstMode, CongestionControl, Graph, HostMap, Scenario, Sizes, StartMachine, Traffic,
    TransportSettings,
};

/// A scenario that has been read and checked, with one scheme and one seed: it can run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name of the scenario: that of the file, without its ending.
    pub name: String,
    /// The scheme that was laid over the file.
    pub scheme: Option<String>,
    /// Seed of the random numbers.
    pub seed: u64,
    pub(crate) scenario: Scenario,
    /// The topology, if it is not leaf-spine.
    pub(crate) graph: Option<Arc<Graph>>,
    pub(crate) hosts: HostMap,
    /// Fingerprints of the files that the scenario names.
    pub(crate) files: BTreeMap<String, String>,
    /// Lists of flows, by index of the traffic.
    pub(crate) lists: BTreeMap<usize, Arc<FlowList>>,
    /// Sizes of messages, for each traffic that has a distribution.
    pub(crate) distributions: Vec<Option<SizeDistribution>>,
    /// Machine of hosts in mode `paper`, if there is one.
    pub(crate) paper_machine: Option<StartMachine>,
}

impl Experiment {
    /// Returns the transport of background traffic, or of the rest.
    pub(crate) fn transport(&self, background: bool) -> &TransportSettings {
        let own = self.scenario.background_transport.as_ref();
        own.filter(|_| background)
            .unwrap_or(&self.scenario.transport)
    }

    /// Returns whether hosts run the paper's machine, which has to be given.
    pub(crate) fn needs_paper_machine(&self) -> bool {
        let transport = &self.scenario.transport;
        transport.control == CongestionControl::Cloudburst
            && transport.cloudburst.mode == CloudburstMode::Paper
    }

    /// All settings, defaults included, without the schemes that were not taken.
    pub fn settings(&self) -> Scenario {
        self.scenario.settings()
    }

    /// Adds the distributions that are not built in, by name.
    pub(crate) fn add_sizes(&self, sizes: &mut BTreeMap<String, Vec<(f64, f64)>>) {
        for (traffic, distribution) in self.scenario.traffic.iter().zip(&self.distributions) {
            if let (
                Traffic::Poisson {
                    sizes: Sizes::Distribution(name),
                    ..
                },
                Some(distribution),
            ) = (traffic, distribution)
                && !distribution_names().contains(&name.as_str())
            {
                sizes.insert(name.clone(), distribution.points().to_vec());
            }
        }
    }
}
