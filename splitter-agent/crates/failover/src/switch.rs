//! Carries out where the classes are to go, and reports it.

use std::sync::Arc;
use std::time::Duration;

use splitter_config::SiteName;
use splitter_policy::flow::Class;
use splitter_steering::Placement;
use tokio::sync::watch;
use tracing::{Instrument as _, info_span};

use super::announce::moved;
use super::monitored_tunnel::MonitoredTunnel;
use splitter_instance::report::{Move, SharedReport};
use splitter_instance::{Instance, Lock};

/// How soon a move that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Moves the classes of one site.
pub(super) struct Failover<'a> {
    in_force: watch::Receiver<Arc<Instance>>,
    lock: &'a Lock,
    report: SharedReport,
    site: SiteName,
    current: Placement,
    failed: Option<Failure>,
}

struct Failure {
    wanted: Placement,
    problem: String,
    at: Duration,
}

impl<'a> Failover<'a> {
    pub(super) fn new(
        in_force: watch::Receiver<Arc<Instance>>,
        lock: &'a Lock,
        report: SharedReport,
        site: SiteName,
        current: Placement,
    ) -> Self {
        Self {
            in_force,
            lock,
            report,
            site,
            current,
            failed: None,
        }
    }

    /// Sees to it that the classes are where they should be; `monitored` tell why they are moved. True
    /// if something was moved.
    pub(super) async fn settle(
        &mut self,
        wanted: Placement,
        now: Duration,
        monitored: &[MonitoredTunnel],
    ) -> bool {
        if wanted == self.current {
            self.failed = None;
            return false;
        }
        let failed_lately =
            |failure: &Failure| failure.wanted == wanted && now.saturating_sub(failure.at) < RETRY;
        if self.failed.as_ref().is_some_and(failed_lately) {
            return false;
        }
        let place = Instance::place_in_force(&self.in_force, self.lock, &self.site, &wanted);
        let span = info_span!("failover", site = %self.site);
        match place.instrument(span.clone()).await {
            Ok(plan) => {
                let _within = span.enter();
                tracing::debug!("routes changed:\n{plan}");
                let before = std::mem::replace(&mut self.current, wanted);
                self.failed = None;
                for class in Class::ALL {
                    self.log_move(class, &before, monitored);
                }
                true
            }
            Err(error) => {
                let _within = span.enter();
                let problem = format!("cannot move classes: {error}");
                let is_new_problem = self.failed.as_ref().is_none_or(|it| it.problem != problem);
                if is_new_problem {
                    tracing::error!(
                        event = "failover_failed",
                        "{problem}; trying again every second"
                    );
                }
                self.failed = Some(Failure {
                    wanted,
                    problem,
                    at: now,
                });
                false
            }
        }
    }

    /// Where the classes are.
    pub(super) fn current(&self) -> &Placement {
        &self.current
    }

    /// Why they are not where they should be.
    pub(super) fn problem(&self) -> Option<&str> {
        self.failed.as_ref().map(|failure| &*failure.problem)
    }

    fn log_move(&self, class: Class, before: &Placement, monitored: &[MonitoredTunnel]) {
        if let Some(moved) = moved(&self.site, monitored, class, before, &self.current) {
            announce_move(moved, &self.report);
        }
    }
}

/// Tells of a move that was made, in the log and in the report.
pub(super) fn announce_move(moved: Move, report: &SharedReport) {
    tracing::warn!(event = "class_moved", "{}", moved.description());
    report.moved(moved);
}
