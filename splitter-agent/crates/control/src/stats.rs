//! Counts what the agent does itself, besides what the kernel counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts an enum's variants under their names.
macro_rules! counted {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All there are.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// The value of its label.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

counted! {
    /// Who wanted the configuration changed.
    ChangeSource {
        /// SIGHUP.
        Signal = "signal",
        /// `splitter reload`.
        Reload = "reload",
        /// `splitter set`.
        Set = "set",
        /// `splitter apply`.
        Apply = "apply",
        /// What was applied and not confirmed.
        Revert = "revert",
        /// A threshold that is `auto`.
        Auto = "auto",
    }
}

counted! {
    /// What became of it.
    ChangeResult {
        /// It is in force.
        Applied = "applied",
        /// Nothing was different.
        Unchanged = "unchanged",
        /// Nothing was done.
        Refused = "refused",
    }
}

counted! {
    /// What became of a line on the control socket.
    ControlResult {
        /// It was answered.
        Done = "done",
        /// The agent did not do it.
        Refused = "refused",
        /// It was no request.
        Malformed = "malformed",
        /// It was longer than any request.
        TooLong = "too_long",
        /// It was a request of another version.
        Version = "version",
        /// None came, and the connection was closed.
        Silent = "silent",
    }
}

/// Counts of the running agent; they start with it.
#[derive(Debug, Default)]
pub struct AgentStats {
    changes: [[AtomicU64; ChangeResult::ALL.len()]; ChangeSource::ALL.len()],
    last_refused: AtomicBool,
    control: [AtomicU64; ControlResult::ALL.len()],
}

impl AgentStats {
    /// Counts a change of configuration that was asked for.
    pub fn count_change(&self, source: ChangeSource, result: ChangeResult) {
        self.changes[source as usize][result as usize].fetch_add(1, Ordering::Relaxed);
        // A threshold that follows advice says nothing about the file.
        if source != ChangeSource::Auto {
            let refused = result == ChangeResult::Refused;
            self.last_refused.store(refused, Ordering::Relaxed);
        }
    }

    /// How often that happened.
    #[must_use]
    pub fn changes(&self, source: ChangeSource, result: ChangeResult) -> u64 {
        self.changes[source as usize][result as usize].load(Ordering::Relaxed)
    }

    /// Returns true where the last change that somebody asked for was refused.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        self.last_refused.load(Ordering::Relaxed)
    }

    /// Counts a line on the control socket.
    pub fn count_control(&self, result: ControlResult) {
        self.control[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often that happened.
    #[must_use]
    pub fn control(&self, result: ControlResult) -> u64 {
        self.control[result as usize].load(Ordering::Relaxed)
    }
}
