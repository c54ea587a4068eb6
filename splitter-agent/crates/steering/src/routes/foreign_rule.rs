//! Rules of the kernel as they are, whoever made them: what they select, and what becomes of it.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::IpProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use rtnetlink::packet_core::Nla as _;
use splitter_netlink::Family;

use super::PROTOCOL;
use super::message::{FRA_DSCP, family, first_byte};

/// The bits of the ToS that IPv4 rules look at (`IPTOS_RT_MASK`).
const LEGACY_TOS: u8 = 0x1c;
const NO_SUPPRESSION: u32 = u32::MAX;

/// What matters of a rule.
#[derive(Debug)]
pub(super) struct ForeignRule<'m> {
    pub(super) family: Option<Family>,
    pub(super) priority: u32,
    pub(super) interface: Option<&'m str>,
    pub(super) source: Option<IpNet>,
    pub(super) destination: Option<IpNet>,
    pub(super) dscp: Option<u8>,
    pub(super) tos: Option<u8>,
    /// With its mask.
    pub(super) mark: Option<(u32, u32)>,
    pub(super) protocol: Option<IpProtocol>,
    /// The first port of each range.
    pub(super) source_port: Option<u16>,
    pub(super) destination_port: Option<u16>,
    pub(super) table: u32,
    pub(super) is_ours: bool,
    action: RuleAction,
    suppressed: Option<u8>,
    is_inverted: bool,
    /// It looks at what no forwarded packet has, or what a question cannot say.
    is_elsewhere: bool,
}

/// A packet of the site, as rules see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forwarded<'p> {
    pub(super) interface: &'p str,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) tos: u8,
    pub(super) mark: u32,
    pub(super) transport: Option<Transport>,
}

/// Names what rules can see of the header behind the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transport {
    pub(super) protocol: IpProtocol,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
}

impl<'m> ForeignRule<'m> {
    pub(super) fn of(message: &'m RuleMessage) -> Self {
        let header = &message.header;
        let mut rule = Self {
            family: family(header.family),
            priority: 0,
            interface: None,
            source: None,
            destination: None,
            dscp: None,
            tos: Some(header.tos).filter(|tos| *tos != 0),
            mark: None,
            protocol: None,
            source_port: None,
            destination_port: None,
            table: header.table.into(),
            is_ours: false,
            action: header.action,
            suppressed: None,
            is_inverted: header.flags.contains(RuleFlags::Invert),
            is_elsewhere: false,
        };
        let mut mask = u32::MAX;
        let net = |address: &IpAddr, length| IpNet::new(*address, length).ok();
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::FwMark(mark) => rule.mark = Some((*mark, mask)),
                RuleAttribute::FwMask(reported) => mask = *reported,
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Iifname(name) => rule.interface = Some(name),
                RuleAttribute::Source(address) => rule.source = net(address, header.src_len),
                RuleAttribute::Destination(address) => {
                    rule.destination = net(address, header.dst_len);
                }
                RuleAttribute::Table(table) => rule.table = *table,
                RuleAttribute::Protocol(protocol) => {
                    rule.is_ours = u8::from(*protocol) == PROTOCOL;
                }
                RuleAttribute::IpProtocol(protocol) => rule.protocol = Some(*protocol),
                RuleAttribute::SourcePortRange(range) => rule.source_port = Some(range.start),
                RuleAttribute::DestinationPortRange(range) => {
                    rule.destination_port = Some(range.start);
                }
                RuleAttribute::SuppressPrefixLen(length) if *length != NO_SUPPRESSION => {
                    rule.suppressed = u8::try_from(*length).ok();
                }
                RuleAttribute::Oifname(_)
                | RuleAttribute::UidRange(_)
                | RuleAttribute::TunId(_)
                | RuleAttribute::L3MDev(true) => rule.is_elsewhere = true,
                RuleAttribute::Other(other) if other.kind() == FRA_DSCP => {
                    rule.dscp = first_byte(other);
                }
                _ => {}
            }
        }
        rule.mark = rule.mark.map(|(mark, _)| (mark, mask));
        rule
    }

    /// Tells whether the rule selects a packet.
    pub(super) fn selects(&self, packet: &Forwarded<'_>) -> bool {
        if self.is_elsewhere {
            return false;
        }
        let is_in = |net: Option<IpNet>, address| net.is_none_or(|net| net.contains(&address));
        let tos_bits = match self.family {
            Some(Family::V6) => u8::MAX,
            _ => LEGACY_TOS,
        };
        let has = |port: Option<u16>, of: fn(Transport) -> u16| {
            port.is_none_or(|port| packet.transport.is_some_and(|it| of(it) == port))
        };
        let selects = self.interface.is_none_or(|name| name == packet.interface)
            && is_in(self.source, packet.source)
            && is_in(self.destination, packet.destination)
            && self.dscp.is_none_or(|dscp| dscp == packet.tos >> 2)
            && self.tos.is_none_or(|tos| packet.tos & tos_bits == tos)
            && self
                .mark
                .is_none_or(|(mark, mask)| packet.mark & mask == mark)
            && self
                .protocol
                .is_none_or(|it| packet.transport.is_some_and(|of| of.protocol == it))
            && has(self.source_port, |it| it.source_port)
            && has(self.destination_port, |it| it.destination_port);
        selects != self.is_inverted
    }

    /// Tells whether a route of `table` with a prefix of `length` can have been found by this rule.
    pub(super) fn finds(&self, table: u32, length: u8) -> bool {
        self.action == RuleAction::ToTable
            && self.table == table
            && self.suppressed.is_none_or(|up_to| length > up_to)
    }

    /// Returns the table in which the rule has a route looked up, if it does that.
    pub(super) fn looks_up(&self) -> Option<u32> {
        (self.action == RuleAction::ToTable).then_some(self.table)
    }

    /// Tells whether the rule selects what its description does not fit.
    pub(super) fn is_inverted(&self) -> bool {
        self.is_inverted
    }

    /// Tells whether the rule passes over routes with short prefixes.
    pub(super) fn suppresses(&self) -> bool {
        self.suppressed.is_some()
    }

    /// Tells whether the rule has what it selects dropped.
    pub(super) fn drops(&self) -> bool {
        matches!(
            self.action,
            RuleAction::Blackhole | RuleAction::Unreachable | RuleAction::Prohibit
        )
    }

    /// Tells whether the rule selects packets from an address.
    pub(super) fn source_contains(&self, address: IpAddr) -> bool {
        self.source.is_none_or(|net| net.contains(&address))
    }

    /// Returns the part of the header behind the IP header that the rule looks at.
    pub(super) fn transport(&self) -> Option<Transport> {
        let looks = self.protocol.is_some()
            || self.source_port.is_some()
            || self.destination_port.is_some();
        looks.then(|| Transport {
            protocol: self.protocol.unwrap_or(IpProtocol::Tcp),
            source_port: self.source_port.unwrap_or(40_000),
            destination_port: self.destination_port.unwrap_or(443),
        })
    }

    /// Describes the rule as `ip` writes it.
    pub(super) fn description(&self) -> String {
        let mut text = format!("{} rule {}:", command(self.family), self.priority);
        if self.is_inverted {
            text += " not";
        }
        if let Some(source) = self.source {
            text += &format!(" from {source}");
        }
        if let Some(destination) = self.destination {
            text += &format!(" to {destination}");
        }
        if let Some(interface) = self.interface {
            text += &format!(" iif {interface}");
        }
        if let Some(dscp) = self.dscp {
            text += &format!(" dscp {dscp}");
        }
        if let Some((mark, mask)) = self.mark {
            text += &format!(" fwmark {mark:#x}/{mask:#x}");
        }
        if let Some(tos) = self.tos {
            text += &format!(" tos {tos:#04x}");
        }
        if let Some(protocol) = self.protocol {
            text += &format!(" ipproto {}", u8::from(protocol));
        }
        if let Some(port) = self.source_port {
            text += &format!(" sport {port}");
        }
        if let Some(port) = self.destination_port {
            text += &format!(" dport {port}");
        }
        match self.action {
            RuleAction::ToTable => text += &format!(" lookup {}", self.table),
            other => text += &format!(" {}", format!("{other:?}").to_lowercase()),
        }
        if let Some(length) = self.suppressed {
            text += &format!(" suppress_prefixlength {length}");
        }
        text
    }
}

/// The command that lists what belongs to a family.
pub(super) fn command(family: Option<Family>) -> &'static str {
    match family {
        Some(Family::V6) => "ip -6",
        _ => "ip",
    }
}
