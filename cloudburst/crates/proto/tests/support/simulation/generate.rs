//! A scenario out of one number.

use std::time::Duration;

use cloudburst_code::{PaperDegree, Schedule};
use cloudburst_proto::{CongestionControl, Priority, Reservation};

use super::{
    path::{EcnTreatment, Impairments, Link, Loss, MICRO, MILLI, Mtu, Path, SECOND, Spell},
    random::Random,
    scenario::{Fault, HostPlan, Scenario, SendPlan},
};

/// All codes speak the paper's header as long as there is one block.
const PAPER_SCHEDULES: [Schedule; 4] = [
    Schedule::Default,
    Schedule::Mds,
    Schedule::Paper(PaperDegree::Fixed),
    Schedule::Paper(PaperDegree::Uniform),
];

impl Scenario {
    pub(crate) fn generate(seed: u64) -> Self {
        let random = &mut Random::of(seed, 0);
        // A third has nothing but what a protocol must cope with, and has to.
        let is_kind = random.chance(0.35);
        let hosts = if random.chance(0.1) { 3 } else { 2 };
        let mut scenario = Self {
            seed,
            age_ns: Random::of(seed, 5).pick(&[5, 5, 60]) * SECOND,
            is_generated: true,
            hosts: (0..hosts).map(|_| host(random)).collect(),
            paths: paths(random, is_kind),
            sends: Vec::new(),
            faults: Vec::new(),
            symmetric: random.chance(0.7),
            v6: random.chance(0.2),
            must_deliver: is_kind,
            has_key_pairs: false,
            four_tuples: 16,
        };
        scenario.agree(random, is_kind);
        scenario.must_deliver &= !scenario.is_credulous();
        scenario.add_sends(random);
        if !is_kind {
            for _ in 0..random.below(4) {
                scenario.add_fault(random);
            }
        }
        // What all other scenarios draw does not depend on this.
        let random = &mut Random::of(seed, 6);
        for send in &mut scenario.sends {
            send.is_idempotent = random.chance(0.2);
        }
        let random = &mut Random::of(seed, 4);
        let has_keys = scenario.hosts.iter().any(|host| host.key.is_some());
        if scenario.is_paper() || is_kind && !has_keys && random.chance(0.05) {
            scenario = scenario.paper();
            scenario.suit_paper(random);
        } else {
            scenario.add_options(&mut Random::of(seed, 8));
            scenario.treat_marks(&mut Random::of(seed, 10));
        }
        scenario
    }

    fn add_options(&mut self, random: &mut Random) {
        use Priority::{Background, Normal, Urgent};
        for send in &mut self.sends {
            let hurries = random.chance(0.1) && !self.must_deliver;
            send.deadline_ns = hurries.then(|| random.between(1, 2_000) * MILLI);
            send.priority = random.pick(&[Normal, Normal, Urgent, Background]);
        }
    }

    /// Routers that do something to what is capable of ECN.
    fn treat_marks(&mut self, random: &mut Random) {
        use EcnTreatment::{Cleared, Dropped, Kept};
        for direction in self.paths.iter_mut().flat_map(|path| &mut path.directions) {
            direction.ecn = random.pick(&[Kept, Kept, Kept, Kept, Kept, Kept, Cleared, Dropped]);
        }
    }

    /// A data centre: what the paper's format is for. Delays differ by less than
    /// ids rest, and links are little faster than paths.
    fn suit_paper(&mut self, random: &mut Random) {
        let schedule = random.pick(&PAPER_SCHEDULES);
        let (rate, fifo) = random.pick(&[(300_000_000, 100_000), (1_000_000_000, 200_000)]);
        let corrupts = !self.must_deliver && random.chance(0.2);
        for host in &mut self.hosts {
            host.config.require_validation = false;
            host.config.schedule = schedule;
            host.config.congestion = CongestionControl::reserved(1_000_000_000);
            host.timer_slack_ns = host.timer_slack_ns.min(MILLI);
        }
        for direction in self.paths.iter_mut().flat_map(|path| &mut path.directions) {
            let delay_ns = direction.delay_ns % (500 * MICRO);
            direction.link = Link::new(rate, fifo);
            direction.delay_ns = delay_ns;
            // One-symbol messages have sent all they may before a burst of losses is over.
            if self.must_deliver && matches!(direction.usual.loss, Loss::Bursts { .. }) {
                direction.usual.loss = Loss::Each(0.02);
            }
            let spells = direction.spells.iter_mut();
            let all = spells.map(|spell| &mut spell.impairments);
            for impairments in all.chain([&mut direction.usual]) {
                impairments.reorder_ns %= 2 * MILLI;
                impairments.corrupt *= f64::from(u8::from(corrupts));
            }
        }
        self.sends.truncate(12);
        for send in &mut self.sends {
            if self.must_deliver {
                // Without tokens nobody may send more to a stranger than thrice what it sent.
                send.back = false;
                send.bytes = send.bytes.min(70_000);
                send.is_request = false;
            }
            send.is_request &= random.chance(0.1);
        }
    }

    /// What all hosts have in common.
    fn agree(&mut self, random: &mut Random, is_kind: bool) {
        let key = random.chance(0.3).then_some(7);
        let lifetime = if is_kind {
            Duration::from_secs(20)
        } else {
            Duration::from_millis(random.pick(&[50, 300, 2_000, 10_000, 60_000]))
        };
        let paper = !is_kind && key.is_none() && random.chance(0.05);
        let require_validation = !paper && random.chance(0.15);
        for host in &mut self.hosts {
            host.key = key;
            host.config.budget.lifetime = lifetime;
            if paper {
                host.is_paper = true;
            }
            host.config.require_validation = require_validation;
            if !is_kind && random.chance(0.1) {
                host.key = Some(random.between(1, 2) as u8).filter(|_| !paper);
            }
            if !is_kind && random.chance(0.1) {
                squeeze(random, host);
            }
        }
    }

    fn add_sends(&mut self, random: &mut Random) {
        let count = match random.below(20) {
            0 => random.between(100, 400),
            1..=7 => random.between(8, 40),
            _ => random.between(1, 8),
        };
        let mut left = random
            .pick(&[100_000, 300_000, 1_000_000])
            .min(self.capacity_bytes());
        let span = random.pick(&[0, 5, 100, 1_000]) * MILLI;
        let (both, back) = (random.chance(0.4), random.chance(0.5));
        let requests = random.pick(&[0.0, 0.3, 1.0]);
        let cancels = random.pick(&[0.0, 0.0, 0.1]);
        for _ in 0..count {
            let bytes = message_bytes(random).min(left);
            left -= bytes;
            if bytes == 0 {
                break;
            }
            let from = if both {
                random.below(self.hosts.len() as u64) as usize
            } else {
                0
            };
            let to =
                (from + random.between(1, self.hosts.len() as u64 - 1) as usize) % self.hosts.len();
            self.sends.push(SendPlan {
                at: random.below(span + 1),
                from,
                to,
                bytes: bytes as usize,
                is_request: random.chance(requests),
                is_idempotent: false,
                deadline_ns: None,
                priority: Priority::Normal,
                cancel_after: random.chance(cancels).then(|| random.below(20 * MILLI)),
                back,
            });
        }
        self.sends.sort_by_key(|send| send.at);
    }

    /// What the slowest path carries within a second, of which redundancy and
    /// replies take some.
    fn capacity_bytes(&self) -> u64 {
        let directions = self.paths.iter().flat_map(|path| &path.directions);
        let slowest = directions
            .map(|direction| direction.link.bits_per_s())
            .min();
        let link = self.hosts.iter().map(HostPlan::link_bits_per_s).min();
        slowest.min(link).unwrap_or(0) / 8
    }

    fn add_fault(&mut self, random: &mut Random) {
        let host = random.below(self.hosts.len() as u64) as usize;
        let path = random.below(self.paths.len() as u64) as usize;
        let at = random.below(1_500) * MILLI;
        let until = at + random.pick(&[1, 20, 300, 20_000]) * MILLI;
        let fault = match random.below(13) {
            0 => Fault::ClockForward {
                host,
                ns: random.pick(&[1, 50, 3_000]) * MILLI,
            },
            1 => Fault::ClockBack {
                host,
                ns: random.below(10 * MILLI),
            },
            2 => Fault::Restart {
                host,
                same_seed: random.chance(0.4),
            },
            3 => {
                self.faults.push((until, Fault::Mute { host, mute: false }));
                Fault::Mute { host, mute: true }
            }
            4 => {
                let unreachable = false;
                self.faults
                    .push((until, Fault::Unreachable { host, unreachable }));
                Fault::Unreachable {
                    host,
                    unreachable: true,
                }
            }
            5 => Fault::SocketGone {
                host,
                socket: random.below(u64::from(self.hosts[host].sockets)) as u16,
            },
            6 | 7 => Fault::Fill {
                path,
                direction: random.below(2) as usize,
                share: random.unit(),
            },
            8 => Fault::Mtu {
                path,
                mtu: mtu(random, &[300, 600, 1_199, 1_200, 1_452, 9_000]),
            },
            9 => {
                self.paths[path].spell(at, until, Impairments::DEAD);
                return;
            }
            10 => {
                let mut from = at;
                while from < until.min(at + SECOND) {
                    self.paths[path].spell(from, from + 15 * MILLI, Impairments::DEAD);
                    from += 40 * MILLI;
                }
                return;
            }
            11 => {
                // No stop arrives, or hardly any.
                let impairments = Impairments::losing(Loss::Each(0.95));
                for path in &mut self.paths {
                    path.directions[1].spells.push(Spell {
                        from: at,
                        until,
                        impairments,
                    });
                }
                return;
            }
            _ => Fault::Keys {
                host,
                keys: if self.hosts[host].is_paper {
                    vec![]
                } else {
                    random.pick(&[[7, 8], [8, 7], [8, 9]]).to_vec()
                },
            },
        };
        self.faults.push((at, fault));
    }
}

fn host(random: &mut Random) -> HostPlan {
    let mut host = HostPlan::new();
    host.sockets = random.between(1, 4) as u16;
    // More than the wire's 2^32 µs at times.
    host.clock_ahead_ns = random.below(5_000 * SECOND);
    host.drift_ppm = random.below(100);
    host.timer_slack_ns = random.pick(&[0, 50 * MICRO, MILLI, 4 * MILLI]);
    host.buffer_bytes = random.pick(&[9_000, 65_535]);
    host.think_ns = random.below(5 * MILLI);
    host.reply_bytes = random.pick(&[1, 200, 1_500, 20_000]);
    let link_bits_per_s = random.pick(&[10_000_000, 100_000_000, 1_000_000_000]);
    let share = random.pick(&[0.5, 0.9, 1.0]);
    // Worlds lose more than any network does; the breaker has tests of its own.
    let reservation = Reservation::new(link_bits_per_s)
        .with_share(share)
        .with_most_loss(1.0);
    if random.below(2) == 0 {
        host.config.congestion = CongestionControl::Reserved(reservation);
    }
    host.config.schedule = random.pick(&[Schedule::Default, Schedule::Default, Schedule::Mds]);
    host
}

/// Little capacity for what others send.
fn squeeze(random: &mut Random, host: &mut HostPlan) {
    let quotas = &mut host.config.quotas;
    quotas.messages = random.between(1, 20) as usize;
    quotas.peer_messages = random.between(1, 20) as usize;
    quotas.bytes = random.between(10_000, 200_000) as usize;
    quotas.peer_bytes = quotas.bytes / 2;
    quotas.unvalidated_bytes = quotas.bytes / 4;
    quotas.outgoing_messages = random.between(1, 20) as usize;
    quotas.answers_per_s = random.between(10, 1_000) as u32;
    host.config.max_message_bytes = random.between(1_000, 400_000) as usize;
}

fn paths(random: &mut Random, is_kind: bool) -> Vec<Path> {
    let delay = random.pick(&[50, 500, 5_000, 40_000]) * MICRO;
    let rate = random.pick(&[1, 5, 50, 50, 1_000]) * 1_000_000;
    // Of no more than a second, or nothing is heard for longer than that.
    let fifo = random
        .pick(&[20_000, 100_000, 1_000_000])
        .min(rate as usize / 8);
    let most_loss = if is_kind { 0.28 } else { 0.7 };
    let are_alike = random.chance(0.4);
    let same = impairments(random, most_loss);
    let path = |random: &mut Random| {
        let spread = if are_alike { 0 } else { random.below(delay) };
        let mut path = Path::new(rate, fifo, delay + spread);
        let own = if are_alike {
            same
        } else {
            impairments(random, most_loss)
        };
        path.directions[0].usual = own;
        path.directions[1].usual = if random.chance(0.5) {
            own
        } else {
            impairments(random, most_loss)
        };
        path.directions[0].mark_bytes = random.chance(0.2).then_some(fifo / 4);
        path.mtu = mtu(random, &[1_280, 1_452, 1_472, 9_000]);
        path
    };
    let count = random.between(1, 6);
    (0..count).map(|_| path(random)).collect()
}

fn mtu(random: &mut Random, choices: &[usize]) -> Mtu {
    Mtu {
        bytes: random.pick(choices),
        told: random.chance(0.3),
    }
}

fn impairments(random: &mut Random, most_loss: f64) -> Impairments {
    let loss = match random.below(5) {
        0 | 1 => Loss::Never,
        2 => Loss::Each(random.pick(&[0.01, 0.05])),
        3 => Loss::Each(random.unit() * most_loss),
        _ => Loss::Bursts {
            enter: 0.002 + 0.02 * random.unit(),
            leave: 0.1 + 0.4 * random.unit(),
            good: 0.001,
            bad: 0.5 + 0.5 * random.unit(),
        },
    };
    let rare = |random: &mut Random, most: f64| {
        if random.chance(0.2) {
            random.unit() * most
        } else {
            0.0
        }
    };
    Impairments {
        loss,
        duplicate: rare(random, 0.3),
        reorder: rare(random, 0.3),
        reorder_ns: random.below(20 * MILLI),
        corrupt: rare(random, 0.05),
        truncate: rare(random, 0.05),
    }
}

/// Mostly 1 to 64 datagrams.
fn message_bytes(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => random.between(1, 100),
        1..=3 => random.between(1, 3_000),
        4..=6 => random.between(1_000, 20_000),
        7 | 8 => random.between(10_000, 90_000),
        _ => random.between(80_000, 400_000),
    }
}

#[test]
fn the_same_number_gives_the_same_scenario() {
    for seed in 0..200 {
        let [first, second] = [(); 2].map(|()| format!("{:?}", Scenario::generate(seed)));
        assert_eq!(first, second);
    }
}
