//! The growth of a window after a loss: CUBIC (RFC 9438), in bytes.

use core::time::Duration;

use cloudburst_wire::Time;

/// C, in segments per s cubed (RFC 9438 §5).
const C: f64 = 0.4;
/// The window after a loss, as a share of that before (RFC 9438 §4.6).
pub(super) const BETA: f64 = 0.7;
/// The window after a mark of ECN, as a share of that before: queues that mark are short, and would be empty for long after a
/// loss's reduction (RFC 8511 §3).
pub(super) const MARK_BETA: f64 = 0.85;
/// Increase of the Reno-friendly region, in segments per round trip (RFC 9438 §4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Growth of a window by CUBIC (RFC 9438).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cubic {
    /// The window at the last loss, in bytes.
    w_max: f64,
    /// The window before the last reduction.
    prior: f64,
    k: f64,
    epoch: Option<Time>,
    /// The window of the Reno-friendly region.
    estimate: f64,
}

impl Cubic {
    /// Congestion has reduced the window from `prior` to this part of it, `beta` where it is one flow's.
    pub(super) fn reduced(&mut self, prior: f64, kept: f64, beta: f64) {
        // Of several flows only one was reduced: what they grew to is as far above as if all were.
        self.prior = prior * kept / beta;
        // Fast convergence (RFC 9438 §4.7).
        self.w_max = if prior < self.w_max {
            prior * (1.0 + kept) / 2.0
        } else {
            prior
        };
        self.epoch = None;
    }

    /// The window was not the limit, or grew in another way: growth goes on from here.
    pub(super) fn pause(&mut self) {
        self.epoch = None;
    }

    /// How long it takes until a window is what it was before it was reduced.
    pub(super) fn recovery(&self, window: f64, (segment, round_trip): (f64, Duration)) -> Duration {
        let missing = (self.w_max - window).max(0.0) / segment;
        let friendly = round_trip.as_secs_f64() * missing / ALPHA;
        let seconds = (missing / C).cbrt().min(friendly);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// The window after `acknowledged` bytes more.
    pub(super) fn grow(
        &mut self,
        now: Time,
        window: f64,
        acknowledged: f64,
        (segment, round_trip): (f64, Duration),
    ) -> f64 {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.estimate = window;
                self.w_max = self.w_max.max(window);
                self.k = ((self.w_max - window) / segment / C).cbrt();
                self.epoch = Some(now);
                now
            }
        };
        let t = now.since(epoch).saturating_add(round_trip).as_secs_f64();
        let target = self.w_max + C * (t - self.k).powi(3) * segment;
        let target = target.clamp(window, 1.5 * window);
        let alpha = if self.estimate >= self.prior {
            1.0
        } else {
            ALPHA
        };
        self.estimate += alpha * segment * acknowledged / window;
        let grown = window + (target - window) * acknowledged / window;
        grown.max(self.estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_back_where_it_was_lost_after_k() {
        let mut cubic = Cubic::default();
        let segment = 1_000.0;
        cubic.reduced(1e6, BETA, BETA);
        let mut window = 0.7e6;
        let step = Duration::from_millis(10);
        let mut now = Time::ZERO;
        while now.as_nanos() < ((300.0_f64 / C).cbrt() * 1e9) as u64 {
            let round_trip = Duration::from_millis(100);
            window = cubic.grow(now, window, window / 10.0, (segment, round_trip));
            now = now + step;
        }
        assert!((window - 1e6).abs() < 2e4, "{window}");
    }

    /// The other flows' parts of the window are what they were where one of several has lost something.
    #[test]
    fn fast_convergence_is_of_the_part_that_was_reduced() {
        for (kept, w_max) in [(BETA, 85.0), (0.925, 96.25)] {
            let mut cubic = Cubic::default();
            cubic.reduced(110.0, BETA, BETA);
            cubic.reduced(100.0, kept, BETA);
            assert!((cubic.w_max - w_max).abs() < 1e-9, "{kept} {}", cubic.w_max);
        }
    }
}
