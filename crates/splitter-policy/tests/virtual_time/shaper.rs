//! A tunnel as the agent shapes it: HTB in virtual time, whose timer may fire late.

use std::collections::VecDeque;

use splitter_policy::flow::Class;

/// A packet on its way through a border.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) flow: usize,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) entered_ns: u64,
    /// Its flow's.
    pub(crate) class: Class,
    pub(crate) queue: Queue,
}

/// Queues of a shaped tunnel, by priority: short before long, and Cloudburst beside short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Short,
    Long,
    Cloudburst,
}

/// The tokens of a class, in time at its rate; HTB sends while they are not negative.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    bits_per_second: u64,
    burst_ns: i64,
    tokens_ns: i64,
    seen_ns: u64,
}

impl Bucket {
    fn new(bits_per_second: u64, burst_ns: u64) -> Self {
        let burst_ns = burst_ns as i64;
        Self {
            bits_per_second,
            burst_ns,
            tokens_ns: burst_ns,
            seen_ns: 0,
        }
    }

    fn cost_ns(&self, bytes: u64) -> u64 {
        bytes * 8 * 1_000_000_000 / self.bits_per_second
    }

    /// What time brought, and no more than the burst: what a late timer lost is lost.
    fn refill(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.seen_ns) as i64;
        self.tokens_ns = (self.tokens_ns + passed).min(self.burst_ns);
        self.seen_ns = self.seen_ns.max(now_ns);
    }

    fn charge(&mut self, bytes: u64) {
        self.tokens_ns -= self.cost_ns(bytes) as i64;
    }

    fn due_ns(&self) -> u64 {
        self.seen_ns + (-self.tokens_ns).max(0) as u64
    }
}

/// A tunnel's shaper.
#[derive(Debug)]
pub(crate) struct Shaper {
    whole: Bucket,
    cloudburst: Bucket,
    queues: [VecDeque<Packet>; 3],
    waiting_bytes: [u64; 3],
    limits_bytes: [u64; 3],
    /// Of the two classes of the first priority, which one sends next.
    is_turn_of_cloudburst: bool,
    pub(crate) dropped: [u64; 3],
    pub(crate) sent_bytes: [u64; 3],
}

impl Shaper {
    /// As `splitter_agent::shaping` has it: bursts of 0.25 ms at least, a quarter for Cloudburst.
    pub(crate) fn new(bits_per_second: u64, queue_ns: u64) -> Self {
        const FULL_BYTES: u64 = 1_514;
        let whole = Bucket::new(bits_per_second, 250_000);
        let burst_ns = whole.cost_ns(2 * FULL_BYTES + 72).max(250_000);
        let queue_bytes = bits_per_second / 8 * queue_ns / 1_000_000_000;
        Self {
            whole: Bucket::new(bits_per_second, burst_ns),
            cloudburst: Bucket::new(bits_per_second / 4, 4 * burst_ns),
            queues: Default::default(),
            waiting_bytes: [0; 3],
            limits_bytes: [queue_bytes, queue_bytes, 4 * FULL_BYTES],
            is_turn_of_cloudburst: false,
            dropped: [0; 3],
            sent_bytes: [0; 3],
        }
    }

    /// Tells whether the packet had room.
    pub(crate) fn enqueue(&mut self, packet: Packet) -> bool {
        let index = packet.queue as usize;
        let fits = self.waiting_bytes[index] + packet.bytes <= self.limits_bytes[index];
        if fits {
            self.waiting_bytes[index] += packet.bytes;
            self.queues[index].push_back(packet);
        } else {
            self.dropped[index] += 1;
        }
        fits
    }

    pub(crate) fn waiting_bytes(&self, queue: Queue) -> u64 {
        self.waiting_bytes[queue as usize]
    }

    /// What leaves now.
    pub(crate) fn run(&mut self, now_ns: u64) -> Vec<Packet> {
        let mut left = Vec::new();
        self.whole.refill(now_ns);
        self.cloudburst.refill(now_ns);
        while self.whole.tokens_ns >= 0 {
            let Some(queue) = self.next() else { break };
            let index = queue as usize;
            let packet = self.queues[index].pop_front().expect("it is not empty");
            self.waiting_bytes[index] -= packet.bytes;
            self.whole.charge(packet.bytes);
            if queue == Queue::Cloudburst {
                self.cloudburst.charge(packet.bytes);
            }
            self.is_turn_of_cloudburst = queue == Queue::Short;
            self.sent_bytes[index] += packet.bytes;
            left.push(packet);
        }
        left
    }

    fn next(&self) -> Option<Queue> {
        let waits = |queue: Queue| !self.queues[queue as usize].is_empty();
        let cloudburst = waits(Queue::Cloudburst) && self.cloudburst.tokens_ns >= 0;
        match (waits(Queue::Short), cloudburst) {
            (true, true) if self.is_turn_of_cloudburst => Some(Queue::Cloudburst),
            (true, _) => Some(Queue::Short),
            (false, true) => Some(Queue::Cloudburst),
            (false, false) => waits(Queue::Long).then_some(Queue::Long),
        }
    }

    /// When its timer is due, if anything waits.
    pub(crate) fn timer_ns(&self) -> Option<u64> {
        let waits = |queue: Queue| !self.queues[queue as usize].is_empty();
        if waits(Queue::Short) || waits(Queue::Long) {
            Some(self.whole.due_ns())
        } else {
            let due = self.whole.due_ns().max(self.cloudburst.due_ns());
            waits(Queue::Cloudburst).then_some(due)
        }
    }
}
