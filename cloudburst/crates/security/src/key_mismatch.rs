//! Reports of those who speak with keys that are not ours: seldom, however many there are.

use core::{net::SocketAddr, time::Duration};

use cloudburst_wire::{PublicKey, Time};

/// How long datagrams are counted before the first of them is reported: who begins says so on all of
/// its paths, and again.
const COLLECTED: Duration = Duration::from_secs(1);
/// Between two reports: a stranger who sends without end, from any addresses, fills no log.
const PAUSE: Duration = Duration::from_secs(10);

/// Why the keys of somebody who speaks to us do not fit ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyMismatch {
    /// It has keys of another kind: a shared one against key pairs, one of a number that is not on our
    /// ring, or none at all.
    #[error("it has no key, or one of another kind or number than ours")]
    Kind,
    /// It takes us for the holder of another key: of another public key, or of another shared secret.
    #[error("it was given another public key than ours, or another shared key")]
    OtherKey,
    /// It holds this key, which nobody who may speak to us has.
    #[error("its public key is not on our list: {0}")]
    NotListed(PublicKey),
}

/// Reports datagrams that were refused because of the keys that they came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedKeys {
    /// The address that the latest of them claims to come from.
    pub remote: SocketAddr,
    /// Why the keys of the latest do not fit.
    pub mismatch: KeyMismatch,
    /// Datagrams since the last report, of whomever they were.
    pub datagrams: u64,
}

/// Counts datagrams under keys that are not ours, until they are reported.
#[derive(Debug, Default)]
pub struct KeyMismatches {
    /// The latest of them.
    latest: Option<(SocketAddr, KeyMismatch)>,
    datagrams: u64,
    reported: Option<Time>,
}

impl KeyMismatches {
    /// Counts a datagram. Returns when they are to be reported, if this is the first of them.
    pub fn note(&mut self, now: Time, remote: SocketAddr, mismatch: KeyMismatch) -> Option<Time> {
        self.datagrams = self.datagrams.saturating_add(1);
        let is_first = self.latest.replace((remote, mismatch)).is_none();
        let earliest = self.reported.map_or(Time::ZERO, |last| last + PAUSE);
        is_first.then(|| earliest.max(now + COLLECTED))
    }

    /// Reports what was counted since the last time; nothing, if nothing was.
    pub fn report(&mut self, now: Time) -> Option<RefusedKeys> {
        let (remote, mismatch) = self.latest.take()?;
        self.reported = Some(now);
        Some(RefusedKeys {
            remote,
            mismatch,
            datagrams: core::mem::take(&mut self.datagrams),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// A thousand addresses, each a thousand times, for 25 s.
    #[test]
    fn a_flood_is_reported_every_ten_seconds() {
        let (mut mismatches, mut due) = (KeyMismatches::default(), None);
        let mut reports = Vec::new();
        for number in 0..1_000_000_u64 {
            let now = at(number / 40);
            if due.is_some_and(|due| due <= now) {
                due = None;
                let report = mismatches.report(now).unwrap();
                reports.push((now, report.datagrams));
            }
            let remote = SocketAddr::from(([192, 0, 2, 1], 1_000 + (number % 1_000) as u16));
            let next = mismatches.note(now, remote, KeyMismatch::OtherKey);
            assert!(
                due.is_none() || next.is_none(),
                "one report is due at a time"
            );
            due = due.or(next);
        }
        let expected = [(1_000, 40_000), (11_000, 400_000), (21_000, 400_000)];
        assert_eq!(reports, expected.map(|(millis, count)| (at(millis), count)));
    }

    #[test]
    fn who_comes_after_silence_is_reported_soon() {
        let mut mismatches = KeyMismatches::default();
        for millis in [0, 60_000] {
            let remote = SocketAddr::from(([192, 0, 2, 1], 7));
            let due = mismatches.note(at(millis), remote, KeyMismatch::Kind);
            assert_eq!(due, Some(at(millis + 1_000)));
            let report = mismatches.report(at(millis + 1_000)).unwrap();
            assert_eq!((report.remote, report.datagrams), (remote, 1));
        }
        assert!(mismatches.report(at(70_000)).is_none(), "nobody came");
    }
}
