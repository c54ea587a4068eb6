//! Peers that send to one server at the same time.

use std::time::Duration;

use anyhow::Result;
use flow_report::Summary;
use serde::Serialize;

use crate::crowd::Crowd;

/// Times that all send.
const ROUNDS: u32 = 5;
/// Between two of them.
const PAUSE: Duration = Duration::from_secs(1);

/// What a server takes for messages that come at the same time, and how long they take.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AtOnce {
    pub(crate) senders: u32,
    /// Of all rounds.
    pub(crate) messages: u32,
    pub(crate) failed: u32,
    /// From when all begin to each sender's receipt.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Processor time of the server.
    pub(crate) cpu_us_per_message: f64,
    /// Of the server's process, after the last round.
    pub(crate) memory_bytes: u64,
}

impl AtOnce {
    /// Has so many peers send a message each, some times.
    pub(crate) fn measure(senders: u32) -> Result<Self> {
        let mut crowd = Crowd::gather(senders, None)?;
        let before = crowd.server.usage()?;
        let mut times_ms = Vec::new();
        let mut failed = 0;
        for _ in 0..ROUNDS {
            std::thread::sleep(PAUSE);
            let round = crowd.send_at_once()?;
            failed += round.iter().filter(|it| it.is_none()).count() as u32;
            times_ms.extend(round.into_iter().flatten().map(|it| it.as_secs_f64() * 1e3));
        }
        let after = crowd.server.usage()?;
        let messages = senders * ROUNDS;
        let times = Summary::new(times_ms);
        Ok(Self {
            senders,
            messages,
            failed,
            p50_ms: times.percentile(50.0),
            p99_ms: times.percentile(99.0),
            max_ms: times.percentile(100.0),
            cpu_us_per_message: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6
                / f64::from(messages),
            memory_bytes: after.memory_bytes,
        })
    }
}
