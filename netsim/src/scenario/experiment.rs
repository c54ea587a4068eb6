//! Experiments: scenarios that can run.

use super::{CloudburstMode, CongestionControl, Scenario, StartMachine, TransportSettings};
use crate::size_distribution::SizeDistribution;

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
        Scenario {
            schemes: Default::default(),
            balance: self.scenario.balance.resolved(),
            ..self.scenario.clone()
        }
    }
}
