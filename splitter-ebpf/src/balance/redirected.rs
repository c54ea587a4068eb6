//! The choice of a packet that XDP puts into its tunnel.
//!
//! The balancers are those of traffic control. What they are asked about a packet notes whoever has found that it is for
//! the tunnels; and the answer is a next hop of the agent's, where it is a mark elsewhere.

use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::macros::btf_map;
use flow_balance::PathId;
use splitter_policy::dscp::Dscp;
use splitter_policy::egress_counts::IpStart;
use splitter_policy::flow::Class;
use splitter_policy::next_hop::{TunnelHop, TunnelHops};
use splitter_policy::paths::BalancerNumber;
use splitter_policy::routing_key::RoutingKey;

use super::account::{count, counters};
use super::{
    NONE, NOT_SPLIT, PathScratch, SITE_PATHS, ask, asked, balancer_of, is_used, scratch, take, tr,
};
use crate::clock;
use crate::pipeline::settings;

/// The tunnels' next hops of IPv4 and of IPv6, by the tunnels' numbers. The agent may replace them while they are read.
#[btf_map]
static TUNNEL_HOPS: Array<TunnelHops, 2> = Array::new();

/// How the IP header begins of the packet that was noted last. Not with what else is noted: with one store more, the verifier
/// comes to no end of the search for the earliest arrival in traffic control.
#[btf_map]
static IP_START: PerCpuArray<u64, 1> = PerCpuArray::new();

/// Tells if packets choose among tunnels.
#[inline(always)]
pub fn is_choosing() -> bool {
    SITE_PATHS.get(0).is_some_and(|site| site.known != 0)
}

/// Notes a packet that is for the tunnels.
#[inline(always)]
pub fn note<K: RoutingKey>(key: &K, ip: &IpStart) -> Option<()> {
    let [seed, ..] = settings().layout.seeds;
    *scratch()? = PathScratch {
        now_ns: clock::monotonic_ns(),
        bytes: ip.frame_bytes(),
        hash: key.flow_hash(seed).into(),
        class: NOT_SPLIT,
        path: NONE,
    };
    // SAFETY: a per-CPU value, written before it is read; nothing interrupts a device's ingress on its CPU.
    unsafe { *IP_START.get_ptr_mut(0)? = packed(ip) };
    Some(())
}

/// How the length of a packet that was noted stands to the tunnels.
pub enum Fit {
    /// It fits each of them.
    Fits,
    /// Some of them does not take it.
    TooLarge,
    /// No next hop is known of any.
    Unknown,
}

/// Compares a packet that was noted with the tunnels.
#[inline(always)]
pub fn fit() -> Fit {
    let Some((hops, ip)) = hops() else {
        return Fit::Unknown;
    };
    match hops.mtu {
        0 => Fit::Unknown,
        mtu if ip.packet_bytes > mtu => Fit::TooLarge,
        _ => Fit::Fits,
    }
}

/// Has a packet that was noted choose its tunnel, and enter the queue that is in front of it by the model; false where
/// none is chosen.
#[inline(always)]
pub fn choose(of: Class) -> bool {
    let class = of as u64;
    let Some(scratch) = scratch() else {
        return false;
    };
    scratch.class = class;
    let balancer = balancer_of(class);
    if balancer != BalancerNumber::TR {
        return ask(balancer) && take_noted() != 0;
    }
    let is_chosen = tr::choose_tr() != 0;
    if is_used(BalancerNumber::LETFLOW) && is_chosen {
        tr::note_flowlet();
    }
    is_chosen
}

/// The next hop of the tunnel that was chosen, if it is known, and how the packet begins.
#[inline(always)]
pub fn chosen() -> Option<(Option<&'static TunnelHop>, IpStart)> {
    let ((hops, ip), scratch) = (hops()?, scratch()?);
    if scratch.path == NONE {
        return None;
    }
    Some((hops.of(PathId::from_low_bits(scratch.path)), ip))
}

/// Tells if a packet that was noted is of IPv6.
#[inline(always)]
pub fn is_v6() -> bool {
    IP_START.get(0).is_some_and(|bits| *bits & 1 != 0)
}

/// Notes that the packet has this mark now.
#[inline(always)]
pub fn note_mark(mark: Dscp) -> Option<()> {
    let bits = IP_START.get_ptr_mut(0)?;
    // SAFETY: as where it is written first.
    unsafe { *bits = *bits & !(0xff << DSCP) | u64::from(mark.value()) << DSCP };
    Some(())
}

/// Tells if this is the device of the tunnel that was chosen.
#[inline(always)]
pub fn is_of_chosen(device: u32) -> bool {
    let (Some(site), Some(scratch)) = (SITE_PATHS.get(0), scratch()) else {
        return false;
    };
    site.devices[PathId::from_low_bits(scratch.path).index()] == device
}

/// Takes the tunnel that was chosen by another balancer for a packet that was noted.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn take_noted() -> u64 {
    let taken = asked().and_then(|asked| {
        let (path, is_change) = take(&asked)?;
        *asked.chosen = taken(path, [is_change, false]);
        Some(())
    });
    taken.map_or(0, |()| 1)
}

/// Where it stands next to a path's number if the packet changes paths, and if it is held for the sake of order.
const IS_CHANGE: u32 = 32;
const IS_HELD: u32 = 33;

/// Notes a path that was taken; `order` as in [`count`].
#[inline(always)]
pub(super) const fn taken(path: PathId, order: [bool; 2]) -> u64 {
    path.index() as u64 | (order[0] as u64) << IS_CHANGE | (order[1] as u64) << IS_HELD
}

/// Counts a packet that was put into the tunnel that it has chosen. Not where that is chosen: what goes by the stack after
/// all is in another tunnel.
#[inline(always)]
pub fn count_chosen() -> Option<()> {
    let scratch = scratch()?;
    let (path, bits) = (PathId::from_low_bits(scratch.path), scratch.path);
    let order = [bits >> IS_CHANGE & 1 != 0, bits >> IS_HELD & 1 != 0];
    count(
        counters()?,
        (scratch.class, scratch.bytes as u32),
        path,
        order,
    );
    Some(())
}

/// The next hops of the family of a packet that was noted, and how that begins.
#[inline(always)]
fn hops() -> Option<(&'static TunnelHops, IpStart)> {
    let bits = *IP_START.get(0)?;
    let hops = TUNNEL_HOPS.get((bits & 1) as u32)?;
    Some((hops, unpacked(bits)))
}

const DSCP: u32 = 8;
const PROTOCOL: u32 = 16;
const LENGTH: u32 = 32;

/// In a word, of which the verifier need not know what is a valid flag.
#[inline(always)]
fn packed(ip: &IpStart) -> u64 {
    u64::from(ip.is_v6)
        | u64::from(ip.dscp.value()) << DSCP
        | u64::from(ip.protocol) << PROTOCOL
        | u64::from(ip.packet_bytes) << LENGTH
}

#[inline(always)]
fn unpacked(bits: u64) -> IpStart {
    IpStart {
        is_v6: bits & 1 != 0,
        dscp: Dscp::of_traffic_class(((bits >> DSCP) as u8) << 2),
        protocol: (bits >> PROTOCOL) as u8,
        packet_bytes: (bits >> LENGTH) as u32,
    }
}
