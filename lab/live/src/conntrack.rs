//! Room for connections that the kernel tracks, which all namespaces share.

use std::fs;

/// Raises limit and hash table while it lives.
pub(crate) struct Room {
    before: Vec<(&'static str, String)>,
}

/// Connections, and groups of them by hash.
const LIMITS: [&str; 2] = [
    "/proc/sys/net/netfilter/nf_conntrack_max",
    "/proc/sys/net/netfilter/nf_conntrack_buckets",
];

impl Room {
    /// Has so many connections find room, as who has as many would set it. Where the kernel has no
    /// such limit nothing is done.
    pub(crate) fn for_connections(connections: u64) -> Self {
        let raise = |limit: &&'static str| {
            let before = fs::read_to_string(limit).ok()?;
            let is_short = before.trim().parse::<u64>().ok()? < connections;
            let raised = is_short && fs::write(limit, connections.to_string()).is_ok();
            raised.then_some((*limit, before))
        };
        Self {
            before: LIMITS.iter().filter_map(raise).collect(),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        for (limit, before) in &self.before {
            if let Err(error) = fs::write(limit, before.trim()) {
                eprintln!("{limit} was {}, and cannot be set: {error}", before.trim());
            }
        }
    }
}
