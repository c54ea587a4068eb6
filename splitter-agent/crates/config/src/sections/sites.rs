//! `[[site]]`: any number of remote sites, each with destinations and tunnels of its own.

use std::num::NonZeroU32;

use ipnet::IpNet;
use serde_json::{Value as Json, json};
use splitter_policy::flow::TunnelRole;

use super::Tunnel;
use super::site_health::{self, SiteHealth};
use super::tunnels::{MAX_TUNNELS, tunnels_in, written};
use crate::config::Given;
use crate::declaration::{Declaration, key};
use crate::declare::Section as _;
use crate::key::Change::Reload;
use crate::key::Key;
use crate::kind::{Kind, Refusals, Value, list, prefix, site_name, whole};
use crate::schema;
use crate::source::Section;
use crate::values::SiteName;

mod rules;
#[cfg(test)]
mod tests;

pub(super) use rules::{
    keys_of_sites_are_used, sites_are_distinct, sites_are_possible, thresholds_are_possible,
};

/// How many sites there are at most.
pub const MAX_SITES: usize = 256;

/// The sites that the example lists, in a comment.
pub(crate) const SITES_EXAMPLE: [&[(&str, &str)]; 2] = [
    &[
        ("name", "\"paris\""),
        ("destinations", "[\"10.2.0.0/16\", \"2001:db8:b::/48\"]"),
        (
            "short",
            "{ device = \"wan0\", gateway = [\"192.0.2.1\", \"2001:db8:1::1\"] }",
        ),
        (
            "long",
            "{ device = \"wan1\", gateway = [\"198.51.100.1\", \"2001:db8:2::1\"] }",
        ),
    ],
    &[
        ("name", "\"oslo\""),
        ("destinations", "[\"10.3.0.0/16\"]"),
        ("short", "{ device = \"wan2\" }"),
        ("long", "{ device = \"wan3\" }"),
    ],
];

/// A remote site: what lies there, and the tunnels that lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The name in messages and metrics; no other site has it.
    pub name: SiteName,
    /// The prefixes behind its tunnels, where they are stated.
    pub destinations: Option<Vec<IpNet>>,
    /// The threshold of flows to it, in `flows.unit`; that of all others where there is none.
    pub threshold: Option<NonZeroU32>,
    /// How its tunnels are watched, where that differs.
    pub health: SiteHealth,
    /// The tunnels of short flows to it, at least one.
    pub short: Vec<Tunnel>,
    /// The tunnels of long flows to it, at least one.
    pub long: Vec<Tunnel>,
}

impl Site {
    /// Returns the tunnels of a class.
    #[must_use]
    pub fn tunnels_of(&self, class: TunnelRole) -> &[Tunnel] {
        match class {
            TunnelRole::Short => &self.short,
            TunnelRole::Long => &self.long,
        }
    }

    /// The prefixes that are stated.
    pub(crate) fn stated(&self) -> &[IpNet] {
        self.destinations.as_deref().unwrap_or_default()
    }

    /// Lists the keys of a site.
    pub(crate) fn keys() -> Vec<Key<Self>> {
        vec![
            name().row(|it: &Self| &it.name),
            destinations().row(|it: &Self| &it.destinations),
            threshold().row(|it: &Self| &it.threshold),
            site_health::declared().row(|it: &Self| &it.health),
            tunnels(TunnelRole::Short).row(|it: &Self| &it.short),
            tunnels(TunnelRole::Long).row(|it: &Self| &it.long),
        ]
    }

    fn read(section: &Section<'_, '_>) -> Option<Self> {
        let nothing = Given::default();
        let of_class = |class| tunnels_in(&tunnels_section(section, class), list_name(class));
        let (name, destinations) = (name().read(section), destinations().read(section));
        let threshold = threshold().read(section);
        let health = SiteHealth::read(&site_health::section(section));
        let (short, long) = (of_class(TunnelRole::Short), of_class(TunnelRole::Long));
        Some(Self {
            name: self::name().complete(name.as_ref(), &nothing)?,
            destinations: self::destinations().complete(destinations.as_ref(), &nothing)?,
            threshold: self::threshold().complete(threshold.as_ref(), &nothing)?,
            health: SiteHealth::complete(&health, &nothing)?,
            short: short?,
            long: long?,
        })
    }
}

/// Declares the key that lists the sites.
pub(crate) fn listed() -> Declaration<impl Kind<Value = Vec<Site>>, Vec<Site>> {
    key("site", Reload, SiteList)
        .derived(
            "one remote site, called `default`, by the sections below",
            |_| Vec::new(),
        )
        .trade_off(
            "[Several sites](../how-to/several-sites.md); then `[short]` and `[long]` hold only \
             `table`, and `routes.destinations` is left out. Refused with [`policy = \
             \"share\"`](../explanation/share.md) and `steering.mode = \"redirect\"`.",
        )
}

fn name() -> Declaration<impl Kind<Value = SiteName>, SiteName> {
    key("name", Reload, site_name())
        .required("name the site, such as name = \"paris\"")
        .doc(&["The site is called this in messages, and in the label `site` of metrics."])
        .trade_off("No other site may have it.")
}

fn destinations() -> Declaration<impl Kind<Value = Vec<IpNet>>, Option<Vec<IpNet>>> {
    key(
        "destinations",
        Reload,
        list(
            prefix(),
            "prefixes, each once, no bits beyond their length",
            [
                "without a destination nothing would be routed to the site",
                "name the prefixes of the site",
            ],
            "name each prefix once",
        ),
    )
    .optional("with `routes.follow` all that the main table reaches through the site's tunnels; else they have to be stated")
    .doc(&["These prefixes lie at the site, behind its tunnels."])
    .trade_off(
        "No two sites may have the same. Where one lies inside another site's, the longer one \
         decides. With `routes.follow`, only what lies inside of them is followed.",
    )
}

fn threshold() -> Declaration<impl Kind<Value = NonZeroU32>, Option<NonZeroU32>> {
    key(
        "threshold",
        Reload,
        whole(1..=u32::MAX).except(
            0,
            "a threshold of 0 would make every packet long",
            "give 1 or more, or leave the key out",
        ),
    )
    .optional("that of `flows.threshold`")
    .also("at most 30 different ones besides `flows.threshold`, which is not `\"auto\"`")
    .doc(&["Flows to the site are long from packet (or byte) `threshold` + 1 on, in flows.unit."])
    .trade_off(
        "Higher for a site whose short tunnel has capacity to spare, lower for a thin one. Flows \
         that end below the lowest threshold of all sites cost nothing more; others are looked \
         up once or twice.",
    )
}

fn tunnels(class: TunnelRole) -> Declaration<impl Kind<Value = Vec<Tunnel>>, Vec<Tunnel>> {
    let (name, doc): (_, &'static [&'static str]) = match class {
        TunnelRole::Short => (
            "short",
            &["Describes the tunnel of short flows to the site, or lists several."],
        ),
        TunnelRole::Long => (
            "long",
            &["Describes the tunnel of long flows to the site, or lists several."],
        ),
    };
    key(name, Reload, TunnelsOfSite)
        .required("give the site a tunnel for each class")
        .doc(doc)
        .trade_off("The keys are those of `[short]` and `[long]`, without `table`.")
}

/// Opens the tables of the list, where sites are listed.
pub(super) fn sections<'s, 't>(top: &Section<'s, 't>) -> Option<Vec<Section<'s, 't>>> {
    top.tables("site", "site")
}

/// Opens the section of a class's tunnels to a site.
pub(super) fn tunnels_section<'s, 't>(
    site: &Section<'s, 't>,
    class: TunnelRole,
) -> Section<'s, 't> {
    match class {
        TunnelRole::Short => site.table("short", "site.short"),
        TunnelRole::Long => site.table("long", "site.long"),
    }
}

pub(super) const fn list_name(class: TunnelRole) -> &'static str {
    match class {
        TunnelRole::Short => "site.short.tunnels",
        TunnelRole::Long => "site.long.tunnels",
    }
}

/// Reads the sites and what follows from them for the classes: all their tunnels.
pub(crate) fn read_sites(top: &Section<'_, '_>, given: &mut Given) {
    let Some(sections) = sections(top) else {
        return;
    };
    let is_possible = (1..=MAX_SITES).contains(&sections.len());
    // What is no list has been refused as that.
    let is_list = |value: &Value<'_>| value.get_ref().as_array().is_some();
    if !is_possible && top.get("site").is_some_and(is_list) {
        top.contradiction(
            "site",
            format!("the list has {} sites", sections.len()),
            "name 1 to 256 sites, or leave the list out and describe [short] and [long]",
        );
    }
    // All of them first, so that each mistake is noted.
    let sites: Vec<_> = sections.iter().map(Site::read).collect();
    given.sites = sites.into_iter().collect();
    let sites = given.sites.iter().flatten();
    for (class, tunnels) in [
        (TunnelRole::Short, &mut given.short),
        (TunnelRole::Long, &mut given.long),
    ] {
        let all = sites.clone().flat_map(|it| it.tunnels_of(class)).cloned();
        match tunnels {
            Some(tunnels) if given.sites.is_some() && is_possible => {
                tunnels.set_of_sites(all.collect());
            }
            // There is nothing to hold other keys against.
            tunnels => *tunnels = None,
        }
    }
}

/// The kind of the list of sites. [`read_sites`] reads it, as each table is a section of its own.
struct SiteList;

impl Kind for SiteList {
    type Value = Vec<Site>;

    fn read(&self, _: &Value<'_>, _: &mut Refusals) -> Option<Vec<Site>> {
        None
    }

    fn write(&self, sites: &Vec<Site>) -> Json {
        let keys = Site::keys();
        let table = |site: &Site| -> Json {
            let keys = keys.iter().map(|key| (key.name.clone(), key.value(site)));
            Json::Object(keys.collect())
        };
        match sites.is_empty() {
            true => Json::Null,
            false => sites.iter().map(table).collect(),
        }
    }

    fn values(&self) -> String {
        format!("1 to {MAX_SITES} sites")
    }

    fn schema(&self) -> Json {
        let site = schema::table(&Site::keys());
        json!({ "anyOf": [
            site,
            { "type": "array", "items": site, "minItems": 1, "maxItems": MAX_SITES },
        ] })
    }
}

/// The kind of a class's tunnels to a site: the keys of one, or a list.
struct TunnelsOfSite;

impl Kind for TunnelsOfSite {
    type Value = Vec<Tunnel>;

    fn read(&self, _: &Value<'_>, _: &mut Refusals) -> Option<Vec<Tunnel>> {
        None
    }

    fn write(&self, tunnels: &Vec<Tunnel>) -> Json {
        match &tunnels[..] {
            [only] => written(only, false),
            several => {
                let tunnels = several.iter().map(|it| written(it, true));
                json!({ "tunnels": tunnels.collect::<Json>() })
            }
        }
    }

    fn values(&self) -> String {
        format!("the keys of a tunnel, or `tunnels` with 1 to {MAX_TUNNELS} of them")
    }

    fn schema(&self) -> Json {
        let (own, listed): (Vec<_>, Vec<_>) = (
            Tunnel::keys("")
                .into_iter()
                .filter(|it| !it.is_listed)
                .collect(),
            Tunnel::keys(""),
        );
        let listed = schema::table(&listed);
        json!({ "anyOf": [
            schema::table(&own),
            {
                "type": "object",
                "additionalProperties": false,
                "required": ["tunnels"],
                "properties": { "tunnels": { "anyOf": [
                    listed,
                    { "type": "array", "items": listed, "minItems": 1, "maxItems": MAX_TUNNELS },
                ] } },
            },
        ] })
    }
}
