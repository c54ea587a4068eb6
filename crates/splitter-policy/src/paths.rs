//! The tunnels of a site as one list of paths: what a balancer sees of them, and what their queues
//! take.
//!
//! In front of each tunnel stand two virtual queues, one in the other: what short flows have put
//! there, which go first where tunnels are shaped, and all of it. A host keeps them in memory that its
//! CPUs share, and adds to them by atomic operations: no packet is lost to another CPU's.

use flow_balance::arithmetic::opaque;
use flow_balance::{MAX_PATHS, Packet, PathSet, PathView, Paths, ServiceTime};

pub use flow_balance::PathId;

use crate::cpu_queues::SharedWord;
use crate::flow::Class;

mod entering;
mod heard;
mod sending;

pub use heard::{Behind, FarLeaf, Heard, Unheard, UplinkNumbers};

/// How packets choose among the tunnels of a site: the number of a balancer, as a host has it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalancerNumber(pub u8);

impl BalancerNumber {
    /// No balancer: packets pass as if nobody chose.
    pub const NONE: Self = Self(0);
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
    /// None: each flow keeps to the tunnels of its class, next to flows of the other one that choose among all.
    pub const PLACEMENT: Self = Self(8);
}

/// A tunnel as the agent describes it; 48 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelPath {
    /// From here to the other border, while nothing waits.
    pub propagation_ns: u64,
    /// The time that a byte takes.
    pub service: ServiceTime,
    /// The time that a byte of the packet itself takes, besides those in front of it: none behind a shaper, which
    /// lets a packet go whole when its time begins, merged segments too.
    pub own_service: ServiceTime,
    /// How much the queue in front of it holds, of each class; what is beyond is dropped there.
    pub queue_ns: u64,
    /// How far ahead of its rate the queue lets packets go after a pause, as a shaper does that saves up
    /// for a burst.
    pub burst_ns: u64,
    /// Its share of what is spread by weight.
    pub weight: u32,
    /// The kernel's mark in the bits that tell tunnels apart.
    pub mark: u32,
}

/// The tunnels of a site, and what goes for all of them; 896 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SitePaths {
    /// A bit for each tunnel that there is. None: packets pass as if nobody chose.
    pub known: u64,
    /// A bit for each tunnel that forwards packets, as far as is known.
    pub usable: u64,
    /// A bit for each tunnel of a class's own, of short flows and of long ones: where a class does not choose
    /// among all.
    pub own: [u64; 2],
    /// A longer silence ends a flowlet, and takes a short flow off a path where short flows are counted.
    pub gap_ns: u64,
    /// By how much later a packet may arrive for the sake of [order](flow_balance::EarliestArrival::patience_ns).
    pub patience_ns: u64,
    /// The bits of the kernel's mark that tell tunnels apart.
    pub mark_mask: u32,
    /// 1 where short flows go first in each tunnel, else 0.
    pub has_priority: u32,
    /// By how many bytes a packet is shorter in the tunnels than as it comes from the site: the Ethernet header,
    /// where their devices have none.
    pub spared_bytes: u32,
    /// 1 where the queues behind tunnels count as well that a [fabric's spines report](Heard), else 0.
    pub hears: u32,
    /// The tunnels, in the order of the configuration.
    pub tunnels: [TunnelPath; MAX_PATHS],
    /// The numbers of their devices; 0 where there is none.
    pub devices: [u32; MAX_PATHS],
}

/// The virtual queues in front of the tunnels: when the last byte of each would have left by the rate alone,
/// of which a burst is [ahead](TunnelPath::burst_ns); 512 bytes.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct TunnelQueues<W> {
    /// Of what goes [`FIRST`], and of [`ALL`].
    of: [[W; MAX_PATHS]; 2],
    /// How often each was compared with the queue itself.
    looks: [W; MAX_PATHS],
    /// By how much it was wrong then, in ns, added up without signs.
    wrong_ns: [W; MAX_PATHS],
}

/// What goes first.
const FIRST: usize = 0;
/// Everything.
const ALL: usize = 1;

/// Counts of one CPU: what was sent by each tunnel; 768 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Packets of short flows by tunnel.
    pub short_packets: [u64; MAX_PATHS],
    /// Packets of long flows by tunnel.
    pub long_packets: [u64; MAX_PATHS],
    /// Packets that are not split by tunnel.
    pub other_packets: [u64; MAX_PATHS],
    /// Bytes of all of them by tunnel, as the tunnel's device counts them.
    pub bytes: [u64; MAX_PATHS],
    /// Packets by tunnel of which the one before in their flow had taken another.
    pub changes: [u64; MAX_PATHS],
    /// Packets by tunnel that arrive later than by another one, [for the sake of order](flow_balance::Earliest::is_held).
    pub refusals: [u64; MAX_PATHS],
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

    /// Counts as well if it changes tunnels, and if it is held for the sake of order: 1 if so, else 0.
    #[inline(always)]
    pub const fn count_order(&mut self, path: PathId, is_change: u64, is_held: u64) {
        self.changes[path.index()] += is_change;
        self.refusals[path.index()] += is_held;
    }

    /// Adds the counts of another CPU.
    pub fn add(&mut self, other: &Self) {
        for (sums, counts) in [
            (&mut self.short_packets, &other.short_packets),
            (&mut self.long_packets, &other.long_packets),
            (&mut self.other_packets, &other.other_packets),
            (&mut self.bytes, &other.bytes),
            (&mut self.changes, &other.changes),
            (&mut self.refusals, &other.refusals),
        ] {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += *count;
            }
        }
    }
}

/// The paths of a packet of a class at a time; `B` is what is known of the queues behind them.
pub struct LivePaths<'a, W, B = Unheard> {
    site: &'a SitePaths,
    queues: &'a TunnelQueues<W>,
    /// What the packet waits for: [`FIRST`] or [`ALL`].
    waits_for: usize,
    now_ns: u64,
    behind: B,
}

/// Headers of each segment that the network stack has merged into one packet, after the first:
/// Ethernet, IP, and TCP with timestamps.
const HEADERS_V4: u32 = 14 + 20 + 32;
const HEADERS_V6: u32 = 14 + 40 + 32;

/// The bytes that a packet of so many segments, merged into `bytes`, takes on the wire; `spared` are those of
/// each segment that it has not [there](SitePaths::spared_bytes).
#[inline(always)]
pub const fn wire_bytes(bytes: u32, segments: u32, is_v6: bool, spared: u32) -> u32 {
    let first = bytes.wrapping_sub(spared);
    if segments <= 1 {
        return first;
    }
    let headers = if is_v6 { HEADERS_V6 } else { HEADERS_V4 };
    first.wrapping_add((segments - 1).wrapping_mul(headers.wrapping_sub(spared)))
}

impl SitePaths {
    /// The kernel's mark of a packet that takes a tunnel; `mark` is what it is without one.
    #[inline(always)]
    pub const fn marked(&self, mark: u32, path: PathId) -> u32 {
        mark & !self.mark_mask | self.tunnels[path.index()].mark
    }
}

impl<W: SharedWord> TunnelQueues<W> {
    /// Returns when the last byte in front of a tunnel would have left, of all classes, by the rate alone.
    pub fn free_at_ns(&self, path: PathId) -> u64 {
        self.of[ALL][path.index()].get()
    }

    /// Mends what the queue in front of a tunnel holds by so much, as a look at the queue itself says, and counts that.
    /// Packets that come at the same time are not lost to it.
    pub fn correct(&self, path: PathId, correction_ns: i64, now_ns: u64) {
        let index = path.index();
        self.looks[index].add(1);
        if correction_ns < 0 {
            self.of[ALL][index].add(correction_ns.cast_unsigned());
        } else if correction_ns > 0 {
            self.fill(index, correction_ns.unsigned_abs(), now_ns);
        }
        self.wrong_ns[index].add(correction_ns.unsigned_abs());
    }

    /// Puts so much into a queue, which is empty now if its model was for long.
    fn fill(&self, index: usize, more_ns: u64, now_ns: u64) {
        let word = &self.of[ALL][index];
        let filled = |free_at_ns: u64| free_at_ns.max(now_ns).saturating_add(more_ns);
        let mut known_ns = word.get();
        while !word.exchange(known_ns, filled(known_ns)) {
            known_ns = word.get();
        }
    }

    /// Returns how often the queue was compared with the one in front of the tunnel, and by how many ns it was wrong
    /// then in sum.
    pub fn compared(&self, path: PathId) -> (u64, u64) {
        let index = path.index();
        (self.looks[index].get(), self.wrong_ns[index].get())
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
        Self::of_short(
            site,
            queues,
            matches!(class, Some(Class::Short)).into(),
            now_ns,
        )
    }

    /// The paths as a packet finds them; `is_short` is 1 if its flow is short, else 0: a number, because a
    /// kernel's verifier would follow both ways of a branch through all that comes after it.
    #[inline(always)]
    pub fn of_short(
        site: &'a SitePaths,
        queues: &'a TunnelQueues<W>,
        is_short: u64,
        now_ns: u64,
    ) -> Self {
        let goes_first = is_short & u64::from(site.has_priority);
        Self {
            site,
            queues,
            // The verifier has to know the bound, which a compiler knows already.
            waits_for: opaque(ALL as u64 ^ goes_first) as usize & ALL,
            now_ns,
            behind: Unheard,
        }
    }

    /// Returns the same paths, with what is known of the queues behind them.
    #[inline(always)]
    pub fn with_behind<B: Behind>(&self, behind: B) -> LivePaths<'a, W, B> {
        LivePaths {
            site: self.site,
            queues: self.queues,
            waits_for: self.waits_for,
            now_ns: self.now_ns,
            behind,
        }
    }
}

impl<'a, W: SharedWord, B: Behind> LivePaths<'a, W, B> {
    /// Returns the tunnels of the site.
    #[inline(always)]
    pub const fn site(&self) -> &'a SitePaths {
        self.site
    }

    /// When the last byte in front of each tunnel would have left that a packet waits for, by the rate alone.
    #[inline(always)]
    fn free_at_ns(&self, path: PathId) -> u64 {
        self.queues.of[self.waits_for][path.index()].get()
    }
}

impl<W: SharedWord, B: Behind> Paths for LivePaths<'_, W, B> {
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
            local_backlog_ns: free_at_ns
                .saturating_sub(self.now_ns.saturating_add(tunnel.burst_ns)),
            remote_backlog_ns: self.behind.backlog_ns(path, self.now_ns),
            service: tunnel.own_service,
            weight: tunnel.weight,
            ..PathView::default()
        }
    }

    #[inline(always)]
    fn weight(&self, path: PathId) -> u32 {
        self.site.tunnels[path.index()].weight
    }

    /// Where all sums are below 2^64, which is so of delays that a configuration can state.
    #[inline(always)]
    fn arrival_ns(&self, path: PathId, packet: &Packet) -> u64 {
        let tunnel = &self.site.tunnels[path.index()];
        self.free_at_ns(path)
            .max(packet.now_ns.wrapping_add(tunnel.burst_ns))
            .wrapping_sub(tunnel.burst_ns)
            .wrapping_add(tunnel.propagation_ns)
            .wrapping_add(self.behind.backlog_ns(path, packet.now_ns))
            .wrapping_add(tunnel.own_service.of(packet.bytes as u64))
    }

    /// The same sum, left off once it is too long: by the tunnel's length alone, which takes one number of memory, or by
    /// what waits in front of it.
    #[inline(always)]
    fn delay_within_ns(&self, path: PathId, packet: &Packet, most_ns: u64) -> Option<u64> {
        let tunnel = &self.site.tunnels[path.index()];
        let mut delay_ns = tunnel.propagation_ns;
        if delay_ns > most_ns {
            return None;
        }
        let begins_ns = packet.now_ns.wrapping_add(tunnel.burst_ns);
        let free_at_ns = self.free_at_ns(path);
        if free_at_ns > begins_ns {
            delay_ns = delay_ns.wrapping_add(free_at_ns.wrapping_sub(begins_ns));
            if delay_ns > most_ns {
                return None;
            }
        }
        let behind_ns = self.behind.backlog_ns(path, packet.now_ns);
        let own_ns = tunnel.own_service.of(packet.bytes as u64);
        Some(delay_ns.wrapping_add(behind_ns).wrapping_add(own_ns))
    }
}

#[cfg(test)]
mod tests;
