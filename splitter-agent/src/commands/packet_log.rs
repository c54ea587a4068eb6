//! Forwards what the kernel program logs to the agent's own log.

use std::time::Duration;

use anyhow::{Context as _, Result};
use aya_log::EbpfLogger;
use splitter_config::{Config, PacketLog};
use splitter_datapath::Dataplane;
use tokio::task::JoinHandle;

/// How often the kernel's log is emptied; it holds 128 KiB.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

/// Ends the forwarding when it is dropped.
pub(crate) struct Forwarding(JoinHandle<()>);

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts to forward, where the configuration asks for it.
pub(crate) fn forward(config: &Config, dataplane: &Dataplane) -> Result<Option<Forwarding>> {
    if config.log.packets == PacketLog::Off {
        return Ok(None);
    }
    let mut logger = EbpfLogger::init_from_id_with_logger(dataplane.program_id()?, Tracing)
        .context("cannot read the kernel program's log, for which CAP_SYS_ADMIN is needed besides; run as root, or set log.packets to \"off\"")?;
    Ok(Some(Forwarding(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(FLUSH_INTERVAL);
        loop {
            ticks.tick().await;
            logger.flush();
        }
    }))))
}

/// Hands records to `tracing`, whose subscriber prints everything else as well.
struct Tracing;

impl log::Log for Tracing {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // The kernel has filtered by level already.
        tracing::info!(event = "packet", "packet: {}", record.args());
    }

    fn flush(&self) {}
}
