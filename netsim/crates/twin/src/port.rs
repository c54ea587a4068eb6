//! A port in front of an uplink: a queueing discipline, a rate, and a link.

use std::collections::{HashMap, VecDeque};

use splitter_policy::flow::Class;

use super::event::Packet;

/// A port and the link that it sends into.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) bits_per_second: u64,
    pub(super) propagation_ns: u64,
    queue: Queue,
    /// The packet that it sends now.
    sending: Option<Packet>,
    /// Bytes that have left by the time until which they are counted.
    pub(super) sent_bytes: u64,
    pub(super) counted_until_ns: u64,
    pub(super) dropped: u64,
}

/// How a port orders packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discipline {
    /// First come, first served.
    Fifo,
    /// The short class before the long one, each with a buffer of its own.
    Priority,
    /// Flows in turn, those that just came first; what is too much is dropped of the longest queue.
    Fair,
}

impl Port {
    pub(super) fn new(
        bits_per_second: u64,
        propagation_ns: u64,
        discipline: Discipline,
        buffer_bytes: u64,
    ) -> Self {
        let fifo = || Fifo::new(buffer_bytes);
        Self {
            bits_per_second,
            propagation_ns,
            queue: match discipline {
                Discipline::Fifo => Queue::Fifo(fifo()),
                Discipline::Priority => Queue::Priority([fifo(), fifo()]),
                Discipline::Fair => Queue::Fair(FairQueue::new(buffer_bytes)),
            },
            sending: None,
            sent_bytes: 0,
            counted_until_ns: u64::MAX,
            dropped: 0,
        }
    }

    /// Takes a packet. Returns when the port is free, where it has begun to send.
    pub(super) fn take(&mut self, packet: Packet, class: Class, now_ns: u64) -> Option<u64> {
        let dropped = match &mut self.queue {
            Queue::Fifo(queue) => queue.push(packet),
            Queue::Priority(queues) => queues[class as usize].push(packet),
            Queue::Fair(queue) => queue.push(packet),
        };
        self.dropped += dropped;
        if self.sending.is_some() {
            return None;
        }
        self.send_next(now_ns)
    }

    /// The packet that was being sent has left. Returns it, and when the port is free again, where it has
    /// begun to send another.
    pub(super) fn free(&mut self, now_ns: u64) -> (Option<Packet>, Option<u64>) {
        let sent = self.sending.take();
        (sent, self.send_next(now_ns))
    }

    fn send_next(&mut self, now_ns: u64) -> Option<u64> {
        let packet = match &mut self.queue {
            Queue::Fifo(queue) => queue.pop(),
            Queue::Priority(queues) => queues.iter_mut().find_map(Fifo::pop),
            Queue::Fair(queue) => queue.pop(),
        }?;
        let free_ns = now_ns + self.time_of_ns(packet.bytes.into());
        if free_ns <= self.counted_until_ns {
            self.sent_bytes += u64::from(packet.bytes);
        }
        self.sending = Some(packet);
        Some(free_ns)
    }

    fn time_of_ns(&self, bytes: u64) -> u64 {
        // A product of 64 bits would do for two seconds of traffic at most.
        (u128::from(bytes) * 8_000_000_000 / u128::from(self.bits_per_second)) as u64
    }

    /// Bytes that wait in the short class.
    pub(super) fn short_bytes(&self) -> u64 {
        match &self.queue {
            Queue::Priority([short, _]) => short.bytes,
            Queue::Fifo(_) | Queue::Fair(_) => 0,
        }
    }
}

#[derive(Debug)]
enum Queue {
    Fifo(Fifo),
    /// By the number of the class.
    Priority([Fifo; 2]),
    Fair(FairQueue),
}

#[derive(Debug)]
struct Fifo {
    packets: VecDeque<Packet>,
    bytes: u64,
    buffer_bytes: u64,
}

impl Fifo {
    fn new(buffer_bytes: u64) -> Self {
        Self {
            packets: VecDeque::new(),
            bytes: 0,
            buffer_bytes,
        }
    }

    /// Returns how many packets were dropped.
    fn push(&mut self, packet: Packet) -> u64 {
        let bytes = u64::from(packet.bytes);
        if self.bytes + bytes > self.buffer_bytes {
            return 1;
        }
        self.bytes += bytes;
        self.packets.push_back(packet);
        0
    }

    fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.bytes);
        Some(packet)
    }
}

/// Deficit round robin over flows (M. Shreedhar and G. Varghese, 1996), with flows that just came before
/// those that have had their turn (RFC 8290 §4.2).
#[derive(Debug)]
struct FairQueue {
    flows: HashMap<u64, OneFlow>,
    /// Flows that came since they were last empty, and those that go on.
    new: VecDeque<u64>,
    old: VecDeque<u64>,
    bytes: u64,
    buffer_bytes: u64,
}

#[derive(Debug, Default)]
struct OneFlow {
    packets: VecDeque<Packet>,
    bytes: u64,
    deficit: i64,
}

/// A full packet.
const QUANTUM: i64 = 1_514;

impl FairQueue {
    fn new(buffer_bytes: u64) -> Self {
        Self {
            flows: HashMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            bytes: 0,
            buffer_bytes,
        }
    }

    fn push(&mut self, packet: Packet) -> u64 {
        let name = u64::from(packet.connection.index) << 1 | packet.from as u64;
        let bytes = u64::from(packet.bytes);
        let flow = self.flows.entry(name).or_insert_with(|| {
            self.new.push_back(name);
            OneFlow {
                deficit: QUANTUM,
                ..OneFlow::default()
            }
        });
        flow.packets.push_back(packet);
        flow.bytes += bytes;
        self.bytes += bytes;
        let mut dropped = 0;
        while self.bytes > self.buffer_bytes && self.drop_of_longest() {
            dropped += 1;
        }
        dropped
    }

    /// Drops the first packet of the longest queue (RFC 8290 §4.1.3).
    fn drop_of_longest(&mut self) -> bool {
        // By name among equals: a hash map has no order that is the same in each process.
        let longest = self
            .flows
            .iter_mut()
            .max_by_key(|(name, it)| (it.bytes, **name));
        let Some((_, flow)) = longest else {
            return false;
        };
        let Some(packet) = flow.packets.pop_front() else {
            return false;
        };
        flow.bytes -= u64::from(packet.bytes);
        self.bytes -= u64::from(packet.bytes);
        true
    }

    fn pop(&mut self) -> Option<Packet> {
        loop {
            let is_new = !self.new.is_empty();
            let turns = if is_new { &mut self.new } else { &mut self.old };
            let name = turns.pop_front()?;
            let Some(flow) = self.flows.get_mut(&name) else {
                continue;
            };
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM;
                self.old.push_back(name);
                continue;
            }
            let Some(packet) = flow.packets.pop_front() else {
                // One that was new has a turn among the old ones before it is forgotten, lest it
                // comes as new again and again.
                if is_new && !self.old.is_empty() {
                    self.old.push_back(name);
                } else {
                    self.flows.remove(&name);
                }
                continue;
            };
            let bytes = u64::from(packet.bytes);
            flow.deficit -= bytes as i64;
            flow.bytes -= bytes;
            self.bytes -= bytes;
            let turns = if is_new { &mut self.new } else { &mut self.old };
            turns.push_front(name);
            return Some(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Handle, PacketKind, Side};
    use super::*;

    fn packet(flow: u32, number: u32) -> Packet {
        Packet {
            connection: Handle {
                index: flow,
                generation: 0,
            },
            from: Side::Site,
            sender: Side::Site,
            kind: PacketKind::Data {
                number,
                is_retransmission: false,
            },
            bytes: 1_500,
            stamp_ns: 0,
            at_border_ns: 0,
        }
    }

    /// Flows and numbers of what leaves.
    fn drain(port: &mut Port) -> Vec<(u32, u32)> {
        let mut order = Vec::new();
        let mut now_ns = 0;
        loop {
            let (sent, free_ns) = port.free(now_ns);
            if let Some(Packet {
                connection,
                kind: PacketKind::Data { number, .. },
                ..
            }) = sent
            {
                order.push((connection.index, number));
            }
            match free_ns {
                Some(free_ns) => now_ns = free_ns,
                None => return order,
            }
        }
    }

    fn port(discipline: Discipline, buffer_bytes: u64) -> Port {
        Port::new(12_000_000, 0, discipline, buffer_bytes)
    }

    #[test]
    fn fair_queue_gives_each_flow_its_turn_and_new_ones_first() {
        let mut port = port(Discipline::Fair, 1_000_000);
        for number in 0..6 {
            port.take(packet(1, number), Class::Long, 0);
            port.take(packet(2, number), Class::Long, 0);
        }
        // Both have had their first turn, and one of the first flow's is being sent.
        let before: Vec<_> = (0..4).filter_map(|_| port.free(0).0).collect();
        assert_eq!(before.len(), 4);
        port.take(packet(3, 0), Class::Short, 0);
        let order = drain(&mut port);
        assert_eq!(order[1], (3, 0), "the next: {order:?}");
        for flow in [1, 2] {
            let of_flow: Vec<_> = order.iter().filter(|it| it.0 == flow).collect();
            assert!(of_flow.is_sorted() && of_flow.len() == 4, "{order:?}");
        }
        let first = order.iter().take(5).filter(|it| it.0 == 1).count();
        assert_eq!(first, 2, "in turn: {order:?}");
        let Queue::Fair(queue) = &port.queue else {
            panic!("it is fair");
        };
        assert_eq!((queue.bytes, queue.flows.len()), (0, 0), "nothing is left");
    }

    #[test]
    fn fair_queue_drops_of_the_longest() {
        let mut port = port(Discipline::Fair, 6_000);
        for number in 0..6 {
            port.take(packet(1, number), Class::Long, 0);
        }
        port.take(packet(2, 0), Class::Short, 0);
        assert_eq!(port.dropped, 2);
        let order = drain(&mut port);
        assert!(order.contains(&(2, 0)), "{order:?}");
    }

    #[test]
    fn short_class_leaves_first_and_has_its_own_buffer() {
        let mut port = port(Discipline::Priority, 4_500);
        for number in 0..6 {
            port.take(packet(1, number), Class::Long, 0);
        }
        for number in 0..2 {
            port.take(packet(2, number), Class::Short, 0);
        }
        // One is being sent, and three wait.
        assert_eq!((port.dropped, port.short_bytes()), (2, 3_000));
        let order = drain(&mut port);
        assert_eq!(order, [(1, 0), (2, 0), (2, 1), (1, 1), (1, 2), (1, 3)]);
    }

    #[test]
    fn packet_takes_its_time_on_the_wire() {
        let mut port = port(Discipline::Fifo, 10_000);
        assert_eq!(port.take(packet(1, 0), Class::Short, 7), Some(1_000_007));
        assert_eq!(port.take(packet(1, 1), Class::Short, 8), None);
        let (sent, free_ns) = port.free(1_000_007);
        assert_eq!(sent, Some(packet(1, 0)));
        assert_eq!(free_ns, Some(2_000_007));
    }
}
