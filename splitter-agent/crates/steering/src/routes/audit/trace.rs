//! Tracing one packet of the site: by which rule and route the kernel sends it, with each mark that
//! it may have.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::IpProtocol;
use serde::Serialize;
use splitter_config::{Balance, Config, Dscp};
use splitter_netlink::{Family, InterfaceName, Interfaces, Netlink, NetlinkError};
use splitter_policy::flow::{Class, TunnelRole};

use super::forwards;
use super::found::UnsplitReason;
use super::judge::{Judge, Verdict, name};
use crate::routes::destinations::{Cover, Destinations, limits};
use crate::routes::foreign_rule::{ForeignRule, Forwarded, Transport};
use crate::routes::item::NextHop;
use crate::routes::probe::{Answer, Carried, Hop, Question, ask, chosen_device};
use crate::routes::snapshot;
use crate::routes::verify::site_address;
use crate::routes::wanted::{tunnels_of, tunnels_open_to};
use crate::{Placement, Placements};

/// A packet of the site that would come in by an interface.
#[derive(Debug, Clone, Copy)]
pub struct TracedPacket<'p> {
    /// The interface of the site that it comes in by.
    pub lan: &'p InterfaceName,
    /// Its source; an address of the interface's subnet where none is known.
    pub source: Option<IpAddr>,
    /// Its destination.
    pub destination: IpAddr,
    /// Its source and destination port. Rules that look at one that is not known do not select it.
    pub ports: [Option<u16>; 2],
    /// The IANA number of its protocol.
    pub protocol: u8,
}

/// Says by which rule and route the kernel sends a packet of a class that is meant for a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// The class that the packet is queued as: `short` or `long`.
    pub class: &'static str,
    /// The tunnel that it is marked for: `short` or `long`.
    pub tunnel: &'static str,
    /// The interface that it comes in by.
    pub lan: InterfaceName,
    /// The source that the kernel was asked with.
    pub source: IpAddr,
    /// The DSCP that it has then; null where the mark is beside the packet.
    pub dscp: Option<u8>,
    /// The fwmark that it has then; null where the mark is in its header.
    pub fwmark: Option<u32>,
    /// The rule that decides; null where none of those that can be listed does.
    pub rule: Option<RuleInUse>,
    /// The table in which the route was found, as `ip` names it; null where it would be dropped.
    pub table: Option<String>,
    /// The prefix of that route.
    pub prefix: Option<IpNet>,
    /// How packets of its class choose among `tunnels`, each by itself; null where they do not. Rule and route are then
    /// those of a packet whose tunnel has no route.
    pub balance: Option<Balance>,
    /// The devices of the tunnels that such packets choose among now.
    pub tunnels: Vec<String>,
    /// Further tunnels of its class, that no packet is put into by choice.
    pub not_taken: Vec<NotTaken>,
    /// The longest packet that chooses, in bytes; null where all do, or none does.
    pub longest_bytes: Option<u32>,
    /// Why none of its packets chooses, where the class does by the configuration.
    pub no_choice: Option<String>,
    /// Where it goes next; several where the kernel spreads flows.
    pub next_hops: Vec<NextHop>,
    /// The one of several devices that the kernel's hash takes for this flow, where all of it is known.
    pub chosen: Option<String>,
    /// Whether it leaves by a tunnel that carries its class now.
    #[serde(rename = "split")]
    pub is_split: bool,
    /// Why not, in a word: a reason of the route audit, `elsewhere`, `local`, `outside`,
    /// `no_tunnel` or `not_forwarding`.
    pub reason: Option<&'static str>,
    /// Why not, in words.
    pub problem: Option<String>,
    /// What to do.
    pub remedy: Option<String>,
}

impl Trace {
    /// Says how packets of its class choose, or that none does; nothing where that is not asked for.
    #[must_use]
    pub fn choice_in_words(&self) -> Option<String> {
        if let Some(reason) = &self.no_choice {
            return Some(format!("no choice: {reason}"));
        }
        let (balance, among) = (self.balance?, self.tunnels.join(", "));
        let among = match among.is_empty() {
            true => "no tunnel",
            false => &among,
        };
        let (choice, each) = match balance {
            Balance::Placement => (format!("choice by a hash of the flow among {among}"), ""),
            by => (format!("choice by {by} among {among}"), ", each packet"),
        };
        Some(match self.longest_bytes {
            Some(longest) => format!(
                "{choice}, each packet of at most {longest} bytes that is redirected; what is not goes by:"
            ),
            None => format!("{choice}{each}; what has no route there goes by:"),
        })
    }
}

/// A tunnel that packets do not get into by choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotTaken {
    /// Its device.
    pub device: String,
    /// Why, in words.
    pub why: String,
}

/// A rule of the kernel, whoever made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleInUse {
    /// Its place among the rules; lower ones come first.
    pub priority: u32,
    /// The rule as `ip` writes it.
    pub text: String,
    /// Whether it is the splitter's.
    #[serde(rename = "ours")]
    pub is_ours: bool,
}

/// Asks the kernel what it does with a packet, for each mark that it may have: those of both classes,
/// and where the tunnels are shared those of each class in each tunnel. None where the interface is
/// not there, or no source is known and it has no address of the family. Changes nothing.
///
/// # Errors
/// When the kernel does not list its rules, or does not answer.
pub async fn trace(
    netlink: &Netlink,
    config: &Config,
    placements: &Placements,
    interfaces: &Interfaces,
    is_up: bool,
    packet: TracedPacket<'_>,
) -> Result<Vec<Trace>, NetlinkError> {
    let family = match packet.destination {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    };
    let Ok(interface) = interfaces.named(packet.lan) else {
        return Ok(Vec::new());
    };
    let addresses = netlink.addresses(family).await?;
    let Some(source) = packet
        .source
        .or_else(|| site_address(&addresses, interface.index))
    else {
        return Ok(Vec::new());
    };
    let destinations = Destinations::read(netlink, config).await?;
    let messages = snapshot::rules(netlink, family).await?;
    let rules: Vec<_> = messages.iter().map(ForeignRule::of).collect();
    let sites = config.by_site();
    // Of what lies at no site, the destinations tell.
    let site = destinations.site_at(packet.destination);
    let site = site
        .and_then(|it| sites.get(it))
        .map_or(config, AsRef::as_ref);
    let tracer = Tracer {
        netlink,
        config,
        site,
        placement: placements.of(&site.site_name()),
        packet,
        source,
        arrives_at: interface.index,
        family,
        judge: Judge {
            whole: config,
            config: site,
            interfaces,
            family,
            rules: &rules,
            cover: &Cover::of(destinations.split(family)),
            is_carried: site.families().any(|it| it == family),
            is_up,
        },
    };
    let mut traces = Vec::new();
    for (class, tunnel) in marks_in_use(config) {
        traces.push(tracer.trace(class, tunnel).await?);
    }
    Ok(traces)
}

/// The queue classes and tunnels that packets are marked with.
fn marks_in_use(config: &Config) -> Vec<(Class, TunnelRole)> {
    use {Class::Long as LongClass, Class::Short as ShortClass};
    // Where packets choose no flow is placed by load.
    match config.is_shared() && config.balancers().is_none() {
        false => vec![
            (ShortClass, TunnelRole::Short),
            (LongClass, TunnelRole::Long),
        ],
        true => vec![
            (ShortClass, TunnelRole::Short),
            (ShortClass, TunnelRole::Long),
            (LongClass, TunnelRole::Short),
            (LongClass, TunnelRole::Long),
        ],
    }
}

fn dscp_of(config: &Config, class: Class, tunnel: TunnelRole) -> Dscp {
    let marks = config.marks;
    match (class, tunnel) {
        (Class::Short, TunnelRole::Short) => marks.short,
        (Class::Short, TunnelRole::Long) => marks.short_on_long,
        (Class::Long, TunnelRole::Short) => marks.long_on_short,
        (Class::Long, TunnelRole::Long) => marks.long,
    }
}

struct Tracer<'a> {
    netlink: &'a Netlink,
    config: &'a Config,
    /// As it would be for the site alone that the packet goes to.
    site: &'a Config,
    placement: &'a Placement,
    packet: TracedPacket<'a>,
    source: IpAddr,
    arrives_at: u32,
    family: Family,
    judge: Judge<'a>,
}

/// Why a packet is not split, in a word and in words.
struct Hindrance {
    reason: &'static str,
    problem: String,
    remedy: Option<String>,
}

impl Tracer<'_> {
    async fn trace(&self, class: Class, tunnel: TunnelRole) -> Result<Trace, NetlinkError> {
        let dscp = dscp_of(self.config, class, tunnel);
        let mark = match self.config.mark_bits() {
            Some(bits) => Carried::Beside(bits.of(dscp.policy())),
            None => Carried::Dscp(dscp),
        };
        let question = self.question(mark);
        let answer = match ask(self.netlink, question).await {
            Err(error @ NetlinkError::Refused { .. }) => Err(error),
            answer => Ok(answer?),
        };
        let (dscp, fwmark) = match mark {
            Carried::Dscp(dscp) => (Some(dscp.get()), None),
            Carried::Beside(mark) => (None, Some(mark)),
        };
        let packet = self.forwarded(mark);
        let found = answer.as_ref().ok().filter(|it| !it.is_dropping);
        let rule = found.and_then(|it| self.judge.deciding_rule(&packet, it));
        let balance = self.config.balancers().map(|it| it.of(class));
        let among = match balance {
            // Whichever one its flow may wait in before.
            Some(Balance::Placement) => {
                tunnels_of(self.site, self.placement, self.placement.of(class))
            }
            Some(_) => tunnels_open_to(self.site, self.placement, class),
            None => Vec::new(),
        };
        let chosen = match found.filter(|_| balance.is_none()) {
            Some(found) => self.chosen(found, question).await?,
            None => None,
        };
        let prefix =
            found.and_then(|it| IpNet::new(self.packet.destination, it.prefix_length).ok());
        let next_hops = found.map(|it| self.next_hops(it)).unwrap_or_default();
        let (rule, table) = (rule.map(RuleInUse::of), found.map(|it| name(it.table)));
        let hindrance = self.hindrance(&packet, tunnel, answer);
        let (reason, problem, remedy) = match hindrance {
            Some(it) => (Some(it.reason), Some(it.problem), it.remedy),
            None => (None, None, None),
        };
        Ok(Trace {
            class: class.name(),
            tunnel: tunnel.name(),
            lan: self.packet.lan.clone(),
            source: self.source,
            dscp,
            fwmark,
            rule,
            table,
            prefix: prefix.map(|it| it.trunc()),
            balance,
            tunnels: among.iter().map(|it| it.device.to_string()).collect(),
            not_taken: Vec::new(),
            longest_bytes: None,
            no_choice: None,
            next_hops,
            chosen,
            is_split: reason.is_none(),
            reason,
            problem,
            remedy,
        })
    }

    fn question(&self, mark: Carried) -> Question {
        Question {
            arrives_at: self.arrives_at,
            source: self.source,
            destination: self.packet.destination,
            mark,
            transport: Some(self.transport()),
        }
    }

    /// No rule selects port 0.
    fn transport(&self) -> Transport {
        let [source_port, destination_port] = self.packet.ports.map(Option::unwrap_or_default);
        Transport {
            protocol: IpProtocol::from(self.packet.protocol),
            source_port,
            destination_port,
        }
    }

    fn forwarded(&self, mark: Carried) -> Forwarded<'_> {
        Forwarded {
            interface: self.packet.lan.as_str(),
            source: self.source,
            destination: self.packet.destination,
            tos: mark.tos(),
            mark: mark.beside(),
            transport: Some(self.transport()),
        }
    }

    /// Which of several devices the kernel's hash takes for this flow.
    async fn chosen(
        &self,
        answer: &Answer,
        question: Question,
    ) -> Result<Option<String>, NetlinkError> {
        let is_known =
            self.packet.source.is_some() && self.packet.ports.iter().all(Option::is_some);
        if answer.hops.len() < 2 || !is_known {
            return Ok(None);
        }
        match chosen_device(self.netlink, question).await {
            Ok(device) => Ok(device.map(|it| self.device(it))),
            Err(NetlinkError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn next_hops(&self, answer: &Answer) -> Vec<NextHop> {
        let hop = |hop: &Hop| NextHop {
            gateway: hop.gateway,
            device: self.device(hop.device),
            device_index: hop.device,
            weight: hop.weight,
        };
        answer.hops.iter().map(hop).collect()
    }

    fn device(&self, index: u32) -> String {
        let name = self.judge.interfaces.name_of(index);
        name.unwrap_or("?").to_owned()
    }

    /// Why the packet does not leave by a tunnel that carries its class.
    fn hindrance(
        &self,
        packet: &Forwarded<'_>,
        tunnel: TunnelRole,
        answer: Result<Answer, NetlinkError>,
    ) -> Option<Hindrance> {
        if !forwards(self.packet.lan, self.family) {
            return Some(self.not_forwarding());
        }
        let cover = self.judge.cover;
        let is_wanted = cover.length_for(self.packet.destination).is_some();
        let egress = self.placement.of(tunnel.own_class());
        let tunnels = tunnels_of(self.site, self.placement, egress);
        let verdict = self.judge.verdict(packet, &tunnels, answer);
        match verdict {
            Verdict::Elsewhere(devices) if devices.is_empty() => Some(Hindrance {
                reason: "local",
                problem: "the border itself is its destination".to_owned(),
                remedy: None,
            }),
            // Also where the main table happens to lead it by a tunnel.
            _ if !is_wanted => Some(self.outside()),
            Verdict::Split => None,
            Verdict::Elsewhere(devices) => Some(Hindrance {
                reason: "elsewhere",
                problem: format!(
                    "a more specific route leads by {}, which is no tunnel",
                    devices.join(" and ")
                ),
                remedy: Some(
                    "if it is to be split, remove that route or name its prefix in \
                     routes.destinations"
                        .to_owned(),
                ),
            }),
            _ if tunnels.is_empty() => Some(Hindrance {
                reason: "no_tunnel",
                problem: "no tunnel is alive, so the main table decides".to_owned(),
                remedy: Some("see `splitter status` for the tunnels".to_owned()),
            }),
            Verdict::Unsplit {
                reason,
                problem,
                remedy,
            } => Some(Hindrance {
                reason: UnsplitReason::name(reason),
                problem,
                remedy: Some(remedy),
            }),
        }
    }

    fn outside(&self) -> Hindrance {
        if self.config.routes.follow {
            return Hindrance {
                reason: "outside",
                problem: "routes.follow: the main table reaches it through no tunnel".to_owned(),
                remedy: Some("add a route by a tunnel if it is to be split".to_owned()),
            };
        }
        let stated = limits(self.config, self.family);
        let names: Vec<_> = stated.iter().map(ToString::to_string).collect();
        let names = match names.is_empty() {
            true => format!("which has no {} prefix", self.family),
            false => names.join(", "),
        };
        Hindrance {
            reason: "outside",
            problem: format!("it is outside of routes.destinations ({names})"),
            remedy: Some("if it is to be split, name its prefix in routes.destinations".to_owned()),
        }
    }

    fn not_forwarding(&self) -> Hindrance {
        let (family, lan) = (self.family, self.packet.lan);
        let key = match family {
            Family::V4 => "net.ipv4.ip_forward",
            Family::V6 => "net.ipv6.conf.all.forwarding",
        };
        Hindrance {
            reason: "not_forwarding",
            problem: format!("{family} forwarding is off on {lan}, so the kernel drops it"),
            remedy: Some(format!("switch it on with `sysctl {key}=1`")),
        }
    }
}

impl RuleInUse {
    fn of(rule: &ForeignRule<'_>) -> Self {
        Self {
            priority: rule.priority,
            text: rule.description(),
            is_ours: rule.is_ours,
        }
    }
}
