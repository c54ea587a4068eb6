//! Rules that hold between tunnels.

use splitter_netlink::Family;
use splitter_policy::flow::TunnelRole;

use super::{all_places, places_of_site, sites};
use crate::Config;
use crate::source::{Section, Source};

/// Each tunnel is on a device of its own, and none on one that faces the site.
pub(in crate::sections) fn devices_differ(source: &Source<'_>, config: &Config) {
    let top = source.top();
    if config.lan.iter().any(|lan| lan.as_str() == "lo") {
        top.contradiction(
            "lan",
            "nothing arrives from the site on lo".to_owned(),
            "list only interfaces that face the site",
        );
    }
    let all: Vec<_> = config.tunnels().collect();
    for (index, (place, (class, tunnel))) in all_places(source).iter().zip(&all).enumerate() {
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
        source.section("long").contradiction(
            "table",
            format!("the short tunnel has table {}, too", config.short.table),
            "give each class a table of its own (the defaults are 10401 and 10402)",
        );
    }
}

/// What one tunnel has a next hop for, the others to the same site must have one for, too.
pub(in crate::sections) fn families_agree(source: &Source<'_>, config: &Config) {
    let Some(sites) = sites::sections(&source.top()) else {
        return families_of_one_agree(&all_places(source), &source.section("routes"), config);
    };
    for (site, config) in sites.iter().zip(config.by_site()) {
        let places = TunnelRole::ALL.map(|class| places_of_site(site, class));
        families_of_one_agree(
            &places.into_iter().flatten().collect::<Vec<_>>(),
            site,
            &config,
        );
    }
}

/// `places` are those of the tunnels, and `destinations` is the section that has that key.
fn families_of_one_agree(
    places: &[Section<'_, '_>],
    destinations: &Section<'_, '_>,
    config: &Config,
) {
    let all: Vec<_> = config.tunnels().collect();
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
    for net in config.destinations().iter().flat_map(|it| it.iter()) {
        let family = Family::of(net);
        if all.iter().all(|(_, it)| !it.gateway.carries(family)) {
            destinations.contradiction(
                "destinations",
                format!("{net} cannot be reached, because no tunnel has an {family} next hop"),
                "add the next hop to the gateway of each tunnel, or remove the prefix",
            );
        }
    }
}
