//! The tunnels of a class: one that `[short]` or `[long]` describes, or several that
//! `[[short.tunnels]]` or `[[long.tunnels]]` list.

use std::net::IpAddr;
use std::num::{NonZeroU8, NonZeroU32};

use serde::Serialize;
use splitter_netlink::{Family, InterfaceName};
use splitter_policy::flow::TunnelRole;

use super::document::{Document, Section};
use super::health::peer;
use super::leaf::{address, integer, interface, next_hop};
use super::{Config, Gateways, InvalidValue, TableId};

/// How many tunnels a class has at most.
pub const MAX_TUNNELS: usize = 16;

const WEIGHT: NonZeroU8 = NonZeroU8::MIN;

/// The keys of a tunnel that may stand in the section of its class.
const OWN_KEYS: [&str; 4] = ["device", "gateway", "rate_mbit", "peer"];

/// The tunnels of a class, and the table that their routes are in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tunnels {
    /// The routing table that the agent fills for the class.
    pub table: TableId,
    /// At least one.
    #[serde(rename = "tunnels")]
    list: Vec<Tunnel>,
}

/// A tunnel to the other site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tunnel {
    /// The device packets leave by.
    pub device: InterfaceName,
    /// The next hops on that device.
    pub gateway: Gateways,
    /// What it carries, where that is known. For the short class it tells when packets have
    /// drained; for the long one, how late a packet enters at the earliest.
    pub rate_mbit: Option<NonZeroU32>,
    /// The other border's address in this tunnel, where its agent answers probes. Without one the
    /// link and the next hop tell whether the tunnel is alive.
    pub peer: Option<IpAddr>,
    /// Its share of the flows of its class, beside the weights of the others. Default 1, which it
    /// also is where there is no other.
    pub weight: NonZeroU8,
}

impl Tunnels {
    /// All of them, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Tunnel> {
        self.list.iter()
    }

    /// The tunnel, if there is one alone.
    #[must_use]
    pub fn only(&self) -> Option<&Tunnel> {
        match &self.list[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Whether flows are spread over more than one.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.list.len() > 1
    }

    /// What every one of them carries at least, if all state their rate.
    #[must_use]
    pub fn slowest_rate_mbit(&self) -> Option<NonZeroU32> {
        let rates: Option<Vec<_>> = self.iter().map(|it| it.rate_mbit).collect();
        rates?.into_iter().min()
    }

    /// Whether packets of `family` can be sent over each of them.
    #[must_use]
    pub fn carry(&self, family: Family) -> bool {
        self.iter()
            .all(|it| it.gateway.carries(family) && !self.cannot_be_one_of_several(it, family))
    }

    /// Linux makes one route of several for IPv6 only of those with a next hop
    /// (`rt6_qualify_for_ecmp`).
    #[must_use]
    pub fn cannot_be_one_of_several(&self, tunnel: &Tunnel, family: Family) -> bool {
        family == Family::V6 && self.are_several() && tunnel.gateway.v6.is_none()
    }
}

impl<'a> IntoIterator for &'a Tunnels {
    type Item = &'a Tunnel;
    type IntoIter = std::slice::Iter<'a, Tunnel>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Config {
    /// The tunnels of a class.
    #[must_use]
    pub fn tunnels_of(&self, class: TunnelRole) -> &Tunnels {
        match class {
            TunnelRole::Short => &self.short,
            TunnelRole::Long => &self.long,
        }
    }

    /// All tunnels with the class that they are for, the short ones first.
    pub fn tunnels(&self) -> impl Iterator<Item = (TunnelRole, &Tunnel)> {
        let of = |class| self.tunnels_of(class).iter().map(move |it| (class, it));
        TunnelRole::ALL.into_iter().flat_map(of)
    }

    /// What a tunnel is called: by its class where it is the only one of that.
    #[must_use]
    pub fn name_of(&self, class: TunnelRole, tunnel: &Tunnel) -> String {
        let name = class.name();
        match self.tunnels_of(class).are_several() {
            true => format!("the {name} tunnel {}", tunnel.device),
            false => format!("the {name} tunnel"),
        }
    }
}

/// Reads the tunnels of a class.
pub(super) fn tunnels(document: &Document<'_>, class: TunnelRole) -> Option<Tunnels> {
    let section = document.section(class.name());
    let default = match class {
        TunnelRole::Short => TableId::SHORT,
        TunnelRole::Long => TableId::LONG,
    };
    let table = section
        .optional("table", |value| {
            let hint = format!("(the default is {default})");
            integer(value, 0..=u32::MAX, &hint)?.try_into()
        })
        .unwrap_or(default);
    let list = match section.tables("tunnels", list_name(class)) {
        None => vec![tunnel(&section)?],
        Some(listed) => {
            for key in OWN_KEYS {
                refuse_beside_list(&section, key);
            }
            several(&section, &listed)?
        }
    };
    Some(Tunnels { table, list })
}

/// Where each tunnel of a class stands in the document, in the order of [`Tunnels::iter`].
pub(super) fn places<'d, 't>(
    document: &'d Document<'t>,
    class: TunnelRole,
) -> Vec<Section<'d, 't>> {
    let section = document.section(class.name());
    match section.tables("tunnels", list_name(class)) {
        Some(listed) => listed,
        None => vec![section],
    }
}

const fn list_name(class: TunnelRole) -> &'static str {
    match class {
        TunnelRole::Short => "short.tunnels",
        TunnelRole::Long => "long.tunnels",
    }
}

fn several(section: &Section<'_, '_>, listed: &[Section<'_, '_>]) -> Option<Vec<Tunnel>> {
    let tunnels: Vec<_> = listed.iter().map(|it| (tunnel(it), weight(it))).collect();
    if tunnels.is_empty() {
        section.contradiction(
            "tunnels",
            "the list names no tunnel".to_owned(),
            "name one with its device, or leave the key out and give the section a device",
        );
        return None;
    }
    if tunnels.len() > MAX_TUNNELS {
        section.contradiction(
            "tunnels",
            format!("these are {} tunnels", tunnels.len()),
            "give a class at most 16",
        );
        return None;
    }
    let is_alone = tunnels.len() == 1;
    let weighed = tunnels.into_iter().map(|(tunnel, weight)| {
        let weight = if is_alone { WEIGHT } else { weight };
        Some(Tunnel { weight, ..tunnel? })
    });
    weighed.collect()
}

fn refuse_beside_list(section: &Section<'_, '_>, key: &'static str) {
    if section.knows_and_has(key) {
        section.contradiction(
            key,
            "the tunnels of this class are listed, each with keys of its own".to_owned(),
            "move the key to one of them, or remove the list",
        );
    }
}

fn tunnel(section: &Section<'_, '_>) -> Option<Tunnel> {
    let remedy = "name the tunnel's interface, such as device = \"wan0\"";
    let device = section.required("device", remedy, interface);
    let gateway = gateways(section);
    let rate_mbit = section.optional("rate_mbit", |value| {
        integer(value, 0..=1_000_000, "")?.try_into().map_err(|_| {
            InvalidValue::new(
                "a tunnel of rate 0 would never drain",
                "give its rate in Mbit/s, or leave the key out if it is not known",
            )
        })
    });
    let peer = peer(section);
    Some(Tunnel {
        device: device?,
        gateway,
        rate_mbit,
        peer,
        weight: WEIGHT,
    })
}

fn weight(section: &Section<'_, '_>) -> NonZeroU8 {
    let weight = section.optional("weight", |value| {
        let weight = integer(value, 1..=255, "(the default is 1)")?;
        Ok(u8::try_from(weight).ok().and_then(NonZeroU8::new))
    });
    weight.flatten().unwrap_or(WEIGHT)
}

fn gateways(section: &Section<'_, '_>) -> Gateways {
    let mut gateways = Gateways::default();
    let list = section.list(
        "gateway",
        [
            "the list names no next hop",
            "name one, or leave the key out for a point-to-point device",
        ],
        |value| address(value).and_then(next_hop),
    );
    for gateway in list.unwrap_or_default() {
        let before = match gateway {
            IpAddr::V4(v4) => gateways.v4.replace(v4).map(IpAddr::V4),
            IpAddr::V6(v6) => gateways.v6.replace(v6).map(IpAddr::V6),
        };
        if let Some(before) = before {
            section.contradiction(
                "gateway",
                format!("{before} and {gateway} are of the same family"),
                "give at most one IPv4 and one IPv6 next hop",
            );
        }
    }
    gateways
}

/// Each tunnel is on a device of its own, and none on one that faces the site.
pub(super) fn devices_differ(document: &Document<'_>, config: &Config) {
    let top = document.top();
    if config.lan.iter().any(|lan| lan.as_str() == "lo") {
        top.contradiction(
            "lan",
            "nothing arrives from the site on lo".to_owned(),
            "list only interfaces that face the site",
        );
    }
    let all: Vec<_> = config.tunnels().collect();
    for (index, (place, (class, tunnel))) in all_places(document).iter().zip(&all).enumerate() {
        let twin = all[..index]
            .iter()
            .find(|(_, it)| it.device == tunnel.device);
        if let Some((first, _)) = twin {
            let problem = match first == class {
                true => format!("{} is listed twice", tunnel.device),
                false => format!("the {} tunnel is on {}, too", first.name(), tunnel.device),
            };
            place.contradiction("device", problem, "put the tunnels on different devices");
        }
        if config.lan.contains(&tunnel.device) {
            top.contradiction(
                "lan",
                format!(
                    "{} is the device of the {} tunnel",
                    tunnel.device,
                    class.name()
                ),
                "list only interfaces that face the site",
            );
        }
    }
    if config.short.table == config.long.table {
        document.section("long").contradiction(
            "table",
            format!("the short tunnel has table {}, too", config.short.table),
            "give each class a table of its own (the defaults are 10401 and 10402)",
        );
    }
}

/// What one tunnel has a next hop for, the others must have one for, too.
pub(super) fn families_agree(document: &Document<'_>, config: &Config) {
    let all: Vec<_> = config.tunnels().collect();
    let places = all_places(document);
    let explicit = || {
        let placed = places.iter().zip(&all);
        placed.filter(|(_, (_, it))| !it.gateway.is_point_to_point())
    };
    for family in [Family::V4, Family::V6] {
        let has = explicit().find(|(_, (_, it))| it.gateway.carries(family));
        let Some((_, (class, tunnel))) = has else {
            continue;
        };
        let has = config.name_of(*class, tunnel);
        for (place, (class, tunnel)) in explicit() {
            if !tunnel.gateway.carries(family) {
                let lacks = config.name_of(*class, tunnel);
                place.contradiction(
                    "gateway",
                    format!("{has} has an {family} next hop and {lacks} has none, so {family} could not be split"),
                    "give each tunnel a next hop of the family, or none of them",
                );
            }
        }
    }
    for net in config.routes.destinations.iter().flatten() {
        let family = Family::of(net);
        if all.iter().all(|(_, it)| !it.gateway.carries(family)) {
            document.section("routes").contradiction(
                "destinations",
                format!("{net} cannot be reached, because no tunnel has an {family} next hop"),
                "add the next hop to the gateway of each tunnel, or remove the prefix",
            );
        }
    }
}

/// Where each tunnel stands in the document, in the order of [`Config::tunnels`].
pub(super) fn all_places<'d, 't>(document: &'d Document<'t>) -> Vec<Section<'d, 't>> {
    let classes = TunnelRole::ALL.into_iter();
    classes.flat_map(|class| places(document, class)).collect()
}

#[cfg(test)]
#[path = "tunnels_tests.rs"]
mod tests;
