//! Delays of packets from one point to another, and how much they vary.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::TimedPacket;

/// Delays of packets from one point to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketDelays {
    /// A list for each flow, each in the order in which the packets passed the first point.
    pub flows: Vec<Vec<PacketDelay>>,
    /// Packets of the first point that did not pass the second: lost, gone elsewhere, or in an
    /// aggregate behind its first segment.
    pub unmatched: usize,
    /// Packets that are left out because one like them, a duplicate, passed the same point.
    pub ambiguous: usize,
}

/// A packet at both points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketDelay {
    /// Its passage of the first.
    pub sent: TimedPacket,
    /// Its passage of the second.
    pub arrived: TimedPacket,
}

/// How the delays of packets vary from one point to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelaySummary {
    /// Packets that passed both.
    pub matched: usize,
    /// Packets of the first point that did not pass the second.
    pub unmatched: usize,
    /// Packets that could not be told from others.
    pub ambiguous: usize,
    /// By mark: where both classes have marks of their own, by class.
    pub variation: Vec<DelayVariation>,
}

/// Variation of the delay of packets with one mark, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DelayVariation {
    /// DSCP at the first point.
    pub dscp: u8,
    /// Fwmark at the first point.
    pub fwmark: u32,
    /// Packets with one of their flow before them.
    pub packets: usize,
    /// Mean of the differences to the delay of the packet before, without the sign (IPDV, RFC 3393).
    pub mean_us: f64,
    /// Their median.
    pub p50_us: f64,
    /// Their 99th percentile.
    pub p99_us: f64,
}

impl PacketDelays {
    /// Finds the packets of one point again at another, with the same key: `sent` is from where they come.
    pub fn between(sent: &[TimedPacket], arrived: &[TimedPacket]) -> Self {
        let (departures, sent_twice) = unique(sent);
        let (arrivals, arrived_twice) = unique(arrived);
        let mut sent: Vec<TimedPacket> = departures.into_values().collect();
        sent.sort_unstable_by_key(|it| (it.at_ns, it.packet));
        let mut delays = Self {
            ambiguous: sent_twice.len(),
            ..Self::default()
        };
        let mut places = HashMap::new();
        for sent in sent {
            if arrived_twice.contains(&sent.packet) {
                delays.ambiguous += 1;
                continue;
            }
            let Some(&arrived) = arrivals.get(&sent.packet) else {
                delays.unmatched += 1;
                continue;
            };
            let place = *places
                .entry((sent.source, sent.destination))
                .or_insert_with(|| {
                    delays.flows.push(Vec::new());
                    delays.flows.len() - 1
                });
            delays.flows[place].push(PacketDelay { sent, arrived });
        }
        delays
    }

    /// By how much each packet's delay differs from that of the one of its flow before it, in
    /// nanoseconds (IPDV, RFC 3393 §4), with the packet. The difference of the clocks is not in it.
    ///
    /// Where not all packets are selected, the one before it is the last one that was.
    pub fn variation(&self) -> impl Iterator<Item = (&TimedPacket, i64)> {
        let pairs = self.flows.iter().flat_map(|flow| flow.windows(2));
        pairs.map(|pair| {
            let [before, this] = [&pair[0], &pair[1]];
            let difference_ns = this.nanoseconds().wrapping_sub(before.nanoseconds());
            (&this.sent, difference_ns)
        })
    }

    /// Returns counts and the variation by mark.
    pub fn summary(&self) -> DelaySummary {
        let mut marks: BTreeMap<(u8, u32), Vec<f64>> = BTreeMap::new();
        for (packet, ns) in self.variation() {
            let values = marks.entry((packet.dscp, packet.fwmark)).or_default();
            values.push(ns.unsigned_abs() as f64 / 1e3);
        }
        let variation = marks
            .into_iter()
            .map(|((dscp, fwmark), values)| DelayVariation::new(dscp, fwmark, values));
        DelaySummary {
            matched: self.flows.iter().map(Vec::len).sum(),
            unmatched: self.unmatched,
            ambiguous: self.ambiguous,
            variation: variation.collect(),
        }
    }
}

impl PacketDelay {
    /// The time from the first point to the second, modulo 2^64. Between machines it has the difference of their
    /// clocks in it, which may make it negative.
    pub fn nanoseconds(&self) -> i64 {
        self.arrived
            .at_ns
            .wrapping_sub(self.sent.at_ns)
            .cast_signed()
    }
}

impl DelayVariation {
    /// Of at least one value.
    fn new(dscp: u8, fwmark: u32, mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        // By nearest rank.
        let percentile = |percent: usize| values[(values.len() * percent).div_ceil(100) - 1];
        Self {
            dscp,
            fwmark,
            packets: values.len(),
            mean_us: values.iter().sum::<f64>() / values.len() as f64,
            p50_us: percentile(50),
            p99_us: percentile(99),
        }
    }
}

/// Passages by packet, without packets that passed twice, and these.
fn unique(passages: &[TimedPacket]) -> (HashMap<u64, TimedPacket>, HashSet<u64>) {
    let mut known = HashMap::with_capacity(passages.len());
    let mut twice = HashSet::new();
    for passage in passages {
        if known.insert(passage.packet, *passage).is_some() {
            twice.insert(passage.packet);
        }
    }
    known.retain(|packet, _| !twice.contains(packet));
    (known, twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(port: u16, packet: u64, at_ns: u64) -> TimedPacket {
        TimedPacket {
            packet,
            at_ns,
            source: ([10, 0, 0, 1], port).into(),
            destination: ([10, 0, 0, 2], 80).into(),
            dscp: port as u8,
            fwmark: 0,
        }
    }

    fn variation(delays: &PacketDelays) -> Vec<(u16, i64)> {
        let pairs = delays.variation();
        pairs.map(|(sent, ns)| (sent.source.port(), ns)).collect()
    }

    #[test]
    fn variation_is_the_difference_of_a_flows_successive_delays() {
        let sent = [
            passage(1, 1, 100),
            passage(2, 7, 110),
            passage(1, 3, 300),
            passage(1, 9, 200),
            passage(1, 4, 400),
            passage(2, 8, 410),
        ];
        // Delays of the first flow, in the order of sending: 50, 80, lost, 70.
        let arrived = [
            passage(1, 9, 280),
            passage(1, 1, 150),
            passage(2, 7, 999),
            passage(1, 4, 470),
            passage(2, 8, 999),
        ];
        let delays = PacketDelays::between(&sent, &arrived);
        let expected = [(1, 30), (1, -10), (2, -300)];
        assert_eq!(variation(&delays), expected);
        assert_eq!((delays.unmatched, delays.ambiguous), (1, 0));
        // A clock that is behind, even by more than the delay, changes nothing.
        let behind = arrived.map(|it| passage(it.source.port(), it.packet, it.at_ns - 145));
        let delays = PacketDelays::between(&sent, &behind);
        assert_eq!(variation(&delays), expected);
        let summary = delays.summary();
        assert_eq!(summary.matched, 5);
        let figures = |it: &DelayVariation| (it.dscp, it.packets, it.mean_us, it.p50_us, it.p99_us);
        let figures: Vec<_> = summary.variation.iter().map(figures).collect();
        assert_eq!(figures, [(1, 2, 0.02, 0.01, 0.03), (2, 1, 0.3, 0.3, 0.3)]);
    }

    #[test]
    fn packets_that_cannot_be_told_apart_are_left_out() {
        let sent = [1, 1, 2, 3, 4].map(|packet| passage(1, packet, packet * 100));
        let arrived = [1, 2, 3, 3, 4].map(|packet| passage(1, packet, packet * 110));
        let delays = PacketDelays::between(&sent, &arrived);
        let left: Vec<u64> = delays.flows[0].iter().map(|it| it.sent.packet).collect();
        assert_eq!(left, [2, 4]);
        assert_eq!((delays.unmatched, delays.ambiguous), (0, 2));
    }

    #[test]
    fn nothing_in_common_is_no_delay() {
        let delays = PacketDelays::between(&[passage(1, 1, u64::MAX)], &[passage(1, 2, 0)]);
        assert_eq!((delays.unmatched, delays.summary().variation.len()), (1, 0));
        let across = PacketDelays::between(&[passage(1, 1, u64::MAX)], &[passage(1, 1, 1)]);
        assert_eq!(across.flows[0][0].nanoseconds(), 2);
    }
}
