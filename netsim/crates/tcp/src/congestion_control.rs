//! Congestion control: the congestion window under Reno, DCTCP and CUBIC, in integers: fractions of a
//! segment are counted in 2^-20ths.

use crate::cubic::{self, Cubic};
use crate::{CongestionControl, Settings};

/// One segment, in units of the window.
pub const ONE: u64 = 1 << SHIFT;
const SHIFT: u32 = 20;

/// The congestion window: how much a sender may have in flight.
#[derive(Clone, Debug)]
pub struct CongestionWindow {
    control: CongestionControl,
    size: u64,
    threshold: u64,
    max: u64,
    dctcp: Dctcp,
    /// Not there with another control, which simulations have many senders with.
    cubic: Option<Box<Cubic>>,
}

/// The share of marked packets (RFC 8257 §3.3).
#[derive(Clone, Copy, Debug)]
struct Dctcp {
    gain_shift: u32,
    alpha: u64,
    acked: u64,
    marked: u64,
    /// The observation window ends when this segment is acknowledged.
    ends: u32,
    /// Once a window: marks do not count again before this segment is acknowledged.
    reduced_until: u32,
}

impl CongestionWindow {
    /// The window of a sender that has sent nothing.
    pub fn new(settings: &Settings) -> Self {
        let max = u64::from(settings.max_window) * ONE;
        Self {
            control: settings.control,
            size: (u64::from(settings.initial_window) * ONE).min(max),
            threshold: u64::MAX,
            max,
            dctcp: Dctcp {
                gain_shift: settings.dctcp_gain_shift,
                alpha: (settings.dctcp_initial_alpha * ONE as f64) as u64,
                acked: 0,
                marked: 0,
                ends: 0,
                reduced_until: 0,
            },
            cubic: (settings.control == CongestionControl::Cubic).then(Box::default),
        }
    }

    /// Returns the window in whole segments.
    pub fn segments(&self) -> u32 {
        (self.size >> SHIFT) as u32
    }

    /// Returns the window with fractions of a segment.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether it is in slow start (RFC 5681 §3.1).
    pub fn is_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// `segments` were acknowledged. In congestion avoidance each adds `coupled`, or as much as
    /// makes one segment a round trip.
    pub fn grow(&mut self, segments: u32, coupled: Option<u64>) {
        if self.control == CongestionControl::Fixed {
            return;
        }
        for _ in 0..segments {
            self.size += if self.is_slow_start() {
                ONE
            } else if let Some(cubic) = &mut self.cubic {
                let size = self.size as f64 / ONE as f64;
                ((cubic.grown(size) - size) * ONE as f64) as u64
            } else {
                let alone = (ONE * ONE) / self.size.max(ONE);
                coupled.map_or(alone, |coupled| coupled.min(alone))
            };
        }
        self.size = self.size.min(self.max);
    }

    /// An ACK came at a time, before the window grows for it: CUBIC goes by the clock, and ends slow start by
    /// round trips. Segments below `una` are acknowledged, `next` is sent next.
    pub(crate) fn on_time(
        &mut self,
        now_ns: u64,
        (round_trip_ns, smoothed_ns): (u64, u64),
        (una, next): (u32, u32),
    ) {
        let is_slow_start = self.is_slow_start();
        if let Some(cubic) = &mut self.cubic {
            let size = self.size as f64 / ONE as f64;
            let ends = cubic.observe(now_ns, round_trip_ns, smoothed_ns, (una, next), size);
            if ends && is_slow_start {
                self.threshold = self.size;
            }
        }
    }

    /// An ACK came, marked or not; segments below `una` are acknowledged, `next` is sent next.
    /// Returns whether the window may grow for it.
    pub fn on_echo(&mut self, marked: bool, una: u32, next: u32, recovering: bool) -> bool {
        if self.control != CongestionControl::Dctcp {
            return true;
        }
        let it = &mut self.dctcp;
        it.acked += 1;
        it.marked += u64::from(marked);
        if una > it.ends {
            let share = it.marked * ONE / it.acked;
            it.alpha = it.alpha - (it.alpha >> it.gain_shift) + (share >> it.gain_shift);
            (it.acked, it.marked, it.ends) = (0, 0, next);
        }
        // A loss has already made the window smaller (RFC 8257 §3.5).
        if marked && una > it.reduced_until && !recovering {
            it.reduced_until = next;
            let cut = self.size * it.alpha / (2 * ONE);
            self.size = (self.size - cut).max(ONE);
            self.threshold = self.size.max(2 * ONE);
        }
        !marked
    }

    /// Reduces the window after a loss: to half of what is in flight (RFC 5681 eqn 4), or with CUBIC to 0.7 of
    /// it (RFC 9438 §4.6).
    pub fn on_loss(&mut self, in_flight: u32) {
        self.set_threshold(in_flight);
        self.back_to_threshold();
    }

    /// The retransmission timer went off: start over with one segment. The threshold stays where it
    /// is when the same segment was already retransmitted by the timer (RFC 5681 §3.1).
    pub fn on_timeout(&mut self, in_flight: u32, is_retransmission: bool) {
        if !is_retransmission {
            self.set_threshold(in_flight);
        }
        if self.control != CongestionControl::Fixed {
            self.size = ONE;
        }
    }

    /// A segment has left the network, or has not: NewReno's inflation (RFC 6582 §3.2).
    pub fn inflate(&mut self, segments: i64) {
        if self.control != CongestionControl::Fixed {
            let size = self.size.saturating_add_signed(segments * ONE as i64);
            self.size = size.clamp(ONE, self.max);
        }
    }

    /// Ends a recovery: the window is the threshold.
    pub fn back_to_threshold(&mut self) {
        if self.control != CongestionControl::Fixed {
            self.size = self.threshold.min(self.max);
        }
    }

    /// Returns the window and the threshold of slow start, for [`restore`](Self::restore).
    pub(crate) fn snapshot(&self) -> (u64, u64) {
        (self.size, self.threshold)
    }

    /// Undoes a reduction that proved needless: window and threshold are as before, unless they have grown beyond
    /// (Linux, `tcp_undo_cwnd_reduction`).
    pub(crate) fn restore(&mut self, (size, threshold): (u64, u64)) {
        self.size = self.size.max(size);
        self.threshold = self.threshold.max(threshold);
    }

    fn set_threshold(&mut self, in_flight: u32) {
        let part = match &mut self.cubic {
            Some(cubic) => {
                cubic.on_loss(self.size as f64 / ONE as f64);
                (f64::from(in_flight) * cubic::BETA * ONE as f64) as u64
            }
            None => u64::from(in_flight) * ONE / 2,
        };
        self.threshold = part.max(2 * ONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(control: CongestionControl) -> CongestionWindow {
        CongestionWindow::new(&Settings {
            control,
            ..Settings::default()
        })
    }

    #[test]
    fn slow_start_doubles_and_avoidance_adds_one() {
        let mut window = window(CongestionControl::Reno);
        window.grow(10, None);
        assert_eq!(window.segments(), 20);
        window.on_loss(20);
        assert_eq!(window.segments(), 10);
        window.grow(10, None);
        let size = window.size() as f64 / ONE as f64;
        assert!((10.95..11.0).contains(&size), "{size}");
        window.on_timeout(11, false);
        assert_eq!(window.segments(), 1);
        window.grow(5, None);
        assert_eq!(window.segments(), 6);
        window.grow(5, None);
        assert_eq!(window.segments(), 6, "the threshold was 5.5");
    }

    #[test]
    fn dctcp_follows_the_share_of_marks() {
        let mut window = window(CongestionControl::Dctcp);
        let (mut una, mut next) = (0, 100);
        for _ in 0..200 {
            for ack in 0..100 {
                una += 1;
                next += 1;
                window.on_echo(ack % 4 == 0, una, next, false);
            }
            window.size = 100 * ONE;
        }
        let alpha = window.dctcp.alpha as f64 / ONE as f64;
        assert!((alpha - 0.25).abs() < 0.02, "{alpha}");
        let before = window.size;
        window.dctcp.reduced_until = 0;
        assert!(!window.on_echo(true, una + 1, next, false));
        let cut = 1.0 - window.size as f64 / before as f64;
        assert!((cut - alpha / 2.0).abs() < 0.01, "{cut}");
    }

    #[test]
    fn a_first_mark_costs_what_is_assumed_of_the_share() {
        let after_a_mark = |dctcp_initial_alpha| {
            let mut window = CongestionWindow::new(&Settings {
                dctcp_initial_alpha,
                ..Settings::default()
            });
            window.grow(90, None);
            assert!(!window.on_echo(true, 1, 100, false));
            assert!(!window.is_slow_start());
            window.segments()
        };
        // The ACK of the first segment ends a window of observation, with all of it marked.
        assert_eq!(after_a_mark(1.0), 50);
        assert_eq!(after_a_mark(0.0), 96, "a cut of 1/16 / 2");
    }

    #[test]
    fn cubic_keeps_more_of_its_window_and_needs_no_loss_to_leave_slow_start() {
        let mut window = window(CongestionControl::Cubic);
        window.grow(10, None);
        assert!(window.is_slow_start());
        // The first ACKs say 20 ms, later ones that a queue builds.
        for ack in 0..30 {
            let round_trip_ns = if ack == 0 { 20_000_000 } else { 30_000_000 };
            let (now_ns, una) = (u64::from(ack) * 5_000_000, ack);
            window.on_time(now_ns, (round_trip_ns, 20_000_000), (una, 20));
        }
        assert!(!window.is_slow_start());
        assert_eq!(window.segments(), 20);
        window.on_loss(20);
        assert_eq!(window.segments(), 14);
    }

    #[test]
    fn a_fixed_window_stays() {
        let mut window = window(CongestionControl::Fixed);
        window.grow(5, None);
        window.on_loss(2);
        window.on_timeout(2, false);
        window.inflate(3);
        assert_eq!(window.segments(), 10);
    }
}
