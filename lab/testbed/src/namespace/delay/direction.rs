//! What is on its way in one direction of a bundle of cables.
//!
//! One thread carries all cables of a bundle: packets that are due arrive in the order in which they are due,
//! also where it wakes up late. With a thread for each cable, two packets of a flow would change places
//! whenever the machine is busy, and a measurement of reordering would see that.

use std::{
    collections::VecDeque,
    fs::File,
    io::{Read as _, Write as _},
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{prctl, time::TimeSpec},
};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::Strand;

/// Longer than any packet that a device of the testbed sends.
const PACKET_BYTES: usize = 2048;
/// How many packets of a cable are read before those that are due are looked after again.
const READS_AT_ONCE: usize = 64;
/// How soon a direction sees that the bundle is gone.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// All cables of a bundle in one direction.
pub(super) struct Direction {
    lanes: Vec<Lane>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

/// One cable in one direction, with its ends.
struct Lane {
    from: Arc<File>,
    to: Arc<File>,
    wire: Wire,
}

/// The packets under way in a cable, in the order in which they were sent.
pub(super) struct Wire {
    delay: Duration,
    jitter: Duration,
    loss: f64,
    random: ChaCha8Rng,
    under_way: VecDeque<(Instant, Vec<u8>)>,
}

impl Direction {
    /// Carries each strand from the first to the second of its files.
    pub(super) fn new(strands: Vec<(&Strand, Arc<File>, Arc<File>)>, seed: u64) -> Self {
        let lanes = (0..).zip(strands).map(|(stream, (strand, from, to))| Lane {
            from,
            to,
            wire: Wire::new(strand, seed, stream),
        });
        Self {
            lanes: lanes.collect(),
            spare: Vec::new(),
        }
    }

    pub(super) fn carry(mut self, stop: &AtomicBool) {
        // Else the kernel wakes this thread up to 50 us late, to save power. It works without.
        let _ = prctl::set_timerslack(1);
        while !stop.load(Ordering::Relaxed) {
            self.deliver(Instant::now());
            self.wait();
            self.collect();
        }
    }

    /// Writes all that is due, what is due first before the rest.
    fn deliver(&mut self, now: Instant) {
        while let Some(lane) = self.next_lane()
            && lane.wire.next_due().is_some_and(|due| due <= now)
            && let Some(packet) = lane.wire.take()
        {
            // What the far end refuses is lost, as on any wire: its device is down.
            let _ = (&*lane.to).write(&packet);
            self.spare.push(packet);
        }
    }

    /// The cable whose packet is due first.
    fn next_lane(&mut self) -> Option<&mut Lane> {
        let with_packets = self.lanes.iter_mut();
        with_packets
            .filter_map(|lane| Some((lane.wire.next_due()?, lane)))
            .min_by_key(|(due, _)| *due)
            .map(|(_, lane)| lane)
    }

    /// Sleeps until a packet is there or the next one is due.
    fn wait(&mut self) {
        let next = self.next_lane().and_then(|lane| lane.wire.next_due());
        let pause = next.map_or(STOP_CHECK, |due| {
            due.saturating_duration_since(Instant::now())
                .min(STOP_CHECK)
        });
        let lanes = self.lanes.iter();
        let mut ready: Vec<_> = lanes
            .map(|lane| PollFd::new(lane.from.as_fd(), PollFlags::POLLIN))
            .collect();
        // An interrupted wait is a short one.
        let _ = ppoll(&mut ready, Some(TimeSpec::from_duration(pause)), None);
    }

    /// Reads what is there.
    fn collect(&mut self) {
        for lane in &mut self.lanes {
            for _ in 0..READS_AT_ONCE {
                let mut packet = self.spare.pop().unwrap_or_default();
                packet.resize(PACKET_BYTES, 0);
                // It fails when there is none, and while the device is down.
                let Ok(bytes) = (&*lane.from).read(&mut packet) else {
                    self.spare.push(packet);
                    break;
                };
                packet.truncate(bytes);
                self.spare.extend(lane.wire.put(packet, Instant::now()));
            }
        }
    }
}

impl Wire {
    pub(super) fn new(strand: &Strand, seed: u64, stream: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        Self {
            delay: strand.delay,
            jitter: strand.jitter,
            loss: strand.loss.clamp(0.0, 1.0),
            random,
            under_way: VecDeque::new(),
        }
    }

    /// Takes a packet that is sent at `now`; gives its buffer back if it is lost.
    pub(super) fn put(&mut self, packet: Vec<u8>, now: Instant) -> Option<Vec<u8>> {
        if self.loss > 0.0 && self.random.random_bool(self.loss) {
            return Some(packet);
        }
        let due = now + self.draw_delay();
        // What was sent before arrives before.
        let due = self
            .under_way
            .back()
            .map_or(due, |(last, _)| due.max(*last));
        self.under_way.push_back((due, packet));
        None
    }

    /// Returns the time at which the next packet arrives.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.under_way.front().map(|(due, _)| *due)
    }

    /// Takes the next packet out.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.under_way.pop_front().map(|(_, packet)| packet)
    }

    /// Evenly distributed between `delay` less `jitter` and `delay` plus `jitter`.
    fn draw_delay(&mut self) -> Duration {
        if self.jitter.is_zero() {
            return self.delay;
        }
        let spread = self.jitter.mul_f64(2.0 * self.random.random::<f64>());
        (self.delay + spread).saturating_sub(self.jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u64 = 10_000;

    fn wire(delay_ms: u64, jitter_ms: u64, loss: f64) -> Wire {
        let strand = Strand {
            device: "tun0".to_owned(),
            delay: Duration::from_millis(delay_ms),
            jitter: Duration::from_millis(jitter_ms),
            loss,
        };
        Wire::new(&strand, 7, 0)
    }

    /// When each packet of those sent every 10 ms arrives after it was sent, in ms.
    fn delays_ms(mut wire: Wire) -> Vec<f64> {
        let start = Instant::now();
        let mut delays = Vec::new();
        for number in 0..PACKETS {
            let sent = start + Duration::from_millis(10 * number);
            if wire.put(vec![0], sent).is_none() {
                let due = wire.next_due().expect("it was put there");
                delays.push((due - sent).as_secs_f64() * 1e3);
                wire.take();
            }
        }
        delays
    }

    #[test]
    fn packets_are_lost_as_often_as_stated() {
        assert_eq!(delays_ms(wire(10, 0, 0.0)).len() as u64, PACKETS);
        // 50 of 10,000 expected, with a standard deviation of 7.
        let lost = PACKETS - delays_ms(wire(10, 0, 0.005)).len() as u64;
        assert!((20..=80).contains(&lost), "{lost} lost");
    }

    #[test]
    fn jitter_lies_evenly_around_the_delay() {
        assert!(delays_ms(wire(10, 0, 0.0)).iter().all(|it| *it == 10.0));
        let delays = delays_ms(wire(10, 5, 0.0));
        let mean = delays.iter().sum::<f64>() / PACKETS as f64;
        assert!((mean - 10.0).abs() < 0.2, "{mean}");
        assert!(delays.iter().all(|it| (5.0..=15.0).contains(it)));
        let early = delays.iter().filter(|it| **it < 7.5).count() as f64;
        assert!((early / PACKETS as f64 - 0.25).abs() < 0.03, "{early}");
    }

    #[test]
    fn jitter_does_not_reorder_a_cable() {
        let mut wire = wire(10, 5, 0.0);
        let start = Instant::now();
        for number in 0..100_u8 {
            let sent = start + Duration::from_micros(100 * u64::from(number));
            assert_eq!(wire.put(vec![number], sent), None);
        }
        let mut last = start;
        for number in 0..100_u8 {
            let due = wire.next_due().expect("a hundred are under way");
            assert!(due >= last);
            last = due;
            assert_eq!(wire.take(), Some(vec![number]));
        }
    }

    #[test]
    fn packet_that_is_due_first_is_delivered_first() -> std::io::Result<()> {
        use nix::unistd::pipe;
        let (read, write) = pipe()?;
        let (read, write) = (File::from(read), Arc::new(File::from(write)));
        let idle = Arc::new(read.try_clone()?);
        let strand = |delay_ms| Strand {
            device: String::new(),
            delay: Duration::from_millis(delay_ms),
            jitter: Duration::ZERO,
            loss: 0.0,
        };
        let (slow, fast) = (strand(30), strand(10));
        let ends = |strand| (strand, Arc::clone(&idle), Arc::clone(&write));
        let mut direction = Direction::new(vec![ends(&slow), ends(&fast)], 1);
        let now = Instant::now();
        let [one, two] = &mut direction.lanes[..] else {
            panic!("two cables");
        };
        one.wire.put(vec![1], now);
        two.wire.put(vec![2], now + Duration::from_millis(5));
        two.wire.put(vec![3], now + Duration::from_millis(50));
        // As after a long sleep: two of them are late.
        direction.deliver(now + Duration::from_millis(55));
        let mut delivered = [0; 4];
        assert_eq!((&read).read(&mut delivered)?, 2);
        assert_eq!(delivered[..2], [2, 1]);
        Ok(())
    }
}
