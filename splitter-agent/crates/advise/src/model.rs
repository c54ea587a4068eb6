//! Predicts what a threshold does to flow completion times, as far as queues between two borders decide it.
//!
//! The short tunnel is a FIFO that every flow's first packets enter in the bursts of slow start:
//! ten segments (RFC 6928), then twice as many each round trip. With bursts arriving at random,
//! Pollaczek and Khinchine's formula gives the wait of each:
//!
//! ```text
//! W = λ Σ E[burst²] / (2 C² (1 - ρ))
//! ```
//!
//! The long tunnel is shared by the rest of the long flows as processor sharing has it, the usual
//! model of TCP flows on one link: what is left takes `rest / (C (1 - ρ))`, whatever the
//! distribution (Massoulié and Roberts, "Bandwidth sharing and admission control for elastic
//! traffic", 2000). A flow's completion time is then
//!
//! ```text
//! short:  rounds (RTT + W) + size / C_short
//! long:   the same for its first packets, + the other rounds' RTT + rest / (C_long (1 - ρ_long))
//! ```
//!
//! and its slowdown that time over what it would take alone on the faster tunnel. Losses,
//! receive windows and what a long flow sends into the short tunnel while it waits for its change
//! are not in the model.

use super::sizes::Bucket;

/// RFC 6928: ten segments of 1460 bytes.
const INITIAL_WINDOW_BYTES: f64 = 14_600.0;

/// Two tunnels and how fast flows come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// Bytes per second of the short tunnel.
    pub short_rate: f64,
    /// Bytes per second of the long tunnel.
    pub long_rate: f64,
    /// Round-trip time without queues, in seconds.
    pub rtt_s: f64,
    /// Flows per second.
    pub flows_per_second: f64,
}

/// Holds what the model says of a threshold. Loads are shares of what a tunnel carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Of the short tunnel.
    pub short_load: f64,
    /// Of the long tunnel.
    pub long_load: f64,
    /// How long a burst waits in the short tunnel, in seconds.
    pub wait_s: f64,
    /// Share of flows that become long.
    pub long_flows: f64,
    /// Share of bytes that take the long tunnel.
    pub long_bytes: f64,
    /// Mean completion time of flows that stay short, in seconds; 0 if there are none.
    pub short_fct_s: f64,
    /// Mean completion time of those up to the lower reference size, in seconds; 0 if there are
    /// none.
    pub below_fct_s: f64,
    /// Mean completion time of flows that become long, in seconds; 0 if there are none.
    pub long_fct_s: f64,
    /// Mean completion time of those beyond the upper reference size, in seconds; 0 if there are
    /// none.
    pub beyond_fct_s: f64,
    /// Mean over all flows of completion time over what it would be alone.
    pub mean_slowdown: f64,
}

/// What `threshold` would do; `None` where a tunnel would get more than it carries.
///
/// `references` are sizes up to which and beyond which completion times are distinguished, for
/// comparing thresholds by the same flows.
pub(super) fn predict(
    flows: &[Bucket],
    network: &Network,
    threshold: u64,
    references: [u64; 2],
) -> Option<Prediction> {
    let loads = loads(flows, network, threshold);
    if loads.short >= 1.0 || loads.long >= 1.0 {
        return None;
    }
    let wait_s = network.flows_per_second * loads.burst_square
        / (2.0 * network.short_rate.powi(2) * (1.0 - loads.short));
    let mut sums = [Mean::default(); 4];
    let mut slowdown = Mean::default();
    for bucket in flows {
        let size = bucket.bytes / bucket.flows;
        let head = size * head_share(bucket, threshold);
        let rounds = Bursts::of(head).rounds;
        let fct_s = rounds * (network.rtt_s + wait_s)
            + head / network.short_rate
            + (Bursts::of(size).rounds - rounds) * network.rtt_s
            + (size - head) / (network.long_rate * (1.0 - loads.long));
        let is_long = bucket.upper > threshold;
        sums[usize::from(is_long)].add(fct_s, bucket.flows);
        if bucket.upper <= references[0] {
            sums[2].add(fct_s, bucket.flows);
        }
        if bucket.upper > references[1] {
            sums[3].add(fct_s, bucket.flows);
        }
        slowdown.add(fct_s / alone_s(size, network), bucket.flows);
    }
    let [short, long, below, beyond] = sums;
    Some(Prediction {
        short_load: loads.short,
        long_load: loads.long,
        wait_s,
        long_flows: long.weight / (short.weight + long.weight),
        long_bytes: loads.tail_share,
        short_fct_s: short.value(),
        below_fct_s: below.value(),
        long_fct_s: long.value(),
        beyond_fct_s: beyond.value(),
        mean_slowdown: slowdown.value(),
    })
}

/// Bytes of a mean flow.
pub(super) fn mean_bytes(flows: &[Bucket]) -> f64 {
    let mut mean = Mean::default();
    for bucket in flows {
        mean.add(bucket.bytes / bucket.flows, bucket.flows);
    }
    mean.value()
}

fn alone_s(size: f64, network: &Network) -> f64 {
    Bursts::of(size).rounds * network.rtt_s + size / network.short_rate.max(network.long_rate)
}

struct Loads {
    short: f64,
    long: f64,
    /// Share of bytes beyond the threshold.
    tail_share: f64,
    /// Mean over flows of the sum of their squared bursts, in bytes squared.
    burst_square: f64,
}

fn loads(flows: &[Bucket], network: &Network, threshold: u64) -> Loads {
    let (mut head, mut tail, mut square) = (Mean::default(), Mean::default(), Mean::default());
    for bucket in flows {
        let size = bucket.bytes / bucket.flows;
        let first = size * head_share(bucket, threshold);
        head.add(first, bucket.flows);
        tail.add(size - first, bucket.flows);
        square.add(Bursts::of(first).square, bucket.flows);
    }
    let (head, tail) = (head.value(), tail.value());
    Loads {
        short: network.flows_per_second * head / network.short_rate,
        long: network.flows_per_second * tail / network.long_rate,
        tail_share: if head + tail > 0.0 {
            tail / (head + tail)
        } else {
            0.0
        },
        burst_square: square.value(),
    }
}

/// How much of a flow comes before it is long.
fn head_share(bucket: &Bucket, threshold: u64) -> f64 {
    if bucket.upper <= threshold {
        1.0
    } else {
        (threshold as f64 * bucket.flows / bucket.units).min(1.0)
    }
}

/// How slow start sends so many bytes.
struct Bursts {
    rounds: f64,
    /// Sum of the squares of its bursts, in bytes squared.
    square: f64,
}

impl Bursts {
    fn of(bytes: f64) -> Self {
        if bytes <= 0.0 {
            return Self {
                rounds: 0.0,
                square: 0.0,
            };
        }
        // After n full bursts, 2^n - 1 initial windows have been sent.
        let full = (bytes / INITIAL_WINDOW_BYTES + 1.0).log2().floor();
        let rest = (bytes - INITIAL_WINDOW_BYTES * (full.exp2() - 1.0)).max(0.0);
        let squares = INITIAL_WINDOW_BYTES.powi(2) * ((2.0 * full).exp2() - 1.0) / 3.0;
        Self {
            rounds: full + f64::from(u8::from(rest > 0.0)),
            square: squares + rest.powi(2),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    fn value(self) -> f64 {
        if self.weight > 0.0 {
            self.sum / self.weight
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sizes::Sample;
    use super::*;

    const NETWORK: Network = Network {
        short_rate: 12.5e6,
        long_rate: 12.5e6,
        rtt_s: 0.02,
        flows_per_second: 100.0,
    };

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn slow_start_doubles_its_bursts() {
        let window = INITIAL_WINDOW_BYTES;
        for (windows, rounds, squares) in [
            (1.0, 1.0, 1.0),
            (3.0, 2.0, 5.0),
            (7.0, 3.0, 21.0),
            (5.0, 3.0, 9.0),
            (0.5, 1.0, 0.25),
        ] {
            let bursts = Bursts::of(windows * window);
            assert!(close(bursts.rounds, rounds), "{windows}: {}", bursts.rounds);
            assert!(close(bursts.square / window.powi(2), squares), "{windows}");
        }
    }

    /// Flows of one size that fits a burst: an M/D/1 queue, whose wait the textbook knows.
    #[test]
    fn equal_short_flows_are_an_m_d_1_queue() {
        let mut sample = Sample::default();
        sample.add(10, 12_500, 1.0);
        let at = predict(
            &sample.filled(),
            &Network {
                flows_per_second: 500.0,
                ..NETWORK
            },
            40,
            [40; 2],
        )
        .unwrap();
        assert!(close(at.short_load, 0.5));
        // ρ / (2 (1 - ρ)) services of 1 ms.
        assert!(close(at.wait_s, 0.000_5), "{}", at.wait_s);
        assert!(close(at.short_fct_s, 0.02 + 0.000_5 + 0.001));
        assert_eq!(
            (at.long_flows, at.long_bytes, at.long_fct_s),
            (0.0, 0.0, 0.0)
        );
        assert!(close(at.mean_slowdown, 0.021_5 / 0.021));
    }

    #[test]
    fn what_is_beyond_the_threshold_shares_the_long_tunnel() {
        let mut sample = Sample::default();
        sample.add(1_000, 1_250_000, 1.0);
        let at = predict(
            &sample.filled(),
            &Network {
                flows_per_second: 5.0,
                ..NETWORK
            },
            100,
            [100; 2],
        )
        .unwrap();
        assert!(close(at.short_load, 0.05) && close(at.long_load, 0.45));
        assert!(close(at.long_bytes, 0.9) && close(at.long_flows, 1.0));
        // 125 kB are 4 bursts and 1.25 MB are 7: 14.6, 29.2, 58.4 kB and what is left.
        let squares = (14.6f64.powi(2) + 29.2f64.powi(2) + 58.4f64.powi(2) + 22.8f64.powi(2)) * 1e6;
        let wait = 5.0 * squares / (2.0 * 12.5e6f64.powi(2) * 0.95);
        assert!(close(at.wait_s, wait), "{} {wait}", at.wait_s);
        let fct = 4.0 * (0.02 + wait) + 0.01 + 3.0 * 0.02 + 0.09 / 0.55;
        assert!(close(at.long_fct_s, fct), "{} {fct}", at.long_fct_s);
    }

    #[test]
    fn no_tunnel_carries_more_than_it_can() {
        let mut sample = Sample::default();
        sample.add(1_000, 1_250_000, 1.0);
        let network = Network {
            flows_per_second: 11.0,
            ..NETWORK
        };
        let flows = sample.filled();
        assert_eq!(
            predict(&flows, &network, 10, [10; 2]),
            None,
            "the long tunnel"
        );
        assert_eq!(
            predict(&flows, &network, 2_000, [10; 2]),
            None,
            "the short tunnel"
        );
        assert!(predict(&flows, &network, 500, [10; 2]).is_some());
    }
}
