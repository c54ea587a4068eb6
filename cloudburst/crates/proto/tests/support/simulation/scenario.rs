//! What a run is told: hosts, paths, messages and faults.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use cloudburst_code::{PaperDegree, Schedule};
use cloudburst_proto::{CongestionControl, Priority, SendOptions, SocketId, TransportConfig};

use super::path::{Impairments, MICRO, MILLI, Mtu, Path, SECOND};

/// Where sockets' ports begin, and sockets of a host: ports of theirs that follow are so far apart.
const FIRST_PORT: u16 = 4_000;
const MOST_SOCKETS: u16 = 100;

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// For how long hosts have been running when it begins: longer than an answer takes, or who is sent
    /// to might have another been before.
    pub(crate) age_ns: u64,
    /// All of it comes from the seed.
    pub(crate) is_generated: bool,
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) paths: Vec<Path>,
    pub(crate) sends: Vec<SendPlan>,
    pub(crate) faults: Vec<(u64, Fault)>,
    /// Answers take the path that what they answer took.
    pub(crate) symmetric: bool,
    pub(crate) v6: bool,
    /// Nothing hinders any message for long.
    pub(crate) must_deliver: bool,
    /// Paths that a peer is connected to by, at most.
    pub(crate) four_tuples: usize,
    /// Each host has a key pair of its own, and all are on each other's lists.
    pub(crate) has_key_pairs: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct HostPlan {
    pub(crate) config: TransportConfig,
    /// It runs the paper's machine.
    pub(crate) is_paper: bool,
    pub(crate) key: Option<u8>,
    pub(crate) sockets: u16,
    /// How far its clock is ahead at first.
    pub(crate) clock_ahead_ns: u64,
    pub(crate) drift_ppm: u64,
    /// Timers fire up to so much late.
    pub(crate) timer_slack_ns: u64,
    /// Of what `poll_transmit` fills.
    pub(crate) buffer_bytes: usize,
    /// How long requests take, and how long their replies are.
    pub(crate) think_ns: u64,
    pub(crate) reply_bytes: usize,
    /// What its link takes in.
    pub(crate) ingress: Option<(u64, usize)>,
    /// It is behind a translator of addresses, which forgets a mapping by which nothing has left for so long:
    /// nothing comes in by it any more, and what leaves gets another.
    pub(crate) translator_forgets_ns: Option<u64>,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendPlan {
    pub(crate) at: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: usize,
    pub(crate) is_request: bool,
    /// It may be handed over again after a restart.
    pub(crate) is_idempotent: bool,
    pub(crate) deadline_ns: Option<u64>,
    pub(crate) priority: Priority,
    pub(crate) cancel_after: Option<u64>,
    /// To the peer that messages came from, if any came, instead of one that
    /// was connected to.
    pub(crate) back: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    ClockForward {
        host: usize,
        ns: u64,
    },
    ClockBack {
        host: usize,
        ns: u64,
    },
    Restart {
        host: usize,
        same_seed: bool,
    },
    /// It says goodbye, and is started again at once.
    Goodbye {
        host: usize,
    },
    /// Nothing that it sends leaves it.
    Mute {
        host: usize,
        mute: bool,
    },
    /// It is held (SIGSTOP): its kernel takes in what fits into the socket's buffer.
    Held {
        host: usize,
        held: bool,
    },
    /// Routers say so.
    Unreachable {
        host: usize,
        unreachable: bool,
    },
    SocketGone {
        host: usize,
        socket: u16,
    },
    /// A translator of addresses before it chooses other ports, which it is not told of.
    Rebind {
        host: usize,
    },
    /// Others use a path too.
    Fill {
        path: usize,
        direction: usize,
        share: f64,
    },
    Mtu {
        path: usize,
        mtu: Mtu,
    },
    Keys {
        host: usize,
        keys: Vec<u8>,
    },
}

impl HostPlan {
    pub(crate) fn new() -> Self {
        Self {
            config: TransportConfig::unprotected(),
            is_paper: false,
            key: None,
            sockets: 4,
            clock_ahead_ns: 0,
            drift_ppm: 0,
            timer_slack_ns: 50 * MICRO,
            buffer_bytes: 65_535,
            think_ns: 100 * MICRO,
            reply_bytes: 1_500,
            ingress: None,
            translator_forgets_ns: None,
        }
    }

    /// Rate of the host's link: the stated one, if one is stated.
    pub(crate) fn link_bits_per_s(&self) -> u64 {
        match self.config.congestion {
            CongestionControl::Reserved(reservation) => reservation.link_bits_per_s,
            _ => 1_000_000_000,
        }
    }
}

impl SendPlan {
    pub(crate) fn new(at: u64, bytes: usize) -> Self {
        Self {
            at,
            from: 0,
            to: 1,
            bytes,
            is_request: false,
            is_idempotent: false,
            deadline_ns: None,
            priority: Priority::Normal,
            cancel_after: None,
            back: false,
        }
    }

    pub(crate) fn options(&self) -> SendOptions {
        let options = SendOptions::new()
            .with_idempotent(self.is_idempotent)
            .with_priority(self.priority);
        match self.deadline_ns {
            Some(ns) => options.with_deadline(Duration::from_nanos(ns)),
            None => options,
        }
    }
}

impl Scenario {
    /// Two hosts and 4 paths of 50 Mbit/s, 1 ms and 100 kB.
    pub(crate) fn plain(seed: u64) -> Self {
        let mut hosts = vec![HostPlan::new(), HostPlan::new()];
        hosts[0].clock_ahead_ns = 1_234 * MILLI;
        hosts[1].clock_ahead_ns = 4_294_000 * MILLI;
        Self {
            seed,
            age_ns: 5 * SECOND,
            is_generated: false,
            hosts,
            paths: vec![Path::new(50_000_000, 100_000, MILLI); 4],
            sends: Vec::new(),
            faults: Vec::new(),
            symmetric: true,
            v6: false,
            must_deliver: false,
            four_tuples: 16,
            has_key_pairs: false,
        }
    }

    /// Adds messages from host 0 to host 1 at equal distances.
    pub(crate) fn messages(mut self, count: u64, bytes: usize, gap_ns: u64) -> Self {
        let first = self.sends.last().map_or(0, |send| send.at + gap_ns);
        let times = (0..count).map(|number| first + number * gap_ns);
        self.sends.extend(times.map(|at| SendPlan::new(at, bytes)));
        self
    }

    /// On all paths, both ways.
    pub(crate) fn impaired(mut self, usual: Impairments) -> Self {
        self.paths.iter_mut().for_each(|path| path.set(usual));
        self
    }

    pub(crate) fn fault(mut self, at: u64, fault: Fault) -> Self {
        self.faults.push((at, fault));
        self
    }

    pub(crate) fn keyed(mut self, key: u8) -> Self {
        self.hosts.iter_mut().for_each(|host| host.key = Some(key));
        self
    }

    pub(crate) fn with_key_pairs(mut self) -> Self {
        self.has_key_pairs = true;
        self
    }

    pub(crate) fn configured(mut self, change: impl Fn(&mut TransportConfig)) -> Self {
        let configs = self.hosts.iter_mut().map(|host| &mut host.config);
        configs.for_each(change);
        self
    }

    pub(crate) fn lifetime(self, lifetime: Duration) -> Self {
        self.configured(|config| config.budget.lifetime = lifetime)
    }

    pub(crate) fn restarts_with_same_seed(&self, number: usize) -> bool {
        self.faults.iter().any(|(_, fault)| {
            matches!(fault, Fault::Restart { host, same_seed: true } if *host == number)
        })
    }

    /// A message is handed over once also where its receiver is restarted: keys tell that, as long as
    /// clocks tell the time.
    pub(crate) fn remembers_across_restarts(&self) -> bool {
        let has_keys = self.has_key_pairs || self.hosts.iter().all(|host| host.key.is_some());
        let confuses = |fault: &Fault| {
            matches!(
                fault,
                Fault::ClockForward { .. }
                    | Fault::ClockBack { .. }
                    | Fault::Restart {
                        same_seed: true,
                        ..
                    }
            )
        };
        has_keys && !self.faults.iter().any(|(_, fault)| confuses(fault))
    }

    pub(crate) fn restarts(&self, number: usize) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|(_, fault)| {
            matches!(fault, Fault::Restart { host, .. } | Fault::Goodbye { host } if *host == number)
        })
    }

    /// Bits flip, and nothing but the message's own check notices: then a
    /// datagram may be about another message or from somebody else.
    pub(crate) fn is_credulous(&self) -> bool {
        self.corrupts() && self.hosts.iter().any(|host| host.key.is_none()) || self.is_spoilt()
    }

    /// The paper's format has no check at all, and nothing but time tells the
    /// users of an id apart: a receiver may take what nobody sent.
    pub(crate) fn is_spoilt(&self) -> bool {
        let confuses = |fault: &Fault| {
            matches!(
                fault,
                Fault::ClockForward { .. } | Fault::ClockBack { .. } | Fault::Restart { .. }
            )
        };
        let is_confused = self.faults.iter().any(|(_, fault)| confuses(fault));
        self.is_paper() && (is_confused || self.corrupts())
    }

    pub(crate) fn is_paper(&self) -> bool {
        self.hosts.iter().any(|host| host.is_paper)
    }

    fn corrupts(&self) -> bool {
        let directions = self.paths.iter().flat_map(|path| &path.directions);
        directions
            .flat_map(|direction| {
                let spells = direction.spells.iter().map(|spell| spell.impairments);
                spells.chain([direction.usual])
            })
            .any(|impairments| impairments.corrupt > 0.0)
    }

    /// Hosts that speak the paper's format.
    pub(crate) fn paper(mut self) -> Self {
        for host in &mut self.hosts {
            host.is_paper = true;
            host.config.schedule = Schedule::Paper(PaperDegree::Fixed);
        }
        self
    }

    /// By how much a host's clock jumps in all.
    pub(crate) fn jumps_ns(&self, number: usize) -> u64 {
        let jumps = self.faults.iter().map(|(_, fault)| match fault {
            Fault::ClockForward { host, ns } if *host == number => *ns,
            _ => 0,
        });
        jumps.sum()
    }

    /// Of a socket with the port that it has at first.
    pub(crate) fn address(&self, host: usize, socket: SocketId) -> SocketAddr {
        self.address_of(host, socket, 0)
    }

    /// Of a socket that has been given another port so often.
    pub(crate) fn address_of(&self, host: usize, socket: SocketId, ports: u16) -> SocketAddr {
        assert!(
            socket.0 < MOST_SOCKETS,
            "ports of sockets would be the same"
        );
        let host = host as u8 + 1;
        let ip = if self.v6 {
            IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)))
        } else {
            IpAddr::from(Ipv4Addr::new(10, 0, 0, host))
        };
        SocketAddr::new(ip, FIRST_PORT + ports * MOST_SOCKETS + socket.0)
    }

    /// Whose an address is: the host, its socket, and how often that was given another port before.
    pub(crate) fn owner(&self, address: SocketAddr) -> Option<(usize, SocketId, u16)> {
        let last = match address.ip() {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(ip) => ip.octets()[15],
        };
        let host = usize::from(last).checked_sub(1)?;
        let port = address.port().checked_sub(FIRST_PORT)?;
        let (ports, socket) = (port / MOST_SOCKETS, SocketId(port % MOST_SOCKETS));
        let exists = host < self.hosts.len() && socket.0 < self.hosts[host].sockets;
        let is_its = exists && self.address_of(host, socket, ports) == address;
        is_its.then_some((host, socket, ports))
    }
}
