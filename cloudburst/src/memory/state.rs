//! What is bound, and what is under way.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    task::{Context, Waker},
};

use cloudburst_proto::Ecn;
use tokio::time::Instant;

use super::{
    MemoryNetworkStatistics,
    link::{Fate, Link, LinkState},
};

/// Everything that sockets of a network share.
#[derive(Debug)]
pub(super) struct State {
    pub(super) seed: u64,
    pub(super) default_link: Link,
    pub(super) links: HashMap<(IpAddr, IpAddr), LinkState>,
    /// Both sides of each.
    pub(super) partitions: Vec<[HashSet<IpAddr>; 2]>,
    pub(super) statistics: MemoryNetworkStatistics,
    sockets: HashMap<SocketAddr, Bound>,
    next_port: u16,
    /// Datagrams so far: those that arrive together do so in this order.
    count: u64,
    /// Endpoints so far.
    pub(super) endpoints: u64,
    /// When the first endpoint was bound.
    pub(super) began: Option<Instant>,
}

/// A datagram on its way.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) ecn: Ecn,
    pub(super) bytes: Box<[u8]>,
}

#[derive(Debug)]
struct Bound {
    arrivals: BinaryHeap<Reverse<Arrival>>,
    bytes: usize,
    most_bytes: usize,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Arrival {
    at: Instant,
    count: u64,
    datagram: Datagram,
}

/// First of the ports that a system chooses (RFC 6335 §6).
const FIRST_DYNAMIC_PORT: u16 = 49_152;

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            default_link: Link::default(),
            links: HashMap::new(),
            partitions: Vec::new(),
            statistics: MemoryNetworkStatistics::default(),
            sockets: HashMap::new(),
            next_port: FIRST_DYNAMIC_PORT,
            count: 0,
            endpoints: 0,
            began: None,
        }
    }

    /// Takes an address, with a port of its own in place of port 0; nothing if there is none.
    pub(super) fn bind(&mut self, address: SocketAddr, most_bytes: usize) -> Option<SocketAddr> {
        let local = match address.port() {
            0 => self.free_port(address.ip())?,
            _ => address,
        };
        if self.sockets.contains_key(&local) {
            return None;
        }
        let bound = Bound {
            arrivals: BinaryHeap::new(),
            bytes: 0,
            most_bytes,
            waker: None,
        };
        self.sockets.insert(local, bound);
        Some(local)
    }

    /// Each port once before any comes again, so that what was under way to one finds nobody else.
    fn free_port(&mut self, ip: IpAddr) -> Option<SocketAddr> {
        let ports = FIRST_DYNAMIC_PORT..=u16::MAX;
        ports.clone().find_map(|_| {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(*ports.start());
            let address = SocketAddr::new(ip, port);
            (!self.sockets.contains_key(&address)).then_some(address)
        })
    }

    pub(super) fn unbind(&mut self, local: SocketAddr) {
        if let Some(bound) = self.sockets.remove(&local) {
            self.statistics.nobody += bound.arrivals.len() as u64;
            self.statistics.under_way -= bound.arrivals.len() as u64;
        }
    }

    pub(super) fn send(&mut self, now: Instant, datagram: Datagram, to: SocketAddr) {
        self.statistics.sent += 1;
        let (from, to_ip) = (datagram.from.ip(), to.ip());
        if self.is_parted(from, to_ip) {
            self.statistics.parted += 1;
            return;
        }
        let (seed, default) = (self.seed, &self.default_link);
        let link = self.links.entry((from, to_ip));
        let link = link.or_insert_with(|| LinkState::new(default.clone(), seed, from, to_ip));
        match link.carry(now, datagram.bytes.len()) {
            Fate::Lost => self.statistics.lost += 1,
            Fate::Dropped => self.statistics.dropped += 1,
            Fate::Arrives(at, again) => {
                if let Some(again) = again {
                    self.statistics.duplicated += 1;
                    let copy = Datagram {
                        bytes: datagram.bytes.clone(),
                        ..datagram
                    };
                    self.put(again, copy, to);
                }
                self.put(at, datagram, to);
            }
        }
    }

    pub(super) fn is_parted(&self, from: IpAddr, to: IpAddr) -> bool {
        let parts = |[left, right]: &[HashSet<IpAddr>; 2]| {
            left.contains(&from) && right.contains(&to)
                || right.contains(&from) && left.contains(&to)
        };
        self.partitions.iter().any(parts)
    }

    fn put(&mut self, at: Instant, datagram: Datagram, to: SocketAddr) {
        let Some(bound) = self.sockets.get_mut(&to) else {
            self.statistics.nobody += 1;
            return;
        };
        let bytes = bound.bytes + datagram.bytes.len();
        if bytes > bound.most_bytes {
            self.statistics.dropped += 1;
            return;
        }
        bound.bytes = bytes;
        self.statistics.under_way += 1;
        let is_next = bound.arrivals.peek().is_none_or(|next| at < next.0.at);
        let count = self.count;
        self.count += 1;
        let arrival = Arrival {
            at,
            count,
            datagram,
        };
        bound.arrivals.push(Reverse(arrival));
        if is_next && let Some(waker) = bound.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn receive(&mut self, now: Instant, local: SocketAddr) -> Option<Datagram> {
        let bound = self.sockets.get_mut(&local)?;
        bound.arrivals.peek().filter(|next| next.0.at <= now)?;
        let Reverse(arrival) = bound.arrivals.pop()?;
        bound.bytes -= arrival.datagram.bytes.len();
        self.statistics.under_way -= 1;
        self.statistics.delivered += 1;
        Some(arrival.datagram)
    }

    /// When the next datagram arrives; the task is woken when one is to arrive earlier.
    pub(super) fn next_arrival(
        &mut self,
        local: SocketAddr,
        context: &mut Context<'_>,
    ) -> Option<Instant> {
        let bound = self.sockets.get_mut(&local)?;
        let is_known = bound.waker.as_ref();
        if !is_known.is_some_and(|waker| waker.will_wake(context.waker())) {
            bound.waker = Some(context.waker().clone());
        }
        bound.arrivals.peek().map(|next| next.0.at)
    }
}

impl Ord for Arrival {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.count).cmp(&(other.at, other.count))
    }
}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Arrival {}
