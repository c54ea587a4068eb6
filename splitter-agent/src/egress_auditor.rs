//! Compares once a second what was marked for the tunnels of each class with what they were really
//! handed.
//!
//! Packets that stray are a state: a log line when it comes and when it goes, a metric, and an
//! objection to readiness.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flow_telemetry::Readiness;
use splitter_instance::report::SharedReport;
use splitter_instance::{EgressAudit, Instance, TunnelEgress};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::monitor::Monitor;

/// How long an interval is.
const INTERVAL: Duration = Duration::from_secs(1);

/// The part of readiness that this speaks for.
const EGRESS: &str = "egress";

/// Holds what had left by each tunnel when it was looked last.
#[derive(Debug, Clone, Default)]
pub struct SharedEgress(Arc<Mutex<Vec<TunnelEgress>>>);

impl SharedEgress {
    /// Returns what had left when it was looked last.
    #[must_use]
    pub fn snapshot(&self) -> Vec<TunnelEgress> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TunnelEgress>> {
        // A panic elsewhere does not make plain numbers wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches whether packets leave by the tunnels that they are meant for.
#[derive(Debug)]
pub struct EgressAuditor {
    monitor: Arc<Monitor>,
    report: SharedReport,
    readiness: Readiness,
    left: SharedEgress,
    audit: EgressAudit,
}

impl EgressAuditor {
    /// Prepares to compare what `monitor` counts. Changes nothing.
    #[must_use]
    pub fn new(monitor: Arc<Monitor>, report: SharedReport, readiness: Readiness) -> Self {
        Self {
            monitor,
            report,
            readiness,
            left: SharedEgress::default(),
            audit: EgressAudit::default(),
        }
    }

    /// Returns what others see of it.
    #[must_use]
    pub fn left(&self) -> SharedEgress {
        self.left.clone()
    }

    /// Looks once, before anybody asks what has left.
    pub async fn begin(&mut self, instance: &Instance) {
        self.look(instance).await;
    }

    /// Compares once a second, for ever.
    pub async fn run(mut self, mut in_force: watch::Receiver<Arc<Instance>>) -> &'static str {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let instance = Arc::clone(&in_force.borrow_and_update());
            // Also of what has come since, or was taken away.
            if let Err(error) = instance.count_egress().await {
                tracing::debug!(%error, "cannot see to it that what leaves is counted");
            }
            self.look(&instance).await;
        }
    }

    async fn look(&mut self, instance: &Instance) {
        let dataplane = self.monitor.dataplane();
        match self.audit.look(instance, &dataplane).await {
            Some(left) => *self.left.lock() = left,
            None => self.audit = EgressAudit::default(),
        }
        let strays = self.audit.strays();
        let problems: Vec<_> = strays.iter().map(|it| it.problem.as_str()).collect();
        match problems.is_empty() {
            true => self.readiness.ok(EGRESS),
            false => self.readiness.fail(EGRESS, problems.join("; ")),
        }
        self.report.set_strays(strays);
    }
}
