//! Which messages are asked for, and when: decided beforehand, the same for every scheme.

use std::time::Duration;

use rand::{SeedableRng as _, seq::IndexedRandom as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp};

use crate::{rig::SERVERS, scenario::Scenario};

/// Messages with Poisson arrivals, each size as likely as any other.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Mean arrivals in a second, of all sizes together.
    pub per_second: f64,
    /// Sizes of messages in bytes.
    pub sizes: Vec<u32>,
    /// For how long messages arrive.
    pub length: Duration,
}

/// A message to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Start time, counted from the start of the round.
    pub at: Duration,
    /// Which of the servers is asked.
    pub server: usize,
    /// How much it answers.
    pub bytes: u32,
}

impl Workload {
    /// All messages by time. In [`Scenario::Incast`] all servers are asked at once for the same
    /// size, less often by their number, so that the load is that of the other scenarios.
    pub fn arrivals(&self, scenario: Scenario, seed: u64) -> Vec<Arrival> {
        let servers = servers(scenario);
        let rate = self.per_second / servers as f64;
        let Ok(gaps) = Exp::new(rate) else {
            return Vec::new();
        };
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut arrivals = Vec::new();
        let mut at_s = 0.0;
        loop {
            at_s += gaps.sample(&mut random);
            let at = Duration::try_from_secs_f64(at_s).unwrap_or(Duration::MAX);
            let Some(&bytes) = self.sizes.choose(&mut random) else {
                return arrivals;
            };
            if at >= self.length {
                return arrivals;
            }
            arrivals.extend((0..servers).map(|server| Arrival { at, server, bytes }));
        }
    }
}

/// How many servers are asked at once.
pub fn servers(scenario: Scenario) -> usize {
    match scenario {
        Scenario::Incast => SERVERS,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        Workload {
            per_second: 80.0,
            sizes: vec![5_000, 93_000],
            length: Duration::from_secs(100),
        }
    }

    #[test]
    fn arrivals_are_a_function_of_the_seed() {
        let one = workload().arrivals(Scenario::Idle, 7);
        assert_eq!(one, workload().arrivals(Scenario::Bulk4, 7));
        assert_ne!(one, workload().arrivals(Scenario::Idle, 8));
        assert!(one.is_sorted_by_key(|it| it.at));
        assert!((7_600..8_400).contains(&one.len()), "{}", one.len());
        let short = one.iter().filter(|it| it.bytes == 5_000).count();
        assert!((3_800..4_200).contains(&short), "{short}");
    }

    #[test]
    fn incast_asks_all_servers_at_once() {
        let arrivals = workload().arrivals(Scenario::Incast, 1);
        assert!((7_000..9_000).contains(&arrivals.len()));
        for together in arrivals.chunks(SERVERS) {
            assert!(together.iter().enumerate().all(|(server, it)| {
                it.server == server && it.at == together[0].at && it.bytes == together[0].bytes
            }));
        }
    }

    #[test]
    fn nothing_arrives_without_a_rate_or_a_size() {
        let mut none = workload();
        none.sizes.clear();
        assert!(none.arrivals(Scenario::Idle, 1).is_empty());
        let none = Workload {
            per_second: -1.0,
            ..workload()
        };
        assert!(none.arrivals(Scenario::Idle, 1).is_empty());
    }
}
