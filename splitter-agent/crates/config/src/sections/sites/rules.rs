//! What the sites of a list must not have in common, and what must not stand beside them.

use std::collections::BTreeSet;

use ipnet::IpNet;
use splitter_policy::thresholds::Thresholds;

use super::sections;
use crate::Config;
use crate::sections::{SteeringMode, site_health};
use crate::source::Source;

/// No two sites share a name or a prefix, and nothing is configured that knows one site alone.
pub(in crate::sections) fn sites_are_distinct(source: &Source<'_>, config: &Config) {
    let Some(places) = sections(&source.top()) else {
        return;
    };
    if config.routes.destinations.is_some() {
        source.section("routes").contradiction(
            "destinations",
            "sites are listed, each with destinations of its own".to_owned(),
            "move the prefixes to their sites",
        );
    }
    for (index, (place, site)) in places.iter().zip(&config.sites).enumerate() {
        let others = &config.sites[..index];
        if others.iter().any(|it| it.name == site.name) {
            place.contradiction(
                "name",
                format!("another site is called {}, too", site.name),
                "give each site a name of its own",
            );
        }
        if site.destinations.is_none() && !config.routes.follow {
            place.contradiction(
                "destinations",
                "what lies at the site is neither stated nor followed".to_owned(),
                "name the prefixes of the site, such as destinations = [\"10.2.0.0/16\"], or set \
                 routes.follow to true",
            );
        }
        let twin = |net: &&IpNet| others.iter().find(|it| it.stated().contains(net));
        let stated = site.stated().iter();
        let twins = stated.filter_map(|net| Some((net, twin(&net)?)));
        for (net, other) in twins {
            place.contradiction(
                "destinations",
                format!("{net} lies at the site {}, too", other.name),
                "name each prefix at one site",
            );
        }
    }
}

/// Nothing is asked for that the programs do by the tunnels of one site alone.
pub(in crate::sections) fn sites_are_possible(source: &Source<'_>, config: &Config) {
    if !config.has_several_sites() {
        return;
    }
    if config.is_shared() {
        source.top().contradiction(
            "policy",
            "\"share\" measures the queues of one tunnel for each class, and several sites have \
             tunnels of their own"
                .to_owned(),
            "set policy to \"dedicated\", or run an instance for each site",
        );
    }
    if config.steering.mode == SteeringMode::Redirect {
        source.section("steering").contradiction(
            "mode",
            "the programs that redirect know the tunnels of one site alone, and several are listed"
                .to_owned(),
            "set mode to \"dscp\" or \"mark\"",
        );
    }
}

/// Thresholds of sites stand beside a common one that is known, and the programs can tell them apart.
pub(in crate::sections) fn thresholds_are_possible(source: &Source<'_>, config: &Config) {
    let Some(places) = sections(&source.top()) else {
        return;
    };
    let mut different = BTreeSet::new();
    for (place, site) in places.iter().zip(&config.sites) {
        let Some(threshold) = site.threshold else {
            continue;
        };
        let Some(common) = config.flows.threshold.fixed() else {
            place.contradiction(
                "threshold",
                "flows.threshold = \"auto\" follows one recommendation for all sites".to_owned(),
                "give flows.threshold a number, or leave the site's out",
            );
            continue;
        };
        let is_new = threshold.get() != common && different.insert(threshold);
        if is_new && different.len() > Thresholds::MOST_OWN {
            place.contradiction(
                "threshold",
                format!(
                    "this is one more than the {} different thresholds that sites can have besides \
                     flows.threshold",
                    Thresholds::MOST_OWN
                ),
                "give several sites the same threshold",
            );
        }
    }
}

/// The key of a site needs a tunnel to it with a peer.
pub(in crate::sections) fn keys_of_sites_are_used(source: &Source<'_>, config: &Config) {
    let places = sections(&source.top()).unwrap_or_default();
    for (place, site) in places.iter().zip(&config.sites) {
        let mut tunnels = site.short.iter().chain(&site.long);
        if site.health.key_file.is_some() && !tunnels.any(|it| it.peer.is_some()) {
            site_health::section(place).contradiction(
                "key_file",
                "no tunnel to the site has a peer, so nothing would use the key".to_owned(),
                "set the peer of its tunnels, or leave key_file out",
            );
        }
    }
}
