//! Absence of a peer: noted when no path leads to it, announced when that has lasted.

use core::time::Duration;

use cloudburst_wire::Time;

/// Absence of a peer, as notices said and the silence of all its paths confirmed, if there is any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Absence {
    since: Option<Time>,
    /// Messages to it were abandoned for it, and new ones are as soon as it is confirmed again.
    is_announced: bool,
    /// It is to be announced.
    is_due: bool,
}

impl Absence {
    /// Takes note that nobody is there, which was confirmed anew or not, and is announced after so
    /// long.
    pub fn note(&mut self, now: Time, is_confirmed: bool, after: Duration) {
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= after && (is_confirmed || !self.is_announced) {
            self.is_announced = true;
            self.is_due = true;
        }
    }

    /// Returns true if nobody is there, as far as is known.
    pub fn is_noted(&self) -> bool {
        self.since.is_some()
    }

    /// Returns true if it was announced, or is about to be.
    pub fn is_announced(&self) -> bool {
        self.is_announced
    }

    /// Returns true if it is to be announced, which is done now.
    pub fn take_due(&mut self) -> bool {
        core::mem::take(&mut self.is_due)
    }

    /// Returns the time at which it is to be announced if nothing is heard until then.
    pub fn next_due(&self, after: Duration) -> Option<Time> {
        let since = self.since.filter(|_| !self.is_announced);
        since.map(|since| since + after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(2);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn an_absence_is_announced_once_it_has_lasted_and_again_when_it_is_confirmed_anew() {
        let mut absence = Absence::default();
        assert!(!absence.is_noted() && absence.next_due(AFTER).is_none());
        absence.note(at(0), true, AFTER);
        absence.note(at(1_999), true, AFTER);
        assert!(absence.is_noted() && !absence.is_announced() && !absence.take_due());
        assert_eq!(absence.next_due(AFTER), Some(at(2_000)));
        absence.note(at(2_000), false, AFTER);
        assert!(absence.is_announced() && absence.take_due());
        assert!(!absence.take_due(), "it is announced once");
        assert_eq!(absence.next_due(AFTER), None);
        absence.note(at(3_000), false, AFTER);
        assert!(!absence.take_due(), "nothing is new");
        absence.note(at(3_001), true, AFTER);
        assert!(absence.take_due());
    }
}
