use super::*;
use proptest::{collection::vec, prelude::*};

/// A path that does something to what goes by it, and a peer that counts what arrives.
struct Pair {
    ecn: EcnValidation,
    now: Time,
    sent: u64,
    received: u32,
    highest: u64,
    counts: EcnCounts,
    /// Datagrams that were sent as capable.
    capable: u32,
    marked: u32,
}

/// Fate on the path of datagrams that are sent as capable.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Arrives,
    Dropped,
    Cleared,
    Marked,
}

impl Pair {
    fn new() -> Self {
        Self {
            ecn: EcnValidation::default(),
            now: Time::ZERO + Duration::from_secs(9),
            sent: 0,
            received: 0,
            highest: 0,
            counts: EcnCounts::default(),
            capable: 0,
            marked: 0,
        }
    }

    /// Sends so many datagrams, one by one, and has the peer report after each. `capable` is what becomes of those that are
    /// capable.
    fn send(&mut self, count: u32, capable: Fate) -> EcnState {
        for _ in 0..count {
            let last = self.sent;
            self.sent += 1;
            let is_capable = self.ecn.mark(self.now, 1, last);
            self.capable += u32::from(is_capable);
            let fate = if is_capable { capable } else { Fate::Cleared };
            if fate == Fate::Dropped {
                continue;
            }
            (self.received, self.highest) = (self.received + 1, last);
            self.counts.capable += u32::from(fate != Fate::Cleared);
            self.counts.marked += u32::from(fate == Fate::Marked);
            self.report();
        }
        self.ecn.state()
    }

    fn report(&mut self) {
        let report = EcnReport {
            sent: self.sent,
            received: self.received,
            highest: self.highest,
            counts: Some(self.counts),
            is_restarted: false,
        };
        self.marked += self.ecn.hear(self.now, &report);
    }

    fn wait(&mut self, pause: Duration) {
        self.now = self.now + pause;
    }
}

#[test]
fn path_that_leaves_the_code_point_alone_is_validated_and_marks_are_counted_once() {
    let mut pair = Pair::new();
    assert_eq!(pair.ecn.state(), EcnState::Untested);
    assert_eq!(pair.send(20, Fate::Arrives), EcnState::Capable);
    assert_eq!(pair.capable, 20);
    assert_eq!(pair.send(5, Fate::Marked), EcnState::Capable);
    pair.report();
    assert_eq!((pair.marked, pair.ecn.marked()), (5, 5));
}

#[test]
fn bleached_path_fails_with_the_first_that_arrives_so() {
    let mut pair = Pair::new();
    assert_eq!(pair.send(1, Fate::Cleared), EcnState::Failed);
    pair.send(1_000, Fate::Arrives);
    assert_eq!(pair.capable, 1, "nothing more is sent so");
    // It goes another way by then.
    pair.wait(PAUSE);
    assert_eq!(pair.send(100, Fate::Arrives), EcnState::Capable);
}

/// A path that was validated leads elsewhere.
#[test]
fn path_that_is_bleached_later_fails_then() {
    let mut pair = Pair::new();
    pair.send(100, Fate::Arrives);
    assert_eq!(pair.send(1, Fate::Cleared), EcnState::Failed);
}

/// Losses hide as many datagrams that are cleared later, but not all of a test.
#[test]
fn losses_hide_no_bleached_path() {
    let mut pair = Pair::new();
    pair.send(100, Fate::Arrives);
    pair.sent += 500;
    assert_eq!(pair.send(9, Fate::Cleared), EcnState::Capable);
    assert_eq!(pair.send(30, Fate::Cleared), EcnState::Failed);
}

#[test]
fn path_that_drops_what_is_capable_costs_ten_datagrams_and_as_many_after_pauses_that_double() {
    let mut pair = Pair::new();
    assert_eq!(pair.send(12, Fate::Dropped), EcnState::Testing);
    assert_eq!(pair.send(1, Fate::Dropped), EcnState::Failed);
    assert_eq!(pair.capable, TESTED);
    for doubling in 0..3 {
        pair.wait(PAUSE * (1 << doubling) - Duration::from_secs(1));
        pair.send(100, Fate::Dropped);
        assert_eq!(pair.capable, TESTED * (1 + doubling), "not before");
        pair.wait(Duration::from_secs(1));
        assert_eq!(pair.send(100, Fate::Dropped), EcnState::Failed);
        assert_eq!(pair.capable, TESTED * (2 + doubling));
    }
    // It is mended meanwhile.
    pair.wait(PAUSE * 8);
    assert_eq!(pair.send(100, Fate::Arrives), EcnState::Capable);
}

/// A route changes to one that drops what is capable: it is tested once more, as ten in a row may have met a full queue.
#[test]
fn path_that_begins_to_drop_what_is_capable_is_tested_again_and_fails() {
    let mut pair = Pair::new();
    pair.send(100, Fate::Arrives);
    pair.send(15, Fate::Dropped);
    assert_eq!(pair.ecn.state(), EcnState::Capable, "nothing arrives");
    // Something that is not capable does.
    for _ in 0..2 {
        pair.sent += 1;
        (pair.received, pair.highest) = (pair.received + 1, pair.sent - 1);
        pair.report();
        pair.send(15, Fate::Dropped);
    }
    assert_eq!(pair.ecn.state(), EcnState::Failed);
    assert!(pair.capable <= 100 + 15 + 2 * 15, "{}", pair.capable);
}

#[test]
fn path_that_marks_all_of_three_tests_fails_and_one_that_marks_most_does_not() {
    let mut pair = Pair::new();
    assert_eq!(pair.send(36, Fate::Marked), EcnState::Testing);
    assert_eq!(pair.send(30, Fate::Marked), EcnState::Failed);
    let capable = TESTED * u32::from(MARKED_TESTS);
    assert_eq!(
        (pair.capable, pair.marked),
        (capable, capable),
        "until then they were heeded"
    );
    // A train that was marked as one packet is no fault.
    let mut pair = Pair::new();
    pair.send(10, Fate::Marked);
    assert_eq!(pair.send(10, Fate::Arrives), EcnState::Capable);
    let mut pair = Pair::new();
    pair.send(9, Fate::Marked);
    assert_eq!(pair.send(1, Fate::Arrives), EcnState::Capable);
    assert_eq!(pair.send(100, Fate::Marked), EcnState::Capable);
}

#[test]
fn path_that_was_dead_is_tested_again_and_fails_if_that_was_of_a_test() {
    let mut pair = Pair::new();
    pair.send(100, Fate::Arrives);
    pair.ecn.revived(pair.now);
    assert_eq!(pair.ecn.state(), EcnState::Testing);
    pair.ecn.revived(pair.now);
    assert_eq!(pair.ecn.state(), EcnState::Testing, "nothing was sent");
    pair.send(3, Fate::Dropped);
    pair.ecn.revived(pair.now);
    assert_eq!(pair.ecn.state(), EcnState::Failed);
}

/// Each lie of a peer with its keys costs it the use of ECN, and no more.
#[test]
fn counts_that_cannot_be_end_the_use_of_ecn() {
    let lies: [fn(&mut EcnCounts); 5] = [
        |it| it.marked = it.capable + 1,
        |it| it.capable += 1,
        |it| it.capable -= 1,
        |it| it.marked = u32::MAX,
        |it| *it = EcnCounts::default(),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut pair = Pair::new();
        pair.send(20, Fate::Arrives);
        pair.send(2, Fate::Marked);
        lie(&mut pair.counts);
        let before = pair.marked;
        (pair.sent, pair.received, pair.highest) = (23, 23, 22);
        pair.report();
        assert_eq!(pair.ecn.state(), EcnState::Failed, "lie {number}");
        assert_eq!(pair.marked, before, "lie {number}");
    }
}

/// Counts of a peer that was restarted begin again, which is not impossible.
#[test]
fn restarted_peer_is_believed() {
    let mut pair = Pair::new();
    pair.send(100, Fate::Arrives);
    pair.send(5, Fate::Marked);
    (pair.received, pair.counts) = (0, EcnCounts::default());
    let report = |pair: &mut Pair, is_restarted| {
        pair.sent += 1;
        assert!(pair.ecn.mark(pair.now, 1, pair.sent - 1));
        pair.received += 1;
        pair.counts.capable += 1;
        let report = EcnReport {
            sent: pair.sent,
            received: pair.received,
            highest: pair.sent - 1,
            counts: Some(pair.counts),
            is_restarted,
        };
        assert_eq!(pair.ecn.hear(pair.now, &report), 0);
    };
    report(&mut pair, true);
    report(&mut pair, false);
    assert_eq!(pair.ecn.state(), EcnState::Capable);
}

/// Short answers have no capacity for counts: what has arrived meanwhile is told by the next that has.
#[test]
fn reports_without_counts_change_nothing() {
    let mut pair = Pair::new();
    pair.send(100, Fate::Arrives);
    for _ in 0..30 {
        let last = pair.sent;
        pair.sent += 1;
        assert!(pair.ecn.mark(pair.now, 1, last));
        (pair.received, pair.counts.capable) = (pair.received + 1, pair.counts.capable + 1);
        pair.highest = last;
        let report = EcnReport {
            sent: pair.sent,
            received: pair.received,
            highest: last,
            ..EcnReport::default()
        };
        assert_eq!(pair.ecn.hear(pair.now, &report), 0);
    }
    assert_eq!(pair.ecn.state(), EcnState::Capable);
    pair.counts.marked += 7;
    pair.report();
    assert_eq!((pair.marked, pair.ecn.state()), (7, EcnState::Capable));
}

/// Counts go on where they end, modulo 2^32; that seems to be a restart to who holds them against those of before.
#[test]
fn counts_may_begin_again_at_their_end() {
    let mut ecn = EcnValidation {
        state: EcnState::Capable,
        ..EcnValidation::default()
    };
    // First flights and answers are not capable, so that their count goes on before that of those that are.
    let (last, others) = (u32::MAX - 3, 9);
    let mut hear = |sent: u64, step: u32| {
        ecn.sent = sent - u64::from(others);
        let received = last.wrapping_add(step);
        let report = EcnReport {
            sent,
            received,
            highest: sent - 1,
            counts: Some(EcnCounts {
                capable: received.wrapping_sub(others),
                marked: 0,
            }),
            is_restarted: received < last,
        };
        ecn.hear(Time::ZERO, &report);
        (ecn.state, ecn.capable)
    };
    let most = u64::from(u32::MAX);
    assert_eq!(hear(most, 0), (EcnState::Capable, most - 12));
    assert_eq!(hear(most + 100, 8), (EcnState::Capable, most - 4));
}

/// Nothing of a path that cleared all stands against the one that has taken its place.
#[test]
fn path_in_place_of_one_that_failed_is_tested_for_itself() {
    let mut pair = Pair::new();
    pair.send(40, Fate::Cleared);
    assert_eq!(pair.ecn.state(), EcnState::Failed);
    pair.ecn.restart();
    assert_eq!(pair.send(20, Fate::Arrives), EcnState::Capable);
}

proptest! {
    /// Overflow checks are on in tests.
    #[test]
    fn no_report_makes_counts_overflow_or_reports_more_than_was_sent(
        steps in vec((any::<(u64, u32, u64, u32, u32)>(), any::<(bool, u32, u64)>()), 1..40),
    ) {
        let mut ecn = EcnValidation::default();
        let mut now = Time::ZERO;
        let mut capable = 0_u64;
        for ((sent, received, highest, capable_count, marked), (is_restarted, train, pause)) in steps {
            if ecn.mark(now, train, sent) {
                capable = capable.saturating_add(train.into());
            }
            let counts = EcnCounts { capable: capable_count, marked };
            let counts = (marked % 5 > 0).then_some(counts);
            let report = EcnReport { sent, received, highest, counts, is_restarted };
            ecn.hear(now, &report);
            prop_assert!(ecn.marked() <= capable, "{} of {capable}", ecn.marked());
            if train % 7 == 0 {
                ecn.revived(now);
            }
            now = now + Duration::from_nanos(pause);
        }
    }
}
