//! Asking the kernel where each class of each family really goes, through every rule there is.
//!
//! Policy routing can be right in every rule and route of ours and packets still leave elsewhere: a
//! more specific route of the main table comes first, a rule of somebody else's stands in front, a
//! family has no next hops. So the kernel is asked, for each destination and for each more specific
//! route inside it, and what does not leave by a tunnel of its class is a finding.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use ipnet::IpNet;
use netlink_packet_route::route::RouteHeader;
use serde::{Deserialize, Serialize};
use splitter_config::{Config, Dscp};
use splitter_netlink::{Family, InterfaceName, Interfaces, Netlink, NetlinkError};
use splitter_policy::flow::{Class, TunnelRole};

use self::judge::{Judge, Verdict};
use super::destinations::{Cover, Destinations, SiteFinder};
use super::foreign_rule::{ForeignRule, Forwarded, Transport};
use super::probe::{Answer, Carried, Question, ask};
use super::regions::{self, Region};
use super::verify::site_address;
use super::wanted::tunnels_of;
use super::{inside, snapshot};
use crate::Placements;

mod judge;
mod trace;

pub use trace::{Arrival, RuleInUse, Trace, TracedPacket, arrival, trace};

const TABLE_MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// More specific routes of a family that are asked about; the rest is counted. A border with so many
/// routes into its tunnels has a routing daemon, whose routes all lead one way.
const MOST_ROUTES: usize = 20_000;

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

/// Says where the kernel sends what should be split, as far as that is not a tunnel of its class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteAudit {
    /// Prefixes of which a class does not leave by its tunnels, by family and address.
    pub unsplit: Vec<Unsplit>,
    /// Prefixes inside the destinations that somebody's more specific route leads elsewhere than into
    /// a tunnel: they keep that meaning, and are not split.
    pub exempt: Vec<Exempt>,
    /// How many questions the kernel answered.
    pub questions: usize,
    /// More specific routes that were not asked about, because there are too many.
    pub unasked: usize,
}

/// A prefix of which a class does not leave by the tunnels that it is placed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsplit {
    /// The prefix; all of a family where the family is not split.
    pub destination: IpNet,
    /// Classes of which this is so: `short`, `long` or both.
    pub classes: Vec<String>,
    /// Why, in a word.
    pub reason: UnsplitReason,
    /// Why, in words.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// Names why a prefix is not split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsplitReason {
    /// The main table has a more specific route, by a tunnel of the other class.
    SpecificRoute,
    /// Somebody's rule comes before ours.
    Rule,
    /// A tunnel has no next hop of the family.
    NoNextHop,
    /// The table of the class has no route for it.
    NoRoute,
    /// The kernel would drop it.
    Dropped,
}

impl UnsplitReason {
    /// All of them, in the order of their metrics.
    pub const ALL: [Self; 5] = [
        Self::SpecificRoute,
        Self::Rule,
        Self::NoNextHop,
        Self::NoRoute,
        Self::Dropped,
    ];

    /// The value of the `reason` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpecificRoute => "specific_route",
            Self::Rule => "rule",
            Self::NoNextHop => "no_next_hop",
            Self::NoRoute => "no_route",
            Self::Dropped => "dropped",
        }
    }
}

/// A prefix inside the destinations that leads to none of the tunnels, as somebody wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exempt {
    /// The prefix.
    pub destination: IpNet,
    /// The devices that it leads by.
    pub devices: Vec<String>,
}

impl Unsplit {
    /// Returns the family that it belongs to.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(&self.destination)
    }
}

impl fmt::Display for Unsplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.destination.prefix_len() {
            0 => self.family().fmt(f)?,
            _ => self.destination.fmt(f)?,
        }
        write!(f, " NOT split: {}", self.problem)
    }
}

impl fmt::Display for Exempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            destination,
            devices,
        } = self;
        let devices = devices.join(" and ");
        write!(
            f,
            "{destination} is not split: a more specific route leads by {devices}, which is no tunnel"
        )
    }
}

impl RouteAudit {
    /// Returns true where all that is meant to be split is.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unsplit.is_empty()
    }

    /// Says what is not split in at most `most` lines, and how much more there is.
    #[must_use]
    pub fn lines(&self, most: usize) -> Vec<String> {
        let unsplit = self.unsplit.iter().map(|it| format!("{it}; {}", it.remedy));
        let exempt = self.exempt.iter().map(ToString::to_string);
        let mut lines: Vec<_> = unsplit.chain(exempt).collect();
        let more = lines.len().saturating_sub(most);
        lines.truncate(most);
        if more > 0 {
            lines.push(format!(
                "and {more} more; `splitter status --json` has them all"
            ));
        }
        if self.unasked > 0 {
            lines.push(format!(
                "{} more specific routes were not looked at, beyond {MOST_ROUTES}",
                self.unasked
            ));
        }
        lines
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
