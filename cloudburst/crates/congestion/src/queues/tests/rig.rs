//! Queues that others' transfers fill, paths through them, and what is made of their delays.

use super::*;

/// A datagram of 1,500 bytes at 50 Mbit/s, and 100 kB.
const DATAGRAM_US: u64 = 240;
const LIMIT_US: u64 = 16_000;

/// Random numbers, the same in each run.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % most.max(1)
    }
}

/// Others' transfer: a window arrives whole each round trip, grows, and is reduced where the queue is full.
pub(super) struct Transfer {
    next_us: u64,
    round_us: u64,
    window: u64,
}

/// A queue that transfers of others fill, and that lets out first what came first.
pub(super) struct Fifo {
    free_at_us: u64,
    pub(super) transfers: Vec<Transfer>,
}

impl Fifo {
    pub(super) fn new(random: &mut Random, transfers: usize) -> Self {
        let transfer = |_| Transfer {
            next_us: random.below(20_000),
            round_us: 1_000 + random.below(10_000),
            window: 5 + random.below(30),
        };
        Self {
            free_at_us: 0,
            transfers: (0..transfers).map(transfer).collect(),
        }
    }

    fn standing_us(&self, at_us: u64) -> u64 {
        self.free_at_us.saturating_sub(at_us)
    }

    fn put(&mut self, at_us: u64, datagrams: u64) -> u64 {
        let room = LIMIT_US.saturating_sub(self.standing_us(at_us)) / DATAGRAM_US;
        let taken = datagrams.min(room);
        self.free_at_us = self.free_at_us.max(at_us) + taken * DATAGRAM_US;
        taken
    }

    /// How long a datagram takes that comes then; none if the queue is full.
    pub(super) fn delay_us(&mut self, at_us: u64) -> Option<u64> {
        while let Some(next) = (0..self.transfers.len())
            .min_by_key(|&index| self.transfers[index].next_us)
            .filter(|&index| self.transfers[index].next_us <= at_us)
        {
            let Transfer {
                next_us, window, ..
            } = self.transfers[next];
            let taken = self.put(next_us, window);
            let standing_us = self.standing_us(next_us);
            let transfer = &mut self.transfers[next];
            transfer.window = if taken < window {
                (window * 7 / 10).max(2)
            } else {
                window + 1
            };
            transfer.next_us += transfer.round_us + standing_us;
        }
        (self.put(at_us, 1) == 1).then(|| self.standing_us(at_us))
    }
}

/// Paths through queues, and what is made of them.
pub(super) struct Rig {
    pub(super) random: Random,
    pub(super) fifos: Vec<Fifo>,
    pub(super) queues: Queues,
    pub(super) through: Vec<usize>,
    pub(super) now_us: u64,
}

impl Rig {
    /// So many paths through so many queues in turn, each of which two transfers fill.
    pub(super) fn new(seed: u64, paths: usize, fifos: usize) -> Self {
        let mut random = Random(seed);
        Self {
            fifos: (0..fifos).map(|_| Fifo::new(&mut random, 2)).collect(),
            random,
            queues: Queues::default(),
            through: vec![0; paths],
            now_us: 1_000_000,
        }
    }

    /// Sends a datagram by a path, which arrives later by so much; its report comes 20 ms later.
    pub(super) fn send(&mut self, path: usize, later_us: impl Fn(&mut Random, usize) -> u64) {
        let fifo = path % self.fifos.len();
        if let Some(delay_us) = self.fifos[fifo].delay_us(self.now_us) {
            let delay_us = delay_us + later_us(&mut self.random, path);
            self.report(path, delay_us);
        }
    }

    pub(super) fn report(&mut self, path: usize, delay_us: u64) {
        let sent_at = Time::from_nanos(self.now_us * 1_000);
        let delay_us = delay_us as i32;
        let sample = DelaySample { sent_at, delay_us };
        let now = sent_at + Duration::from_millis(20);
        self.through[path] = self.queues.sample(now, path as u16 + 1, sample, 1_400);
    }

    /// Sends messages of some or many datagrams by any paths for so long, as `msgbench` does; of two of a path one is reported on.
    pub(super) fn messages(&mut self, for_us: u64, later_us: impl Fn(&mut Random, usize) -> u64) {
        let until_us = self.now_us + for_us;
        while self.now_us < until_us {
            let datagrams = [2, 8, 33][self.random.below(3) as usize];
            for _ in 0..datagrams {
                let path = self.random.below(self.through.len() as u64) as usize;
                self.send(path, &later_us);
                self.now_us += 200 + self.random.below(600);
            }
            self.now_us += self.random.below(14_000);
        }
    }

    /// Tells if paths count as through the same queue that go through the same, and no others.
    pub(super) fn is_right(&self) -> bool {
        let of = |path: usize| path % self.fifos.len();
        let paths = 0..self.through.len();
        let is_right = |one: usize, other: usize| {
            (self.through[one] == self.through[other]) == (of(one) == of(other))
        };
        paths
            .clone()
            .all(|one| paths.clone().all(|other| is_right(one, other)))
    }
}

/// A constant for each path, and what hosts' interrupts do.
pub(super) fn constant_and_noise_us(random: &mut Random, path: usize) -> u64 {
    1_000 * path as u64 + random.below(100)
}
