//! A change that is taken back unless it is confirmed in time, as a confirmed commit of NETCONF
//! (RFC 6241 §8.4) is: for who changes a border over the link that it carries.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Reason, Refusal};

/// The time after which a revert that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps what was in force before a change that awaits its confirmation.
///
/// Time comes in as an argument, from any clock that never goes back.
#[derive(Debug)]
pub struct ConfirmedCommit<B> {
    pending: Option<Pending<B>>,
    /// How many have begun.
    begun: u64,
    /// The change that was taken back last.
    reverted: Option<PathBuf>,
}

#[derive(Debug)]
struct Pending<B> {
    source: PathBuf,
    text: String,
    before: B,
    ends: Duration,
    next_attempt: Duration,
    last_problem: String,
}

/// Shows a change that is in force and awaits its confirmation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unconfirmed {
    /// Tells it from earlier ones.
    pub id: u64,
    /// The file that it was applied from.
    pub source: PathBuf,
    /// What that file said.
    pub text: String,
    /// Seconds until it is taken back.
    pub remaining_s: f64,
}

impl<B> Default for ConfirmedCommit<B> {
    fn default() -> Self {
        Self {
            pending: None,
            begun: 0,
            reverted: None,
        }
    }
}

impl<B> ConfirmedCommit<B> {
    /// Begins to wait for the confirmation of a change that was put in force at `now` in the place of
    /// `before`.
    pub fn begin(
        &mut self,
        source: &Path,
        text: String,
        before: B,
        now: Duration,
        within: Duration,
    ) {
        self.begun += 1;
        self.pending = Some(Pending {
            source: source.to_owned(),
            text,
            before,
            ends: now + within,
            next_attempt: now + within,
            last_problem: String::new(),
        });
    }

    /// Refuses any other change while one awaits its confirmation: what is to be taken back would no
    /// longer be what was there before.
    ///
    /// # Errors
    /// Says for what the agent waits, and for how long.
    pub fn check_none(&self, now: Duration) -> Result<(), Refusal> {
        let Some(pending) = &self.pending else {
            return Ok(());
        };
        let message = format!(
            "the change from {} awaits its confirmation, for {:.0} s more: keep it with `splitter \
             confirm`, or take it back with `splitter confirm --revert`",
            pending.source.display(),
            pending.remaining(now).as_secs_f64()
        );
        Err(Refusal::new(Reason::Conflict, message))
    }

    /// Shows the change that awaits its confirmation.
    #[must_use]
    pub fn unconfirmed(&self, now: Duration) -> Option<Unconfirmed> {
        self.pending.as_ref().map(|pending| Unconfirmed {
            id: self.begun,
            source: pending.source.clone(),
            text: pending.text.clone(),
            remaining_s: pending.remaining(now).as_secs_f64(),
        })
    }

    /// Ends the wait: what is in force stays. Returns the file that it was applied from.
    ///
    /// # Errors
    /// When nothing waits, or another change than the one that is meant.
    pub fn confirm(&mut self, id: u64) -> Result<PathBuf, Refusal> {
        match self.pending.take() {
            Some(pending) if id == self.begun => Ok(pending.source),
            other => {
                self.pending = other;
                Err(self.nothing_waits())
            }
        }
    }

    /// Returns what was in force before the change that waits.
    ///
    /// # Errors
    /// When nothing waits.
    pub fn before(&self) -> Result<&B, Refusal> {
        let pending = self.pending.as_ref();
        pending
            .map(|it| &it.before)
            .ok_or_else(|| self.nothing_waits())
    }

    /// Returns how long it is until the change has to be taken back; none while nothing waits.
    #[must_use]
    pub fn until_revert(&self, now: Duration) -> Option<Duration> {
        let pending = self.pending.as_ref()?;
        Some(pending.next_attempt.saturating_sub(now))
    }

    /// Notes that what was there before is in force again. Returns the file of the change.
    pub fn reverted(&mut self) -> Option<PathBuf> {
        self.reverted = Some(self.pending.take()?.source);
        self.reverted.clone()
    }

    /// Notes that what was there before could not be put in force: it is tried again. Returns whether
    /// that is news, and no repetition of the last attempt.
    pub fn revert_failed(&mut self, now: Duration, problem: &str) -> bool {
        let Some(pending) = &mut self.pending else {
            return false;
        };
        pending.next_attempt = now + RETRY;
        let is_news = pending.last_problem != problem;
        problem.clone_into(&mut pending.last_problem);
        is_news
    }

    fn nothing_waits(&self) -> Refusal {
        let why = match (&self.pending, &self.reverted) {
            (Some(_), _) => ": the change that waits is another one than it was".to_owned(),
            (None, Some(source)) => format!(
                ": the change from {} was taken back; apply it again",
                source.display()
            ),
            (None, None) => String::new(),
        };
        Refusal::new(
            Reason::Failed,
            format!("no change awaits its confirmation{why}"),
        )
    }
}

impl<B> Pending<B> {
    fn remaining(&self, now: Duration) -> Duration {
        self.ends.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn waiting() -> ConfirmedCommit<u32> {
        let mut commit = ConfirmedCommit::default();
        let file = Path::new("/new.toml");
        commit.begin(file, "new".to_owned(), 7, 10 * SECOND, 60 * SECOND);
        commit
    }

    #[test]
    fn confirmed_change_is_never_taken_back() {
        let mut commit = waiting();
        assert_eq!(commit.until_revert(11 * SECOND), Some(59 * SECOND));
        let id = commit.unconfirmed(11 * SECOND).unwrap().id;
        assert_eq!(commit.confirm(id).unwrap(), Path::new("/new.toml"));
        assert_eq!(commit.until_revert(99 * SECOND), None);
        assert!(commit.before().is_err());
        assert!(commit.check_none(12 * SECOND).is_ok());
        assert!(commit.confirm(id).is_err(), "twice");
    }

    #[test]
    fn other_changes_are_refused_while_one_waits() {
        let refusal = waiting().check_none(15 * SECOND).unwrap_err();
        assert_eq!(refusal.reason, Reason::Conflict);
        for word in ["/new.toml", "55 s", "`splitter confirm`", "--revert"] {
            assert!(refusal.message.contains(word), "{refusal}");
        }
        assert!(ConfirmedCommit::<()>::default().check_none(SECOND).is_ok());
    }

    #[test]
    fn change_that_was_taken_back_cannot_be_confirmed() {
        let mut commit = waiting();
        let id = commit.unconfirmed(11 * SECOND).unwrap().id;
        assert_eq!(commit.until_revert(71 * SECOND), Some(Duration::ZERO));
        assert_eq!(commit.before().unwrap(), &7);
        assert_eq!(commit.reverted().unwrap(), Path::new("/new.toml"));
        let refusal = commit.confirm(id).unwrap_err();
        assert!(
            refusal.message.contains("/new.toml was taken back"),
            "{refusal}"
        );
        // What an earlier look has shown does not confirm a later change.
        commit.begin(Path::new("/b"), String::new(), 8, 80 * SECOND, SECOND);
        assert!(commit.confirm(id).is_err());
        assert_eq!(commit.before().unwrap(), &8, "it still waits");
    }

    #[test]
    fn revert_that_fails_is_tried_again_and_reported_once() {
        let mut commit = waiting();
        assert!(commit.revert_failed(70 * SECOND, "no device"));
        assert_eq!(commit.until_revert(70 * SECOND), Some(SECOND));
        assert!(!commit.revert_failed(71 * SECOND, "no device"));
        assert!(commit.revert_failed(72 * SECOND, "no gateway"));
        assert_eq!(commit.unconfirmed(73 * SECOND).unwrap().remaining_s, 0.0);
        assert_eq!(commit.before().unwrap(), &7);
    }
}
