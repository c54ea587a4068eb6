//! Datagrams of a path that nothing was heard of yet.

use std::collections::VecDeque;

use cloudburst_wire::Time;

/// Datagrams in flight on a path, train by train.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    trains: VecDeque<Train>,
    bytes: u64,
}

/// Bytes of a peer so far, by all its paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes that were sent to it.
    pub sent: u64,
    /// Bytes that were delivered to it.
    pub delivered: u64,
}

/// Datagrams of the same length that left together.
#[derive(Clone, Copy, Debug)]
struct Train {
    first: u64,
    last: u64,
    datagram_bytes: u32,
    sent_at: Time,
    before: Totals,
}

/// Datagrams of which a report has told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Bytes of these datagrams.
    pub bytes: u64,
    /// The time at which the train of the newest of them was sent, and the peer's totals before that.
    pub newest: Option<(Time, Totals)>,
    /// The time at which the train of the oldest of them was sent.
    pub oldest_at: Option<Time>,
    /// The datagram that the report is about is that one, and no answer that was sent later.
    pub is_newest_known: bool,
}

impl InFlight {
    /// Returns how many bytes are in flight.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many trains are kept, at 48 bytes each.
    pub fn trains(&self) -> usize {
        self.trains.len()
    }

    /// Takes note of a datagram that is sent; `before` are the peer's totals without it.
    pub fn sent(&mut self, now: Time, sequence: u64, bytes: usize, before: Totals) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        let datagram_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Some(train) = self.trains.back_mut()
            && (train.sent_at, train.datagram_bytes) == (now, datagram_bytes)
            && train.last.checked_add(1) == Some(sequence)
        {
            train.last = sequence;
            return;
        }
        self.trains.push_back(Train {
            first: sequence,
            last: sequence,
            datagram_bytes,
            sent_at: now,
            before,
        });
    }

    /// Takes out all up to a number, which has arrived or is lost.
    pub fn resolve(&mut self, highest: u64) -> Resolved {
        let mut resolved = Resolved::default();
        while let Some(train) = self.trains.front_mut()
            && train.first <= highest
        {
            let last = train.last.min(highest);
            let datagrams = last.saturating_sub(train.first).saturating_add(1);
            let bytes = datagrams.saturating_mul(train.datagram_bytes.into());
            resolved.bytes = resolved.bytes.saturating_add(bytes);
            resolved.oldest_at.get_or_insert(train.sent_at);
            resolved.newest = Some((train.sent_at, train.before));
            resolved.is_newest_known = last == highest;
            train.first = last.saturating_add(1);
            if train.first <= train.last {
                break;
            }
            self.trains.pop_front();
        }
        self.bytes = self.bytes.saturating_sub(resolved.bytes);
        resolved
    }

    /// Forgets all, as nothing will be heard of them any more.
    pub fn clear(&mut self) {
        self.trains.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(delivered: u64) -> Totals {
        Totals {
            sent: 1_000 * delivered,
            delivered,
        }
    }

    #[test]
    fn bytes_in_flight_are_those_sent_and_not_resolved() {
        let mut in_flight = InFlight::default();
        let at = Time::from_nanos;
        for sequence in 0..10 {
            in_flight.sent(at(sequence / 4), sequence, 1_000, totals(sequence));
        }
        in_flight.sent(at(9), 12, 100, totals(10));
        assert_eq!((in_flight.bytes(), in_flight.trains()), (10_100, 4));
        let resolved = in_flight.resolve(5);
        assert_eq!(
            (resolved.bytes, resolved.newest),
            (6_000, Some((at(1), totals(4))))
        );
        assert_eq!(resolved.oldest_at, Some(at(0)));
        assert!(resolved.is_newest_known);
        assert_eq!(in_flight.resolve(5), Resolved::default());
        let mut with_an_answer = in_flight.clone();
        assert!(
            !with_an_answer.resolve(11).is_newest_known,
            "10 and 11 were answers"
        );
        let resolved = in_flight.resolve(12);
        assert_eq!(
            (resolved.bytes, resolved.newest),
            (4_100, Some((at(9), totals(10))))
        );
        assert_eq!(resolved.oldest_at, Some(at(1)));
        in_flight.sent(at(10), 13, 100, totals(10));
        in_flight.clear();
        assert_eq!((in_flight.bytes(), in_flight.resolve(20).bytes), (0, 0));
    }
}
