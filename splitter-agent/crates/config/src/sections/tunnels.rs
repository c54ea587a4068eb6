//! The tunnels of a class: one that `[short]` or `[long]` describes, or several that
//! `[[short.tunnels]]` or `[[long.tunnels]]` list.

use std::num::{NonZeroU8, NonZeroU32};

use serde_json::{Value as Json, json};
use splitter_netlink::Family;
use splitter_policy::flow::TunnelRole;

use super::{Balance, Tunnel, sites};
use crate::config::Given;
use crate::declaration::{Declaration, key};
use crate::declare::Section as _;
use crate::key::Change::Reload;
use crate::key::Key;
use crate::kind::{Kind, Refusals, Value, whole, word};
use crate::source::{Section, Source};
use crate::values::TableId;
use crate::{declare, schema};

mod rules;
#[cfg(test)]
mod tests;

pub(in crate::sections) use rules::{devices_differ, families_agree};

/// How many tunnels a class has at most.
pub const MAX_TUNNELS: usize = 16;

/// The tunnels of a class, and the table that their routes are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnels {
    /// The routing table that the agent fills for the class.
    pub table: TableId,
    /// The way in which packets of the class choose; `None` where the one above all sections says so.
    pub balance: Option<Balance>,
    /// At least one, but where sites are listed.
    list: Vec<Tunnel>,
    /// Those of all sites that are listed, in their order.
    of_sites: Vec<Tunnel>,
}

/// The keys of a tunnel that may stand in the section of its class.
const OWN_KEYS: [&str; 5] = ["device", "gateway", "rate_mbit", "delay_ms", "peer"];

const MEANS_NONE: &str = "table 0 means \"unspecified\" to the kernel";
const OTHER_TABLE: &str = "give the number of a table that nothing else uses, such as 10401";

/// Both classes have the key; only the default differs.
fn table(class: TunnelRole) -> Declaration<impl Kind<Value = TableId>, TableId> {
    key(
        "table",
        Reload,
        whole(1..=u32::MAX).except(0, MEANS_NONE, OTHER_TABLE),
    )
    .default(TableId::of(class))
    .also("not 253 to 255; another one for each class")
    .doc(&["The agent fills this routing table; it must be empty or absent."])
    .trade_off("Routes of others in it would be lost in the agent's.")
}

fn balance() -> Declaration<impl Kind<Value = Balance>, Option<Balance>> {
    key("balance", Reload, word())
        .optional("as the key of that name above all sections")
        .examples(&["\"placement\"", "\"tr\""])
        .off()
        .doc(&[
            "Packets of the class choose so among the tunnels of the site, whatever the key of that",
            "name above all sections says. \"placement\": they keep to the tunnels of this section,",
            "as long as one of them is alive. So does a class without a word next to one that has one.",
        ])
        .trade_off(
            "[Classes that choose differently](../how-to/uplinks-as-one.md#let-each-class-choose-for-itself). \
             What is not split goes with the short class. \"tr-paper\" only for both. With `steering.mode = \
             \"dscp\"` the first one that chooses, and leaving out the last, needs `splitter down`, as \
             [above all sections](#top-level).",
        )
}

fn list() -> Declaration<impl Kind<Value = Vec<Tunnel>>, Vec<Tunnel>> {
    key("tunnels", Reload, TunnelList)
        .derived("the class has one tunnel, by the keys above", |_| {
            Vec::new()
        })
        .doc(&[
            "Instead of device, gateway, rate_mbit and peer, a class may list up to 16 tunnels",
            "with keys of their own, here or under `[long]`. Each flow has one of them, and each",
            "tunnel as many flows as its weight says: 1 to 255, 1 if left out. Set the sysctls",
            "net.ipv4.fib_multipath_hash_policy and net.ipv6.fib_multipath_hash_policy to 1 for",
            "that, or balance to \"placement\". Several tunnels in a class are refused with policy =",
            "\"share\", unless a class chooses by another balance.",
        ])
        .trade_off(
            "[Several tunnels](../how-to/several-tunnels.md) for the class; then only `table` \
             and `balance` stand here. A list of one is the same as none. More are refused with [`policy = \
             \"share\"`](../explanation/share.md#one-tunnel-for-each-class).",
        )
}

impl declare::Section for Tunnels {
    type Given = Option<Self>;

    const DOC: &'static [&'static str] =
        &["Each class has a tunnel to the other site, or several, on devices of their own."];

    fn read(section: &Section<'_, '_>) -> Option<Self> {
        let class = class_of(section.name());
        let table = table(class).read(section).unwrap_or(TableId::of(class));
        let balance = balance().read(section).flatten();
        let mut list = Vec::new();
        let elsewhere = if section.top().get("site").is_some() {
            Some("sites are listed, each with tunnels of its own")
        } else if section.top().get("tunnels").is_some() {
            Some("the tunnels of the site are listed, each with keys of its own")
        } else {
            None
        };
        if let Some(elsewhere) = elsewhere {
            // Those are read with their lists.
            for key in OWN_KEYS.into_iter().chain(["tunnels"]) {
                refuse_beside(section, key, elsewhere);
            }
        } else {
            list = tunnels_in(section, list_name(class))?;
        }
        Some(Self {
            table,
            balance,
            list,
            of_sites: Vec::new(),
        })
    }

    fn complete(given: &Option<Self>, _: &Given) -> Option<Self> {
        given.clone()
    }

    fn keys(section: &'static str) -> Vec<Key<Self>> {
        let own = Tunnel::keys(section).into_iter();
        let own = own.filter(|key| !key.is_listed);
        let mut keys: Vec<_> = own.map(|key| key.inside("", Self::only_written)).collect();
        keys.insert(2, table(class_of(section)).row(|it: &Self| &it.table));
        keys.push(balance().row(|it: &Self| &it.balance));
        keys.push(list().row(|it: &Self| &it.list));
        keys
    }
}

fn class_of(section: &str) -> TunnelRole {
    let named = |class: &TunnelRole| class.name() == section;
    TunnelRole::ALL
        .into_iter()
        .find(named)
        .unwrap_or(TunnelRole::Short)
}

const fn list_name(class: TunnelRole) -> &'static str {
    match class {
        TunnelRole::Short => "short.tunnels",
        TunnelRole::Long => "long.tunnels",
    }
}

pub(super) fn tunnel(section: &Section<'_, '_>) -> Option<Tunnel> {
    Tunnel::complete(&Tunnel::read(section), &Given::default())
}

/// Reads the tunnels of a section: the one that it describes, or those that it lists.
pub(super) fn tunnels_in(
    section: &Section<'_, '_>,
    list_name: &'static str,
) -> Option<Vec<Tunnel>> {
    let Some(listed) = section.tables("tunnels", list_name) else {
        return Some(vec![tunnel(section)?]);
    };
    for key in OWN_KEYS {
        let beside = "the tunnels of this class are listed, each with keys of its own";
        refuse_beside(section, key, beside);
    }
    several(section, &listed)
}

fn several(section: &Section<'_, '_>, listed: &[Section<'_, '_>]) -> Option<Vec<Tunnel>> {
    let tunnels: Vec<_> = listed.iter().map(tunnel).collect();
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
    let mut tunnels = tunnels.into_iter().collect::<Option<Vec<_>>>()?;
    // The only one has all flows, whatever its weight.
    if let [only] = &mut tunnels[..] {
        only.weight = NonZeroU8::MIN;
    }
    Some(tunnels)
}

fn refuse_beside(section: &Section<'_, '_>, key: &'static str, what: &str) {
    if section.get(key).is_some() {
        section.contradiction(
            key,
            what.to_owned(),
            "move the key to one of them, or remove the list",
        );
    }
}

/// Finds where each tunnel of a class stands in the source, in the order of [`Tunnels::iter`].
pub(super) fn places<'s, 't>(source: &'s Source<'t>, class: TunnelRole) -> Vec<Section<'s, 't>> {
    if let Some(mut listed) = source.top().tables("tunnels", "tunnels") {
        let others = listed.split_off(1.min(listed.len()));
        return match class {
            TunnelRole::Short => listed,
            TunnelRole::Long => others,
        };
    }
    match sites::sections(&source.top()) {
        None => places_in(source.section(class.name()), list_name(class)),
        Some(sites) => {
            let sites = sites.iter();
            sites.flat_map(|it| places_of_site(it, class)).collect()
        }
    }
}

/// Finds where each tunnel of a site that is listed stands.
pub(super) fn places_of_site<'s, 't>(
    site: &Section<'s, 't>,
    class: TunnelRole,
) -> Vec<Section<'s, 't>> {
    places_in(sites::tunnels_section(site, class), sites::list_name(class))
}

fn places_in<'s, 't>(section: Section<'s, 't>, list: &'static str) -> Vec<Section<'s, 't>> {
    match section.tables("tunnels", list) {
        Some(listed) => listed,
        None => vec![section],
    }
}

/// Finds where each tunnel stands in the source, in the order of [`Config::tunnels`].
pub(super) fn all_places<'s, 't>(source: &'s Source<'t>) -> Vec<Section<'s, 't>> {
    let classes = TunnelRole::ALL.into_iter();
    classes.flat_map(|class| places(source, class)).collect()
}

/// The kind of the list of tunnels. `Tunnels` reads it, as each table is a section of its own.
pub(super) struct TunnelList;

impl Kind for TunnelList {
    type Value = Vec<Tunnel>;

    fn read(&self, _: &Value<'_>, _: &mut Refusals) -> Option<Vec<Tunnel>> {
        None
    }

    /// Writes nothing of a single tunnel, whose keys stand in the section of the class.
    fn write(&self, tunnels: &Vec<Tunnel>) -> Json {
        match tunnels.len() > 1 {
            true => tunnels.iter().map(|it| written(it, true)).collect(),
            false => Json::Null,
        }
    }

    fn values(&self) -> String {
        format!("1 to {MAX_TUNNELS} tunnels")
    }

    fn schema(&self) -> Json {
        let table = schema::table(&Tunnel::keys(""));
        json!({ "anyOf": [
            table,
            { "type": "array", "items": table, "minItems": 1, "maxItems": MAX_TUNNELS },
        ] })
    }
}

/// Writes a tunnel as a table of a file; its weight stands in tables of a list alone.
pub(super) fn written(tunnel: &Tunnel, is_listed: bool) -> Json {
    let keys = Tunnel::keys("").into_iter();
    let keys = keys.filter(|key| is_listed || !key.is_listed);
    let values = keys.map(|key| (key.value(tunnel), key.name));
    let given = values.filter(|(value, _)| !value.is_null());
    Json::Object(given.map(|(value, name)| (name, value)).collect())
}

impl Tunnels {
    /// Iterates over all of them, in the order of the file: those of the first site first, where
    /// sites are listed.
    pub fn iter(&self) -> std::slice::Iter<'_, Tunnel> {
        self.all().iter()
    }

    fn all(&self) -> &[Tunnel] {
        match &self.of_sites[..] {
            [] => &self.list,
            of_sites => of_sites,
        }
    }

    /// Takes the place of those of the sites.
    pub(crate) fn set_of_sites(&mut self, tunnels: Vec<Tunnel>) {
        self.of_sites = tunnels;
    }

    /// Returns the tunnel, if there is one alone.
    #[must_use]
    pub fn only(&self) -> Option<&Tunnel> {
        match self.all() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The only one that stands in the section of the class.
    fn only_written(&self) -> Option<&Tunnel> {
        match &self.list[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Tells whether there is more than one. Flows to a site are spread over its own.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.all().len() > 1
    }

    /// Returns what every one of them carries at least, if all state their rate.
    #[must_use]
    pub fn slowest_rate_mbit(&self) -> Option<NonZeroU32> {
        let rates: Option<Vec<_>> = self.iter().map(|it| it.rate_mbit).collect();
        rates?.into_iter().min()
    }

    /// Tells whether packets of `family` can be sent over each of them.
    #[must_use]
    pub fn carry(&self, family: Family) -> bool {
        self.iter()
            .all(|it| it.gateway.carries(family) && !self.cannot_be_one_of_several(it, family))
    }

    /// Linux makes one route of several for IPv6 only of those with a next hop
    /// (`rt6_qualify_for_ecmp`).
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
