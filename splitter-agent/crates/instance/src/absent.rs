//! Interfaces that are not there: an agent that runs takes what there is and waits for the rest;
//! whoever brings an instance up by hand, or changes one, has misspelt a name.

use std::collections::BTreeSet;

use splitter_config::Config;
use splitter_netlink::{InterfaceName, Interfaces, NoSuchInterface};

use crate::{Instance, InstanceError, State};
use splitter_steering::Placements;

/// Which interfaces of a configuration have to be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Needed {
    /// All those of the site, and the tunnels that carry a class.
    #[default]
    All,
    /// Those that the earlier configuration does not name: they have never been seen.
    Beyond(BTreeSet<InterfaceName>),
    /// None: each may come later.
    None,
}

impl Instance {
    /// Goes by the interfaces that there are: those of the site that are absent are left out of plans,
    /// named in them, and attached by a later one.
    #[must_use]
    pub fn with_what_is_there(self) -> Self {
        Self {
            needed: Needed::None,
            ..self
        }
    }

    /// Returns where an earlier agent has left the classes of every site: their own tunnels where
    /// the instance is not up, whatever a crash has left.
    ///
    /// # Errors
    /// When the state file cannot be read.
    pub fn placements_left(&self) -> Result<Placements, InstanceError> {
        let state = State::read(&self.config.instance_dir())?;
        let placed = state.as_ref().filter(|_| self.pins.exist());
        Ok(self.placements_with(placed))
    }

    /// Has the next plan put the classes there, instead of where they were left.
    pub fn start_with(&self, placements: Placements) {
        *self.placed() = Some(placements);
    }

    /// The interfaces of the site that may be absent, and are.
    ///
    /// # Errors
    /// With the first one that has to be there and is not: it names those that are.
    pub(crate) fn absent(
        &self,
        interfaces: &Interfaces,
    ) -> Result<Vec<InterfaceName>, NoSuchInterface> {
        let mut absent = Vec::new();
        for name in &self.config.lan {
            if let Err(error) = interfaces.named(name) {
                match self.needed.has(name, true) {
                    true => return Err(error),
                    false => absent.push(name.clone()),
                }
            }
        }
        // A shadow routes nothing.
        for (_, tunnel) in self.config.tunnels().filter(|_| !self.config.shadow) {
            if self.needed.has(&tunnel.device, false) {
                interfaces.named(&tunnel.device)?;
            }
        }
        Ok(absent)
    }
}

impl Needed {
    /// What has to be there of a configuration that takes the place of this one.
    pub(crate) fn after(config: &Config) -> Self {
        let tunnels = config.tunnels().map(|(_, tunnel)| &tunnel.device);
        Self::Beyond(config.lan.iter().chain(tunnels).cloned().collect())
    }

    /// Whether an interface has to be there. Of tunnels, routes need those alone that carry a class.
    fn has(&self, name: &InterfaceName, is_of_site: bool) -> bool {
        match self {
            Self::All => is_of_site,
            Self::Beyond(known) => !known.contains(name),
            Self::None => false,
        }
    }
}
