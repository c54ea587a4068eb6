//! The tunnels of a site as one list of paths: what a balancer sees of them, and what their queues
//! take.
//!
//! In front of each tunnel stand two virtual queues, one in the other: what short flows have put
//! there, which go first where tunnels are shaped, and all of it. A host keeps them in memory that its
//! CPUs share, and adds to them by atomic operations: no packet is lost to another CPU's.

use flow_balance::arithmetic::{less, max, min, saturating_add, select};
use flow_balance::{
    Balancer, EarliestArrival, EarliestFlow, MAX_PATHS, Packet, PathId, PathSet, PathView, Paths,
    ServiceTime,
};

use crate::cpu_queues::SharedWord;
use crate::flow::Class;

/// How packets choose among the tunnels of a site: the number of a balancer, as a host has it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalancerNumber(pub u8);

impl BalancerNumber {
    /// A hash of the flow, weighted.
    pub const ECMP: Self = Self(1);
    /// Chance, for each packet.
    pub const RPS: Self = Self(2);
    /// Turns, for each packet.
    pub const DRB: Self = Self(3);
    /// Turns, for each cell of 64 KB.
    pub const PRESTO: Self = Self(4);
    /// Chance, after a pause.
    pub const LETFLOW: Self = Self(5);
    /// The earliest arrival, in order.
    pub const TR: Self = Self(6);
    /// TR to the letter of the paper.
    pub const TR_PAPER: Self = Self(7);
    /// By the number of flows, once for each.
    pub const PLACEMENT: Self = Self(8);
}

/// A tunnel as the agent describes it; 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelPath {
    /// From here to the other border, while nothing waits.
    pub propagation_ns: u64,
    /// The time that a byte takes.
    pub service: ServiceTime,
    /// How much the queue in front of it holds, of each class; what is beyond is dropped there.
    pub queue_ns: u64,
    /// Its share of what is spread by weight.
    pub weight: u32,
    /// The kernel's mark in the bits that tell tunnels apart.
    pub mark: u32,
}

/// The tunnels of a site, and what goes for all of them; 552 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SitePaths {
    /// A bit for each tunnel that there is. None: packets pass as if nobody chose.
    pub known: u64,
    /// A bit for each tunnel that forwards packets, as far as is known.
    pub usable: u64,
    /// A longer silence ends a flowlet.
    pub gap_ns: u64,
    /// The bits of the kernel's mark that tell tunnels apart.
    pub mark_mask: u32,
    /// Not 0 where short flows go first in each tunnel.
    pub has_priority: u32,
    /// The tunnels, in the order of the configuration.
    pub tunnels: [TunnelPath; MAX_PATHS],
}

/// The virtual queues in front of the tunnels: when the last byte of each will have left; 256 bytes.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct TunnelQueues<W> {
    /// Of what goes first.
    first: [W; MAX_PATHS],
    /// Of everything.
    all: [W; MAX_PATHS],
}

/// Counts of one CPU: what was sent by each tunnel; 512 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Packets of short flows by tunnel.
    pub short_packets: [u64; MAX_PATHS],
    /// Packets of long flows by tunnel.
    pub long_packets: [u64; MAX_PATHS],
    /// Packets that are not split by tunnel.
    pub other_packets: [u64; MAX_PATHS],
    /// Bytes of all of them by tunnel, with Ethernet headers.
    pub bytes: [u64; MAX_PATHS],
}

impl PathCounters {
    /// Counts a packet that takes a tunnel.
    #[inline(always)]
    pub const fn count(&mut self, path: PathId, class: Option<Class>, bytes: u32) {
        let packets = match class {
            Some(Class::Short) => &mut self.short_packets,
            Some(Class::Long) => &mut self.long_packets,
            None => &mut self.other_packets,
        };
        packets[path.index()] += 1;
        self.bytes[path.index()] += bytes as u64;
    }

    /// Adds the counts of another CPU.
    pub fn add(&mut self, other: &Self) {
        for (sums, counts) in [
            (&mut self.short_packets, &other.short_packets),
            (&mut self.long_packets, &other.long_packets),
            (&mut self.other_packets, &other.other_packets),
            (&mut self.bytes, &other.bytes),
        ] {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += *count;
            }
        }
    }
}

/// The paths of a packet of a class at a time.
pub struct LivePaths<'a, W> {
    site: &'a SitePaths,
    queues: &'a TunnelQueues<W>,
    goes_first: bool,
    now_ns: u64,
}

/// Headers of each segment that the network stack has merged into one packet, after the first:
/// Ethernet, IP, and TCP with timestamps.
const HEADERS_V4: u32 = 14 + 20 + 32;
const HEADERS_V6: u32 = 14 + 40 + 32;

/// The bytes that a packet of so many segments, merged into `bytes`, takes on the wire.
#[inline(always)]
pub const fn wire_bytes(bytes: u32, segments: u32, is_v6: bool) -> u32 {
    let headers = if is_v6 { HEADERS_V6 } else { HEADERS_V4 };
    bytes.wrapping_add(segments.saturating_sub(1).wrapping_mul(headers))
}

impl SitePaths {
    /// The kernel's mark of a packet that takes a tunnel; `mark` is what it is without one.
    #[inline(always)]
    pub const fn marked(&self, mark: u32, path: PathId) -> u32 {
        mark & !self.mark_mask | self.tunnels[path.index()].mark
    }
}

impl<'a, W: SharedWord> LivePaths<'a, W> {
    /// The paths as a packet finds them; `class` is none where it is not split.
    #[inline(always)]
    pub fn new(
        site: &'a SitePaths,
        queues: &'a TunnelQueues<W>,
        class: Option<Class>,
        now_ns: u64,
    ) -> Self {
        let is_short = matches!(class, Some(Class::Short));
        Self {
            site,
            queues,
            goes_first: is_short && site.has_priority != 0,
            now_ns,
        }
    }

    /// Returns the tunnels of the site.
    #[inline(always)]
    pub const fn site(&self) -> &'a SitePaths {
        self.site
    }

    /// Chooses the path of a packet so that its flow stays in order, and notes in `noted` what the flow is
    /// to note if the queue in front of the path takes it: the first of two steps, and
    /// [`send_in_order`](Self::send_in_order) the second. The kernel's programs have a function for each,
    /// which its verifier checks once; [`forward_in_order`](Self::forward_in_order) is both.
    #[inline(always)]
    pub fn choose_in_order(
        &self,
        balancer: &EarliestArrival,
        flow: &EarliestFlow,
        noted: &mut EarliestFlow,
        packet: &Packet,
    ) -> PathId {
        *noted = *flow;
        balancer.choose(&mut (), noted, self, packet)
    }

    /// Puts a packet into the queue in front of its path, and has its flow note it if the queue takes it.
    /// Returns true if so.
    ///
    /// A packet that is dropped there leaves its place to the next one, which may arrive earlier than it
    /// would have: earlier, too, than the last packet that really went, by another path.
    #[inline(always)]
    pub fn send_in_order(
        &self,
        path: PathId,
        bytes: u32,
        flow: &mut EarliestFlow,
        noted: &EarliestFlow,
    ) -> bool {
        let is_taken = self.send(path, bytes);
        if is_taken {
            *flow = *noted;
        }
        is_taken
    }

    /// Has a packet take a path on which its flow stays in order. Returns the path, and true if the queue
    /// in front of it takes the packet.
    #[inline(always)]
    pub fn forward_in_order(
        &self,
        balancer: &EarliestArrival,
        flow: &mut EarliestFlow,
        packet: &Packet,
    ) -> (PathId, bool) {
        let mut noted = EarliestFlow::default();
        let path = self.choose_in_order(balancer, flow, &mut noted, packet);
        let is_taken = self.send_in_order(path, packet.bytes, flow, &noted);
        (path, is_taken)
    }

    /// Puts a packet into the queue in front of a tunnel. Where that is full already it is dropped
    /// there, and so not counted. Returns true if it was put there.
    #[inline(always)]
    pub fn send(&self, path: PathId, bytes: u32) -> bool {
        if self.is_full(path) {
            return false;
        }
        let tunnel = &self.site.tunnels[path.index()];
        let (service_ns, now_ns) = (tunnel.service.of(bytes as u64), self.now_ns);
        let (first, all) = (
            &self.queues.first[path.index()],
            &self.queues.all[path.index()],
        );
        add(all, now_ns, service_ns);
        if self.goes_first {
            add(first, now_ns, service_ns);
        }
        true
    }

    /// Tells if the queue in front of a tunnel drops what comes now. Without a branch for the class, of
    /// which a kernel's verifier would follow both ways.
    #[inline(always)]
    fn is_full(&self, path: PathId) -> bool {
        let (first_ns, all_ns) = (
            self.queues.first[path.index()].get(),
            self.queues.all[path.index()].get(),
        );
        let goes_first = self.goes_first.into();
        let own_ns = select(goes_first, first_ns, all_ns);
        let empty_ns = select(goes_first, self.now_ns, max(first_ns, self.now_ns));
        let queue_ns = self.site.tunnels[path.index()].queue_ns;
        less(saturating_add(empty_ns, queue_ns), own_ns) != 0
    }

    /// When the last byte in front of each tunnel will have left that a packet waits for.
    #[inline(always)]
    fn free_at_ns(&self, path: PathId) -> u64 {
        let queues = if self.goes_first {
            &self.queues.first
        } else {
            &self.queues.all
        };
        queues[path.index()].get()
    }
}

/// Lets a queue that is empty begin at `now_ns`, and adds to it. If the exchange fails another CPU
/// has just added to it.
#[inline(always)]
fn add<W: SharedWord>(queue: &W, now_ns: u64, service_ns: u64) {
    let free_at_ns = queue.get();
    if free_at_ns < now_ns {
        queue.exchange(free_at_ns, now_ns);
    }
    queue.add(service_ns);
}

impl<W: SharedWord> Paths for LivePaths<'_, W> {
    #[inline(always)]
    fn known(&self) -> PathSet {
        PathSet::from_bits(self.site.known as u16)
    }

    #[inline(always)]
    fn usable(&self) -> PathSet {
        PathSet::from_bits(self.site.usable as u16)
    }

    #[inline(always)]
    fn view(&self, path: PathId) -> PathView {
        let tunnel = &self.site.tunnels[path.index()];
        let free_at_ns = self.free_at_ns(path);
        PathView {
            propagation_ns: tunnel.propagation_ns,
            local_backlog_ns: max(free_at_ns, self.now_ns) - self.now_ns,
            service: tunnel.service,
            weight: tunnel.weight,
            ..PathView::default()
        }
    }

    #[inline(always)]
    fn weight(&self, path: PathId) -> u32 {
        self.site.tunnels[path.index()].weight
    }

    #[inline(always)]
    fn arrivals_ns(&self, now_ns: u64) -> [u64; MAX_PATHS] {
        let mut arrivals_ns = [0; MAX_PATHS];
        for path in PathId::all() {
            let starts_ns = max(self.free_at_ns(path), now_ns);
            let tunnel = &self.site.tunnels[path.index()];
            let arrival_ns = min(
                saturating_add(starts_ns, tunnel.propagation_ns),
                u64::MAX - 1,
            );
            let is_unknown = less(self.site.known >> path.index() & 1, 1);
            arrivals_ns[path.index()] = select(is_unknown, u64::MAX, arrival_ns);
        }
        arrivals_ns
    }
}

#[cfg(test)]
mod tests;
