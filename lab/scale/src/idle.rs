//! Peers that are known and say nothing.

use std::{thread, time::Duration};

use anyhow::Result;
use serde::Serialize;

use crate::crowd::Crowd;

/// How long what peers have said at first goes on to have something done: retransmission, probes.
const SETTLING: Duration = Duration::from_secs(8);
/// Messages of one of the peers, among all the others: a scan over peers would show in their cost.
const MESSAGES: u64 = 5_000;

/// What a server takes for idle peers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Idle {
    pub(crate) peers: u32,
    /// Of the server's process.
    pub(crate) memory_bytes: u64,
    /// Processor time in a second.
    pub(crate) cpu_us_per_s: f64,
    pub(crate) wakeups_per_s: f64,
    /// Processor time of the server for a message of one of these peers.
    pub(crate) cpu_us_per_message: f64,
}

impl Idle {
    /// Watches so many peers for a time; afterwards one of them sends.
    pub(crate) fn measure(
        peers: u32,
        watched: Duration,
        keepalive: Option<Duration>,
    ) -> Result<Self> {
        let mut crowd = Crowd::gather(peers, keepalive)?;
        thread::sleep(SETTLING);
        let before = crowd.server.usage()?;
        thread::sleep(watched);
        let after = crowd.server.usage()?;
        let seconds = watched.as_secs_f64();
        crowd.send_in_a_row(MESSAGES)?;
        let afterwards = crowd.server.usage()?;
        Ok(Self {
            peers,
            memory_bytes: after.memory_bytes,
            cpu_us_per_s: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / seconds,
            wakeups_per_s: after.wakeups.saturating_sub(before.wakeups) as f64 / seconds,
            cpu_us_per_message: afterwards.cpu.saturating_sub(after.cpu).as_secs_f64() * 1e6
                / MESSAGES as f64,
        })
    }
}
