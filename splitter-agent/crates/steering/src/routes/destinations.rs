//! Which prefixes lead into the tunnels, and which inside them do not.
//!
//! They are stated, or follow from what the main table reaches through a tunnel. Where, of the latter,
//! the main table has a more specific route to elsewhere, that keeps its meaning: the rule in front
//! of ours finds those that are more specific than every destination, and for the others the tables of
//! both classes have a `throw` route, with which the kernel's search goes on in the main table.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use splitter_config::Config;
use splitter_netlink::{Family, Interfaces, Netlink, NetlinkError};

use super::main_table::{self, MainRoute};
use super::probe::bits_of;
use super::wanted::everything;

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
    /// Those that the rule in front of ours does not find. Sorted.
    thrown: Vec<IpNet>,
}

impl Destinations {
    /// Finds out what they are now. The main table is read only where it matters.
    ///
    /// # Errors
    /// When the kernel does not list it.
    pub async fn read(netlink: &Netlink, config: &Config) -> Result<Self, NetlinkError> {
        let mut destinations = Self::default();
        let interfaces = match Self::follow_main(config) {
            true => netlink.interfaces().await?,
            false => Interfaces::default(),
        };
        for family in [Family::V4, Family::V6] {
            let limits = limits(config, family);
            let main = match depends_on_main(config, family) {
                true => main_table::read(netlink, config, &interfaces, family).await?,
                false => Vec::new(),
            };
            *destinations.of_mut(family) = match config.routes.follow {
                true => followed(&limits, main),
                false => Prefixes {
                    split: limits,
                    thrown: Vec::new(),
                },
            };
        }
        Ok(destinations)
    }

    /// Returns those of one of the sites of a configuration, `site` being what there is for it alone.
    #[must_use]
    pub fn of_site(&self, whole: &Config, site: &Config) -> Cow<'_, Self> {
        if !whole.has_several_sites() {
            return Cow::Borrowed(self);
        }
        // With several sites they are stated.
        let stated = |family| Prefixes {
            split: limits(site, family),
            thrown: Vec::new(),
        };
        Cow::Owned(Self {
            v4: stated(Family::V4),
            v6: stated(Family::V6),
        })
    }

    /// Tells whether they depend on the main table, so that its changes have to be followed.
    #[must_use]
    pub fn follow_main(config: &Config) -> bool {
        let mut families = [Family::V4, Family::V6].into_iter();
        families.any(|it| depends_on_main(config, it))
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

    /// What these have and `other` has not.
    pub(super) fn without(&self, other: &Self) -> Self {
        let but = |own: &[IpNet], other: &[IpNet]| {
            let other: HashSet<_> = other.iter().collect();
            own.iter()
                .filter(|it| !other.contains(it))
                .copied()
                .collect()
        };
        let mut rest = Self::default();
        for family in [Family::V4, Family::V6] {
            let (own, other) = (self.of(family), other.of(family));
            *rest.of_mut(family) = Prefixes {
                split: but(&own.split, &other.split),
                thrown: but(&own.thrown, &other.thrown),
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

fn depends_on_main(config: &Config, family: Family) -> bool {
    // A shadow routes nothing.
    config.routes.follow && !config.shadow && !limits(config, family).is_empty()
}

fn followed(limits: &[IpNet], main: Vec<MainRoute>) -> Prefixes {
    let main = in_use(main);
    let split = within(limits, &main);
    let thrown = thrown(&split, &main);
    Prefixes { split, thrown }
}

/// Of several routes to a prefix the kernel takes the one with the lowest metric.
fn in_use(mut main: Vec<MainRoute>) -> Vec<MainRoute> {
    main.sort_by_key(|it| (it.destination, it.metric));
    main.dedup_by_key(|it| it.destination);
    main
}

/// The part of `limits` that the main table reaches through a tunnel.
fn within(limits: &[IpNet], main: &[MainRoute]) -> Vec<IpNet> {
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        Limit,
        Tunnel,
        Elsewhere,
    }
    let kind = |it: &MainRoute| match it.is_by_tunnel {
        true => Kind::Tunnel,
        false => Kind::Elsewhere,
    };
    let limits = limits.iter().map(|net| (*net, Kind::Limit));
    let routes = main.iter().map(|it| (it.destination, kind(it)));
    let mut split = Vec::new();
    walk(limits.chain(routes).collect(), |net, kind, around| {
        let is_limited = || around.iter().any(|(_, it)| *it == Kind::Limit);
        let mut routes = around.iter().rev().filter(|(_, it)| *it != Kind::Limit);
        // A route to the limit itself comes after it, or decides there.
        let is_inside = match kind {
            Kind::Tunnel => is_limited(),
            Kind::Limit => routes.next().is_some_and(|(_, it)| *it == Kind::Tunnel),
            Kind::Elsewhere => false,
        };
        if is_inside {
            split.push(net);
        }
        true
    });
    let elsewhere = main.iter().filter(|it| !it.is_by_tunnel);
    let elsewhere: HashSet<_> = elsewhere.map(|it| it.destination).collect();
    split.retain(|net| !elsewhere.contains(net));
    split.dedup();
    split
}

/// The routes to elsewhere that packets would not find behind destinations around them, as far as
/// the rule in front does not find them.
fn thrown(split: &[IpNet], main: &[MainRoute]) -> Vec<IpNet> {
    let longest = split.iter().map(IpNet::prefix_len).max().unwrap_or(0);
    let elsewhere = main.iter().filter(|it| !it.is_by_tunnel);
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
