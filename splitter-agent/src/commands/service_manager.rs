//! Speaking to the service manager that started the daemon: systemd, or whoever set `NOTIFY_SOCKET`
//! (sd_notify(3)). Without one nothing is said.

use std::time::{Duration, Instant};

use flow_telemetry::Readiness;
use sd_notify::NotifyState;

/// Says what the daemon is doing, and that its main loop goes round.
pub(super) struct ServiceManager {
    readiness: Readiness,
    /// How often the main loop has to be heard of.
    watchdog: Option<Duration>,
    heard: Option<Instant>,
    status: String,
}

impl ServiceManager {
    pub(super) fn new(readiness: Readiness) -> Self {
        Self {
            readiness,
            // Twice as often as it is waited for, as sd_watchdog_enabled(3) advises.
            watchdog: sd_notify::watchdog_enabled().map(|after| after / 2),
            heard: None,
            status: String::new(),
        }
    }

    /// The rules are in place and verified.
    pub(super) fn ready(&mut self) {
        self.goes_round();
        say(&[NotifyState::Ready]);
    }

    /// The main loop has come round. To be said there alone, so that one that is stuck is noticed.
    pub(super) fn goes_round(&mut self) {
        let status = self.readiness.to_string();
        if status != self.status {
            // A line break would begin another message.
            say(&[NotifyState::Status(&status.replace('\n', " "))]);
            self.status = status;
        }
        let is_due = |after: Duration| self.heard.is_none_or(|heard| heard.elapsed() >= after);
        // It comes round once a second.
        if self.watchdog.is_some_and(is_due) {
            say(&[NotifyState::Watchdog]);
            self.heard = Some(Instant::now());
        }
    }

    /// Another configuration is about to be put in force; [`Self::ready`] follows.
    pub(super) fn reloading(&self) {
        // systemd matches the answer to its request by this time.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => say(&[NotifyState::Reloading, now]),
            Err(error) => tracing::debug!(%error, "cannot read the monotonic clock"),
        }
    }

    /// What was set up is being taken back.
    pub(super) fn stopping(&self) {
        say(&[NotifyState::Stopping, NotifyState::Status("ending")]);
    }
}

fn say(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "cannot speak to the service manager");
    }
}
