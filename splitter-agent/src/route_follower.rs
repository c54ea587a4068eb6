//! Follows the main table while the agent runs: as routes come and go, so does what leads into the
//! tunnels.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use splitter_instance::{Instance, Lock};
use splitter_netlink::{NetlinkError, RoutingEvents};
use splitter_steering::routes::{Action, FollowedPrefixes, Item, MainTables, PROTOCOL, Plan};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// A routing daemon announces what it changes in bursts; what comes within this time is looked at once.
const SETTLE: Duration = Duration::from_millis(10);

/// How often it is looked without a notification, for nothing was in place at the time of the last one.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// How soon that is after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How often the table is read without a sign that it has changed otherwise than the kernel has said.
const READ_INTERVAL: Duration = Duration::from_secs(60);

/// Holds how many prefixes are followed, for the loop that follows and the scrapes that read it.
#[derive(Debug, Clone, Default)]
pub struct SharedFollowed(Arc<Mutex<Vec<FollowedPrefixes>>>);

impl SharedFollowed {
    /// Returns how many there were last.
    #[must_use]
    pub fn snapshot(&self) -> Vec<FollowedPrefixes> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<FollowedPrefixes>> {
        // A panic elsewhere does not make plain values wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a picture of the main table by what the kernel says of it, and follows that.
#[derive(Debug)]
pub struct RouteFollower {
    events: RoutingEvents,
    main: MainTables,
    read_at: Instant,
    followed: SharedFollowed,
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
            main: MainTables::default(),
            read_at: Instant::now(),
            followed: SharedFollowed::default(),
            last_problem: String::new(),
        })
    }

    /// Returns what others see of it.
    #[must_use]
    pub fn followed(&self) -> SharedFollowed {
        self.followed.clone()
    }

    /// Follows for the instance that is in force, for ever. What the kernel says meanwhile is kept for the next
    /// look.
    pub async fn run(
        mut self,
        mut in_force: watch::Receiver<Arc<Instance>>,
        lock: &Lock,
    ) -> &'static str {
        loop {
            in_force.mark_unchanged();
            let begin = Instant::now();
            if self.read_at.elapsed() > READ_INTERVAL {
                self.main.doubt();
                self.read_at = begin;
            }
            self.events.take(|event| self.main.take(event));
            let next = self.look(&in_force, lock).await;
            *self.followed.lock() = in_force.borrow().followed_prefixes();
            // However long the table is and however often it changes, half of the time is others'.
            let pause = SETTLE.max(begin.elapsed());
            sleep(pause).await;
            tokio::select! {
                () = self.events.next() => sleep(SETTLE).await,
                Ok(()) = in_force.changed() => {}
                () = sleep(next) => {}
            }
        }
    }

    /// Follows once. Returns after what time it has to be done again in any case.
    async fn look(&mut self, in_force: &watch::Receiver<Arc<Instance>>, lock: &Lock) -> Duration {
        let begin = Instant::now();
        match Instance::follow_in_force(in_force, lock, &mut self.main).await {
            Ok(followed) => {
                self.last_problem.clear();
                if let Some(plan) = followed.filter(|plan| !plan.actions.is_empty()) {
                    announce(&plan, begin.elapsed());
                }
                LOOK_INTERVAL
            }
            Err(error) => {
                let problem = error.to_string();
                if problem != self.last_problem {
                    tracing::warn!(event = "follow_failed", %problem, "cannot follow the main table; trying again");
                    self.last_problem = problem;
                }
                RETRY_INTERVAL
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
    tracing::info!(
        event = "routes_followed",
        added,
        replaced,
        removed,
        ?took,
        "followed the main table"
    );
    tracing::debug!(event = "routes_followed", "routes changed:\n{plan}");
}
