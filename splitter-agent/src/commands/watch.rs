//! What the daemon does all the time: keep everything in place, keep the flow
//! table tidy.

use std::sync::Arc;

use flow_cli::describe;
use flow_telemetry::Readiness;
use splitter_agent::agent::Agent;
use splitter_agent::monitor::Monitor;
use splitter_instance::Instance;
use splitter_netlink::list_names;
use tokio::sync::watch;

/// The part of readiness that the reconcile loop speaks for.
const DATAPLANE: &str = "dataplane";

/// Restores what went missing, and says so once.
pub(super) struct Reconciler {
    readiness: Readiness,
    last_problem: String,
}

impl Reconciler {
    pub(super) fn new(readiness: Readiness) -> Self {
        Self {
            readiness,
            last_problem: String::new(),
        }
    }

    pub(super) async fn look(&mut self, agent: &mut Agent) {
        match agent.reconcile().await {
            Ok(absent) => {
                let absent = match list_names(absent) {
                    none if none.is_empty() => None,
                    names => Some(format!("there is no {names}")),
                };
                if !self.last_problem.is_empty() {
                    tracing::info!(event = "reconciled", "everything is in place again");
                    self.last_problem.clear();
                }
                match absent {
                    None => self.readiness.ok(DATAPLANE),
                    Some(words) if agent.splits_nowhere() => self.readiness.fail(DATAPLANE, words),
                    Some(words) => self.readiness.degrade(DATAPLANE, words),
                }
            }
            Err(error) => {
                let problem = describe(&error.into());
                if problem != self.last_problem {
                    tracing::error!(event = "reconcile_failed", %problem, "not everything is in place; trying again every second");
                    self.last_problem.clone_from(&problem);
                }
                self.readiness.fail(DATAPLANE, problem);
            }
        }
    }
}

/// Sweeps the flow table; another interval counts from when it is in force.
pub(super) async fn sweep(
    monitor: &Arc<Monitor>,
    mut in_force: watch::Receiver<Arc<Instance>>,
) -> &'static str {
    loop {
        let pause = in_force.borrow_and_update().config().flows.sweep_interval;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(()) = in_force.changed() => continue,
        }
        let monitor = Arc::clone(monitor);
        // Walking a large table takes a while; the endpoint must answer meanwhile.
        match tokio::task::spawn_blocking(move || monitor.sweep()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(event = "sweep_failed", %error, "cannot sweep the flow table")
            }
            Err(error) => tracing::error!(event = "sweep_failed", %error, "the sweep ended early"),
        }
    }
}
