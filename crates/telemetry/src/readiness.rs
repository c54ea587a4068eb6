//! Readiness probe: can the process do its work now, and if not, why?

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A readiness probe: the shared handle on what `/ready` answers.
///
/// Each part of a program speaks for itself under its own name, and the whole is
/// ready when no part objects. Clones share one state.
///
/// ```
/// use flow_telemetry::Readiness;
///
/// let readiness = Readiness::waiting_for("attach", "the program is being loaded");
/// assert!(!readiness.is_ready());
/// readiness.ok("attach");
/// readiness.fail("tunnel", "wan0: no reply to 3 probes");
/// assert_eq!(readiness.to_string(), "not ready: tunnel: wan0: no reply to 3 probes");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    objections: Arc<Mutex<BTreeMap<&'static str, String>>>,
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

    /// Says that `part` cannot do its work, replacing an earlier reason.
    pub fn fail(&self, part: &'static str, reason: impl Into<String>) {
        self.lock().insert(part, reason.into());
    }

    /// Says that `part` can do its work.
    pub fn ok(&self, part: &'static str) {
        self.lock().remove(part);
    }

    /// Returns whether no part objects.
    pub fn is_ready(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        // Nothing panics while it holds the lock, and each insertion leaves the
        // map whole in any case.
        self.objections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// `ready`, or `not ready: ` and each objection as `part: reason`.
impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objections = self.lock();
        if objections.is_empty() {
            return f.write_str("ready");
        }
        f.write_str("not ready: ")?;
        for (index, (part, reason)) in objections.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{part}: {reason}")?;
        }
        Ok(())
    }
}
