//! Follows the main table while the agent runs: as routes come and go, so does what leads into the
//! tunnels.

use std::sync::Arc;
use std::time::Duration;

use splitter_instance::{Instance, Lock};
use splitter_netlink::{NetlinkError, RoutingEvents};
use splitter_steering::routes::{Action, Item, PROTOCOL, Plan};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// A routing daemon announces what it changes in bursts; what comes within this time is looked at once.
const SETTLE: Duration = Duration::from_millis(10);

/// How often the table is looked at without an event, which can get lost.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Looks at the main table whenever the kernel says that it may have changed.
#[derive(Debug)]
pub struct RouteFollower {
    events: RoutingEvents,
    last_problem: String,
}

impl RouteFollower {
    /// Listens from now on. Changes nothing.
    ///
    /// # Errors
    /// When netlink is not to be had.
    pub fn new() -> Result<Self, NetlinkError> {
        Ok(Self {
            events: RoutingEvents::listen()?.ignoring(PROTOCOL),
            last_problem: String::new(),
        })
    }

    /// Follows for the instance that is in force, for ever.
    pub async fn run(
        mut self,
        mut in_force: watch::Receiver<Arc<Instance>>,
        lock: &Lock,
    ) -> &'static str {
        loop {
            in_force.mark_unchanged();
            let begin = Instant::now();
            self.look(&in_force, lock).await;
            // However long the table is and however often it changes, half of the time is others'.
            let pause = SETTLE.max(begin.elapsed());
            sleep(pause).await;
            tokio::select! {
                () = self.events.next() => sleep(SETTLE).await,
                Ok(()) = in_force.changed() => {}
                () = sleep(LOOK_INTERVAL) => {}
            }
            self.events.drain();
        }
    }

    async fn look(&mut self, in_force: &watch::Receiver<Arc<Instance>>, lock: &Lock) {
        let begin = Instant::now();
        match Instance::follow_in_force(in_force, lock).await {
            Ok(followed) => {
                self.last_problem.clear();
                if let Some(plan) = followed.filter(|plan| !plan.actions.is_empty()) {
                    announce(&plan, begin.elapsed());
                }
            }
            Err(error) => {
                let problem = error.to_string();
                if problem != self.last_problem {
                    tracing::warn!(%problem, "cannot follow the main table; trying again");
                    self.last_problem = problem;
                }
            }
        }
    }
}

fn announce(plan: &Plan, took: Duration) {
    let routes =
        |is_meant: fn(&Action) -> bool| plan.actions.iter().filter(|it| is_meant(it)).count();
    let added = routes(|it| matches!(it, Action::Add(Item::Route(_))));
    let replaced = routes(|it| matches!(it, Action::Replace(_)));
    let removed = routes(|it| matches!(it, Action::Remove(Item::Route(_))));
    tracing::info!(added, replaced, removed, ?took, "followed the main table");
    tracing::debug!("routes changed:\n{plan}");
}
