//! What the daemon does all the time: keep everything in place, keep the flow
//! table tidy.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use flow_telemetry::Readiness;
use splitter_agent::instance::{AttachedInterface, Instance, Lock, Owner};
use splitter_agent::monitor::Monitor;
use tokio::time::{MissedTickBehavior, interval};

use super::in_words;

/// How often the flow table is swept and the census taken.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// How often it is checked that everything is still in place.
const REPAIR_INTERVAL: Duration = Duration::from_secs(1);

/// The part of readiness that the repair loop speaks for.
const DATAPLANE: &str = "dataplane";

/// Tells how the program is attached, in the log and as a metric.
pub(super) fn report(monitor: &Monitor, attached: &[AttachedInterface]) {
    for AttachedInterface { interface, mode } in attached {
        tracing::info!(%interface, mode = mode.as_str(), "splitting");
    }
    monitor.set_attached(attached.iter().map(|it| it.mode).collect());
}

/// Puts back what went missing: an interface that was deleted and made anew, a
/// rule that somebody removed.
pub(super) async fn repair(
    instance: &Instance,
    lock: &Lock,
    monitor: &Monitor,
    readiness: &Readiness,
) -> &'static str {
    let mut ticks = interval(REPAIR_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_problem = String::new();
    let mut last_plan = String::new();
    loop {
        ticks.tick().await;
        match put_back(instance, lock, monitor, &mut last_plan).await {
            Ok(()) => {
                last_plan.clear();
                if !last_problem.is_empty() {
                    tracing::info!("everything is in place again");
                    last_problem.clear();
                }
                readiness.ok(DATAPLANE);
            }
            Err(error) => {
                let problem = in_words(&error);
                if problem != last_problem {
                    tracing::error!(%problem, "not everything is in place; trying again every second");
                    last_problem.clone_from(&problem);
                }
                report_attached(instance, monitor).await;
                readiness.fail(DATAPLANE, problem);
            }
        }
    }
}

/// `last_plan` is what was tried last without success: it is not told again.
async fn put_back(
    instance: &Instance,
    lock: &Lock,
    monitor: &Monitor,
    last_plan: &mut String,
) -> Result<()> {
    let plan = instance.plan().await?;
    if plan.is_unchanged() {
        report_attached(instance, monitor).await;
        return Ok(());
    }
    let steps = plan.to_string();
    if steps != *last_plan {
        tracing::warn!("something was changed behind our back; putting it back:\n{steps}");
        *last_plan = steps;
    }
    let up = instance.up(lock, Owner::Run).await?;
    monitor.replace(up.dataplane)?;
    report(monitor, &up.attached);
    Ok(())
}

/// Counts the interfaces that packets are split on, also while others are missing.
async fn report_attached(instance: &Instance, monitor: &Monitor) {
    let program_id = monitor.dataplane().program_id();
    let attached = match program_id {
        Ok(id) => instance.attached(id).await.unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    monitor.set_attached(attached.iter().map(|it| it.mode).collect());
}

pub(super) async fn sweep(monitor: &Arc<Monitor>) -> &'static str {
    let mut ticks = interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let monitor = Arc::clone(monitor);
        // Walking a large table takes a while; the endpoint must answer meanwhile.
        match tokio::task::spawn_blocking(move || monitor.sweep()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "cannot sweep the flow table"),
            Err(error) => tracing::error!(%error, "the sweep ended early"),
        }
    }
}
