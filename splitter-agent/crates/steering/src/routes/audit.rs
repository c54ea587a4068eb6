//! Asking the kernel where each class of each family really goes, through every rule there is.
//!
//! Policy routing can be right in every rule and route of ours and packets still leave elsewhere: a
//! more specific route of the main table comes first, a rule of somebody else's stands in front, a
//! family has no next hops. So the kernel is asked, for each destination and for each more specific
//! route inside it, and what does not leave by a tunnel of its class is a finding.

use std::borrow::Cow;
use std::path::Path;
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use ipnet::IpNet;
use netlink_packet_route::route::RouteHeader;
use splitter_config::{Config, Dscp};
use splitter_netlink::{Family, InterfaceName, Interfaces, Netlink, NetlinkError};
use splitter_policy::flow::{Class, TunnelRole};

use self::found::MOST_ROUTES;
use self::judge::{Judge, Verdict};
use super::destinations::{Cover, Destinations, SiteFinder};
use super::foreign_rule::{ForeignRule, Forwarded, Transport};
use super::probe::{Answer, Carried, Question, ask};
use super::regions::{self, Region};
use super::verify::site_address;
use super::wanted::tunnels_of;
use super::{inside, snapshot};
use crate::Placements;

mod arrival;
mod found;
mod judge;
mod trace;

pub use arrival::{Arrival, arrival};
pub use found::{Exempt, RouteAudit, Unsplit, UnsplitReason};
pub use trace::{NotTaken, RuleInUse, Trace, TracedPacket, trace};

const TABLE_MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// Questions that wait for the kernel at a time: enough to keep it busy, and its answers fit into the
/// socket's buffer.
const AT_A_TIME: usize = 32;

/// Says how fast the kernel is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditPace {
    /// As fast as it answers: somebody waits.
    Unbounded,
    /// In so many parts of the time one is spent with asking.
    OneIn(u32),
}

impl AuditPace {
    /// Rests after some questions that began then.
    async fn rest(self, begin: Instant) {
        if let Self::OneIn(parts) = self {
            tokio::time::sleep(begin.elapsed() * parts.saturating_sub(1)).await;
        }
    }
}

/// Asks the kernel about every destination of a configuration, with the classes of each site placed so. Before
/// the instance is up (`is_up` is false) it says what will not be split once it is. Changes nothing.
///
/// # Errors
/// When the kernel does not list what it has, or does not answer.
pub async fn audit(
    netlink: &Netlink,
    config: &Config,
    placements: &Placements,
    is_up: bool,
) -> Result<RouteAudit, NetlinkError> {
    audit_paced(netlink, config, placements, is_up, AuditPace::Unbounded).await
}

/// Asks as [`audit`] does, at a pace.
///
/// # Errors
/// When the kernel does not list what it has, or does not answer.
pub async fn audit_paced(
    netlink: &Netlink,
    config: &Config,
    placements: &Placements,
    is_up: bool,
    pace: AuditPace,
) -> Result<RouteAudit, NetlinkError> {
    let mut audit = RouteAudit::default();
    // A shadow routes nothing.
    if config.shadow {
        return Ok(audit);
    }
    let interfaces = netlink.interfaces().await?;
    let sites = config.by_site();
    let destinations = Destinations::read(netlink, config).await?;
    for family in [Family::V4, Family::V6] {
        if destinations.split(family).is_empty() {
            continue;
        }
        let messages = snapshot::rules(netlink, family).await?;
        let rules: Vec<_> = messages.iter().map(ForeignRule::of).collect();
        let auditor = Auditor {
            netlink,
            config,
            sites: &sites,
            placements,
            interfaces: &interfaces,
            family,
            destinations: &destinations,
            rules: &rules,
            is_up,
            pace,
        };
        auditor.run(&mut audit).await?;
    }
    Ok(audit)
}

struct Auditor<'a> {
    netlink: &'a Netlink,
    config: &'a Config,
    /// As it would be for each site alone.
    sites: &'a [Cow<'a, Config>],
    placements: &'a Placements,
    interfaces: &'a Interfaces,
    family: Family,
    destinations: &'a Destinations,
    rules: &'a [ForeignRule<'a>],
    is_up: bool,
    pace: AuditPace,
}

/// A packet that is asked about, and of which destination it tells.
struct Case<'a> {
    net: IpNet,
    lan: &'a InterfaceName,
    arrives_at: u32,
    source: std::net::IpAddr,
    candidates: Vec<std::net::IpAddr>,
    transport: Option<Transport>,
}

impl Auditor<'_> {
    async fn run(&self, audit: &mut RouteAudit) -> Result<(), NetlinkError> {
        let carried = self.config.families().any(|it| it == self.family);
        let (regions, unasked) = self.regions(carried).await?;
        audit.unasked += unasked;
        let cases = self.cases(&regions).await?;
        let cover = &Cover::of(self.destinations.split(self.family));
        let judges: Vec<_> = self
            .sites
            .iter()
            .map(|site| self.judge(site, cover))
            .collect();
        let sites = SiteFinder::of(self.destinations, self.family);
        let judge = |case: &Case<'_>| &judges[sites.site_of(&case.net)];
        let mut verdicts = Vec::new();
        for several in cases.chunks(AT_A_TIME) {
            let begin = Instant::now();
            let asked = several.iter().map(|case| self.ask(judge(case), case));
            let answered: Vec<_> = stream::iter(asked)
                .buffered(AT_A_TIME)
                .try_collect()
                .await?;
            for (case, answers) in several.iter().zip(answered) {
                audit.questions += answers.len();
                verdicts.extend(answers.into_iter().map(|(class, it)| (case.net, class, it)));
            }
            self.pace.rest(begin).await;
        }
        judge::collect(verdicts, audit);
        Ok(())
    }

    fn judge<'s>(&'s self, site: &'s Config, cover: &'s Cover) -> Judge<'s> {
        Judge {
            whole: self.config,
            config: site,
            interfaces: self.interfaces,
            family: self.family,
            rules: self.rules,
            cover,
            is_carried: site.families().any(|it| it == self.family),
            is_up: self.is_up,
        }
    }

    /// What to ask about: the destinations, and of a family that is split the parts that rules and
    /// routes of others single out.
    async fn regions(&self, carried: bool) -> Result<(Vec<Region>, usize), NetlinkError> {
        let mut nets = self.destinations.split(self.family).to_vec();
        let mut unasked = 0;
        if carried {
            let from_rules: Vec<_> = self
                .rules_in_front()
                .filter_map(|it| it.destination)
                .collect();
            let cover = Cover::of(&nets);
            let singled_out = |net: &IpNet| cover.has(net) || cover.has_around(net);
            let from_rules: Vec<_> = from_rules.into_iter().filter(singled_out).collect();
            let mut routes = inside::inside_destinations(
                self.netlink,
                self.config,
                self.destinations,
                self.family,
            )
            .await?;
            unasked = routes.len().saturating_sub(MOST_ROUTES);
            routes.truncate(MOST_ROUTES);
            nets.extend(from_rules);
            nets.extend(routes.into_iter().map(|it| it.destination));
        }
        Ok((regions::of(nets), unasked))
    }

    /// Rules of others that see a packet of the site before ours do.
    fn rules_in_front(&self) -> impl Iterator<Item = &ForeignRule<'_>> {
        let ours = self.config.routes.rule_priority.specific();
        // The first is the local table's.
        let in_front = move |it: &&ForeignRule<'_>| it.priority > 0 && it.priority < ours;
        self.rules.iter().filter(in_front)
    }

    async fn cases<'s>(&'s self, regions: &[Region]) -> Result<Vec<Case<'s>>, NetlinkError> {
        let addresses = self.netlink.addresses(self.family).await?;
        let is_own = |address| addresses.iter().any(|own| own.address == address);
        let mut cases = Vec::new();
        for lan in &self.config.lan {
            let Ok(interface) = self.interfaces.named(lan) else {
                continue;
            };
            if !forwards(lan, self.family) {
                continue;
            }
            let Some(source) = site_address(&addresses, interface.index) else {
                continue;
            };
            let case = |region: &Region, source, transport| Case {
                net: region.net,
                lan,
                arrives_at: interface.index,
                source,
                candidates: region.candidates.clone(),
                transport,
            };
            cases.extend(regions.iter().map(|it| case(it, source, None)));
            for rule in self.rules_in_front() {
                let from = rule.source.map(|net| regions::first_address(&net));
                let others = from.filter(|it| !is_own(*it) && !rule.source_contains(source));
                let transport = rule.transport();
                if others.is_none() && transport.is_none() {
                    continue;
                }
                let meant = |it: &&Region| {
                    rule.destination
                        .is_none_or(|to| to == it.net || !it.is_inside_another)
                };
                let selected = regions.iter().filter(meant);
                cases.extend(selected.map(|it| case(it, others.unwrap_or(source), transport)));
            }
        }
        Ok(cases)
    }

    /// Asks with the marks of both classes for the first address that no more specific route of
    /// somebody else's leads away.
    async fn ask(
        &self,
        judge: &Judge<'_>,
        case: &Case<'_>,
    ) -> Result<Vec<(Class, Verdict)>, NetlinkError> {
        let mut verdicts = Vec::new();
        for destination in &case.candidates {
            verdicts.clear();
            for class in Class::ALL {
                let placement = self.placements.of(&judge.config.site_name());
                let tunnels = tunnels_of(judge.config, placement, placement.of(class));
                if tunnels.is_empty() {
                    continue;
                }
                let mark = self.mark(class);
                let question = Question {
                    arrives_at: case.arrives_at,
                    source: case.source,
                    destination: *destination,
                    mark,
                    transport: case.transport,
                };
                let packet = Forwarded {
                    interface: case.lan.as_str(),
                    source: case.source,
                    destination: *destination,
                    tos: mark.tos(),
                    mark: mark.beside(),
                    transport: case.transport,
                };
                let answer = match ask(self.netlink, question).await {
                    Err(error @ NetlinkError::Refused { .. }) => Err(error),
                    answer => Ok::<Answer, NetlinkError>(answer?),
                };
                verdicts.push((class, judge.verdict(&packet, &tunnels, answer)));
            }
            let is_of_another = |(_, it): &(Class, Verdict)| it.may_be_of_another_prefix();
            if !verdicts.iter().any(is_of_another) {
                break;
            }
        }
        Ok(verdicts)
    }

    fn mark(&self, class: Class) -> Carried {
        let marks = self.config.marks;
        let dscp: Dscp = match class {
            Class::Short => marks.short,
            Class::Long => marks.long,
        };
        match self.config.mark_bits() {
            Some(bits) => Carried::Beside(bits.of(dscp.policy())),
            None => Carried::Dscp(dscp),
        }
    }
}

/// Tells whether packets of a family that arrive at an interface are forwarded at all.
pub(super) fn forwards(lan: &InterfaceName, family: Family) -> bool {
    let directory = match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    };
    let path = Path::new("/proc/sys/net")
        .join(directory)
        .join("conf")
        .join(lan.as_str())
        .join("forwarding");
    !std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
}

/// Names the tunnels that lack a next hop of a family, for a family that is not carried.
fn without_next_hop(config: &Config, family: Family) -> Vec<(TunnelRole, String)> {
    let lacking = config.tunnels().filter(|(role, tunnel)| {
        let several = config.tunnels_of(*role);
        !tunnel.gateway.carries(family) || several.cannot_be_one_of_several(tunnel, family)
    });
    lacking
        .map(|(role, tunnel)| (role, config.name_of(role, tunnel)))
        .collect()
}
