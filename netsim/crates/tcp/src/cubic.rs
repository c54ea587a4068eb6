//! CUBIC (RFC 9438) with HyStart, as servers speak it: how the window grows with time instead of round trips,
//! and when slow start ends before the queue is full.
//!
//! Arithmetic is that of IEEE 754 without functions of the system's library, so that results are the same on
//! every machine.

/// The constant of the cubic, in segments per s cubed (RFC 9438 §5).
const C: f64 = 0.4;
/// The window after a loss, by that before (RFC 9438 §4.6).
pub(crate) const BETA: f64 = 0.7;
/// Growth of Reno with this reduction, in segments a round trip (RFC 9438 §4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Until the first loss the window grows by a 20th a round trip at the least, for nobody knows the bandwidth
/// (Linux, `net/ipv4/tcp_cubic.c`).
const LEAST_FIRST_GROWTH: f64 = 1.0 / 20.0;

/// HyStart looks from this window on, in segments (S. Ha and I. Rhee, *Taming the Elephants: New TCP Slow
/// Start*, 2011, and Linux; as all below).
const LOW_WINDOW: f64 = 16.0;
/// ACKs this near to each other are of one train.
const TRAIN_GAP_NS: u64 = 2_000_000;
/// So many round trips at the start of each round say how long it is.
const SAMPLES: u32 = 8;
/// Bounds of the increase of the round trip, an eighth, that ends slow start.
const INCREASE_NS: [u64; 2] = [4_000_000, 16_000_000];

/// State of CUBIC beside the window itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cubic {
    now_ns: u64,
    smoothed_ns: u64,
    /// The window at which something was lost, lowered where the one before was higher (§4.7).
    w_max: Option<f64>,
    /// The window at the last reduction.
    prior: f64,
    growth: Option<Growth>,
    rounds: Rounds,
}

/// Congestion avoidance since it began.
#[derive(Clone, Copy, Debug)]
struct Growth {
    began_ns: u64,
    /// The plateau of the cubic, and the seconds until it is reached.
    origin: f64,
    k_s: f64,
    /// Window that Reno would have.
    reno: f64,
}

/// Knowledge of the rounds of slow start.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    /// The round ends when this segment is acknowledged.
    ends: u32,
    began_ns: u64,
    /// The last ACK of the train with which the round began.
    train_ns: u64,
    /// The least round trip of all, and of the first samples of the round.
    least_ns: Option<u64>,
    sample_ns: Option<u64>,
    samples: u32,
}

impl Cubic {
    /// Takes an ACK, before the window grows for it: segments below `una` are acknowledged, and `next` is sent
    /// next. Returns whether slow start is to end.
    pub(crate) fn observe(
        &mut self,
        now_ns: u64,
        round_trip_ns: u64,
        smoothed_ns: u64,
        (una, next): (u32, u32),
        window: f64,
    ) -> bool {
        (self.now_ns, self.smoothed_ns) = (now_ns, smoothed_ns);
        let rounds = &mut self.rounds;
        let least_ns = rounds
            .least_ns
            .map_or(round_trip_ns, |it| it.min(round_trip_ns));
        rounds.least_ns = Some(least_ns);
        if una > rounds.ends {
            *rounds = Rounds {
                ends: next,
                began_ns: now_ns,
                train_ns: now_ns,
                ..Rounds::default()
            };
            rounds.least_ns = Some(least_ns);
        }
        if window < LOW_WINDOW {
            return false;
        }
        rounds.is_train_long(now_ns, least_ns) || rounds.is_slower(round_trip_ns, least_ns)
    }

    /// Returns the window after a segment was acknowledged in congestion avoidance.
    pub(crate) fn grown(&mut self, window: f64) -> f64 {
        let (w_max, now_ns) = (self.w_max, self.now_ns);
        let growth = self.growth.get_or_insert_with(|| {
            let origin = w_max.unwrap_or(window).max(window);
            Growth {
                began_ns: now_ns,
                origin,
                k_s: cube_root((origin - window) / C),
                reno: window,
            }
        });
        let since_ns = now_ns.saturating_sub(growth.began_ns) + self.smoothed_ns;
        let from_plateau_s = since_ns as f64 / 1e9 - growth.k_s;
        let target = growth.origin + C * from_plateau_s * from_plateau_s * from_plateau_s;
        let target = target.clamp(window, 1.5 * window);
        // At the window of the last reduction Reno has made up for it (§4.3).
        let alpha = if growth.reno < self.prior { ALPHA } else { 1.0 };
        growth.reno += alpha / window;
        let mut step = (target - window) / window;
        if w_max.is_none() {
            step = step.max(LEAST_FIRST_GROWTH);
        }
        (window + step).max(growth.reno)
    }

    /// Takes note of a loss at this window.
    pub(crate) fn on_loss(&mut self, window: f64) {
        let is_lower = self.w_max.is_some_and(|it| window < it);
        let fast_convergence = if is_lower { (1.0 + BETA) / 2.0 } else { 1.0 };
        self.w_max = Some(window * fast_convergence);
        self.prior = window;
        self.growth = None;
    }
}

impl Rounds {
    /// Segments that were sent back to back come back over half of the least round trip: the window fills the
    /// path both ways.
    fn is_train_long(&mut self, now_ns: u64, least_ns: u64) -> bool {
        if now_ns.saturating_sub(self.train_ns) > TRAIN_GAP_NS {
            return false;
        }
        self.train_ns = now_ns;
        now_ns - self.began_ns > least_ns / 2
    }

    /// The round's first segments took longer than the least: a queue builds.
    fn is_slower(&mut self, round_trip_ns: u64, least_ns: u64) -> bool {
        if self.samples < SAMPLES {
            self.samples += 1;
            let sample_ns = self.sample_ns.unwrap_or(u64::MAX);
            self.sample_ns = Some(sample_ns.min(round_trip_ns));
            return false;
        }
        let [low, high] = INCREASE_NS;
        let bound_ns = least_ns + (least_ns / 8).clamp(low, high);
        self.sample_ns.is_some_and(|it| it > bound_ns)
    }
}

/// The cube root of a number that is not negative, by Newton's method.
fn cube_root(number: f64) -> f64 {
    if number <= 0.0 {
        return 0.0;
    }
    // A third of the exponent is within a factor of two of the root.
    let exponent = (number.to_bits() >> 52) as i64 - 1_023;
    let mut root = f64::from_bits(((exponent / 3 + 1_023) as u64) << 52);
    for _ in 0..8 {
        root = (2.0 * root + number / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn cube_roots_are_those_of_their_cubes() {
        for root in [1e-3, 0.5, 1.0, 1.7, 9.0, 1234.5] {
            let found = cube_root(root * root * root);
            assert!((found / root - 1.0).abs() < 1e-12, "{root}: {found}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }

    #[test]
    fn window_is_back_where_it_was_lost_after_k() {
        let mut cubic = Cubic::default();
        cubic.on_loss(1_000.0);
        let mut window = 700.0;
        // The cube root of 300 / 0.4, in steps of a round trip of 100 ms.
        let k_ms = 9_086;
        for round in 0..k_ms / 100 {
            cubic.observe(round * 100 * MS, 100 * MS, 100 * MS, (0, 0), 1.0);
            for _ in 0..window as u64 {
                window = cubic.grown(window);
            }
        }
        assert!((990.0..1_001.0).contains(&window), "{window}");
    }

    #[test]
    fn lower_loss_gives_way_to_others() {
        let mut cubic = Cubic::default();
        cubic.on_loss(100.0);
        assert_eq!(cubic.w_max, Some(100.0));
        cubic.on_loss(80.0);
        assert_eq!(cubic.w_max, Some(68.0), "80 times (1 + 0.7) / 2");
    }

    /// Feeds a round of ACKs `gap_ns` apart; returns whether slow start was to end in it.
    fn round(cubic: &mut Cubic, number: u64, (gap_ns, round_trip_ns): (u64, u64)) -> bool {
        let (acks, begin) = (20, number as u32 * 20);
        (0..acks).any(|ack| {
            let now_ns = number * 1_000 * MS + ack * gap_ns;
            let una = begin + ack as u32 + 1;
            let next = begin + 40;
            cubic.observe(now_ns, round_trip_ns, round_trip_ns, (una, next), 20.0)
        })
    }

    #[test]
    fn slow_start_ends_when_a_queue_builds_or_the_path_is_full() {
        let apart = 3 * MS;
        let mut cubic = Cubic::default();
        assert!(!round(&mut cubic, 0, (apart, 20 * MS)));
        assert!(!round(&mut cubic, 2, (apart, 23 * MS)), "less than 4 ms");
        assert!(round(&mut cubic, 4, (apart, 25 * MS)));
        // 20 ACKs that follow each other take 19 times their gap: more or less than 10 ms.
        let mut cubic = Cubic::default();
        assert!(!round(&mut cubic, 0, (MS / 2, 20 * MS)));
        assert!(round(&mut cubic, 2, (MS * 6 / 10, 20 * MS)));
    }

    #[test]
    fn small_windows_stay_in_slow_start() {
        let mut cubic = Cubic::default();
        let ends = (0..100).any(|it| cubic.observe(it * MS, it * MS, MS, (0, 9), 15.9));
        assert!(!ends);
    }
}
