//! What goes through the bottleneck, and what waits before it, several times a second.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::Result;

use super::rig::{Rig, Through};
use crate::outcome::Curves;

/// How often the kernel is asked. Each time starts `tc` and `nft`, some 5 ms of a processor.
const EVERY: Duration = Duration::from_millis(200);

/// The counts at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    at: Duration,
    through: Through,
    queue_bytes: f64,
}

/// Records until the other end of the channel is gone.
pub(super) fn record(rig: &Rig, is_over: Receiver<()>) -> Result<Vec<Sample>> {
    let began = Instant::now();
    let mut samples = Vec::new();
    loop {
        samples.push(Sample {
            at: began.elapsed(),
            through: rig.through()?,
            queue_bytes: rig.queue_bytes()?,
        });
        if is_over.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return Ok(samples);
        }
    }
}

/// Rates between samples, of UDP under the first name and of TCP under the other one, and the queue.
pub(super) fn curves(samples: &[Sample], ours: &str, other: Option<&str>) -> Curves {
    let rate = |bytes: fn(&Through) -> u64| -> Vec<(f64, f64)> {
        let pairs = samples.windows(2);
        pairs
            .map(|pair| {
                let seconds = (pair[1].at - pair[0].at).as_secs_f64();
                let more = bytes(&pair[1].through) - bytes(&pair[0].through);
                (pair[0].at.as_secs_f64(), more as f64 * 8e-6 / seconds)
            })
            .collect()
    };
    let mut rates = vec![(ours.to_owned(), rate(|it| it.udp_bytes))];
    rates.extend(other.map(|name| (name.to_owned(), rate(|it| it.tcp_bytes))));
    let queue = samples.iter();
    Curves {
        rates,
        queue: queue
            .map(|it| (it.at.as_secs_f64(), it.queue_bytes / 1e3))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_what_came_through_between_two_samples() {
        let sample = |ms, udp_bytes, tcp_bytes, queue_bytes| Sample {
            at: Duration::from_millis(ms),
            through: Through {
                udp_bytes,
                tcp_bytes,
            },
            queue_bytes,
        };
        let samples = [
            sample(0, 0, 0, 0.0),
            sample(200, 250_000, 0, 30_000.0),
            sample(600, 250_000, 500_000, 5_000.0),
        ];
        let both = curves(&samples, "ours", Some("cubic"));
        let expected = [
            ("ours".to_owned(), vec![(0.0, 10.0), (0.2, 0.0)]),
            ("cubic".to_owned(), vec![(0.0, 0.0), (0.2, 10.0)]),
        ];
        assert_eq!(both.rates, expected);
        assert_eq!(both.queue, [(0.0, 0.0), (0.2, 30.0), (0.6, 5.0)]);
        assert_eq!(curves(&samples, "ours", None).rates, expected[..1]);
    }
}
