//! Leaves and spines of a fabric: the backlog of a far port in the TTL of ACKs (TR, "TNL calculation").
//!
//! Data goes from a leaf over a spine to another leaf, and of its three queues the last one is the spine's
//! port towards the far leaf. ACKs come back over spines of their own. A spine writes how full its port
//! towards the leaf is that an ACK comes from; so the near leaf learns, by the uplink the ACK comes in by,
//! what packets that leave by this uplink will wait for.
//!
//! The [TTL field](flow_balance::ttl) says neither whether somebody wrote it nor what it was. So both are
//! agreed on: a leaf writes only ACKs of hosts at its own ports that start with a TTL of
//! [64](Initial::COMMON) and with no DSCP, and gives those the DSCP of the fabric, with a level of 0:
//! "nobody has reported". A spine writes only what has that DSCP, and the leaf in front of the hosts
//! restores that alone. A spine without this program decrements the hops left, as every router does.
//! Everything else passes as it came, under a [reason](FabricPass).
//!
//! What is written has to be restored, or hosts see it. So a leaf writes only between prefixes that it knows
//! both, and restores everything that may have been written, wherever it comes from and whatever number of
//! routers it has met: lists of leaves and paths change while ACKs are under way.
//!
//! Hosts cannot use the fabric's DSCP for pure ACKs: the first leaf takes it off, or the last one would
//! take it for a leaf's. It takes it off what its hosts have sent, and of nothing that comes from the
//! fabric: that would never be restored.

use flow_balance::ttl::{Initial, Level};

use crate::buffer::BufferMut;
use crate::dscp::{Dscp, updated_checksum};
use crate::flow::FlowKey;
use crate::packet::{ETHERNET_BYTES, TcpFlags, parse_plain_v4, parse_plain_v6};
use crate::sites::SiteKey;

mod counters;
#[cfg(test)]
mod tests;

pub use counters::{FabricCounters, FabricPass, FabricStep};

/// The most leaves of a fabric; each has a table of what the spines report of it.
pub const MAX_LEAVES: usize = 16;

/// The agreement between all leaves and spines of a fabric; 16 bytes. All zeros: nothing is written.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    step_ns: u64,
    dscp: Dscp,
    hops: u8,
    reserved: [u8; 6],
}

impl Agreement {
    /// Routers between two hosts at least: two leaves. So there is something for a spine to be between.
    pub const LEAST_HOPS: u8 = 3;
    /// Routers between two hosts at most: the seventh hop could bring a field to 0.
    pub const MOST_HOPS: u8 = 6;

    /// The reports there are: levels from 1 on, for 0 says that nobody has reported.
    const REPORTS: u64 = Level::COUNT as u64 - 1;

    /// An agreement on the mark of ACKs that are written, on how many routers are between two hosts, both
    /// leaves counted, and on the backlog that the highest level stands for. `None` for what cannot be
    /// told: no mark, or hops outside of the bounds.
    #[must_use]
    pub const fn new(dscp: Dscp, hops: u8, queue_ns: u64) -> Option<Self> {
        let is_possible = hops >= Self::LEAST_HOPS && hops <= Self::MOST_HOPS;
        if !is_possible || dscp.value() == 0 {
            return None;
        }
        let step_ns = queue_ns / Self::REPORTS;
        Some(Self {
            step_ns: if step_ns == 0 { 1 } else { step_ns },
            dscp,
            hops,
            reserved: [0; 6],
        })
    }

    /// Returns as long as an ACK is under way at most that waits in a full queue at each router, in ns; 0 of all zeros.
    #[must_use]
    pub const fn longest_wait_ns(&self) -> u64 {
        let queue_ns = self.step_ns.saturating_mul(Self::REPORTS);
        queue_ns.saturating_mul(self.hops as u64)
    }

    /// The level that reports a backlog, rounded down.
    #[inline(always)]
    const fn report(&self, backlog_ns: u64) -> u8 {
        // Never 0 where the agreement was made; a kernel's verifier does not know.
        let steps = backlog_ns / if self.step_ns == 0 { 1 } else { self.step_ns };
        let highest = Self::REPORTS - 1;
        1 + if steps < highest { steps } else { highest } as u8
    }

    /// The least backlog that a level reports; `None` where nobody has.
    #[inline(always)]
    const fn reported_ns(&self, level: Level) -> Option<u64> {
        match level.number() {
            0 => None,
            number => Some((number as u64 - 1) * self.step_ns),
        }
    }

    /// Tells if a field was written by a leaf of the fabric, as far as its routers so far tell: `after` are
    /// those that have to come yet.
    #[inline(always)]
    const fn is_near(&self, field: u8, after: u8) -> bool {
        let so_far = HOPS_LEFT - (field & HOPS_LEFT);
        so_far >= 1 && so_far + after <= self.hops
    }
}

/// The bits of a field that count the hops left.
const HOPS_LEFT: u8 = u8::MAX / Level::COUNT;
const _: () = assert!(HOPS_LEFT == 7);

/// Tells if a leaf can have written a field: it has met that leaf, and has not used all hops up.
#[inline(always)]
const fn may_be_written(field: u8) -> bool {
    let hops_left = field & HOPS_LEFT;
    hops_left >= 1 && hops_left < HOPS_LEFT
}

/// A VLAN tag of a packet that the kernel keeps beside its bytes, as it does with one tag of each packet
/// that comes in, and of what a VLAN device sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanTag {
    /// The packet belongs to the device itself.
    None,
    /// It belongs to a VLAN device on top. That may be a port of its own; the one below is none for it.
    Beside,
}

impl VlanTag {
    #[inline(always)]
    const fn none(self) -> Result<(), FabricPass> {
        match self {
            Self::None => Ok(()),
            Self::Beside => Err(FabricPass::VlanTag),
        }
    }
}

/// Writes an ACK that leaves a leaf by an uplink, if it does so without a VLAN tag; `is_from_host` tells if it has come in by no port of the
/// fabric, and `leaf_at` finds the leaf that an address lies at.
///
/// # Errors
/// The reason why the packet stays as it is.
#[inline(always)]
pub fn leave_leaf<B: BufferMut + ?Sized>(
    frame: &mut B,
    agreement: &Agreement,
    tag: VlanTag,
    is_from_host: impl FnOnce() -> bool,
    leaf_at: impl Fn(&SiteKey) -> Option<u32>,
) -> Result<FabricStep, FabricPass> {
    let ack = Ack::read(frame)?;
    tag.none()?;
    if agreement.hops < Agreement::LEAST_HOPS {
        return Err(FabricPass::Hops);
    }
    if !is_from_host() {
        return Err(FabricPass::NotFromHost);
    }
    if leaf_at(&ack.destination()).is_none() {
        return Err(FabricPass::UnknownLeaf);
    }
    // Whoever the host is: the last leaf restores whatever has the mark.
    if ack.dscp == agreement.dscp {
        ack.rewrite(frame, ack.ttl, Dscp::NONE)?;
        return Ok(FabricStep::Cleared);
    }
    if leaf_at(&ack.source()).is_none() {
        return Err(FabricPass::UnknownLeaf);
    }
    if ack.dscp != Dscp::NONE {
        return Err(FabricPass::OwnDscp);
    }
    // This leaf is the first router, and has decremented it.
    if ack.ttl != Initial::COMMON.0 - 1 {
        return Err(FabricPass::InitialTtl);
    }
    let field = Initial::COMMON.encode(ack.ttl, NOBODY);
    let field = field.ok_or(FabricPass::InitialTtl)?;
    ack.rewrite(frame, field, agreement.dscp)?;
    Ok(FabricStep::Written)
}

/// Reports in an ACK that comes in at a spine how full the port is that it comes in by, in the other
/// direction; `backlog_ns` knows that.
///
/// # Errors
/// The reason why the packet stays as it is.
#[inline(always)]
pub fn pass_spine<B: BufferMut + ?Sized>(
    frame: &mut B,
    agreement: &Agreement,
    tag: VlanTag,
    backlog_ns: impl FnOnce() -> Option<u64>,
) -> Result<FabricStep, FabricPass> {
    let ack = Ack::read(frame)?;
    if agreement.hops == 0 || ack.dscp != agreement.dscp {
        return Err(FabricPass::NotWritten);
    }
    tag.none()?;
    // This spine and the last leaf.
    if !agreement.is_near(ack.ttl, 2) {
        return Err(FabricPass::Hops);
    }
    let hops_left = ack.ttl & HOPS_LEFT;
    if ack.ttl != hops_left {
        return Err(FabricPass::AlreadyReported);
    }
    let backlog_ns = backlog_ns().ok_or(FabricPass::UnknownPort)?;
    let field = agreement.report(backlog_ns) << HOPS_LEFT.count_ones() | hops_left;
    ack.rewrite(frame, field, ack.dscp)?;
    Ok(FabricStep::Reported)
}

/// A report on the port of a spine towards a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The leaf that the port leads to, by its number.
    pub leaf: u32,
    /// The least backlog that the port had.
    pub backlog_ns: u64,
}

/// Contents of an ACK that a leaf has restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A spine has reported.
    Report(Report),
    /// Nobody has reported.
    Nothing,
    /// It cannot be told of which leaf a spine would have reported, the ACK has met more routers than
    /// were agreed on, or it has come in a VLAN, and by no port.
    Unknown,
}

impl Heard {
    /// The step that was done to the ACK.
    #[inline(always)]
    #[must_use]
    pub const fn step(&self) -> FabricStep {
        match self {
            Self::Report(_) => FabricStep::Read,
            Self::Nothing => FabricStep::Restored,
            Self::Unknown => FabricStep::Unread,
        }
    }
}

/// Restores an ACK that comes in at a leaf by an uplink, whoever it is from and whatever VLAN it is in.
/// Returns what is in it; `leaf_at` finds the leaf that an address lies at.
///
/// # Errors
/// The reason why the packet stays as it is.
#[inline(always)]
pub fn enter_leaf<B: BufferMut + ?Sized>(
    frame: &mut B,
    agreement: &Agreement,
    tag: VlanTag,
    leaf_at: impl FnOnce(&SiteKey) -> Option<u32>,
) -> Result<Heard, FabricPass> {
    let ack = Ack::read(frame)?;
    if agreement.hops == 0 || ack.dscp != agreement.dscp {
        return Err(FabricPass::NotWritten);
    }
    // Not by the hops that were agreed on: where paths change there may be more for a while.
    if !may_be_written(ack.ttl) {
        return Err(FabricPass::Hops);
    }
    let (level, ttl) = Initial::COMMON.decode(ack.ttl);
    ack.rewrite(frame, ttl.ok_or(FabricPass::Hops)?, Dscp::NONE)?;
    // This leaf is a router as well.
    if tag == VlanTag::Beside || !agreement.is_near(ack.ttl, 1) {
        return Ok(Heard::Unknown);
    }
    let Some(leaf) = leaf_at(&ack.source()) else {
        return Ok(Heard::Unknown);
    };
    Ok(match agreement.reported_ns(level) {
        Some(backlog_ns) => Heard::Report(Report { leaf, backlog_ns }),
        None => Heard::Nothing,
    })
}

/// The level of an ACK that no spine has met.
const NOBODY: Level = Level::new(0).expect("there is a lowest level");

/// A pure ACK without VLAN tags, IP options or extension headers.
struct Ack {
    key: FlowKey,
    back: FlowKey,
    is_v6: bool,
    ttl: u8,
    dscp: Dscp,
}

/// From the beginning of the header to its checksum; of IPv6 to the hop limit and four bytes on.
const HEAD_BYTES: usize = 12;
const TTL_V4: usize = 8;
const CHECKSUM: usize = 10;
const TTL_V6: usize = 7;

impl Ack {
    #[inline(always)]
    fn read<B: BufferMut + ?Sized>(frame: &B) -> Result<Self, FabricPass> {
        const ACK: u8 = 0x10;
        const ECN: u8 = 0xc0;
        let (network, header, is_v6) = match parse_plain_v4(frame) {
            Some((network, header)) => (network, header, false),
            None => {
                let (network, header) = parse_plain_v6(frame).ok_or(FabricPass::NotPureAck)?;
                (network, header, true)
            }
        };
        let TcpFlags(flags) = header.flags;
        if header.payload_bytes != 0 || flags & !ECN != ACK {
            return Err(FabricPass::NotPureAck);
        }
        let at = ETHERNET_BYTES + if is_v6 { TTL_V6 } else { TTL_V4 };
        let [ttl] = frame.read(at).ok_or(FabricPass::NotPureAck)?;
        Ok(Self {
            key: FlowKey::new(network.addresses, &header),
            back: FlowKey::new(network.addresses.swapped(), &header),
            is_v6,
            ttl,
            dscp: Dscp::of_traffic_class(network.traffic_class),
        })
    }

    #[inline(always)]
    fn destination(&self) -> SiteKey {
        SiteKey::of_destination(&self.key)
    }

    #[inline(always)]
    fn source(&self) -> SiteKey {
        SiteKey::of_destination(&self.back)
    }

    /// Writes both at once, so that nobody sees one of them alone.
    #[inline(always)]
    fn rewrite<B: BufferMut + ?Sized>(
        &self,
        frame: &mut B,
        ttl: u8,
        dscp: Dscp,
    ) -> Result<(), FabricPass> {
        let head = frame.read::<HEAD_BYTES>(ETHERNET_BYTES);
        let mut head = head.ok_or(FabricPass::Unwritable)?;
        if self.is_v6 {
            let class = dscp.applied_to(head[0] << 4 | head[1] >> 4);
            head[0] = head[0] & 0xf0 | class >> 4;
            head[1] = class << 4 | head[1] & 0x0f;
            head[TTL_V6] = ttl;
        } else {
            let before = [word(&head, 0), word(&head, TTL_V4)];
            head[1] = dscp.applied_to(head[1]);
            head[TTL_V4] = ttl;
            // In the host's byte order throughout: the sum does not mind (RFC 1071 §2B).
            let mut checksum = word(&head, CHECKSUM);
            checksum = updated_checksum(checksum, before[0], word(&head, 0));
            checksum = updated_checksum(checksum, before[1], word(&head, TTL_V4));
            [head[CHECKSUM], head[CHECKSUM + 1]] = checksum.to_ne_bytes();
        }
        frame
            .write(ETHERNET_BYTES, head)
            .ok_or(FabricPass::Unwritable)
    }
}

#[inline(always)]
const fn word(head: &[u8; HEAD_BYTES], at: usize) -> u16 {
    u16::from_ne_bytes([head[at], head[at + 1]])
}
