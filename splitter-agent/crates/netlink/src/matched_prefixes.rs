//! The prefixes that routing holds destinations against, and what its answers depend on below each: for
//! whoever keeps answers of the kernel, and would keep one for all destinations that are routed alike.
//!
//! Of all tables and rules, whether packets come by them or not: one prefix too many only makes more
//! destinations differ. What is not understood tells all packets below its prefix apart.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType,
};
use netlink_packet_route::rule::{RuleAttribute, RuleFlags, RuleMessage};
use rtnetlink::packet_core::{Nla as _, Parseable as _};

use crate::{Family, address_family, blocking};

/// Names what the kernel's answer depends on below a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependence {
    /// The prefix alone.
    Prefix,
    /// The whole destination as well.
    Destination,
    /// The whole packet.
    Flow,
}

/// A prefix of a route or of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchedPrefix {
    /// An address in it.
    pub address: IpAddr,
    /// Its bits.
    pub length: u8,
    /// What the answer depends on there.
    pub dependence: Dependence,
}

/// Hands over the prefixes of all rules and routes in the network namespace of this thread, for packets
/// without a mark that are forwarded by `devices`. Blocks for as long as the kernel takes. Where they change
/// meanwhile they are listed again, so that some may be handed over twice.
///
/// # Errors
/// The kernel's; [`io::ErrorKind::Interrupted`] where they changed each of several times, and
/// [`io::ErrorKind::QuotaExceeded`] where there are more than `most`.
pub fn matched_prefixes(
    devices: &[u32],
    most: usize,
    mut see: impl FnMut(MatchedPrefix),
) -> io::Result<()> {
    if forwarding_heeds_path_mtu() {
        see(everywhere(Family::V4, Dependence::Destination));
    }
    let mut read = 0;
    for family in [Family::V4, Family::V6] {
        let mut body = [0; HEADER_BYTES];
        body[0] = u8::from(address_family(family));
        for kind in [RTM_GETRULE, RTM_GETROUTE] {
            let list = || {
                let mut count = read;
                blocking::dump(kind, &body, |kind, message| {
                    let prefix = match kind {
                        RTM_NEWRULE => of_rule(&RuleMessage::parse(message).map_err(invalid)?),
                        RTM_NEWROUTE => {
                            let route = RouteMessage::parse(message).map_err(invalid)?;
                            of_route(&route, devices)
                        }
                        _ => None,
                    };
                    count += 1;
                    if count > most {
                        return Err(io::ErrorKind::QuotaExceeded.into());
                    }
                    prefix.into_iter().for_each(&mut see);
                    Ok(())
                })?;
                Ok(count)
            };
            read = blocking::untorn(TRIES, list).or_else(|error| unless_absent(error, read))?;
        }
    }
    Ok(())
}

/// Tells if this network namespace forwards packets of IPv4 by the MTU that it has learnt of the path to
/// their destination, and not by that of the device (`net.ipv4.ip_forward_use_pmtu`). Nobody is notified
/// when that changes.
#[must_use]
pub fn forwarding_heeds_path_mtu() -> bool {
    let value = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward_use_pmtu");
    value.is_ok_and(|it| it.trim() != "0")
}

/// A kernel booted with `ipv6.disable=1` has no IPv6 rules or routes to list.
fn unless_absent(error: io::Error, read: usize) -> io::Result<usize> {
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP) => Ok(read),
        _ => Err(error),
    }
}

fn invalid<E>(_: E) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

const fn everywhere(family: Family, dependence: Dependence) -> MatchedPrefix {
    let address = match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    MatchedPrefix {
        address,
        length: 0,
        dependence,
    }
}

fn family_of(family: AddressFamily) -> Option<Family> {
    match family {
        AddressFamily::Inet => Some(Family::V4),
        AddressFamily::Inet6 => Some(Family::V6),
        _ => None,
    }
}

/// `None` for a rule that selects by nothing but what all questions have in common, or never.
fn of_rule(rule: &RuleMessage) -> Option<MatchedPrefix> {
    let mut prefix = everywhere(family_of(rule.header.family)?, Dependence::Prefix);
    prefix.length = rule.header.dst_len;
    let (mut mark, mut mask) = (0, u32::MAX);
    let mut looks_beyond = rule.header.src_len != 0;
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Destination(address) => prefix.address = *address,
            RuleAttribute::FwMark(value) => mark = *value,
            RuleAttribute::FwMask(value) => mask = *value,
            RuleAttribute::Source(_)
            | RuleAttribute::SourcePortRange(_)
            | RuleAttribute::DestinationPortRange(_) => looks_beyond = true,
            RuleAttribute::Other(other) => {
                looks_beyond |= !matches!(other.kind(), DSCP | DSCP_MASK)
            }
            // What they look at is the same for all packets, or in the question anyway: device,
            // protocol, traffic class.
            _ => {}
        }
    }
    let is_inverted = rule.header.flags.contains(RuleFlags::Invert);
    if mark & mask != 0 && !is_inverted {
        return None;
    }
    if looks_beyond {
        // A prefix of it is no bound where the rule is inverted.
        return Some(everywhere(family_of(rule.header.family)?, Dependence::Flow));
    }
    (prefix.length > 0).then_some(prefix)
}

/// `None` for a route that no lookup finds.
fn of_route(route: &RouteMessage, devices: &[u32]) -> Option<MatchedPrefix> {
    let header = &route.header;
    let mut prefix = everywhere(family_of(header.address_family)?, Dependence::Prefix);
    prefix.length = header.destination_prefix_length;
    for attribute in &route.attributes {
        if let RouteAttribute::Destination(address) = attribute {
            prefix.address = match address {
                RouteAddress::Inet(v4) => (*v4).into(),
                RouteAddress::Inet6(v6) => (*v6).into(),
                _ => return None,
            };
        }
    }
    prefix.dependence = if header.flags.contains(RouteFlags::Cloned) {
        // An MTU that was learnt for a destination.
        Dependence::Destination
    } else if header.source_prefix_length != 0 {
        Dependence::Flow
    } else if header.kind == RouteType::Unicast {
        dependence(&route.attributes, devices)
    } else {
        Dependence::Prefix
    };
    Some(prefix)
}

/// What leads by no device of ours gives no answer that is kept.
fn dependence(attributes: &[RouteAttribute], devices: &[u32]) -> Dependence {
    let is_ours = |device: &u32| devices.contains(device);
    let (mut device, mut has_gateway, mut is_object) = (None, false, false);
    let (mut has_locked_mtu, mut several) = (false, None);
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => has_gateway = true,
            RouteAttribute::NhId(_) => is_object = true,
            RouteAttribute::MultiPath(hops) => {
                several = Some(hops.iter().any(|hop| is_ours(&hop.interface_index)));
            }
            RouteAttribute::Metrics(metrics) => {
                let locks = |it: &RouteMetric| matches!(it, RouteMetric::Lock(bits) if bits & MTU_LOCK != 0);
                has_locked_mtu = metrics.iter().any(locks);
            }
            _ => {}
        }
    }
    match (several, device) {
        (Some(true), _) => Dependence::Flow,
        (Some(false), _) => Dependence::Prefix,
        // Of next hop objects the kernel may list nothing but their number.
        (None, None) if is_object => Dependence::Flow,
        (None, Some(device)) if is_ours(&device) && (!has_gateway || has_locked_mtu) => {
            Dependence::Destination
        }
        _ => Dependence::Prefix,
    }
}

/// So often they are listed at the most. Who reads them does so again later, and has to leave the processor to
/// others meanwhile.
const TRIES: u32 = 3;

// Of linux/rtnetlink.h and linux/fib_rules.h.
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWRULE: u16 = 32;
const RTM_GETRULE: u16 = 34;
/// `struct rtmsg`, `struct fib_rule_hdr`.
const HEADER_BYTES: usize = 12;
/// `FRA_DSCP`, `FRA_DSCP_MASK`: the message library knows neither.
const DSCP: u16 = 25;
const DSCP_MASK: u16 = 30;
/// `RTAX_MTU` among the bits of `RTAX_LOCK`.
const MTU_LOCK: u32 = 1 << 2;

#[cfg(test)]
mod tests;
