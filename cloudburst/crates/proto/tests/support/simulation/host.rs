//! A host: an endpoint, its clock and what the harness knows of it.

use std::{collections::BTreeMap, time::Duration};

use cloudburst_proto::{Machine, PeerId, Security, SendId, SocketId, Time};

use crate::machines;

use super::{
    keys,
    network::Parcel,
    path::{Link, SECOND},
    random::Random,
    scenario::{HostPlan, Scenario},
    totals::HostTotals,
};

/// For how long a port is read from that was abandoned.
const GRACE_NS: u64 = 3 * SECOND;
/// Datagrams that a held host's kernel takes in: what sockets of 4 MiB each have capacity for.
const MOST_HELD: usize = 2_000;

pub(crate) struct Host {
    pub(crate) plan: HostPlan,
    pub(crate) endpoint: Box<dyn Machine>,
    /// How often it was restarted.
    pub(crate) incarnation: u32,
    pub(crate) clock: Clock,
    /// By host: peers that were connected to, and peers that messages came from.
    pub(crate) connected: BTreeMap<usize, PeerId>,
    pub(crate) heard: BTreeMap<usize, PeerId>,
    /// By host: when a datagram last came from there.
    pub(crate) heard_at: BTreeMap<usize, u64>,
    /// Of messages under way.
    pub(crate) ids: BTreeMap<u64, SendId>,
    pub(crate) totals: HostTotals,
    pub(crate) egress: Link,
    pub(crate) ingress: Option<Link>,
    pub(crate) mute: bool,
    /// What has come since it is held, if it is.
    pub(crate) held: Option<Vec<Parcel>>,
    pub(crate) unreachable: bool,
    /// By socket: how often it was given another port, and until when the one before is read from.
    pub(crate) ports: Vec<(u16, u64)>,
    /// By socket: when a datagram last left by it through the translator of addresses.
    left_at: Vec<Option<u64>>,
    /// Nobody is told of its ports beforehand, so that it may choose others.
    pub(crate) may_change_ports: bool,
    /// Only the latest timer counts.
    pub(crate) timer: Option<(u64, u64)>,
    pub(crate) timers_set: u64,
    /// Timeouts in a row after which nothing was done and another was due at once.
    pub(crate) spins: u32,
    seed: [u8; 32],
}

impl Host {
    pub(crate) fn new(scenario: &Scenario, number: usize) -> Self {
        let plan = scenario.hosts[number].clone();
        let seed = Random::of(scenario.seed, 1_000 + number as u64).seed();
        let mut clock = Clock {
            ahead_ns: i128::from(plan.clock_ahead_ns),
            drift_ppm: plan.drift_ppm,
            told: 0,
        };
        let mut config = plan.config.clone();
        config.security = keys::of(scenario, number);
        config.unix_time = Some(calendar(0) - Duration::from_nanos(scenario.age_ns));
        let endpoint = machines::start(plan.is_paper, config, seed, clock.tell(0));
        clock.ahead_ns += i128::from(scenario.age_ns);
        Self {
            // As a socket's buffer and a queueing discipline.
            egress: Link::new(plan.link_bits_per_s(), 4_000_000),
            ingress: plan.ingress.map(|(rate, fifo)| Link::new(rate, fifo)),
            totals: HostTotals::new(&plan),
            plan,
            endpoint,
            incarnation: 0,
            clock,
            connected: BTreeMap::new(),
            heard: BTreeMap::new(),
            heard_at: BTreeMap::new(),
            ids: BTreeMap::new(),
            mute: false,
            held: None,
            unreachable: false,
            ports: vec![(0, 0); scenario.hosts[number].sockets.into()],
            left_at: vec![None; scenario.hosts[number].sockets.into()],
            may_change_ports: scenario.sends.iter().all(|send| send.to != number),
            timer: None,
            timers_set: 0,
            spins: 0,
            seed,
        }
    }

    /// Whether datagrams for a port of a socket are read.
    pub(crate) fn reads(&self, now: u64, socket: SocketId, ports: u16) -> bool {
        let (current, until) = self.ports[usize::from(socket.0)];
        if self.plan.translator_forgets_ns.is_some() {
            return ports == current && self.is_mapped(now, socket);
        }
        ports == current || ports + 1 == current && now < until
    }

    /// Keeps a datagram for later if the host is held; else it is returned.
    pub(crate) fn hold(&mut self, parcel: Parcel) -> Option<Parcel> {
        let Some(held) = &mut self.held else {
            return Some(parcel);
        };
        if held.len() < MOST_HELD {
            held.push(parcel);
        }
        None
    }

    /// A datagram leaves by the translator of addresses, if there is one.
    pub(crate) fn translate(&mut self, now: u64, socket: SocketId) {
        if self.plan.translator_forgets_ns.is_some() {
            let is_new = self.left_at[usize::from(socket.0)].is_none();
            if !is_new && !self.is_mapped(now, socket) {
                self.change_port(now, socket);
            }
            self.left_at[usize::from(socket.0)] = Some(now);
        }
    }

    fn is_mapped(&self, now: u64, socket: SocketId) -> bool {
        let forgets_after = self.plan.translator_forgets_ns.unwrap_or(u64::MAX);
        let left_at = self.left_at[usize::from(socket.0)];
        left_at.is_some_and(|at| now - at <= forgets_after)
    }

    /// A socket is given another port.
    pub(crate) fn change_port(&mut self, now: u64, socket: SocketId) {
        let (current, until) = &mut self.ports[usize::from(socket.0)];
        *current += 1;
        *until = now + GRACE_NS;
    }

    pub(crate) fn restart(&mut self, now: u64, same_seed: bool, security: Security) {
        self.incarnation += 1;
        if !same_seed {
            self.seed[..4].copy_from_slice(&self.incarnation.to_le_bytes());
        }
        let mut config = self.plan.config.clone();
        config.security = security;
        let told = self.clock.tell(now);
        config.unix_time = Some(calendar(now));
        let now = told;
        self.endpoint = machines::start(self.plan.is_paper, config, self.seed, now);
        self.totals = HostTotals::new(&self.plan);
        self.connected.clear();
        self.heard.clear();
        self.heard_at.clear();
        self.ids.clear();
        self.timer = None;
        self.spins = 0;
    }
}

/// The time by the calendar, which all hosts agree about whatever their clocks have counted from.
fn calendar(now: u64) -> Duration {
    Duration::from_secs(1_700_000_000) + Duration::from_nanos(now)
}

/// What a host thinks the time is.
pub(crate) struct Clock {
    ahead_ns: i128,
    drift_ppm: u64,
    told: u64,
}

impl Clock {
    /// Never earlier than before: the host sees to that.
    pub(crate) fn tell(&mut self, now: u64) -> Time {
        let drifted = i128::from(now) + i128::from(now) * i128::from(self.drift_ppm) / 1_000_000;
        let time = u64::try_from(drifted + self.ahead_ns).unwrap_or(0);
        self.told = self.told.max(time);
        Time::from_nanos(self.told)
    }

    /// What it told last.
    pub(crate) fn told(&self) -> Time {
        Time::from_nanos(self.told)
    }

    /// When it will tell this.
    pub(crate) fn when(&self, time: Time) -> u64 {
        let drifted = (i128::from(time.as_nanos()) - self.ahead_ns).max(0);
        let scale = 1_000_000 + i128::from(self.drift_ppm);
        let now = (drifted * 1_000_000 + scale - 1) / scale;
        u64::try_from(now).unwrap_or(u64::MAX)
    }

    pub(crate) fn jump(&mut self, ns: i128) {
        self.ahead_ns += ns;
    }
}

#[test]
fn a_clock_tells_when_it_will_tell_a_time() {
    let mut clock = Clock {
        ahead_ns: 12_345_678_901,
        drift_ppm: 70,
        told: 0,
    };
    for now in [0, 1, 999_999, 123_456_789_012] {
        let told = clock.tell(now);
        let when = clock.when(told);
        assert!(when <= now && now - when <= 1, "{now} {when}");
    }
    let before = clock.tell(200_000_000_000);
    clock.jump(-5_000_000);
    assert_eq!(clock.tell(200_001_000_000), before);
    assert!(clock.tell(200_006_000_000) > before);
}
