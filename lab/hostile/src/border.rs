//! A border that hostile frames pass one after the other.

use flow_balance::ServiceTime;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use splitter_policy::config::{PolicyConfig, Protocols, TunnelUse};
use splitter_policy::counters::Counters;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::pass_reason::PassReason;
use splitter_policy::split::Outcome;
use splitter_policy::table::GROUP_SLOTS;
use splitter_policy::thresholds::Thresholds;

use crate::Outcomes;
use crate::host::Host;

/// A splitter with a small table, whose settings change and whose time goes on.
pub struct Border {
    /// What became of the frames.
    pub outcomes: Outcomes,
    host: Host,
    random: SmallRng,
    /// Of the present host.
    frames: u64,
}

/// Flows that the table is made for; hostile frames are of many more.
const TABLE_SIZE: u32 = 64;

/// After which another border takes its place, under other settings.
const FRAMES: u64 = 50_000;

impl Border {
    /// A border whose course is the same for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(!seed);
        Self {
            outcomes: Outcomes::default(),
            host: host(&mut random),
            random,
            frames: 0,
        }
    }

    /// Splits one frame after all others.
    ///
    /// # Panics
    /// Where more or less is counted than one frame, or a frame becomes longer or shorter.
    pub fn split(&mut self, frame: &[u8]) {
        if self.frames == FRAMES {
            self.check();
            self.host = host(&mut self.random);
            self.frames = 0;
        }
        self.frames += 1;
        self.host.now_ns += match self.random.random_range(0..10_000) {
            // Longer than any flow is remembered.
            0 => 40_000_000_000,
            1..100 => 20_000_000,
            other => other,
        };
        let mut copy = frame.to_vec();
        let before = counted(&self.host.counters);
        let outcome = self.host.split(&mut copy);
        assert_eq!(copy.len(), frame.len());
        let counted = counted(&self.host.counters) - before;
        match outcome {
            Outcome::Split { .. } => self.outcomes.split += 1,
            Outcome::Passed(_) => self.outcomes.passed += 1,
            Outcome::Dropped => {
                assert_eq!((counted, &copy[..]), (0, frame));
                self.outcomes.dropped += 1;
                return;
            }
        }
        assert_eq!(counted, 1, "{outcome:?}");
    }

    /// Holds the table against its bounds.
    ///
    /// # Panics
    /// Where it has more flows than slots, or one that has counted nothing.
    pub fn check(&self) {
        let slots = 2 * (TABLE_SIZE as usize / 4) * GROUP_SLOTS;
        let flows = self.host.flows();
        assert!(
            flows.len() <= slots,
            "{} flows in {slots} slots",
            flows.len()
        );
        for (key, entry) in flows {
            assert!(entry.packets > 0, "{key:?} has a slot and no packet");
            assert!(entry.bytes >= entry.packets, "{key:?}: {entry:?}");
        }
    }
}

/// Packets that were counted, split or not.
fn counted(counters: &Counters) -> u64 {
    let classes = Class::ALL.into_iter();
    let sent = classes.flat_map(|class| TunnelRole::ALL.map(|it| counters.packets(class, it)));
    let passed = PassReason::ALL.map(|reason| counters.passed(reason));
    sent.chain(passed).sum()
}

fn host(random: &mut SmallRng) -> Host {
    let is_rated = random.random_bool(0.5);
    let is_shared = is_rated && random.random_bool(0.5);
    let mut config = PolicyConfig {
        thresholds: Thresholds::uniform(random.random_range(0..10)),
        ..PolicyConfig::default()
    };
    if is_rated {
        config.short_service = ServiceTime::from_bits_per_second(100_000_000);
        config.long_service = ServiceTime::from_bits_per_second(400_000_000);
    }
    if is_shared {
        config.tunnel_use = TunnelUse::SHARED;
    }
    if random.random_bool(0.5) {
        config.protocols = Protocols::UDP.with(Protocols::ESP).with(Protocols::GRE);
    }
    if random.random_bool(0.5) {
        config.drain_margin_ns = 0;
    }
    Host::new(config, TABLE_SIZE)
}
