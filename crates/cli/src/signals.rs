//! The signals that end a command.

use anyhow::Context as _;

/// A listener for the signals that ask the process to end: Ctrl-C, SIGTERM and SIGHUP.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    /// Listens for signals; from now on they do not end the process by themselves. Needs a tokio
    /// runtime with I/O.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn listen() -> anyhow::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let listen = |kind| signal(kind).context("cannot listen for signals");
            Ok(Self {
                terminate: listen(SignalKind::terminate())?,
                interrupt: listen(SignalKind::interrupt())?,
                hang_up: listen(SignalKind::hangup())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for a signal, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.terminate.recv() => "SIGTERM",
            // The terminal is gone, and with it the user who would have pressed Ctrl-C.
            _ = self.hang_up.recv() => "SIGHUP",
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
            "Ctrl-C"
        }
    }
}
