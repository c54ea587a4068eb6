//! What a tunnel for short flows is worth where long ones have to leave it in order: no more than a
//! split pays that moves them at once, out of order.

use flow_balance::ServiceTime;
use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::{Class, TunnelRole};

use crate::border::{Border, MICROSECOND, MILLISECOND, QUEUE_NS, SECOND};
use crate::tcp::{Opening, Received, Small, Traffic, run};
use crate::traffic::Random;

const LOAD_PERCENT: u64 = 40;
const ROUND_TRIP_NS: u64 = 300 * MICROSECOND;
/// 1.5 MB.
const UPLOAD_PACKETS: u64 = 1_036;
const SEEDS: u64 = 4;
const FROM_NS: u64 = SECOND;
const TO_NS: u64 = 21 * SECOND;
const ENDS_NS: u64 = TO_NS + 20 * SECOND;

/// Uploads that are this load of both tunnels, from hosts whose access is ten times as fast, so that
/// none ever pauses; as many downloads; and short flows.
fn traffic(seed: u64, mbit: u64) -> Traffic {
    let random = &mut Random(seed);
    let bits = (TO_NS - FROM_NS) / 1_000 * 2 * mbit * LOAD_PERCENT / 100;
    let count = bits / (UPLOAD_PACKETS * 1_514 * 8);
    let mut any_time = || FROM_NS + random.below(TO_NS - FROM_NS);
    let transfers = (0..count).map(|_| Opening {
        opens_ns: any_time(),
        sends_ns: None,
        packets: UPLOAD_PACKETS,
    });
    Traffic {
        transfers: transfers.collect(),
        round_trip_ns: ROUND_TRIP_NS,
        downloads: (0..count).map(|_| any_time()).collect(),
        small: Small::mixed(random, 120 * mbit / 100, FROM_NS, TO_NS),
        ends_ns: ENDS_NS,
    }
}

/// What became of the flows in a border, over all seeds.
#[derive(Debug, Default)]
struct Outcome {
    /// How long short flows with data took.
    short_ns: Vec<u64>,
    /// How long each upload's packets went into the short tunnel after it had become long, and
    /// stood there.
    stays_ns: Vec<u64>,
    overtaken: usize,
}

impl Outcome {
    fn of(mbit: u64, configure: impl Fn(&mut PolicyConfig)) -> Self {
        let mut outcome = Self::default();
        for seed in 0..SEEDS {
            let traffic = traffic(seed, mbit);
            let mut border = Border::dedicated([mbit; 2], traffic.flows());
            configure(&mut border.config);
            let received = run(&mut border, &traffic, 0);
            outcome.add(&traffic, &border, &received);
        }
        outcome.short_ns.sort_unstable();
        outcome
    }

    fn add(&mut self, traffic: &Traffic, border: &Border, received: &Received) {
        let with_data = |it: &(&Small, &u64)| it.0.payload > 0 && *it.1 > 0;
        let small = traffic.small.iter().zip(&received.small_ns);
        let took = small.filter(with_data).map(|(it, end)| end - it.starts_ns);
        self.short_ns.extend(took);
        self.overtaken += received.overtaken.len();
        let mut stays = vec![None; traffic.transfers.len()];
        for it in &border.log {
            let is_late = it.packet.class == Class::Long && it.tunnel == TunnelRole::Short;
            if let Some(stay) = stays.get_mut(it.packet.flow).filter(|_| is_late) {
                let (from, _) = stay.unwrap_or((it.packet.entered_ns, 0));
                *stay = Some((from, it.left_ns));
            }
        }
        let stays = stays.into_iter().flatten().map(|(from, to)| to - from);
        self.stays_ns.extend(stays);
    }

    fn mean_ms(&self) -> f64 {
        self.short_ns.iter().sum::<u64>() as f64 / self.short_ns.len() as f64 / 1e6
    }

    fn p99_ms(&self) -> f64 {
        self.short_ns[self.short_ns.len() * 99 / 100] as f64 / 1e6
    }

    fn longest_stay_ns(&self) -> u64 {
        self.stays_ns.iter().copied().max().unwrap_or(0)
    }
}

#[test]
fn short_flows_are_as_fast_as_where_long_ones_leave_at_once_and_none_overtakes_itself() {
    for (mbit, max_wait_ms, long_queue_ms) in [(100, 2, 16), (100, 2, 5), (50, 4, 16), (50, 4, 5)] {
        let at_once = Outcome::of(mbit, |config| {
            config.short_service = ServiceTime::UNKNOWN;
            (config.drain_margin_ns, config.max_wait_ns) = (0, 0);
        });
        let max_wait_ns = max_wait_ms * MILLISECOND;
        let ours = Outcome::of(mbit, |config| {
            config.max_wait_ns = max_wait_ns;
            config.long_queue_ns = long_queue_ms * MILLISECOND;
        });
        let (mean, p99) = (
            ours.mean_ms() / at_once.mean_ms(),
            ours.p99_ms() / at_once.p99_ms(),
        );
        let stay_ns = ours.longest_stay_ns();
        println!(
            "{mbit} Mbit/s, {long_queue_ms} ms: mean {mean:.3}, p99 {p99:.2} of a split at once; \
             longest stay {:.1} ms; {} overtaken, {} at once",
            stay_ns as f64 / 1e6,
            ours.overtaken,
            at_once.overtaken
        );
        assert!(mean <= 1.05 && p99 <= 1.3, "{mbit}: {mean:.3}, {p99:.2}");
        assert_eq!(ours.overtaken, 0);
        assert!(at_once.overtaken > 1_000);
        // The longest wait, and what waits in front of the last packet that was let in.
        assert!(stay_ns <= max_wait_ns + QUEUE_NS + MILLISECOND, "{stay_ns}");
        assert!(ours.stays_ns.len() > 50);
    }
}
