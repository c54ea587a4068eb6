//! The window of CUBIC (RFC 9438) with HyStart++ (RFC 9406), in segments.

/// RFC 9438 §5: C, in segments per s cubed.
const C: f64 = 0.4;
/// RFC 9438 §4.6: the window after a loss.
const BETA: f64 = 0.7;
/// RFC 9438 §4.3: increase of the Reno-friendly region.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// RFC 6928.
const INITIAL_WINDOW: f64 = 10.0;
/// RFC 9406 §4.3: bounds of the delay that ends slow start, in ns; samples of a round; rounds and
/// slowness of the conservative phase.
const RTT_THRESHOLD: [u64; 2] = [4_000_000, 16_000_000];
const RTT_SAMPLES: u32 = 8;
const CSS_ROUNDS: u32 = 5;
const CSS_DIVISOR: f64 = 4.0;

/// CUBIC's window.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    pub(crate) window: f64,
    threshold: f64,
    w_max: f64,
    prior: f64,
    k: f64,
    epoch: Option<u64>,
    estimate: f64,
    rounds: Rounds,
}

/// What HyStart++ knows of the rounds.
#[derive(Clone, Debug)]
struct Rounds {
    /// The packet whose acknowledgement ends the round.
    end: u64,
    least: u64,
    last_least: u64,
    samples: u32,
    css: Option<(u32, u64)>,
}

impl Default for Cubic {
    fn default() -> Self {
        Self {
            window: INITIAL_WINDOW,
            threshold: f64::INFINITY,
            w_max: 0.0,
            prior: 0.0,
            k: 0.0,
            epoch: None,
            estimate: 0.0,
            rounds: Rounds {
                end: 0,
                least: u64::MAX,
                last_least: u64::MAX,
                samples: 0,
                css: None,
            },
        }
    }
}

impl Cubic {
    /// So many packets were acknowledged, the newest of number `newest`; `next` is sent next.
    pub(crate) fn acknowledged(
        &mut self,
        now: u64,
        count: usize,
        (newest, next): (u64, u64),
        round_trip: u64,
        smoothed: u64,
    ) {
        let count = count as f64;
        if self.window < self.threshold {
            let divisor = if self.rounds.css.is_some() {
                CSS_DIVISOR
            } else {
                1.0
            };
            self.window += count / divisor;
            self.look_at_delay(newest, next, round_trip);
            return;
        }
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.estimate = self.window;
            if self.w_max < self.window {
                self.w_max = self.window;
                self.k = 0.0;
            } else {
                self.k = ((self.w_max - self.window) / C).cbrt();
            }
            now
        });
        let t = (now - epoch) as f64 / 1e9 + smoothed as f64 / 1e9;
        let target = C * (t - self.k).powi(3) + self.w_max;
        let target = target.clamp(self.window, 1.5 * self.window);
        let alpha = if self.estimate >= self.prior {
            1.0
        } else {
            ALPHA
        };
        self.estimate += alpha * count / self.window;
        self.window += (target - self.window) * count / self.window;
        self.window = self.window.max(self.estimate);
    }

    /// HyStart++ (RFC 9406 §4.2).
    fn look_at_delay(&mut self, newest: u64, next: u64, round_trip: u64) {
        let rounds = &mut self.rounds;
        rounds.least = rounds.least.min(round_trip);
        rounds.samples += 1;
        if rounds.samples >= RTT_SAMPLES && rounds.last_least < u64::MAX {
            let [low, high] = RTT_THRESHOLD;
            let threshold = (rounds.last_least / 8).clamp(low, high);
            match rounds.css {
                None if rounds.least >= rounds.last_least + threshold => {
                    rounds.css = Some((0, rounds.least));
                }
                Some((_, baseline)) if rounds.least < baseline => rounds.css = None,
                _ => {}
            }
        }
        if newest >= rounds.end {
            rounds.end = next;
            (rounds.last_least, rounds.least) = (rounds.least, u64::MAX);
            rounds.samples = 0;
            if let Some((count, _)) = &mut rounds.css {
                *count += 1;
                if *count >= CSS_ROUNDS {
                    self.threshold = self.window;
                }
            }
        }
    }

    /// Something was lost that was sent after the last reduction.
    pub(crate) fn lost(&mut self) {
        self.prior = self.window;
        // Fast convergence, RFC 9438 §4.7.
        self.w_max = if self.window < self.w_max {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.window = (self.window * BETA).max(2.0);
        self.threshold = self.window;
        self.epoch = None;
    }

    /// Nothing was heard for long (RFC 5681 §3.1).
    pub(crate) fn timed_out(&mut self) {
        self.lost();
        self.window = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_returns_to_where_it_was_lost_after_k() {
        let mut cubic = Cubic {
            window: 1_000.0,
            ..Cubic::default()
        };
        cubic.lost();
        assert!((cubic.window - 700.0).abs() < 1e-9);
        let k = (300.0_f64 / C).cbrt();
        let mut now = 0;
        while (now as f64) < k * 1e9 {
            cubic.acknowledged(now, 70, (0, 0), 100_000_000, 100_000_000);
            now += 10_000_000;
        }
        assert!((cubic.window - 1_000.0).abs() < 20.0, "{}", cubic.window);
    }
}
