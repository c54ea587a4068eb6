//! What the driver has counted, in addition to the protocol.

use std::time::Duration;

use cloudburst_proto::{self as protocol, PeerId, Receipt};

/// Counters of an endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EndpointStatistics {
    /// Counters of the protocol.
    pub protocol: protocol::TransportStatistics,
    /// Counters of the sockets.
    pub sockets: SocketStatistics,
    /// Completion of the messages that were delivered.
    pub completion: CompletionHistogram,
    /// Events that listeners were too slow for; see [`Events`](super::Events).
    pub events_missed: u64,
}

/// Counters of an endpoint's sockets. All only ever grow but those that say *now*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketStatistics {
    /// Sockets that are bound.
    pub sockets: u64,
    /// Sockets on which segmentation offload failed or never was: a call for each datagram.
    pub plain_now: u64,
    /// System calls that sent.
    pub send_calls: u64,
    /// System calls that received.
    pub receive_calls: u64,
    /// Times that a socket's buffer was full and sending waited.
    pub send_waits: u64,
    /// Datagrams dropped because a socket's buffer stayed full.
    pub send_drops: u64,
    /// Datagrams that the system did not send, for another reason than those below.
    pub send_errors: u64,
    /// Calls of receive that failed.
    pub receive_errors: u64,
    /// Datagrams longer than a link on the way, as far as the system reports.
    pub too_big: u64,
    /// Notices that nobody is there, or that there is no way.
    pub unreachable: u64,
    /// Ports that were to be abandoned for others and were kept, as none could be bound.
    pub replace_errors: u64,
    /// Messages dropped because the inbox went away, as the endpoint ends.
    pub inbox_overflows: u64,
}

/// Buckets to each doubling of time: bounds are 41 % apart.
const PER_OCTAVE: u32 = 2;
/// Upper bound of the first bucket: 2^13 ns = 8 µs.
const FIRST_LOG2: u32 = 13;
/// To 2^36 ns = 69 s, more than any message may take.
const OCTAVES: u32 = 23;
const BUCKETS: usize = (OCTAVES * PER_OCTAVE) as usize + 2;

/// How many messages took how long.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionHistogram {
    counts: [u64; BUCKETS],
    sum: Duration,
    /// Apart, as whoever copies the rest hardly ever wants them.
    exemplars: Box<[Option<CompletionExemplar>; BUCKETS]>,
}

/// A delivered message that stands for those in its bucket: the last one of them.
///
/// It says neither what was in the message nor where it went, and its number is not the one on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionExemplar {
    /// Number of the message among those that were delivered, counted from 1.
    pub number: u64,
    /// The peer that it was for, as this endpoint names it.
    pub peer: PeerId,
    /// Time and symbols that it took.
    pub receipt: Receipt,
    /// Time since 1970 when the stop arrived; none where the runtime has no calendar.
    pub unix_time: Option<Duration>,
}

impl Default for CompletionHistogram {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            sum: Duration::ZERO,
            exemplars: Box::new([None; BUCKETS]),
        }
    }
}

impl CompletionHistogram {
    pub(super) fn record(&mut self, peer: PeerId, receipt: Receipt, unix_time: Option<Duration>) {
        let completion = receipt.completion;
        let index = (0..BUCKETS - 1).find(|&index| completion <= bound(index));
        let index = index.unwrap_or(BUCKETS - 1);
        self.counts[index] += 1;
        self.sum += completion;
        self.exemplars[index] = Some(CompletionExemplar {
            number: self.count(),
            peer,
            receipt,
            unix_time,
        });
    }

    /// The number of all messages.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time of all together.
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// Each bucket's upper bound, none for the last, and count.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bound = |index| (index < BUCKETS - 1).then(|| bound(index));
        let counts = self.counts.iter().enumerate();
        counts.map(move |(index, &count)| (bound(index), count))
    }

    /// The last message of each bucket that has one, by the bucket's place among [`buckets`](Self::buckets).
    pub fn exemplars(&self) -> impl Iterator<Item = (usize, &CompletionExemplar)> {
        let exemplars = self.exemplars.iter().enumerate();
        exemplars.filter_map(|(index, it)| Some((index, it.as_ref()?)))
    }
}

fn bound(index: usize) -> Duration {
    let index = index as u32;
    let whole = 1_u64 << (FIRST_LOG2 + index / PER_OCTAVE);
    let nanos = match index % PER_OCTAVE {
        0 => whole,
        // Times the square root of 2.
        _ => (whole as f64 * std::f64::consts::SQRT_2) as u64,
    };
    Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A histogram of messages to one peer, delivered one second after the other.
    fn of(nanos: &[u64]) -> CompletionHistogram {
        let mut histogram = CompletionHistogram::default();
        for (seconds, &nanos) in (0..).zip(nanos) {
            let mut receipt = Receipt::default();
            receipt.completion = Duration::from_nanos(nanos);
            let at = Some(Duration::from_secs(seconds));
            histogram.record(PeerId::new(3, 0), receipt, at);
        }
        histogram
    }

    #[test]
    fn the_last_message_of_a_bucket_stands_for_it() {
        let histogram = of(&[8_193, 1 << 40, 8_200, 11_000]);
        let exemplars: Vec<_> = histogram.exemplars().collect();
        let [(1, fast), (last, slow)] = exemplars[..] else {
            panic!("{exemplars:?}");
        };
        assert_eq!((fast.number, slow.number), (4, 2));
        assert_eq!(fast.receipt.completion, Duration::from_nanos(11_000));
        assert_eq!(slow.unix_time, Some(Duration::from_secs(1)));
        assert_eq!(slow.peer, PeerId::new(3, 0));
        assert_eq!(last, histogram.buckets().count() - 1);
        assert_eq!(histogram.count(), 4);
    }

    #[test]
    fn a_completion_falls_below_its_bound() {
        let histogram = of(&[0, 8_192, 8_193, 1_000_000, 60_000_000_000, 1 << 40]);
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets[0], (Some(Duration::from_nanos(8_192)), 2));
        assert_eq!(buckets[1].1, 1);
        assert_eq!(buckets.last(), Some(&(None, 1)));
        assert_eq!(buckets.iter().map(|it| it.1).sum::<u64>(), 6);
        assert!(
            buckets
                .windows(2)
                .all(|two| two[1].0.is_none() || two[0].0 < two[1].0)
        );
        let longest = buckets[BUCKETS - 2].0.unwrap();
        assert!(longest > protocol::MAX_LIFETIME, "{longest:?}");
    }
}
