//! ECN of one path: whether datagrams are sent as capable of it, and what the peer's counts of marks say of that
//! (RFC 9000 §13.4.2 and A.4).
//!
//! A path is tested with a few datagrams. One that arrives as it was sent validates it. Where none arrives though others do, all
//! come with a mark, some come without the code point, or the counts are impossible, the path has failed: nothing more is sent
//! there as capable, until it is tested again after some time.

use core::time::Duration;

use cloudburst_wire::{EcnCounts, Time};

/// Datagrams of a test, and those in a row that are not all lost by chance on a path that is validated (RFC 9000 §A.4).
/// A train that leaves together is not cut for it.
const TESTED: u32 = 10;
/// Tests in a row of which all that arrives is marked before that is taken for a fault (RFC 9000 §A.4): to a queue in front of
/// the card that cuts it up (GSO) a train is one packet, and is marked as one.
const MARKED_TESTS: u8 = 3;
/// Datagrams that have to have been sent later than one that is lost (RFC 9002 §6.1.1).
const OVERTAKEN: u64 = 3;
/// The pause before a path that has failed is tested again: ten minutes, and twice as long each time, up to 21 hours. RFC 9000
/// §13.4.2.2 allows it and names no time; a test costs ten datagrams where the path drops them.
const PAUSE: Duration = Duration::from_secs(600);
const MOST_DOUBLINGS: u8 = 7;

/// State of explicit congestion notification (ECN) on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EcnState {
    /// Nothing was sent there as capable of ECN.
    #[default]
    Untested,
    /// Some datagrams were sent as capable, and it is not known what became of that.
    Testing,
    /// Datagrams arrive as capable, or marked: those with symbols are sent so.
    Capable,
    /// Something on the path drops, clears or forges marks, or the peer's counts are impossible: datagrams are sent as not
    /// capable.
    Failed,
}

/// Counts of a peer's report on a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct EcnReport {
    /// Datagrams that were sent by the path so far, capable or not.
    pub sent: u64,
    /// Datagrams of those that arrived so far, modulo 2^32.
    pub received: u32,
    /// The highest number that arrived.
    pub highest: u64,
    /// How many arrived as capable, or marked, if it says so.
    pub counts: Option<EcnCounts>,
    /// The peer counts from 0 again.
    pub is_restarted: bool,
}

/// Validation of ECN on a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct EcnValidation {
    state: EcnState,
    /// Failures in a row.
    failures: u8,
    /// Tests in a row of which all was marked, and whether this is another so far.
    marked_tests: u8,
    is_marked: bool,
    /// Datagrams sent as capable since any was last known to have arrived so.
    unconfirmed: u32,
    /// The number of the last of the first [`TESTED`] of those.
    tested: Option<u64>,
    retest_at: Time,
    /// Datagrams sent as capable.
    sent: u64,
    /// Datagrams that the peer has received, by its last report with counts, and these.
    received: u32,
    counts: EcnCounts,
    /// Datagrams that arrived as capable or marked, and others.
    capable: u64,
    others: u64,
    marked: u64,
}

impl EcnValidation {
    /// Decides whether a train of so many datagrams, the last of which has this number, is sent as capable now.
    pub fn mark(&mut self, now: Time, count: u32, last: u64) -> bool {
        match self.state {
            EcnState::Untested => self.test(),
            EcnState::Failed if now >= self.retest_at => {
                // What was lost or cleared before says nothing of this test.
                self.sent = self.capable;
                self.test();
            }
            EcnState::Failed => return false,
            EcnState::Testing if self.unconfirmed >= TESTED => return false,
            EcnState::Testing | EcnState::Capable => {}
        }
        self.sent = self.sent.saturating_add(count.into());
        self.unconfirmed = self.unconfirmed.saturating_add(count);
        if self.unconfirmed >= TESTED {
            self.tested.get_or_insert(last);
        }
        true
    }

    /// Takes what is new of a report. Returns how many datagrams were marked since the one before.
    pub fn hear(&mut self, now: Time, report: &EcnReport) -> u32 {
        // Counts that go on where they end seem to be those of a peer that was restarted: they are less than before.
        let received = report.received.wrapping_sub(self.received);
        if report.is_restarted && received > u32::MAX / 2 {
            self.count_anew();
        }
        let Some(counts) = report.counts else {
            return 0;
        };
        let received = report.received.wrapping_sub(self.received);
        let marked = counts.marked.wrapping_sub(self.counts.marked);
        let capable = counts.capable.wrapping_sub(self.counts.capable);
        (self.received, self.counts) = (report.received, counts);
        // Who counts backwards seems to have received more than there is.
        let is_consistent = marked <= capable && capable <= received;
        if is_consistent {
            let others = received.saturating_sub(capable);
            self.capable = self.capable.saturating_add(capable.into());
            self.others = self.others.saturating_add(others.into());
        }
        if matches!(self.state, EcnState::Untested | EcnState::Failed) {
            return 0;
        }
        // Lost ones hide as many that are cleared; but not all of a test.
        let is_possible =
            self.capable <= self.sent && self.others <= report.sent.saturating_sub(self.sent);
        if !is_consistent || !is_possible {
            self.fail(now);
            return 0;
        }
        self.judge(now, report.highest, (capable, marked));
        self.marked = self.marked.saturating_add(marked.into());
        marked
    }

    fn judge(&mut self, now: Time, highest: u64, (capable, marked): (u32, u32)) {
        if capable > marked || (self.state == EcnState::Capable && capable > 0) {
            self.state = EcnState::Capable;
            (self.failures, self.unconfirmed, self.tested) = (0, 0, None);
            return;
        }
        self.is_marked |= capable > 0;
        if !self.is_overdue(highest) {
            return;
        }
        let marked_tests = self.marked_tests.saturating_add(1);
        match self.state {
            EcnState::Capable => self.test(),
            EcnState::Testing if self.is_marked && marked_tests < MARKED_TESTS => {
                self.test();
                self.marked_tests = marked_tests;
            }
            _ => self.fail(now),
        }
    }

    /// Tells if later datagrams have arrived, and none of those that were tested as capable.
    fn is_overdue(&self, highest: u64) -> bool {
        self.tested
            .is_some_and(|last| highest >= last.saturating_add(OVERTAKEN))
    }

    /// Notes that the peer was restarted, and counts from 0.
    pub fn count_anew(&mut self) {
        (self.received, self.counts) = (0, EcnCounts::default());
    }

    /// Notes that a path delivers again that was dead: only what is sent as capable may have been lost.
    pub fn revived(&mut self, now: Time) {
        match self.state {
            EcnState::Capable => self.test(),
            EcnState::Testing if self.unconfirmed > 0 => self.fail(now),
            _ => {}
        }
    }

    /// Begins another test with the next train: it goes another way. The numbers of datagrams go on.
    pub fn restart(&mut self) {
        self.state = EcnState::Untested;
        self.failures = 0;
        // What was lost or cleared before says nothing of that test.
        self.sent = self.capable;
    }

    fn test(&mut self) {
        self.state = EcnState::Testing;
        (self.unconfirmed, self.tested) = (0, None);
        (self.marked_tests, self.is_marked) = (0, false);
    }

    fn fail(&mut self, now: Time) {
        self.state = EcnState::Failed;
        let pause = PAUSE.saturating_mul(1_u32.wrapping_shl(self.failures.into()));
        self.retest_at = now + pause;
        self.failures = self.failures.saturating_add(1).min(MOST_DOUBLINGS);
    }

    /// Returns the state of ECN on the path.
    pub const fn state(&self) -> EcnState {
        self.state
    }

    /// Returns how many datagrams arrived with a mark, as far as counts are believed.
    pub const fn marked(&self) -> u64 {
        self.marked
    }
}

#[cfg(test)]
mod tests;
