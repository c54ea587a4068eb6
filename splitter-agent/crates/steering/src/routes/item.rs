//! Rules and routes in the few shapes that the agent makes.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::route::RouteHeader;
use serde::Serialize;
use splitter_config::Dscp;
use splitter_netlink::{Family, InterfaceName};

use super::PROTOCOL;

const TABLE_MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// A rule or a route of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Item {
    /// A rule.
    Rule(Rule),
    /// A route.
    Route(Route),
}

/// A rule that selects what comes in by one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Whose packets it sees.
    pub family: Family,
    /// Its place; lower ones come first.
    pub priority: u32,
    /// The interface that packets come in by.
    pub interface: InterfaceName,
    /// What marks it selects.
    pub selector: Selector,
    /// The table that it looks up.
    pub table: u32,
    /// Routes with prefixes up to this length that are found in the table are ignored
    /// (`suppress_prefixlength`).
    #[serde(rename = "suppress_prefixlength")]
    pub suppressed: Option<u8>,
}

/// Names the marks that a rule selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Selector {
    /// All.
    Any,
    /// Exactly this one.
    Dscp(Dscp),
    /// Those whose bits under the kernel's mask are these.
    Tos(u8),
    /// Exactly this one, of packets whose fwmark has none of these bits.
    DscpUnmarked {
        /// The DSCP.
        dscp: Dscp,
        /// Those bits.
        unmarked: u32,
    },
    /// By the legacy bits, of packets whose fwmark has none of these.
    TosUnmarked {
        /// The legacy bits.
        tos: u8,
        /// Those bits.
        unmarked: u32,
    },
    /// Matches packets whose fwmark has these bits under the mask.
    Mark {
        /// The bits.
        value: u32,
        /// Those that are looked at.
        mask: u32,
    },
}

impl Selector {
    /// The same, of packets whose fwmark has none of these bits besides.
    pub(super) const fn with_none_of(self, others: u32) -> Self {
        match self {
            _ if others == 0 => self,
            Self::Dscp(dscp) => Self::DscpUnmarked {
                dscp,
                unmarked: others,
            },
            Self::Tos(tos) => Self::TosUnmarked {
                tos,
                unmarked: others,
            },
            Self::Mark { value, mask } => Self::Mark {
                value,
                mask: mask | others,
            },
            other => other,
        }
    }
}

/// A route of ours, in a table of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    /// What it is for.
    pub destination: IpNet,
    /// The table that it is in.
    pub table: u32,
    /// Where packets go; over several, flows are spread by weight. None for a `throw` route, at
    /// which the search goes on in the next table.
    pub next_hops: Vec<NextHop>,
}

/// One way that a route leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextHop {
    /// Its address, if the device is not point-to-point.
    pub gateway: Option<IpAddr>,
    /// The device that packets leave by.
    pub device: String,
    /// The number of that device.
    #[serde(skip)]
    pub device_index: u32,
    /// Its share relative to the weights of the others, 1 to 256 for the kernel. 1 where it is alone.
    pub weight: u16,
}

impl Route {
    /// Whether every way has a next hop: IPv6 keeps such routes apart from others.
    pub(super) fn has_gateways(&self) -> bool {
        !self.is_throw() && self.next_hops.iter().all(|hop| hop.gateway.is_some())
    }

    /// Whether it hands packets back to the tables that come after its own.
    pub(super) fn is_throw(&self) -> bool {
        self.next_hops.is_empty()
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Route(route) => route.fmt(f),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ip_command(self.family))?;
        write!(
            f,
            " rule {}: from all iif {}",
            self.priority, self.interface
        )?;
        match self.selector {
            Selector::Any => {}
            Selector::Dscp(dscp) => write!(f, " dscp {dscp}")?,
            Selector::Tos(tos) => write!(f, " tos {tos:#04x}")?,
            Selector::DscpUnmarked { dscp, unmarked } => {
                write!(f, " dscp {dscp} fwmark 0/{unmarked:#x}")?;
            }
            Selector::TosUnmarked { tos, unmarked } => {
                write!(f, " tos {tos:#04x} fwmark 0/{unmarked:#x}")?;
            }
            Selector::Mark { value, mask } => write!(f, " fwmark {value:#x}/{mask:#x}")?,
        }
        match self.table {
            TABLE_MAIN => f.write_str(" lookup main")?,
            table => write!(f, " lookup {table}")?,
        }
        if let Some(length) = self.suppressed {
            write!(f, " suppress_prefixlength {length}")?;
        }
        write!(f, " proto {PROTOCOL}")
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ip_command(Family::of(&self.destination)))?;
        f.write_str(" route")?;
        if self.is_throw() {
            f.write_str(" throw")?;
        }
        match self.destination.prefix_len() {
            0 => f.write_str(" default")?,
            _ => write!(f, " {}", self.destination)?,
        }
        match &self.next_hops[..] {
            [] => write!(f, " table {} proto {PROTOCOL}", self.table),
            [only] => {
                only.fmt(f)?;
                write!(f, " table {} proto {PROTOCOL}", self.table)
            }
            // `ip` takes them after all else.
            several => {
                write!(f, " table {} proto {PROTOCOL}", self.table)?;
                for hop in several {
                    write!(f, " nexthop{hop} weight {}", hop.weight)?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " dev {}", self.device)
    }
}

fn ip_command(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip -6",
    }
}
