//! Proportional rate reduction (PRR, RFC 6937): in a recovery the window shrinks with what arrives, over a round trip, and
//! does not stand still until half of the old one has drained.

/// How much may be in flight during a recovery, in segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateReduction {
    /// The window at the end of the recovery (`ssthresh`).
    threshold: u32,
    /// The window at its begin, which Linux takes for what was in flight then (`RecoverFS`).
    before: u32,
    delivered: u32,
    sent: u32,
    allowed: u32,
}

impl RateReduction {
    /// A recovery begins, from a window to another.
    pub(crate) fn new(before: u32, threshold: u32) -> Self {
        Self {
            threshold,
            before: before.max(1),
            delivered: 0,
            sent: 0,
            allowed: 0,
        }
    }

    /// An ACK says that so many segments have arrived, after which `pipe` are in flight. `is_progress`: it acknowledges
    /// something new, and nothing more is found lost.
    pub(crate) fn on_ack(&mut self, delivered: u32, pipe: u32, is_progress: bool) {
        if delivered == 0 && self.sent > 0 {
            return;
        }
        self.delivered += delivered;
        let first = u32::from(self.sent == 0);
        let may_send = if pipe > self.threshold {
            let in_proportion = u64::from(self.delivered) * u64::from(self.threshold);
            let in_proportion = in_proportion.div_ceil(u64::from(self.before)) as u32;
            in_proportion.saturating_sub(self.sent)
        } else {
            // The slow start reduction bound, while nothing more is lost.
            let conserved = self.delivered.saturating_sub(self.sent).max(delivered);
            (conserved + u32::from(is_progress)).min(self.threshold - pipe)
        };
        // The first retransmission goes at once (RFC 6675 §5 step 4.3).
        self.allowed = pipe + may_send.max(first);
    }

    /// A segment is sent.
    pub(crate) fn on_send(&mut self) {
        self.sent += 1;
    }

    /// How many segments may be in flight.
    pub(crate) fn allowed(&self) -> u32 {
        self.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends what it may, until as many ACKs have come as segments were in flight.
    fn sent_by_ack(lost: u32, acks: u32) -> Vec<u32> {
        let (mut reduction, mut pipe) = (RateReduction::new(20, 14), 20 - lost);
        (0..acks)
            .map(|_| {
                pipe -= 1;
                reduction.on_ack(1, pipe, true);
                let now = reduction.allowed().saturating_sub(pipe);
                (0..now).for_each(|_| reduction.on_send());
                pipe += now;
                now
            })
            .collect()
    }

    #[test]
    fn segments_leave_as_the_window_by_the_one_before() {
        let sent = sent_by_ack(0, 19);
        assert!(sent.iter().all(|it| *it <= 1), "{sent:?}");
        let all: u32 = sent.iter().sum();
        assert_eq!(20 - 19 + all, 14, "in flight at the end: {sent:?}");
    }

    #[test]
    fn what_many_losses_have_taken_comes_back_as_in_slow_start() {
        let sent = sent_by_ack(15, 4);
        assert_eq!(
            sent,
            [2, 2, 2, 2],
            "each ACK lets one more go than has arrived"
        );
        // And no further than to the threshold.
        let (mut reduction, pipe) = (RateReduction::new(20, 14), 13);
        reduction.on_ack(5, pipe, true);
        assert_eq!(reduction.allowed(), 14);
    }
}
