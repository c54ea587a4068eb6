//! Messages of one peer, one after the other.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use crate::{crowd::Crowd, process::Usage, tell};

/// What both ends have taken when so many messages were delivered.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InARow {
    /// Since the start.
    pub(crate) messages: u64,
    /// Since the row before, as the times below.
    pub(crate) messages_per_s: f64,
    pub(crate) server_cpu_us_per_message: f64,
    pub(crate) client_cpu_us_per_message: f64,
    pub(crate) server_memory_bytes: u64,
    pub(crate) client_memory_bytes: u64,
}

impl InARow {
    /// Delivers so many messages, and looks after a hundredth of them, a tenth, half and all.
    pub(crate) fn measure(messages: u64) -> Result<Vec<Self>> {
        let mut crowd = Crowd::gather(1, None)?;
        let mut rows = Vec::new();
        let mut delivered = 0;
        let mut before = (crowd.server.usage()?, crowd.client_usage()?);
        for until in [messages / 100, messages / 10, messages / 2, messages] {
            tell(&format!("{until} messages in a row"));
            let began = Instant::now();
            let count = until - delivered;
            crowd.send_in_a_row(count)?;
            let took = began.elapsed().as_secs_f64();
            let after = (crowd.server.usage()?, crowd.client_usage()?);
            let each = |after: Usage, before: Usage| {
                after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / count as f64
            };
            rows.push(Self {
                messages: until,
                messages_per_s: count as f64 / took,
                server_cpu_us_per_message: each(after.0, before.0),
                client_cpu_us_per_message: each(after.1, before.1),
                server_memory_bytes: after.0.memory_bytes,
                client_memory_bytes: after.1.memory_bytes,
            });
            (delivered, before) = (until, after);
        }
        Ok(rows)
    }
}
