//! Feedback control of a flow's credits, by those that got lost (ExpressPass, Algorithm 1).

use crate::scenario::ExpressPassSettings;

/// The rate of a flow's credits, at its receiver.
#[derive(Debug)]
pub(super) struct CreditFeedback {
    settings: ExpressPassSettings,
    /// Credits in a second: the most that the port lets pass, and those of the flow now.
    max_rate: f64,
    rate: f64,
    w: f64,
    was_increasing: bool,
    /// Number of the credit whose data are due next.
    due: u16,
    /// Credits of this period whose fate is known, and those among them that were lost.
    counted: u32,
    lost: u32,
    /// Smoothed, from a credit to its data; 0 before the first.
    round_trip_ns: u64,
    period_from_ns: u64,
}

impl CreditFeedback {
    /// `max_rate` is in credits a second.
    pub(super) fn new(settings: ExpressPassSettings, max_rate: f64) -> Self {
        Self {
            max_rate,
            rate: settings.alpha * max_rate,
            w: settings.w_init,
            settings,
            was_increasing: false,
            due: 0,
            counted: 0,
            lost: 0,
            round_trip_ns: 0,
            period_from_ns: 0,
        }
    }

    /// Returns the mean pause between two credits.
    pub(super) fn gap_ns(&self) -> f64 {
        1e9 / self.rate
    }

    /// Returns the smoothed round trip; 0 before the first.
    pub(super) fn round_trip_ns(&self) -> u64 {
        self.round_trip_ns
    }

    /// Data have come for the credit of that number, so long after it. Credits keep their order, and data too: those
    /// before it that nothing came for are lost.
    pub(super) fn on_data(&mut self, now_ns: u64, credit: u16, round_trip_ns: u64) {
        // Numbers are modulo 2^16; what seems to be far ahead is from behind, after another path.
        let missing = credit.wrapping_sub(self.due);
        if missing < 1 << 15 {
            self.lost += u32::from(missing);
            self.counted += u32::from(missing) + 1;
            self.due = credit.wrapping_add(1);
        }
        if self.round_trip_ns == 0 {
            (self.round_trip_ns, self.period_from_ns) = (round_trip_ns.max(1), now_ns);
            return;
        }
        self.round_trip_ns = (7 * self.round_trip_ns + round_trip_ns) / 8;
        if now_ns - self.period_from_ns >= self.round_trip_ns && self.counted > 0 {
            self.update();
            self.period_from_ns = now_ns;
        }
    }

    /// Algorithm 1, once in a round trip.
    fn update(&mut self) {
        let ExpressPassSettings {
            w_min,
            w_max,
            target_loss,
            ..
        } = self.settings;
        let loss = f64::from(self.lost) / f64::from(self.counted);
        if loss <= target_loss {
            if self.was_increasing {
                self.w = (self.w + w_max) / 2.0;
            }
            // More than the port lets pass, so that some of it is lost where nobody else is.
            let most = self.max_rate * (1.0 + target_loss);
            self.rate = (1.0 - self.w) * self.rate + self.w * most;
        } else {
            self.rate *= (1.0 - loss) * (1.0 + target_loss);
            self.w = (self.w / 2.0).max(w_min);
        }
        self.was_increasing = loss <= target_loss;
        // Without any credit in a round trip there would be nothing to learn from.
        self.rate = self.rate.max(1e9 / self.round_trip_ns as f64);
        (self.counted, self.lost) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP_NS: u64 = 20_000;

    /// 800,000 credits a second at most, of which a flow begins with 50,000.
    fn feedback() -> CreditFeedback {
        CreditFeedback::new(ExpressPassSettings::default(), 800_000.0)
    }

    /// Data of a period, the last of which ends it: every `of`th credit is answered.
    fn period(feedback: &mut CreditFeedback, now_ns: &mut u64, credit: &mut u16, of: u16) {
        for _ in 0..20 {
            *now_ns += ROUND_TRIP_NS / 20;
            *credit = credit.wrapping_add(of);
            feedback.on_data(*now_ns, *credit, ROUND_TRIP_NS);
        }
    }

    fn begun() -> (CreditFeedback, u64, u16) {
        let mut feedback = feedback();
        feedback.on_data(ROUND_TRIP_NS, 0, ROUND_TRIP_NS);
        feedback.counted = 0;
        (feedback, ROUND_TRIP_NS, 0)
    }

    fn close(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 1e-9
    }

    #[test]
    fn without_loss_the_rate_goes_ever_faster_to_the_most_and_the_target_above() {
        let (mut it, mut now, mut credit) = begun();
        assert!(close(it.gap_ns(), 20_000.0), "a sixteenth of the most");
        period(&mut it, &mut now, &mut credit, 1);
        let first = 15.0 / 16.0 * 50_000.0 + 880_000.0 / 16.0;
        assert!(close(it.rate, first), "{}", it.rate);
        period(&mut it, &mut now, &mut credit, 1);
        // w goes half of the way to 1/2.
        let w = (1.0 / 16.0 + 0.5) / 2.0;
        let second = (1.0 - w) * first + w * 880_000.0;
        assert!(close(it.rate, second), "{} {second}", it.rate);
        for _ in 0..40 {
            period(&mut it, &mut now, &mut credit, 1);
        }
        assert!((0.499..=0.5).contains(&it.w), "{}", it.w);
        assert!((879_000.0..=880_000.0).contains(&it.rate), "{}", it.rate);
    }

    #[test]
    fn loss_cuts_the_rate_to_what_came_through_and_halves_w() {
        let (mut it, mut now, mut credit) = begun();
        it.rate = 800_000.0;
        // Three of four are lost.
        period(&mut it, &mut now, &mut credit, 4);
        assert!(close(it.rate, 800_000.0 * 0.25 * 1.1), "{}", it.rate);
        assert!(close(it.w, 1.0 / 32.0), "{}", it.w);
        // The next increase takes w as it is.
        period(&mut it, &mut now, &mut credit, 1);
        assert!(close(it.w, 1.0 / 32.0), "{}", it.w);
        for _ in 0..10 {
            period(&mut it, &mut now, &mut credit, 4);
        }
        assert_eq!(it.w, 0.01);
        assert!(close(it.gap_ns(), 20_000.0), "a credit each round trip");
    }

    #[test]
    fn as_much_loss_as_the_target_is_none() {
        for (lost, increases) in [(2, true), (3, false)] {
            let (mut it, mut now, mut credit) = begun();
            it.rate = 400_000.0;
            for number in 0..20 {
                now += ROUND_TRIP_NS / 20;
                credit += 1;
                if number >= lost {
                    it.on_data(now, credit, ROUND_TRIP_NS);
                }
            }
            assert_eq!(it.rate > 400_000.0, increases, "{lost} of 20: {}", it.rate);
        }
    }

    /// After a change of paths data may come for credits of long ago.
    #[test]
    fn late_data_are_no_loss_and_numbers_begin_again() {
        let (mut it, now, _) = begun();
        it.due = 65_530;
        it.on_data(now + 1, 5, ROUND_TRIP_NS);
        assert_eq!((it.counted, it.lost, it.due), (12, 11, 6));
        it.on_data(now + 2, 65_532, ROUND_TRIP_NS);
        assert_eq!((it.counted, it.lost, it.due), (12, 11, 6));
    }
}
