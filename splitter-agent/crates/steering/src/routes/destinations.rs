//! Which prefixes lead into the tunnels, and which inside them do not.
//!
//! They are stated, or follow from what the main table reaches through a tunnel. Where, of the latter,
//! the main table has a more specific route to elsewhere, that keeps its meaning: the rule in front
//! of ours finds those that are more specific than every destination, and for the others the tables of
//! both classes have a `throw` route, with which the kernel's search goes on in the main table.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;
use splitter_config::{Config, SiteName};
use splitter_netlink::{Family, Interfaces, Netlink, NetlinkError};

use super::main_table::{MainRoute, SiteIndex};
use super::picture::MainTables;
use super::probe::bits_of;
use super::wanted::everything;

/// Counts the prefixes of a family that lead into the tunnels to a site because the main table does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FollowedPrefixes {
    /// The name of the site.
    pub site: SiteName,
    /// The family of the prefixes.
    pub family: Family,
    /// How many there are.
    pub prefixes: usize,
}

/// Holds the prefixes of both families that lead into the tunnels, and those inside them that lead
/// elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Destinations {
    v4: Prefixes,
    v6: Prefixes,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Prefixes {
    /// In the order of the configuration, or sorted.
    split: Vec<IpNet>,
    /// The site that each of those lies at.
    sites: Vec<SiteIndex>,
    /// Those that the rule in front of ours does not find. Sorted.
    thrown: Vec<IpNet>,
}

impl Destinations {
    /// Finds out what they are now. The main table is read only where it matters.
    ///
    /// # Errors
    /// When the kernel does not list it.
    pub async fn read(netlink: &Netlink, config: &Config) -> Result<Self, NetlinkError> {
        let mut main = MainTables::default();
        main.refresh(netlink, config).await?;
        let interfaces = match Self::follow_main(config) {
            true => netlink.interfaces().await?,
            false => Interfaces::default(),
        };
        Ok(Self::by(&main, config, &interfaces))
    }

    /// Finds out what they are by what is known of the main table.
    #[must_use]
    pub fn by(main: &MainTables, config: &Config, interfaces: &Interfaces) -> Self {
        let mut destinations = Self::default();
        for family in [Family::V4, Family::V6] {
            let limits = limits_by_site(config, family);
            *destinations.of_mut(family) = match config.routes.follow {
                true if depends_on_main(config, family) => {
                    followed(limits, &main.in_use(config, interfaces, family))
                }
                true => Prefixes::default(),
                false => Prefixes::at_sites(limits),
            };
        }
        destinations
    }

    /// Returns those of one of the sites of a configuration, `site` being what there is for it alone. Of
    /// several sites' it has no prefix that is handed back, for those belong to all of them.
    #[must_use]
    pub fn of_site(&self, whole: &Config, site: &Config) -> Cow<'_, Self> {
        if !whole.has_several_sites() {
            return Cow::Borrowed(self);
        }
        let name = site.site_name();
        let index = whole.sites.iter().position(|it| it.name == name);
        let own = |family| {
            Prefixes::at_sites(
                self.of(family)
                    .by_site()
                    .filter(|(_, at)| Some(usize::from(*at)) == index),
            )
        };
        Cow::Owned(Self {
            v4: own(Family::V4),
            v6: own(Family::V6),
        })
    }

    /// Returns the place, in the configuration, of the site that an address lies at, by the longest of the
    /// prefixes that lead into the tunnels; none where none of them has it.
    pub(super) fn site_at(&self, address: IpAddr) -> Option<usize> {
        let family = match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        };
        let holding = self
            .by_site(family)
            .filter(|(net, _)| net.contains(&address));
        let longest = holding.max_by_key(|(net, _)| net.prefix_len());
        longest.map(|(_, site)| site)
    }

    /// Counts the prefixes of each site and family that follow the main table: 0 where they are stated.
    #[must_use]
    pub fn followed(&self, config: &Config) -> Vec<FollowedPrefixes> {
        let are_followed = Self::follow_main(config);
        let families = [Family::V4, Family::V6].into_iter();
        let counts = families.flat_map(|family| {
            let mut counts = vec![0; config.site_names().len()];
            for (_, site) in self.by_site(family).filter(|_| are_followed) {
                counts[site] += 1;
            }
            let sites = config.site_names().into_iter();
            sites
                .zip(counts)
                .map(move |(site, prefixes)| FollowedPrefixes {
                    site,
                    family,
                    prefixes,
                })
        });
        counts.collect()
    }

    /// Returns the name of the site that an address lies at, where sites are listed.
    #[must_use]
    pub fn site_name_at(&self, config: &Config, address: IpAddr) -> Option<SiteName> {
        let site = config.sites.get(self.site_at(address)?)?;
        Some(site.name.clone())
    }

    /// Tells whether nothing leads into the tunnels or is handed back.
    pub(super) fn is_empty(&self) -> bool {
        let mut families = [&self.v4, &self.v6].into_iter();
        families.all(|it| it.split.is_empty() && it.thrown.is_empty())
    }

    /// Returns the place, in the configuration, of the site that each prefix of a family lies at that leads into the tunnels.
    pub(super) fn by_site(&self, family: Family) -> impl Iterator<Item = (IpNet, usize)> {
        self.of(family)
            .by_site()
            .map(|(net, site)| (net, site.into()))
    }

    /// All prefixes of both families that the tables of the classes have.
    pub(super) fn nets(&self) -> HashSet<IpNet> {
        let families = [&self.v4, &self.v6].into_iter();
        let nets = families.flat_map(|it| it.split.iter().chain(&it.thrown));
        nets.copied().collect()
    }

    /// Tells whether they depend on the main table, so that its changes have to be followed.
    #[must_use]
    pub fn follow_main(config: &Config) -> bool {
        let mut families = [Family::V4, Family::V6].into_iter();
        families.any(|it| depends_on_main(config, it))
    }

    /// Lists the prefixes of both families that lead into the tunnels, each with the place, in the
    /// configuration, of the site that it lies at.
    pub fn split_by_site(&self) -> impl Iterator<Item = (IpNet, usize)> {
        let families = [Family::V4, Family::V6].into_iter();
        families.flat_map(|family| self.by_site(family))
    }

    /// Returns the prefixes of a family that lead into the tunnels.
    #[must_use]
    pub fn split(&self, family: Family) -> &[IpNet] {
        &self.of(family).split
    }

    /// Returns the prefixes inside those that the tables of the classes hand back.
    #[must_use]
    pub fn thrown(&self, family: Family) -> &[IpNet] {
        &self.of(family).thrown
    }

    /// The length of the longest prefix that leads into the tunnels; none where nothing does.
    pub(super) fn longest(&self, family: Family) -> Option<u8> {
        self.split(family).iter().map(IpNet::prefix_len).max()
    }

    /// What these have and `other` has not: also what lies at another site there.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        for family in [Family::V4, Family::V6] {
            let (own, other) = (self.of(family), other.of(family));
            if own == other {
                continue;
            }
            let known: HashSet<_> = other.by_site().collect();
            let split = own.by_site().filter(|it| !known.contains(it));
            let thrown: HashSet<_> = other.thrown.iter().collect();
            let thrown_anew = own.thrown.iter().filter(|it| !thrown.contains(it));
            *rest.of_mut(family) = Prefixes {
                thrown: thrown_anew.copied().collect(),
                ..Prefixes::at_sites(split)
            };
        }
        rest
    }

    fn of(&self, family: Family) -> &Prefixes {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn of_mut(&mut self, family: Family) -> &mut Prefixes {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

impl Prefixes {
    fn at_sites(nets: impl IntoIterator<Item = (IpNet, SiteIndex)>) -> Self {
        let (split, sites) = nets.into_iter().unzip();
        Self {
            split,
            sites,
            thrown: Vec::new(),
        }
    }

    fn by_site(&self) -> impl Iterator<Item = (IpNet, SiteIndex)> {
        self.split.iter().copied().zip(self.sites.iter().copied())
    }
}

/// Finds the destination that an address or a prefix lies in, among thousands.
#[derive(Debug)]
pub(super) struct Cover {
    nets: HashSet<IpNet>,
    /// Those that there are, the longest first.
    lengths: Vec<u8>,
}

impl Cover {
    pub(super) fn of(nets: &[IpNet]) -> Self {
        let nets: HashSet<_> = nets.iter().map(IpNet::trunc).collect();
        let mut lengths: Vec<_> = nets.iter().map(IpNet::prefix_len).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        Self { nets, lengths }
    }

    /// The length of the longest prefix that an address lies in.
    pub(super) fn length_for(&self, address: IpAddr) -> Option<u8> {
        self.shorter_than(u8::MAX, address)
    }

    /// Whether a prefix is one of these.
    pub(super) fn has(&self, net: &IpNet) -> bool {
        self.nets.contains(net)
    }

    /// Whether a prefix lies inside of a shorter one of these.
    pub(super) fn has_around(&self, net: &IpNet) -> bool {
        self.shorter_than(net.prefix_len(), net.network()).is_some()
    }

    fn shorter_than(&self, bound: u8, address: IpAddr) -> Option<u8> {
        let mut lengths = self.lengths.iter().copied();
        lengths.find(|length| {
            let net = IpNet::new(address, *length).map(|it| it.trunc());
            *length < bound && net.is_ok_and(|net| self.nets.contains(&net))
        })
    }
}

/// Finds the site that a prefix lies at, among thousands of destinations.
pub(super) struct SiteFinder {
    cover: Cover,
    sites: HashMap<IpNet, SiteIndex>,
}

impl SiteFinder {
    pub(super) fn of(destinations: &Destinations, family: Family) -> Self {
        let sites = destinations.of(family).by_site();
        Self {
            cover: Cover::of(destinations.split(family)),
            sites: sites.map(|(net, site)| (net.trunc(), site)).collect(),
        }
    }

    /// The place of the site in the configuration: the first where the prefix lies at none.
    pub(super) fn site_of(&self, net: &IpNet) -> usize {
        let length = self.cover.shorter_than(net.prefix_len() + 1, net.network());
        let around = length.and_then(|it| IpNet::new(net.network(), it).ok());
        let site = around.and_then(|it| self.sites.get(&it.trunc()));
        site.copied().unwrap_or(0).into()
    }
}

/// The prefixes of a family that are stated: all that leads into the tunnels, or where that follows
/// the main table, what it is limited to.
pub(super) fn limits(config: &Config, family: Family) -> Vec<IpNet> {
    match config.destinations() {
        Some(list) => list
            .iter()
            .filter(|net| Family::of(net) == family)
            .copied()
            .collect(),
        None => vec![everything(family)],
    }
}

/// The same of each site.
fn limits_by_site(config: &Config, family: Family) -> Vec<(IpNet, SiteIndex)> {
    let sites = (0..).zip(config.by_site());
    let limits = sites.flat_map(|(index, site)| {
        let own = limits(&site, family).into_iter();
        own.map(move |net| (net, index))
    });
    limits.collect()
}

pub(super) fn depends_on_main(config: &Config, family: Family) -> bool {
    // A shadow routes nothing.
    config.routes.follow && !config.shadow && !limits_by_site(config, family).is_empty()
}

/// `main` has a route for each destination, in order.
fn followed(limits: Vec<(IpNet, SiteIndex)>, main: &[MainRoute]) -> Prefixes {
    let split = Prefixes::at_sites(within(limits, main));
    Prefixes {
        thrown: thrown(&split.split, main),
        ..split
    }
}

/// The part of `limits` that the main table reaches through a tunnel to their site.
fn within(limits: Vec<(IpNet, SiteIndex)>, main: &[MainRoute]) -> Vec<(IpNet, SiteIndex)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        Limit(SiteIndex),
        Route(Option<SiteIndex>),
    }
    let has_route = |net: &IpNet| {
        let found = main.binary_search_by(|it| it.destination.cmp(net));
        found.is_ok()
    };
    let limits = limits
        .into_iter()
        .map(|(net, site)| (net, Kind::Limit(site)));
    let routes = main
        .iter()
        .map(|it| (it.destination, Kind::Route(it.by_tunnel_to)));
    let mut split = Vec::new();
    walk(limits.chain(routes).collect(), |net, kind, around| {
        let mut routes = around.iter().rev().filter_map(|(_, it)| match it {
            Kind::Route(to) => Some(*to),
            Kind::Limit(_) => None,
        });
        let inside = match kind {
            Kind::Route(to) => {
                to.filter(|site| around.iter().any(|(_, it)| *it == Kind::Limit(*site)))
            }
            // A route to the limit itself decides there.
            Kind::Limit(_) if has_route(&net) => None,
            Kind::Limit(site) => routes.next().flatten().filter(|to| *to == site),
        };
        split.extend(inside.map(|site| (net, site)));
        true
    });
    split
}

/// The routes to elsewhere that packets would not find behind destinations around them, as far as
/// the rule in front does not find them.
fn thrown(split: &[IpNet], main: &[MainRoute]) -> Vec<IpNet> {
    let longest = split.iter().map(IpNet::prefix_len).max().unwrap_or(0);
    let known: HashSet<_> = split.iter().collect();
    // Also by a tunnel to a site that is limited to other prefixes.
    let elsewhere = main.iter().filter(|it| !known.contains(&it.destination));
    // The rule in front finds the others.
    let elsewhere = elsewhere.filter(|it| it.destination.prefix_len() <= longest);
    let elsewhere = elsewhere.map(|it| (it.destination, false));
    let split = split.iter().map(|net| (net.trunc(), true));
    let mut thrown = Vec::new();
    walk(split.chain(elsewhere).collect(), |net, is_split, around| {
        let is_inside = around.last().is_some_and(|(_, is_split)| *is_split);
        if !is_split && is_inside {
            thrown.push(net);
        }
        // What lies inside of nothing matters to nobody.
        is_split || is_inside
    });
    thrown
}

/// Visits prefixes in order, each with those around it, the nearest last. What `visit` returns false
/// for is around nothing.
fn walk<T: Copy>(
    mut nets: Vec<(IpNet, T)>,
    mut visit: impl FnMut(IpNet, T, &[(IpNet, T)]) -> bool,
) {
    nets.sort_by_key(|(net, _)| (bits_of(net.network()), net.prefix_len()));
    let mut around: Vec<(IpNet, T)> = Vec::new();
    for (net, kind) in nets {
        while around
            .last()
            .is_some_and(|(outer, _)| !outer.contains(&net))
        {
            around.pop();
        }
        if visit(net, kind, &around) {
            around.push((net, kind));
        }
    }
}

#[cfg(test)]
mod tests;
