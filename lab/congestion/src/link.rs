//! The bottleneck: a link with a queue that everybody's packets go through, drop-tail or with CoDel.

use std::collections::VecDeque;

use cloudburst_proto::Ecn;

use crate::{
    codel::Codel,
    flow::Packet,
    random::Random,
    series::{Counts, Series},
};

/// A link with one first-in-first-out queue, limited in bytes, which drops what does not fit.
#[derive(Debug)]
pub(crate) struct Link {
    bits_per_s: f64,
    limit_bytes: usize,
    /// The share that is lost by chance before it gets to the queue.
    loss: f64,
    /// When each packet came, and the packet.
    queue: VecDeque<(u64, Packet)>,
    queued_bytes: usize,
    codel: Option<Codel>,
    /// One second of each flow's counts after the other, in short bins.
    pub(crate) series: Series,
}

/// The outcome of handing a packet to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueued {
    /// The link was idle: the packet is through at this time.
    Serving(u64),
    Queued,
    Dropped,
}

impl Link {
    pub(crate) fn new(bits_per_s: f64, limit_bytes: usize, series: Series) -> Self {
        Self {
            bits_per_s,
            limit_bytes,
            loss: 0.0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            codel: None,
            series,
        }
    }

    /// Marks packets that have waited for too long and are capable of ECN, and drops others.
    pub(crate) fn with_codel(self) -> Self {
        Self {
            codel: Some(Codel::default()),
            ..self
        }
    }

    pub(crate) fn set_rate(&mut self, bits_per_s: f64) {
        self.bits_per_s = bits_per_s;
    }

    pub(crate) fn set_loss(&mut self, share: f64) {
        self.loss = share;
    }

    /// How long so many bytes take.
    pub(crate) fn time_of(&self, bytes: usize) -> u64 {
        (bytes as f64 * 8e9 / self.bits_per_s) as u64
    }

    /// Takes a packet; the one that is being sent counts as queued.
    pub(crate) fn enqueue(&mut self, now: u64, packet: Packet, random: &mut Random) -> Enqueued {
        let (flow, bytes) = (packet.flow, packet.bytes);
        let counts = self.series.at(now, flow);
        counts.sent += 1;
        counts.sent_bytes += bytes as u64;
        if self.loss > 0.0 && random.share() < self.loss {
            counts.lost += 1;
            return Enqueued::Dropped;
        }
        if self.queued_bytes + bytes > self.limit_bytes && !self.queue.is_empty() {
            counts.dropped += 1;
            return Enqueued::Dropped;
        }
        let is_idle = self.queue.is_empty();
        self.queue.push_back((now, packet));
        self.queued_bytes += bytes;
        self.series.note_queue(now, self.queued_bytes);
        if is_idle {
            return Enqueued::Serving(now + self.time_of(bytes));
        }
        Enqueued::Queued
    }

    /// The packet at the head is through. Returns it, and when the next will be.
    pub(crate) fn finish(&mut self, now: u64) -> Option<(Packet, Option<u64>)> {
        let (_, packet) = self.queue.pop_front()?;
        self.queued_bytes -= packet.bytes;
        self.series.note_queue(now, self.queued_bytes);
        let counts: &mut Counts = self.series.at(now, packet.flow);
        counts.through_bytes += packet.bytes as u64;
        self.control_delay(now);
        let next = self.queue.front();
        let next = next.map(|(_, next)| now + self.time_of(next.bytes));
        Some((packet, next))
    }

    /// Marks the packet that is sent next, or drops it and those behind it, if CoDel says so.
    fn control_delay(&mut self, now: u64) {
        let Some(codel) = &mut self.codel else {
            return;
        };
        while let Some((came, packet)) = self.queue.front_mut()
            && codel.is_hit(now, now - *came, self.queued_bytes)
        {
            let counts = self.series.at(now, packet.flow);
            if packet.ecn != Ecn::NotCapable {
                packet.ecn = Ecn::CongestionExperienced;
                counts.marked += 1;
                return;
            }
            counts.dropped += 1;
            self.queued_bytes -= packet.bytes;
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Payload;

    fn packet() -> Packet {
        Packet {
            flow: 0,
            path: 0,
            bytes: 1_000,
            ecn: Ecn::NotCapable,
            payload: Payload::Acknowledgement {
                packets: Vec::new(),
                is_marked: false,
            },
        }
    }

    #[test]
    fn a_queue_holds_its_limit_and_drops_the_rest() {
        let mut link = Link::new(8e6, 3_000, Series::new(1_000_000_000, 1));
        let mut random = Random::new(1);
        let taken: Vec<_> = (0..5)
            .map(|_| link.enqueue(0, packet(), &mut random))
            .collect();
        assert_eq!(taken[0], Enqueued::Serving(1_000_000));
        assert_eq!(taken[2], Enqueued::Queued);
        assert_eq!(taken[3..], [Enqueued::Dropped; 2]);
        let (_, next) = link.finish(1_000_000).unwrap();
        assert_eq!(next, Some(2_000_000));
        let counts = link.series.total(0, 0..2_000_000_000);
        assert_eq!((counts.sent, counts.dropped), (5, 2));
    }

    /// Marked and dropped packets of a queue that stands for a second.
    fn controlled(ecn: Ecn) -> (u64, u64) {
        let mut link = Link::new(8e6, 10_000_000, Series::new(2_000_000_000, 1)).with_codel();
        let mut random = Random::new(1);
        for _ in 0..1_000 {
            link.enqueue(0, Packet { ecn, ..packet() }, &mut random);
        }
        let (mut now, mut through) = (1_000_000, 0);
        while let Some((packet, next)) = link.finish(now) {
            through += 1;
            assert!(ecn == Ecn::Capable || packet.ecn == ecn);
            now = next.unwrap_or(now);
        }
        let counts = link.series.total(0, 0..2_000_000_000);
        assert_eq!(through + counts.dropped, 1_000);
        (counts.marked, counts.dropped)
    }

    #[test]
    fn queue_that_stands_marks_what_is_capable_and_drops_the_rest() {
        let (marked, dropped) = controlled(Ecn::Capable);
        assert!(marked > 10 && dropped == 0, "{marked} {dropped}");
        let (marked, dropped) = controlled(Ecn::NotCapable);
        assert!(marked == 0 && dropped > 10, "{marked} {dropped}");
    }
}
