//! Marks of congestion (ECN).

use super::*;
use crate::cubic::MARK_BETA;

impl Rig {
    /// All that was sent has arrived, so much of it marked, through this queue.
    fn acknowledge_marked(&mut self, through: usize, sent: u32, marked: u32, lost: u32) {
        let mut news = self.news(through, sent, lost, QUEUE);
        news.marked = marked;
        news.marking.insert_if(marked > 0, through);
        self.take(&news);
    }

    /// A controller past its slow start, that fills a queue.
    pub(super) fn settled() -> Self {
        let mut rig = Self::new();
        for _ in 0..5 {
            rig.round(0, QUEUE);
        }
        rig.controller.threshold = rig.controller.window;
        rig
    }
}

#[test]
fn mark_reduces_the_window_by_less_than_a_loss_and_once_in_a_round_trip() {
    let mut rig = Rig::settled();
    let before = rig.window();
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    rig.acknowledge_marked(0, sent / 2, sent / 4, 0);
    let after = rig.window();
    assert!(
        (after - before * MARK_BETA).abs() < 0.01,
        "{before} {after}"
    );
    // They were sent before that.
    let sent_at = rig.now - Duration::from_millis(1);
    let mut news = rig.news(0, sent / 2, 0, QUEUE);
    (news.marked, news.newest_sent_at) = (sent / 2, Some(sent_at));
    rig.take(&news);
    assert!(
        (rig.window() - after).abs() < 0.01,
        "{after} {}",
        rig.window()
    );
    // And these after it.
    rig.now = rig.now + ROUND_TRIP;
    rig.acknowledge_marked(0, 10, 1, 0);
    let again = rig.window();
    assert!((again - after * MARK_BETA).abs() < 0.01, "{after} {again}");
}

#[test]
fn mark_and_loss_in_a_round_trip_reduce_the_window_once_as_a_loss_does() {
    let mut rig = Rig::settled();
    let before = rig.window();
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    rig.acknowledge_marked(0, sent, sent / 2, 1);
    let after = rig.window();
    assert!((after - before * BETA).abs() < 0.01, "{before} {after}");
}

#[test]
fn slow_start_ends_with_a_mark_though_no_delay_tells_of_a_queue() {
    let mut rig = Rig::new();
    rig.round(0, EMPTY);
    rig.round(0, EMPTY);
    assert!(rig.controller.is_starting());
    let before = rig.window();
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    let mut news = rig.news(0, sent, 0, EMPTY);
    news.marked = 1;
    rig.take(&news);
    assert!(!rig.controller.is_starting());
    assert!(rig.window() <= before * BETA + 0.01, "{}", rig.window());
}

/// No share of marks is taken for chance, as a few losses are where nothing stands in a queue.
#[test]
fn marks_are_never_chance() {
    let mut marked = Rig::settled();
    let mut lossy = Rig::settled();
    for _ in 0..4 {
        marked.round(0, EMPTY);
        lossy.round(0, EMPTY);
    }
    let before = marked.window();
    for (rig, is_mark) in [(&mut marked, true), (&mut lossy, false)] {
        let sent = rig.send(ROUND_TRIP, u32::MAX);
        let mut news = rig.news(0, sent, u32::from(!is_mark), EMPTY);
        news.marked = is_mark.into();
        rig.take(&news);
    }
    assert!(
        lossy.window() >= before,
        "a loss of few is: {}",
        lossy.window()
    );
    assert!(marked.window() < before * 0.9, "{}", marked.window());
}

/// Senders that are marked all the time go on, by a datagram in some round trips.
#[test]
fn marks_without_end_leave_a_quarter_of_a_datagram() {
    let mut rig = Rig::settled();
    let round = |rig: &mut Rig| {
        let sent = rig.send(ROUND_TRIP, u32::MAX);
        rig.acknowledge_marked(0, sent, sent, 0);
        sent
    };
    for _ in 0..200 {
        round(&mut rig);
    }
    let least = LEAST_DATAGRAMS;
    assert!((rig.window() - least).abs() < 0.01, "{}", rig.window());
    let sent: u32 = (0..40).map(|_| round(&mut rig)).sum();
    assert!((5..=20).contains(&sent), "{sent} in forty round trips");
}

/// A mark in one of two queues that are known to be others is not that of the other.
#[test]
fn mark_reduces_the_part_that_goes_through_its_queue() {
    let mut rig = several::beside(&[1_000, 1_000]);
    let before = rig.window();
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    rig.acknowledge_marked(1, sent, 1, 0);
    let kept = rig.window() / before;
    let half = (1.0 + MARK_BETA) / 2.0;
    assert!((kept - half).abs() < 0.01, "{kept} {half}");
}

/// A loss in one queue is no reason to pass over a mark in another.
#[test]
fn loss_in_one_queue_and_mark_in_another_reduce_the_window_for_both() {
    let mut rig = several::beside(&[1_000, 1_000]);
    let before = rig.window();
    let sent = rig.send(ROUND_TRIP, u32::MAX);
    let mut news = rig.news(0, sent, 1, QUEUE);
    news.marked = 1;
    news.marking.insert(1);
    rig.take(&news);
    let kept = rig.window() / before;
    assert!((kept - BETA).abs() < 0.01, "{kept}");
}

/// Marks end a trial for losses, which would give back what both have taken.
#[test]
fn no_trial_gives_back_what_marks_have_taken() {
    let mut rig = Rig::settled();
    let window = rig.controller.window;
    let before = (10.0 * window, window);
    rig.controller.chance.try_less(rig.now, 0.14, before);
    // No delay tells of the queue.
    let mut news = rig.news(0, 10, 0, EMPTY);
    news.marked = 1;
    rig.take(&news);
    for _ in 0..12 {
        let sent = rig.send(ROUND_TRIP, u32::MAX);
        let news = rig.news(0, sent, 1, EMPTY);
        rig.take(&news);
        assert!(
            rig.controller.window < 5.0 * window,
            "{window} {}",
            rig.controller.window
        );
    }
}
