//! How large an instance's flow tables are to be, and their growth while it runs.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use splitter_config::Config;
use splitter_datapath::flows::FlowTotals;
use splitter_datapath::{Dataplane, TableSizes, TableSizing, UsableMemory};

use crate::loaded::Loaded;
use crate::{Instance, InstanceError};

/// Sizes that the next plan is to have because a table is full, shared by all that a running agent plans with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Growth(Arc<Mutex<Option<TableSizes>>>);

impl Growth {
    fn set(&self, to: Option<TableSizes>) {
        // A panic elsewhere does not make plain numbers wrong.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    fn get(&self) -> Option<TableSizes> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Instance {
    /// The larger flow tables to have, where one of those of `dataplane` is as good as full with so many
    /// entries, and is left to grow.
    ///
    /// # Errors
    /// When the kernel's settings cannot be read.
    pub fn larger_tables(
        &self,
        dataplane: &Dataplane,
        entries: &FlowTotals,
    ) -> Result<Option<TableSizes>, InstanceError> {
        let loaded = dataplane.table_sizes()?;
        Ok(sizing(&self.config).grown(loaded, |family| entries.entries(family)))
    }

    /// Has the next plan have flow tables of these sizes, where none are stated; or, with none, of those
    /// that are loaded.
    pub fn grow_tables(&self, to: Option<TableSizes>) {
        self.growth.set(to);
    }

    pub(crate) fn table_sizes(&self, loaded: &Loaded) -> Result<TableSizes, InstanceError> {
        let present = match loaded {
            Loaded::Nothing => None,
            Loaded::Current(dataplane) => Some(dataplane.table_sizes()?),
            Loaded::OtherBuild { .. } => Dataplane::pinned_table_sizes(&self.pins),
        };
        Ok(sizing(&self.config).wanted(self.growth.get().or(present)))
    }
}

/// Decides on the sizes of the flow tables of a configuration on this machine, for this process.
#[must_use]
pub fn sizing(config: &Config) -> TableSizing {
    TableSizing::new(&config.flows, UsableMemory::read())
}

/// Refuses a NUMA node that this machine does not have.
///
/// # Errors
/// [`InstanceError::NoSuchNumaNode`].
pub(crate) fn check_numa_node(config: &Config) -> Result<(), InstanceError> {
    match config.flows.table_numa_node.number() {
        Some(wanted) => check_node_in(Path::new("/sys/devices/system/node"), wanted),
        None => Ok(()),
    }
}

/// A kernel without NUMA has no such directory, and takes 0.
fn check_node_in(nodes: &Path, wanted: u32) -> Result<(), InstanceError> {
    let online = fs::read_to_string(nodes.join("online"));
    let present = online.map_or_else(|_| "0".to_owned(), |it| it.trim().to_owned());
    let is_among = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let ends = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
        ends.is_some_and(|(first, last)| (first..=last).contains(&wanted))
    };
    match present.split(',').any(is_among) {
        true => Ok(()),
        false => Err(InstanceError::NoSuchNumaNode { wanted, present }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_online_are_taken_and_others_named() {
        let nodes = tempfile::tempdir().unwrap();
        let check = |node| check_node_in(nodes.path(), node);
        assert!(check(0).is_ok() && check(1).is_err());
        fs::write(nodes.path().join("online"), "0-1,4\n").unwrap();
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|node| check(node).is_ok()),
            [true, true, false, false, true, false]
        );
        let refused = check(3).unwrap_err().to_string();
        assert_eq!(
            refused,
            "flows.table_numa_node = 3: this machine has no such NUMA node, but 0-1,4; give one of these, \
             or \"any\""
        );
    }
}
