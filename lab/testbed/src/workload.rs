//! Decides beforehand which flows are sent, and when.
//!
//! A [`Workload`] describes traffic, its [`Schedule`] lists every flow with its time and size. The
//! same workload always yields the same schedule, on every machine, so schemes are compared on the
//! same work. Each kind of flow draws from its own stream of random numbers: changing the
//! background's load leaves the short flows as they were.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng, seq::IndexedRandom as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp};

/// TCP payload of a full packet in bytes: 1500 less IPv4 and TCP headers with timestamps.
pub const PACKET_PAYLOAD_BYTES: u32 = 1448;
/// Bytes that a full packet takes of a tunnel's rate, with IPv4, TCP and Ethernet headers.
pub const PACKET_BYTES: u32 = 1514;

/// Traffic to put on a testbed.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Short flows between client and server.
    pub short: ShortFlows,
    /// Elastic transfers between the generators, in each direction.
    pub background: Option<Background>,
    /// For how long new flows arrive.
    pub length: Duration,
    /// Which of all the possible schedules.
    pub seed: u64,
}

/// Short flows with Poisson arrivals, all opened by the client.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortFlows {
    /// Mean arrivals in a second, both directions together.
    pub per_second: f64,
    /// Sizes in full packets, each as likely as any other.
    pub packets: Vec<u32>,
    /// The share of flows that carry data from client to server, 0 to 1; the others are downloads.
    pub uploads: f64,
}

/// Transfers with Poisson arrivals that take what bandwidth they get.
#[derive(Clone, Debug, PartialEq)]
pub struct Background {
    /// Size of each.
    pub bytes: u32,
    /// Mean load that they offer in each direction, payload only.
    pub mbit_per_second: f64,
}

/// Says how a flow counts in the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// One of the [`ShortFlows`].
    Short,
    /// One of the [`Background`].
    Long,
}

/// One of the four hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Opens short flows, at site A.
    Client,
    /// Answers them, at site B.
    Server,
    /// Background at site A.
    GeneratorA,
    /// Background at site B.
    GeneratorB,
}

/// One TCP connection that carries data one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// When it starts, counted from the start of the traffic.
    pub at: Duration,
    /// What it is in the figures.
    pub class: Class,
    /// Who connects.
    pub initiator: Role,
    /// Who listens.
    pub responder: Role,
    /// Whether the initiator sends the data; else the responder does.
    pub upload: bool,
    /// Payload.
    pub bytes: u32,
}

/// All flows of a run, by time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    flows: Vec<Flow>,
    length: Duration,
}

impl ShortFlows {
    /// 120 flows a second of 5, 10, 20 or 40 packets, half of them uploads.
    pub fn mixed() -> Self {
        Self {
            per_second: 120.0,
            packets: vec![5, 10, 20, 40],
            uploads: 0.5,
        }
    }
}

impl Background {
    /// Transfers of 1.5 MB whose packets fill `load` (0 to 1) of the sum of the tunnels' rates.
    ///
    /// Headers count, for a tunnel's rate is that of whole packets. Acknowledgements and what is
    /// sent again come on top, as do short flows.
    pub fn elastic(load: f64, rates_mbit: [u32; 2]) -> Self {
        let rate_mbit: f64 = rates_mbit.iter().copied().map(f64::from).sum();
        let payload = f64::from(PACKET_PAYLOAD_BYTES) / f64::from(PACKET_BYTES);
        Self {
            bytes: 1_500_000,
            mbit_per_second: load * rate_mbit * payload,
        }
    }

    fn per_second(&self) -> f64 {
        self.mbit_per_second * 1e6 / 8.0 / f64::from(self.bytes)
    }
}

impl Workload {
    /// Lists the flows. Rates that are not positive yield no flows of that kind.
    pub fn schedule(&self) -> Schedule {
        let mut flows = Vec::new();
        let mut random = self.random(0);
        for at in arrivals(self.short.per_second, self.length, self.random(1)) {
            let Some(packets) = self.short.packets.choose(&mut random) else {
                break;
            };
            flows.push(Flow {
                at,
                class: Class::Short,
                initiator: Role::Client,
                responder: Role::Server,
                upload: random.random_bool(self.short.uploads.clamp(0.0, 1.0)),
                bytes: packets * PACKET_PAYLOAD_BYTES,
            });
        }
        let directions = [
            (Role::GeneratorA, Role::GeneratorB),
            (Role::GeneratorB, Role::GeneratorA),
        ];
        for (background, (stream, (initiator, responder))) in self
            .background
            .iter()
            .flat_map(|background| (2..).zip(directions).map(move |it| (background, it)))
        {
            let times = arrivals(background.per_second(), self.length, self.random(stream));
            flows.extend(times.map(|at| Flow {
                at,
                class: Class::Long,
                initiator,
                responder,
                upload: true,
                bytes: background.bytes,
            }));
        }
        Schedule::new(flows, self.length)
    }

    fn random(&self, stream: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(stream);
        random
    }
}

impl Schedule {
    /// A schedule of given flows, whose order does not matter. `length` is when the run counts as
    /// over, so that no flow should start later.
    pub fn new(mut flows: Vec<Flow>, length: Duration) -> Self {
        flows.sort_by_key(|flow| flow.at);
        Self { flows, length }
    }

    /// `count` uploads of `packets` full packets each from client to server, with Poisson arrivals.
    pub fn uploads(count: usize, packets: u32, per_second: f64, seed: u64) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        let flow = |at| Flow {
            at,
            class: Class::Short,
            initiator: Role::Client,
            responder: Role::Server,
            upload: true,
            bytes: packets * PACKET_PAYLOAD_BYTES,
        };
        let flows: Vec<Flow> = arrivals(per_second, Duration::MAX, random)
            .take(count)
            .map(flow)
            .collect();
        let length = flows.last().map_or(Duration::ZERO, |flow| flow.at);
        Self::new(flows, length)
    }

    /// The flows by time.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Returns the time by which the last flow has started.
    pub fn length(&self) -> Duration {
        self.length
    }
}

/// Poisson arrivals until `length`.
fn arrivals(
    per_second: f64,
    length: Duration,
    mut random: ChaCha8Rng,
) -> impl Iterator<Item = Duration> {
    let gap = Exp::new(per_second).ok().filter(|_| per_second > 0.0);
    let mut at_s = 0.0;
    std::iter::from_fn(move || {
        at_s += gap?.sample(&mut random);
        (at_s < length.as_secs_f64()).then(|| Duration::from_secs_f64(at_s))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(seed: u64) -> Workload {
        Workload {
            short: ShortFlows::mixed(),
            background: Some(Background::elastic(0.4, [100, 100])),
            length: Duration::from_secs(200),
            seed,
        }
    }

    fn of_class(schedule: &Schedule, class: Class) -> Vec<&Flow> {
        schedule
            .flows()
            .iter()
            .filter(|flow| flow.class == class)
            .collect()
    }

    #[test]
    fn same_seed_same_schedule() {
        assert_eq!(workload(1).schedule(), workload(1).schedule());
        assert_ne!(workload(1).schedule(), workload(2).schedule());
    }

    #[test]
    fn background_leaves_short_flows_alone() {
        let without = Workload {
            background: None,
            ..workload(1)
        };
        let (with, without) = (workload(1).schedule(), without.schedule());
        assert_eq!(
            of_class(&with, Class::Short),
            of_class(&without, Class::Short)
        );
        assert!(of_class(&without, Class::Long).is_empty());
    }

    #[test]
    fn first_flow_is_the_same_on_every_machine() {
        let first = workload(7).schedule().flows()[0].clone();
        assert_eq!(
            (first.at.as_micros(), first.bytes, first.upload),
            (14_077, 7_240, true)
        );
    }

    #[test]
    fn short_arrivals_are_poisson() {
        let schedule = workload(3).schedule();
        let flows = of_class(&schedule, Class::Short);
        // 24,000 expected; five standard deviations are 775.
        assert!(
            (23_225..=24_775).contains(&flows.len()),
            "{} flows",
            flows.len()
        );
        let gaps: Vec<f64> = flows
            .windows(2)
            .map(|pair| (pair[1].at - pair[0].at).as_secs_f64())
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // An exponential distribution's standard deviation is its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05);
        let uploads = flows.iter().filter(|flow| flow.upload).count() as f64;
        assert!((uploads / flows.len() as f64 - 0.5).abs() < 0.02);
        for packets in [5, 10, 20, 40] {
            let bytes = packets * PACKET_PAYLOAD_BYTES;
            let share = flows.iter().filter(|flow| flow.bytes == bytes).count() as f64;
            assert!((share / flows.len() as f64 - 0.25).abs() < 0.02);
        }
    }

    #[test]
    fn background_offers_its_load_in_each_direction() {
        let schedule = workload(3).schedule();
        for sender in [Role::GeneratorA, Role::GeneratorB] {
            let bytes: u64 = of_class(&schedule, Class::Long)
                .iter()
                .filter(|flow| flow.initiator == sender)
                .map(|flow| u64::from(flow.bytes))
                .sum();
            let mbit_per_second = bytes as f64 * 8.0 / 1e6 / 200.0;
            let with_headers = mbit_per_second * 1514.0 / 1448.0;
            assert!((with_headers / 80.0 - 1.0).abs() < 0.1, "{with_headers}");
        }
    }

    #[test]
    fn uploads_are_as_many_as_asked_for() {
        let schedule = Schedule::uploads(644, 40, 60.0, 1);
        assert_eq!(schedule.flows().len(), 644);
        assert!(
            schedule
                .flows()
                .iter()
                .all(|flow| flow.upload && flow.bytes == 57_920)
        );
        let seconds = schedule.length().as_secs_f64();
        // Five standard deviations around 644 / 60.
        assert!((8.6..=12.9).contains(&seconds), "{seconds}");
        assert!(Schedule::uploads(5, 40, 0.0, 1).flows().is_empty());
    }

    #[test]
    fn nothing_comes_of_no_rate() {
        let silent = ShortFlows {
            per_second: 0.0,
            ..ShortFlows::mixed()
        };
        let workload = Workload {
            short: silent,
            background: None,
            ..workload(1)
        };
        assert!(workload.schedule().flows().is_empty());
    }
}
