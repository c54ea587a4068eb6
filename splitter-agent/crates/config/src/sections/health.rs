//! `[health]`: how the daemon watches the tunnels.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use splitter_policy::flow::TunnelRole;

use super::Tunnel;
use super::tunnels::places;
use crate::Config;
use crate::config::Given;
use crate::declaration::{NEW_START, key};
use crate::declare::{Section as _, section};
use crate::key::Change::{Restart, Set};
use crate::kind::{boolean, milliseconds, path, seconds, whole};
use crate::source::{Section, Source};

const PORT: NonZeroU16 = NonZeroU16::new(9462).unwrap();
const MAX_HOLD_DOWN: Duration = Duration::from_secs(300);
const HOLD_DOWN: Duration = Duration::from_secs(5);

section! {
    /// Says how `splitter run` watches the tunnels; see docs.
    pub struct Health, GivenHealth {
        /// The daemon watches the tunnels. Without, it looks at their links alone.
        enabled: bool = key("enabled", Restart(NEW_START), boolean())
            .default(true)
            .trade_off(
                "`false`: nobody is asked. A tunnel whose device is absent, down or without its \
                 address carries nothing, and one that dies behind its link keeps its class.",
            );

        /// The key that both borders' agents share is 64 hexadecimal digits in this file of mode
        /// 0600. Needed where a tunnel has a peer, and only there.
        key_file: Option<PathBuf> = key("key_file", Restart(NEW_START), path())
            .optional("none")
            .examples(&["\"/etc/splitter/health.key\""])
            .trade_off(
                "One line, the same at both borders, and [two while the key is \
                 changed](../how-to/health.md#change-the-key).",
            );

        /// The agents of both borders answer probes on this UDP port.
        port: NonZeroU16 = key("port", Restart(NEW_START), whole(1..=65_535))
            .default(PORT)
            .trade_off("Two instances in one network namespace need different ones.");

        /// Sets the time from one probe to the next while all is well.
        interval: Duration = key("interval_ms", Set, milliseconds(10..=10_000))
            .default(Duration::from_millis(100))
            .trade_off(
                "Holds for questions to the next hop, too. Shorter: a silence is distinguished from a lost \
                 packet sooner. A probe takes 106 bytes on IPv4 with its Ethernet header, 8.5 \
                 kbit/s each way by default.",
            );

        /// A tunnel that was silent for this time is dead, and its class moves to the other one.
        dead_after: Duration = key("dead_after_ms", Set, milliseconds(30..=60_000))
            .default(Duration::from_millis(700))
            .also("at least 3 × `interval_ms`")
            .trade_off(
                "Routes follow within milliseconds, so the default moves its class, or the flows \
                 of the tunnel, within 1 s. Shorter: sooner, and more loss is taken for death. Keep \
                 it above five round trips.",
            );

        /// Sets how long a tunnel must answer again before its class returns.
        hold_down: Duration = key("hold_down_s", Set, seconds(1..=86_400))
            .default(HOLD_DOWN)
            .trade_off(
                "Longer: fewer changes when it fails again. It doubles with each failure that \
                 follows another one soon.",
            );

        /// Limits what the hold-down grows to while the tunnel keeps failing.
        max_hold_down: Duration = key("max_hold_down_s", Set, seconds(1..=86_400))
            .derived("300, or `hold_down_s` if that is more", |given| {
                MAX_HOLD_DOWN.max(given.health.hold_down.unwrap_or(HOLD_DOWN))
            })
            .also("at least `hold_down_s`")
            .examples(&["300"])
            .trade_off("A tunnel that stayed up for this time is forgiven.");
    }
}

/// The times allow for a lost probe, and for the hold-down to grow.
pub(super) fn times_agree(source: &Source<'_>, given: &Given) {
    let Some(health) = Health::complete(&given.health, given) else {
        return;
    };
    note_wrong_times(&source.section("health"), &Times::of(&health));
}

/// The times that are held against each other.
pub(super) struct Times {
    interval: Duration,
    dead_after: Duration,
    hold_down: Duration,
    max_hold_down: Duration,
}

impl Times {
    pub(super) fn of(health: &Health) -> Self {
        Self {
            interval: health.interval,
            dead_after: health.dead_after,
            hold_down: health.hold_down,
            max_hold_down: health.max_hold_down,
        }
    }
}

/// Notes what of them does not agree in a section that has their keys.
pub(super) fn note_wrong_times(section: &Section<'_, '_>, health: &Times) {
    if health.dead_after < health.interval * 3 {
        section.contradiction(
            "dead_after_ms",
            format!(
                "in {} ms fewer than three probes are sent, one every {} ms, so that a single lost \
                 packet could end a tunnel",
                health.dead_after.as_millis(),
                health.interval.as_millis()
            ),
            "give at least three times interval_ms, or make that smaller",
        );
    }
    if health.max_hold_down < health.hold_down {
        section.contradiction(
            "max_hold_down_s",
            format!(
                "this is less than hold_down_s, {} s",
                health.hold_down.as_secs()
            ),
            "give at least hold_down_s, or leave the key out",
        );
    }
}

/// A tunnel with a peer needs a key, and each key a tunnel with a peer.
pub(super) fn peers_have_a_key(source: &Source<'_>, config: &Config) {
    let places = TunnelRole::ALL
        .into_iter()
        .flat_map(|class| places(source, class));
    let own_key = |tunnel: &Tunnel| {
        let site = config.site_behind(&tunnel.device)?;
        let site = config.sites.iter().find(|it| it.name == *site)?;
        site.health.key_file.as_ref()
    };
    let tunnels = places.zip(config.tunnels());
    let mut by_common_key =
        tunnels.filter(|(_, (_, tunnel))| tunnel.peer.is_some() && own_key(tunnel).is_none());
    match (&config.health.key_file, by_common_key.next()) {
        (None, Some((place, _))) => place.contradiction(
            "peer",
            "probes to it need a key that both borders share, and health.key_file names none"
                .to_owned(),
            "make one with `(umask 077; openssl rand -hex 32 > FILE)`, copy it to the other \
             border and set health.key_file, or leave peer out",
        ),
        (Some(_), None) => source.section("health").contradiction(
            "key_file",
            "no tunnel has a peer that goes by it, so nothing would use the key".to_owned(),
            "set the peer of each tunnel, or leave key_file out",
        ),
        _ => {}
    }
}
