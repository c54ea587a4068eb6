//! Keys of `[topology]`: networks that are not leaf-spine.

use std::path::Path;

use flow_topology::{FatTree, Routes, Topology, TopologyError};
use serde::{Deserialize, Serialize};

/// A topology in the place of a leaf-spine fabric: one of a fat tree and a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologySettings {
    /// A fat tree of three tiers.
    #[serde(default)]
    pub fat_tree: Option<FatTree>,
    /// A file in the scenario's directory with switches, hosts and links.
    #[serde(default)]
    pub file: Option<String>,
}

/// A topology with its shortest paths.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) topology: Topology,
    pub(crate) routes: Routes,
}

impl TopologySettings {
    /// Reads or makes the topology; neither or both of the keys is no topology.
    pub(super) fn graph(&self, directory: &Path) -> Result<Graph, TopologyProblem> {
        let topology = match (&self.fat_tree, &self.file) {
            (Some(tree), None) => tree.topology(),
            (None, Some(file)) => Topology::read(&directory.join(file)),
            _ => return Err(TopologyProblem::NotOne),
        };
        let topology = topology.map_err(TopologyProblem::Wrong)?;
        let routes = Routes::new(&topology).map_err(TopologyProblem::Wrong)?;
        Ok(Graph { topology, routes })
    }

    /// Key of the topology, for messages.
    pub(super) fn key(&self) -> String {
        match &self.file {
            Some(file) => format!("topology.file = {file:?}"),
            None => "topology.fat_tree".to_owned(),
        }
    }
}

/// Why there is no topology.
#[derive(Debug)]
pub(super) enum TopologyProblem {
    NotOne,
    Wrong(TopologyError),
}
