//! Repeats: questions that are asked again until they are answered, and not for ever.

use core::time::Duration;
use std::collections::VecDeque;

use cloudburst_wire::Time;

/// Questions under way to a peer at a time: as many bytes as an initial window of TCP has at most
/// (RFC 6928: ten segments), each 88 to 300 bytes long. Fewer where congestion control allows fewer
/// datagrams: a window of them to somebody of whom nothing is heard would come again and again.
const MAX_UNDER_WAY: usize = 48;
/// How often each is sent: with a doubled pause each time, over some thirty acknowledgement timeouts.
const MOST_ATTEMPTS: u8 = 5;
/// Longest pause between two of them: whoever makes round trips seem long must not keep them coming.
const MOST_PAUSE: Duration = Duration::from_secs(1);

/// Questions to one peer, each repeated up to 4 times until it is answered; no more than 48 are under way.
#[derive(Debug, Default)]
pub struct Repeats {
    /// In the order in which they were put in; those in front are under way.
    waiting: VecDeque<Repeat>,
}

/// A question: 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    number: u64,
    due: Time,
    attempts: u8,
}

impl Repeats {
    /// Counts the questions that have no answer.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if all questions have an answer, or were asked often enough.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts in a question by a number that no other has.
    pub fn add(&mut self, number: u64) {
        self.waiting.push_back(Repeat {
            number,
            due: Time::ZERO,
            attempts: 0,
        });
    }

    /// Takes out a question that was answered. Returns true if it was under way.
    pub fn answered(&mut self, number: u64) -> bool {
        let mut under_way = self.waiting.iter().take(MAX_UNDER_WAY);
        let place = under_way.position(|it| it.number == number);
        place.is_some_and(|place| self.waiting.remove(place).is_some())
    }

    /// Forgets all questions, and frees their memory.
    pub fn clear(&mut self) {
        self.waiting = VecDeque::new();
    }

    /// Returns a question that is asked now, if any is due, where an answer takes so long at most and so many
    /// datagrams may be in flight.
    pub fn next(&mut self, now: Time, ack_timeout: Duration, window: usize) -> Option<u64> {
        // Those that were asked often enough make way.
        let is_over = |it: &Repeat| it.attempts >= MOST_ATTEMPTS && it.due <= now;
        let most = window.min(MAX_UNDER_WAY);
        let mut place = 0;
        while place < self.waiting.len().min(most) {
            let it = &mut self.waiting[place];
            if is_over(it) {
                self.waiting.remove(place);
            } else if it.due <= now {
                it.due = now + ack_timeout.saturating_mul(1 << it.attempts).min(MOST_PAUSE);
                it.attempts = it.attempts.saturating_add(1);
                return Some(it.number);
            } else {
                place = place.saturating_add(1);
            }
        }
        None
    }

    /// Returns the time at which the next is due, if so many datagrams may be in flight.
    pub fn next_due(&self, window: usize) -> Option<Time> {
        let under_way = self.waiting.iter().take(window.min(MAX_UNDER_WAY));
        under_way.map(|it| it.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACK_TIMEOUT: Duration = Duration::from_millis(10);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// All questions that are due by a time.
    fn asked(repeats: &mut Repeats, now: Time, window: usize) -> Vec<u64> {
        core::iter::from_fn(|| repeats.next(now, ACK_TIMEOUT, window)).collect()
    }

    #[test]
    fn a_question_is_repeated_with_longer_pauses_and_five_times_in_all() {
        let mut repeats = Repeats::default();
        repeats.add(7);
        let mut times = Vec::new();
        while let Some(due) = repeats.next_due(usize::MAX) {
            let early = repeats.next_due(1).filter(|due| *due > Time::ZERO);
            let early = early.map(|due| asked(&mut repeats, due - Duration::from_nanos(1), 9));
            assert_eq!(early.unwrap_or_default(), [0; 0]);
            for number in asked(&mut repeats, due, 9) {
                assert_eq!(number, 7);
                times.push(due);
            }
        }
        assert_eq!(times, [0, 10, 30, 70, 150].map(at));
        assert!(repeats.is_empty());
        assert_eq!(size_of::<Repeat>(), 24);
    }

    #[test]
    fn no_more_are_under_way_than_may_be_and_an_answer_lets_the_next_go() {
        let mut repeats = Repeats::default();
        let all = 3 * MAX_UNDER_WAY as u64;
        (0..all).for_each(|number| repeats.add(number));
        assert_eq!(asked(&mut repeats, at(0), 2), [0, 1]);
        let first: Vec<u64> = (2..MAX_UNDER_WAY as u64).collect();
        assert_eq!(asked(&mut repeats, at(0), usize::MAX), first);
        assert!(!repeats.answered(all - 1), "it was not asked");
        assert!(repeats.answered(1) && !repeats.answered(1));
        assert_eq!(
            asked(&mut repeats, at(0), usize::MAX),
            [MAX_UNDER_WAY as u64]
        );
        assert_eq!(repeats.len() as u64, all - 1);
        repeats.clear();
        assert!(repeats.is_empty() && repeats.next_due(usize::MAX).is_none());
    }

    #[test]
    fn no_pause_is_longer_than_a_second() {
        let mut repeats = Repeats::default();
        repeats.add(1);
        repeats.next(at(0), Duration::from_secs(60), 1);
        assert_eq!(repeats.next_due(1), Some(at(1_000)));
    }
}
