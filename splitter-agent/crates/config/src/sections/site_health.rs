//! `[site.health]`: how the tunnels to one of several sites are watched, where that differs.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;

use super::Health;
use super::health::{Times, note_wrong_times};
use crate::Config;
use crate::declaration::{Declaration, key};
use crate::declare::{Section as _, section};
use crate::key::Change::Reload;
use crate::kind::{Kind, Refusals, Value, milliseconds, path, seconds};
use crate::schema;
use crate::source::{Section, Source};

/// What a key means that is left out.
const COMMON: &str = "that of `[health]`";

section! {
    /// Says how the tunnels to a site are watched, where that differs from `[health]`.
    #[derive(Default)]
    pub struct SiteHealth, GivenSiteHealth {
        /// The key that the agent of the site's border has, if it has another one than the others.
        key_file: Option<PathBuf> = key("key_file", Reload, path()).optional(COMMON);

        /// Sets the time from one probe to the next.
        interval: Option<Duration> =
            key("interval_ms", Reload, milliseconds(10..=10_000)).optional(COMMON);

        /// A tunnel that was silent for this time is dead.
        dead_after: Option<Duration> =
            key("dead_after_ms", Reload, milliseconds(30..=60_000)).optional(COMMON);

        /// Sets how long a tunnel must answer again before its class returns.
        hold_down: Option<Duration> =
            key("hold_down_s", Reload, seconds(1..=86_400)).optional(COMMON);

        /// Limits what the hold-down grows to.
        max_hold_down: Option<Duration> =
            key("max_hold_down_s", Reload, seconds(1..=86_400)).optional(COMMON);
    }
}

impl SiteHealth {
    /// Returns what holds for the site: its own keys, and those of `common` where it has none.
    #[must_use]
    pub fn over(&self, common: &Health) -> Health {
        let hold_down = self.hold_down.unwrap_or(common.hold_down);
        Health {
            key_file: self.key_file.clone().or_else(|| common.key_file.clone()),
            interval: self.interval.unwrap_or(common.interval),
            dead_after: self.dead_after.unwrap_or(common.dead_after),
            hold_down,
            // As that of `[health]` where it is left out.
            max_hold_down: self
                .max_hold_down
                .unwrap_or(common.max_hold_down.max(hold_down)),
            ..common.clone()
        }
    }
}

/// Declares the key of a site that holds them.
pub(super) fn declared() -> Declaration<impl Kind<Value = SiteHealth>, SiteHealth> {
    key("health", Reload, HealthOfSite)
        .derived("as `[health]` says", |_| SiteHealth::default())
        .doc(&["Says how the tunnels to the site are watched, where that differs."])
        .trade_off(
            "The keys are those of `[health]` but `enabled` and `port`: a site far away needs \
             longer times, and a border that somebody else runs has a key of its own.",
        )
}

/// Opens the section of a site.
pub(super) fn section<'s, 't>(site: &Section<'s, 't>) -> Section<'s, 't> {
    site.table("health", "site.health")
}

/// The times of each site allow for a lost probe, and for its hold-down to grow.
pub(in crate::sections) fn times_of_sites_agree(source: &Source<'_>, config: &Config) {
    let places = super::sites::sections(&source.top()).unwrap_or_default();
    for (place, site) in places.iter().zip(&config.sites) {
        if site.health == SiteHealth::default() {
            continue;
        }
        note_wrong_times(
            &section(place),
            &Times::of(&site.health.over(&config.health)),
        );
    }
}

/// The kind of the keys of a site's health.
struct HealthOfSite;

impl Kind for HealthOfSite {
    type Value = SiteHealth;

    fn read(&self, _: &Value<'_>, _: &mut Refusals) -> Option<SiteHealth> {
        None
    }

    fn write(&self, health: &SiteHealth) -> Json {
        let keys = SiteHealth::keys("").into_iter();
        let values = keys.map(|key| (key.value(health), key.name));
        let given: serde_json::Map<_, _> = values
            .filter(|(value, _)| !value.is_null())
            .map(|(value, name)| (name, value))
            .collect();
        match given.is_empty() {
            true => Json::Null,
            false => Json::Object(given),
        }
    }

    fn values(&self) -> String {
        "keys of `[health]`".to_owned()
    }

    fn schema(&self) -> Json {
        schema::table(&SiteHealth::keys(""))
    }
}
