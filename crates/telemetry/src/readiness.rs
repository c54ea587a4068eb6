//! Readiness probe: can the process do its work now, and if not, why?

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A readiness probe: the shared handle on what `/ready` answers.
///
/// Each part of a program speaks for itself under its own name, and the whole is
/// ready when no part [fails](Self::fail). A part that does its work with less than
/// it should have is [degraded](Self::degrade), which is named and leaves the whole
/// ready. Clones share one state.
///
/// ```
/// use flow_telemetry::Readiness;
///
/// let readiness = Readiness::waiting_for("attach", "the program is being loaded");
/// assert!(!readiness.is_ready());
/// readiness.ok("attach");
/// readiness.degrade("tunnel", "wan1 is down");
/// assert!(readiness.is_ready());
/// assert_eq!(readiness.to_string(), "ready, but degraded: tunnel: wan1 is down");
/// readiness.fail("tunnel", "wan0: no reply to 3 probes");
/// assert_eq!(readiness.to_string(), "not ready: tunnel: wan0: no reply to 3 probes");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    objections: Arc<Mutex<BTreeMap<&'static str, Objection>>>,
}

/// What a part says that is not well.
#[derive(Debug)]
struct Objection {
    reason: String,
    /// It does its work all the same.
    is_ready: bool,
}

impl Readiness {
    /// Ready until a part [fails](Self::fail).
    pub fn new() -> Self {
        Self::default()
    }

    /// Not ready until `part` is [ok](Self::ok).
    pub fn waiting_for(part: &'static str, reason: impl Into<String>) -> Self {
        let readiness = Self::new();
        readiness.fail(part, reason);
        readiness
    }

    /// Says that `part` cannot do its work, replacing what it said before.
    pub fn fail(&self, part: &'static str, reason: impl Into<String>) {
        self.object(part, reason.into(), false);
    }

    /// Says that `part` does its work, but with less than it should have, replacing what it said
    /// before.
    pub fn degrade(&self, part: &'static str, reason: impl Into<String>) {
        self.object(part, reason.into(), true);
    }

    /// Says that `part` can do its work.
    pub fn ok(&self, part: &'static str) {
        self.lock().remove(part);
    }

    /// Returns whether no part fails.
    pub fn is_ready(&self) -> bool {
        self.lock().values().all(|it| it.is_ready)
    }

    /// Returns whether a part does its work with less than it should have.
    pub fn is_degraded(&self) -> bool {
        self.lock().values().any(|it| it.is_ready)
    }

    fn object(&self, part: &'static str, reason: String, is_ready: bool) {
        self.lock().insert(part, Objection { reason, is_ready });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Objection>> {
        // Nothing panics while it holds the lock, and each insertion leaves the
        // map whole in any case.
        self.objections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// `ready`, or `not ready: ` and each part that fails as `part: reason`; and in either case, after
/// `degraded: `, those that are degraded.
impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objections = self.lock();
        let said = |is_ready: bool| {
            let parts = objections
                .iter()
                .filter(|(_, it)| it.is_ready == is_ready)
                .map(|(part, it)| format!("{part}: {}", it.reason));
            parts.collect::<Vec<_>>().join("; ")
        };
        match (&*said(false), &*said(true)) {
            ("", "") => f.write_str("ready"),
            ("", degraded) => write!(f, "ready, but degraded: {degraded}"),
            (failed, "") => write!(f, "not ready: {failed}"),
            (failed, degraded) => write!(f, "not ready: {failed}; degraded: {degraded}"),
        }
    }
}
