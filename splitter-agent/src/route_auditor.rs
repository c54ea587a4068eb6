//! Has the kernel asked again and again where each class really goes: whenever a rule, a route, a
//! device or an address has changed, and from time to time.
//!
//! What is not split is a state: a log line when it comes and when it goes, a metric, and an
//! objection to readiness. It must last: while a tunnel dies, the kernel takes its routes away some
//! time before its class is moved.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flow_telemetry::Readiness;
use splitter_netlink::{NetlinkError, RoutingEvents};
use splitter_steering::routes::{RouteAudit, Unsplit};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use splitter_instance::{Instance, InstanceError};

/// The part of readiness that this speaks for.
const ROUTING: &str = "routing";

/// What comes in one burst is looked at once.
const SETTLE: Duration = Duration::from_millis(100);

/// A finding that is gone after this pause was a change under way: what others take away from the
/// agent is restored within a second, and a dead tunnel's class is moved within that.
const CONFIRM: Duration = Duration::from_millis(1_500);

/// How often it is asked without an event, which can get lost.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// So many findings are named in the log and in readiness.
const NAMED: usize = 10;

/// Holds the findings of the last audit, for the loop that asks and the scrapes that read them.
#[derive(Debug, Clone, Default)]
pub struct SharedAudit(Arc<Mutex<RouteAudit>>);

impl SharedAudit {
    /// Returns what was found last.
    #[must_use]
    pub fn snapshot(&self) -> RouteAudit {
        self.lock().clone()
    }

    fn replace(&self, audit: RouteAudit) {
        *self.lock() = audit;
    }

    fn lock(&self) -> MutexGuard<'_, RouteAudit> {
        // A panic elsewhere does not make plain values wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches where the kernel sends what should be split.
#[derive(Debug)]
pub struct RouteAuditor {
    events: RoutingEvents,
    found: SharedAudit,
    readiness: Readiness,
    /// What the log has named.
    named: BTreeSet<String>,
    last_problem: String,
}

impl RouteAuditor {
    /// Listens from now on. Changes nothing.
    ///
    /// # Errors
    /// When netlink is not to be had.
    pub fn new(readiness: Readiness) -> Result<Self, NetlinkError> {
        Ok(Self {
            events: RoutingEvents::listen()?,
            found: SharedAudit::default(),
            readiness,
            named: BTreeSet::new(),
            last_problem: String::new(),
        })
    }

    /// Returns what others see of it.
    #[must_use]
    pub fn found(&self) -> SharedAudit {
        self.found.clone()
    }

    /// Asks once, before anybody is told that all is ready.
    pub async fn begin(&mut self, instance: &Instance) {
        let audit = instance.audit_routes().await;
        if let Some(audit) = self.understand(audit) {
            self.take(audit);
        }
    }

    /// Asks about an instance that is up, for ever.
    pub async fn run(mut self, mut in_force: watch::Receiver<Arc<Instance>>) -> &'static str {
        loop {
            let instance = Arc::clone(&in_force.borrow_and_update());
            let begin = Instant::now();
            let doubtful = self.look(&instance).await;
            let pause = SETTLE.max(begin.elapsed());
            if !doubtful.is_empty() {
                sleep(CONFIRM).await;
                self.confirm(&instance, &doubtful).await;
            }
            tokio::select! {
                () = self.events.next() => {}
                Ok(()) = in_force.changed() => {}
                () = sleep(LOOK_INTERVAL) => {}
            }
            sleep(pause).await;
            self.events.drain();
        }
    }

    /// Asks, and takes what was found for true if it is no news. Returns what is.
    async fn look(&mut self, instance: &Instance) -> Vec<Unsplit> {
        let audit = instance.audit_routes_aside().await;
        let Some(audit) = self.understand(audit) else {
            return Vec::new();
        };
        let known = self.found.snapshot();
        let news = audit
            .unsplit
            .iter()
            .filter(|it| !known.unsplit.contains(it));
        let news: Vec<_> = news.cloned().collect();
        if news.is_empty() {
            self.take(audit);
        }
        news
    }

    /// Asks again, and takes what was found this time, too, for true.
    async fn confirm(&mut self, instance: &Instance, doubtful: &[Unsplit]) {
        let audit = instance.audit_routes_aside().await;
        let Some(mut audit) = self.understand(audit) else {
            return;
        };
        let known = self.found.snapshot();
        let known = || known.unsplit.iter().chain(doubtful);
        // Asking about ten thousand prefixes takes seconds, in which others change.
        audit.unsplit.retain(|it| {
            known().any(|other| (other.destination, other.reason) == (it.destination, it.reason))
        });
        self.take(audit);
    }

    fn take(&mut self, audit: RouteAudit) {
        self.announce(&audit);
        self.found.replace(audit);
    }

    fn understand(&mut self, audit: Result<RouteAudit, InstanceError>) -> Option<RouteAudit> {
        match audit {
            Ok(audit) => {
                self.last_problem.clear();
                Some(audit)
            }
            Err(error) => {
                let problem = error.to_string();
                if problem != self.last_problem {
                    tracing::warn!(event = "routes_unseen", %problem, "cannot ask the kernel where packets go; trying again");
                    self.last_problem = problem;
                }
                None
            }
        }
    }

    fn announce(&mut self, audit: &RouteAudit) {
        let lines: BTreeSet<_> = audit.lines(NAMED).into_iter().collect();
        for line in lines.difference(&self.named) {
            match audit.is_clean() {
                true => tracing::info!(event = "prefix_exempt", "{line}"),
                false => tracing::warn!(event = "prefix_not_split", "{line}"),
            }
        }
        let was_clean = self.found.snapshot().is_clean();
        if audit.is_clean() {
            if !was_clean {
                tracing::info!(
                    event = "prefixes_split",
                    "all that should be split is split again"
                );
            }
            self.readiness.ok(ROUTING);
        } else {
            let mut unsplit = audit.unsplit.iter().take(NAMED).map(ToString::to_string);
            let mut problem = unsplit.by_ref().collect::<Vec<_>>().join("; ");
            let more = audit.unsplit.len().saturating_sub(NAMED);
            if more > 0 {
                problem += &format!("; and {more} more");
            }
            self.readiness.fail(ROUTING, problem);
        }
        self.named = lines;
    }
}
