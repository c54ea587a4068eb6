//! The receiving half of a flow: reassembly and cumulative ACKs.

use std::collections::VecDeque;

use crate::bitset::Bitset;
use crate::{LossRecovery, Settings};

/// Receives one flow: it answers each segment with an ACK.
#[derive(Debug, Default)]
pub struct Receiver {
    /// The first that is missing.
    missing: u32,
    /// The first that is beyond all that came.
    beyond: u32,
    ahead: Bitset,
    /// Segments that came after one that was sent later, and were not retransmitted.
    pub out_of_order: u32,
    /// Not there where nobody asks, which simulations have many receivers of.
    unreported: Option<Box<Unreported>>,
    /// Time stamps are looked at, of which the latest in order is this (`TS.Recent`).
    recent_ns: Option<Option<u64>>,
}

/// Arrivals that no ACK has yet reported to the sender, in the order in which they came.
#[derive(Debug, Default)]
struct Unreported {
    segments: VecDeque<u32>,
    /// How many have been reported, modulo 2^16.
    reported: u16,
}

/// The clock of time stamps has milliseconds, and one more is let pass (Linux, `TCP_PAWS_WINDOW`).
const STAMP_NS: u64 = 1_000_000;
const PAWS_WINDOW_MS: u64 = 1;
/// So many wait at the most to be reported: half of what numbers of ACKs tell apart.
const MOST_UNREPORTED: usize = 1 << 15;

impl Receiver {
    /// Creates the receiver for a sender of such settings: with RACK-TLP ACKs report all that has arrived before them
    /// ([`reported_by`](Self::reported_by)), with others what caused them.
    pub fn new(settings: &Settings) -> Self {
        let has_reports = settings.recovery == LossRecovery::Rack;
        Self {
            unreported: has_reports.then(Box::default),
            recent_ns: (has_reports && settings.paws).then_some(None),
            ..Self::default()
        }
    }

    /// Returns whether a segment that was sent at that time is taken, and not discarded for its time stamp (PAWS, RFC 7323
    /// §5.3): a retransmission that has come in order makes all that was sent before it too old, on whatever path it is
    /// still under way. Always without RACK-TLP.
    #[inline]
    pub fn accepts(&mut self, number: u32, is_retransmission: bool, sent_ns: u64) -> bool {
        let Some(recent_ns) = &mut self.recent_ns else {
            return true;
        };
        let sent_ms = sent_ns / STAMP_NS;
        if recent_ns.is_some_and(|it| it / STAMP_NS > sent_ms + PAWS_WINDOW_MS) {
            self.out_of_order += u32::from(number < self.beyond && !is_retransmission);
            return false;
        }
        // A duplicate lies before the window, and its stamp counts for nothing (RFC 7323 §5.3 R2 comes before R3).
        if number == self.missing {
            *recent_ns = (*recent_ns).max(Some(sent_ns));
        }
        true
    }

    /// Returns when the segment was sent whose time stamp ACKs of what is discarded echo (`TS.Recent`, RFC 7323 §4.3);
    /// nothing without one, as where [`accepts`](Self::accepts) takes everything.
    #[inline]
    pub fn recent_ns(&self) -> Option<u64> {
        self.recent_ns.flatten()
    }

    /// Returns the number that an ACK which goes now has, by which it is known what it reports: arrivals so far,
    /// modulo 2^16. 0 without reports.
    #[inline]
    pub fn report(&self) -> u16 {
        let it = self.unreported.as_ref();
        it.map_or(0, |it| it.reported.wrapping_add(it.segments.len() as u16))
    }

    /// Takes the segments that an ACK of that number reports, and none before has: all that had arrived when it went. So
    /// one that is lost or overtaken takes nothing along, as with selective acknowledgements, which repeat what they have
    /// said (RFC 2018 §4). Those have three blocks with time stamps, and this as many as there are.
    #[inline]
    pub fn reported_by(&mut self, report: u16) -> impl Iterator<Item = u32> {
        let new = self.unreported.as_mut().and_then(|it| it.take(report));
        new.into_iter().flatten()
    }

    /// Takes a segment; returns whether it is new.
    #[inline]
    pub fn on_segment(&mut self, number: u32, is_retransmission: bool) -> bool {
        if number < self.beyond && !is_retransmission {
            self.out_of_order += 1;
        }
        self.beyond = self.beyond.max(number + 1);
        if let Some(it) = &mut self.unreported {
            it.add(number);
        }
        if number == self.missing {
            self.missing += 1;
            if !self.ahead.is_empty() {
                self.missing = self.ahead.first_missing(self.missing);
                self.ahead.remove_below(self.missing);
            }
            return true;
        }
        number > self.missing && self.ahead.insert(number)
    }

    /// Returns how many different segments came.
    pub fn count(&self) -> u32 {
        self.missing + self.ahead.len()
    }

    /// Returns the first segment that is missing.
    #[inline]
    pub fn missing(&self) -> u32 {
        self.missing
    }
}

impl Unreported {
    fn add(&mut self, number: u32) {
        if self.segments.len() == MOST_UNREPORTED {
            self.segments.pop_front();
            self.reported = self.reported.wrapping_add(1);
        }
        self.segments.push_back(number);
    }

    fn take(&mut self, report: u16) -> Option<impl Iterator<Item = u32>> {
        let new = usize::from(report.wrapping_sub(self.reported));
        // An ACK that was overtaken reports less than is known.
        if new > self.segments.len() {
            return None;
        }
        self.reported = report;
        Some(self.segments.drain(..new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporting() -> Receiver {
        Receiver::new(&Settings {
            recovery: LossRecovery::Rack,
            ..Settings::default()
        })
    }

    #[test]
    fn ack_reports_what_came_before_it_and_one_that_was_overtaken_nothing() {
        let mut receiver = reporting();
        // As often as numbers of ACKs begin anew.
        for start in (0..200_000).step_by(4) {
            let mut reports = Vec::new();
            for segment in [start, start + 2, start + 1, start + 3] {
                receiver.on_segment(segment, false);
                reports.push(receiver.report());
            }
            let mut of = |ack: usize| receiver.reported_by(reports[ack]).collect::<Vec<_>>();
            assert_eq!(of(0), [start]);
            // The second one is lost.
            assert_eq!(of(3), [start + 2, start + 1, start + 3]);
            assert!(of(2).is_empty() && of(3).is_empty());
        }
    }

    /// RFC 7323 §5.3 R1 to R3.
    #[test]
    fn what_was_sent_before_a_retransmission_that_came_in_order_is_too_old() {
        let ms = |it: u64| it * STAMP_NS;
        let mut receiver = reporting();
        let mut take = |number, sent_ms| {
            let is_taken = receiver.accepts(number, false, ms(sent_ms));
            if is_taken {
                receiver.on_segment(number, false);
            }
            is_taken
        };
        assert!(take(0, 1_000) && take(3, 1_010) && take(4, 1_020));
        // Late, as they have other paths, and no later than what is out of order.
        assert!(take(1, 1_005));
        // The second copy of the next one, and then the first ones of it and of what follows.
        assert!(take(2, 1_040));
        assert!(!take(2, 1_006) && !take(5, 1_030) && !take(5, 1_038));
        // One that was sent again for nothing makes nothing too old.
        assert!(take(1, 1_060));
        assert!(take(5, 1_039), "to the millisecond");
        // By what came in order last with the latest stamp.
        assert_eq!(receiver.recent_ns(), Some(ms(1_040)));
        // Others look at nothing.
        let mut others = Receiver::default();
        assert!(others.accepts(0, false, ms(9)) && others.accepts(0, false, ms(1)));
        assert_eq!(others.recent_ns(), None);
    }

    #[test]
    fn arrivals_that_are_never_reported_are_bounded() {
        let mut receiver = reporting();
        for segment in 0..3 * MOST_UNREPORTED as u32 {
            receiver.on_segment(segment, false);
        }
        let (report, most) = (receiver.report(), MOST_UNREPORTED);
        let reported: Vec<u32> = receiver.reported_by(report).collect();
        assert_eq!((reported.len(), reported[0]), (most, 2 * most as u32));
        // Nobody asks.
        let mut receiver = Receiver::default();
        receiver.on_segment(0, false);
        assert_eq!((receiver.report(), receiver.reported_by(1).count()), (0, 0));
    }

    #[test]
    fn it_puts_segments_in_order() {
        let mut receiver = Receiver::default();
        let mut take = |number| (receiver.on_segment(number, false), receiver.missing());
        assert_eq!(take(0), (true, 1));
        assert_eq!(take(3), (true, 1));
        assert_eq!(take(2), (true, 1));
        assert_eq!(take(2), (false, 1));
        assert_eq!(take(1), (true, 4));
        assert_eq!(take(1), (false, 4));
        assert_eq!(take(4), (true, 5));
        assert_eq!(receiver.out_of_order, 4);
    }
}
