//! Timers of a sender, and loss recovery that goes by time: what becomes of what [`Rack`](crate::rack::Rack) finds.

use super::{Segment, Sender};
use crate::ack::Ack;
use crate::rack::Expired;

impl Sender {
    /// Tells the time at which segments are sent that are polled next. RACK-TLP goes by it, and nothing else.
    #[inline]
    pub fn on_clock(&mut self, now_ns: u64) {
        if let Some(rack) = &mut self.rack {
            rack.on_clock(now_ns);
        }
    }

    /// Takes the segments that the ACK which is taken next reports beside the one that caused it
    /// ([`Receiver::reported_by`](crate::Receiver::reported_by)), at the time at which it came. RACK-TLP goes by them, and
    /// nothing else.
    #[inline]
    pub fn on_reports(&mut self, now_ns: u64, segments: impl Iterator<Item = u32>) {
        if let Some(rack) = &mut self.rack {
            rack.on_clock(now_ns);
            segments.for_each(|it| rack.on_report(it));
        }
    }

    /// Returns whether every ACK may move the timer, and not only one that acknowledges something new.
    #[inline]
    pub fn has_timers(&self) -> bool {
        self.rack.is_some()
    }

    /// Returns when the timer goes off that is set now.
    pub fn deadline_ns(&self, now_ns: u64) -> u64 {
        match &self.rack {
            Some(rack) if !self.handshaking => {
                rack.deadline(&self.rto, self.is_open()).0.max(now_ns)
            }
            _ => now_ns + self.rto.timeout_ns(),
        }
    }

    /// Takes note that the timer went off that [`deadline_ns`](Self::deadline_ns) set. Returns whether it was a
    /// retransmission timeout, and not a probe or what is out of order.
    pub fn on_timer(&mut self, now_ns: u64) -> bool {
        let is_open = self.is_open();
        if !self.handshaking
            && let Some(rack) = &mut self.rack
        {
            rack.on_clock(now_ns);
            let (_, expired) = rack.deadline(&self.rto, is_open);
            rack.arm(now_ns);
            match expired {
                Expired::Reordering => {
                    rack.on_reordering_timer(self.rto.smoothed_ns(), !is_open);
                    self.recover_lost();
                    self.shrink_window(false);
                    return false;
                }
                Expired::Probe => {
                    rack.on_probe_timer();
                    return false;
                }
                Expired::Retransmission => (),
            }
        }
        self.on_timeout();
        true
    }

    /// Acts on an ACK that [`Rack`](crate::rack::Rack) has taken.
    pub(super) fn on_time_based(
        &mut self,
        ack: Ack,
        (acked, coupled): (u32, Option<u64>),
        may_grow: bool,
    ) {
        let Some(rack) = &mut self.rack else {
            return;
        };
        if acked > 0 {
            rack.arm(ack.now_ns);
        }
        if let Some(before) = rack.take_undo(ack, acked > 0) {
            self.window.restore(before);
            self.recovering = false;
            self.recover = self.una;
        }
        if self.recovering && self.una >= self.recover {
            self.recovering = false;
            self.window.back_to_threshold();
            rack.on_recovered();
        } else if !self.recovering && may_grow {
            self.window.grow(acked, coupled);
        }
        self.recover_lost();
        self.shrink_window(acked > 0);
    }

    /// The window of a recovery goes by what has arrived.
    fn shrink_window(&mut self, is_progress: bool) {
        let is_recovering = self.recovering;
        if let Some(rack) = &mut self.rack {
            rack.on_window(is_recovering, is_progress);
        }
    }

    /// Begins a recovery if something is lost and there is none.
    fn recover_lost(&mut self) {
        let is_open = self.is_open();
        let Some(rack) = self.rack.as_mut().filter(|it| is_open && it.has_lost()) else {
            return;
        };
        rack.on_recovery(self.window.snapshot());
        self.recovering = true;
        self.recover = self.fresh;
        self.retransmit_first = true;
        // Linux goes by the window, where RFC 5681 has what is in flight.
        let before = self.window.segments();
        self.window.on_loss(before);
        rack.reduce(before, self.window.segments());
    }

    pub(super) fn poll_rack(&mut self) -> Option<Segment> {
        let is_first = std::mem::take(&mut self.retransmit_first);
        let rack = self.rack.as_mut()?;
        let window = rack.allowed().unwrap_or(self.window.segments());
        let is_probe = rack.take_probe(self.segments.min(self.fresh + 1));
        let may_send = is_probe || rack.pipe() < window;
        let again = |number| Segment {
            number,
            is_retransmission: true,
        };
        if (may_send || is_first)
            && let Some(number) = rack.resend_lost()
        {
            return Some(again(number));
        }
        if may_send && self.fresh < self.segments {
            rack.send();
            let number = self.fresh;
            self.fresh += 1;
            self.next = self.fresh;
            return Some(Segment {
                number,
                is_retransmission: false,
            });
        }
        if !is_probe {
            return None;
        }
        rack.resend_last().map(again)
    }
}
