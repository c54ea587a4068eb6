//! Workloads of the large fabric.

use super::Effort;

/// A workload of the paper.
pub(super) struct Workload {
    /// Name that the paper gives it.
    pub(super) name: &'static str,
    pub(super) scenario: &'static str,
    /// Name of the runs.
    pub(super) runs: &'static str,
    /// Another distribution of sizes than the scenario's.
    pub(super) sizes: Option<&'static str>,
    /// Percent of [`Effort::large_flows`]. The larger flows are on average, the longer a run of so
    /// many takes, and the fewer are short.
    flows_percent: u32,
    /// It has flows above 1 MB.
    pub(super) has_large: bool,
}

/// Those of the scenarios, whose distributions are the public ones of that name, and then those that add up to the
/// paper's Table 1: the paper prints that table and names the workloads, and the two contradict each other (A-T13).
pub(super) const WORKLOADS: [Workload; 8] = [
    Workload {
        name: "Data Mining",
        scenario: "tr-large-data-mining",
        runs: "large-data-mining",
        sizes: None,
        flows_percent: 40,
        has_large: true,
    },
    Workload {
        name: "Web Search",
        scenario: "tr-large",
        runs: "large-web-search",
        sizes: None,
        flows_percent: 100,
        has_large: true,
    },
    Workload {
        name: "Cache Follower",
        scenario: "tr-large-cache-follower",
        runs: "large-cache-follower",
        sizes: None,
        flows_percent: 150,
        has_large: true,
    },
    Workload {
        name: "Web Server",
        scenario: "tr-large-web-server",
        runs: "large-web-server",
        sizes: None,
        flows_percent: 400,
        has_large: false,
    },
    Workload {
        name: "Data Mining, Table 1",
        scenario: "tr-large-data-mining",
        runs: "large-data-mining-table-1",
        sizes: Some("data_mining_tr_table1"),
        flows_percent: 40,
        has_large: true,
    },
    Workload {
        name: "Web Search, Table 1",
        scenario: "tr-large",
        runs: "large-web-search-table-1",
        sizes: Some("web_search_tr_table1"),
        flows_percent: 100,
        has_large: true,
    },
    Workload {
        name: "Cache Follower, Table 1",
        scenario: "tr-large-cache-follower",
        runs: "large-cache-follower-table-1",
        sizes: Some("cache_follower_tr_table1"),
        flows_percent: 150,
        has_large: true,
    },
    Workload {
        name: "Web Server, Table 1",
        scenario: "tr-large-web-server",
        runs: "large-web-server-table-1",
        sizes: Some("web_server_tr_table1"),
        flows_percent: 400,
        has_large: false,
    },
];

impl Workload {
    /// A scheme under this workload, as changes to the scenario.
    pub(super) fn changes(&self, scheme: &str) -> String {
        let sizes = self.sizes.map(|it| format!("\ntraffic.0.sizes = \"{it}\""));
        format!("balance.policy = \"{scheme}\"{}", sizes.unwrap_or_default())
    }

    pub(super) fn flows(&self, effort: &Effort) -> u32 {
        (effort.large_flows * self.flows_percent / 100).max(1)
    }
}
