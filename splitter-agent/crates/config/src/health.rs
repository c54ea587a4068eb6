//! `[health]`, and the peers of the tunnels.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use splitter_netlink::Family;
use splitter_policy::flow::TunnelRole;

use super::document::{Document, Section};
use super::leaf::{absolute_path, address, boolean, integer};
use super::tunnels::places;
use super::{Config, InvalidValue, Tunnel};

const PORT: NonZeroU16 = NonZeroU16::new(9462).unwrap();
const INTERVAL_MS: u32 = 100;
const DEAD_AFTER_MS: u32 = 700;
const HOLD_DOWN_S: u32 = 5;
const MAX_HOLD_DOWN_S: u32 = 300;

/// How the tunnels are watched, and when a class moves to the other one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Whether `splitter run` watches the tunnels at all. Default true.
    pub enabled: bool,
    /// The file with the key that the agents of both borders share; needed where a tunnel has a
    /// peer.
    pub key_file: Option<PathBuf>,
    /// The UDP port on which the agents of both borders answer probes. Default 9462.
    pub port: NonZeroU16,
    /// From one probe to the next. Default 100 ms.
    pub interval: Duration,
    /// A tunnel that has not answered for so long is dead. Default 700 ms, so that its class has
    /// moved within 1 s.
    pub dead_after: Duration,
    /// How long a tunnel must answer again before its class returns. Default 5 s.
    pub hold_down: Duration,
    /// What that grows to while the tunnel keeps failing. Default 300 s.
    pub max_hold_down: Duration,
}

pub(super) fn health(section: &Section<'_, '_>) -> Health {
    let milliseconds = |key, range, default: u32| {
        let hint = format!("milliseconds (the default is {default})");
        let given = section.optional(key, |value| integer(value, range, &hint));
        Duration::from_millis(given.unwrap_or(default).into())
    };
    let seconds = |key, default: u32| {
        let hint = format!("seconds (the default is {default})");
        let given = section.optional(key, |value| integer(value, 1..=86_400, &hint));
        (
            given.is_some(),
            Duration::from_secs(given.unwrap_or(default).into()),
        )
    };
    let port = section.optional("port", |value| {
        let port = integer(value, 1..=65_535, "(the default is 9462)")?;
        Ok(u16::try_from(port).ok().and_then(NonZeroU16::new))
    });
    let (_, hold_down) = seconds("hold_down_s", HOLD_DOWN_S);
    let (is_stated, max_hold_down) = seconds("max_hold_down_s", MAX_HOLD_DOWN_S);
    let health = Health {
        enabled: section.optional("enabled", boolean).unwrap_or(true),
        key_file: section.optional("key_file", absolute_path),
        port: port.flatten().unwrap_or(PORT),
        interval: milliseconds("interval_ms", 10..=10_000, INTERVAL_MS),
        dead_after: milliseconds("dead_after_ms", 30..=60_000, DEAD_AFTER_MS),
        hold_down,
        max_hold_down: match is_stated {
            true => max_hold_down,
            false => max_hold_down.max(hold_down),
        },
    };
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
    health
}

impl Tunnel {
    /// By what an agent knows whether the tunnel is alive, in words that follow "by".
    #[must_use]
    pub fn watched_by(&self) -> String {
        let next_hop = self.gateway.of(Family::V4).or(self.gateway.of(Family::V6));
        match (self.peer, next_hop) {
            (Some(peer), _) => format!("probes to {peer}"),
            (None, Some(next_hop)) => format!("its link and the next hop {next_hop}"),
            (None, None) => "its link alone".to_owned(),
        }
    }
}

/// The peer of a tunnel.
pub(super) fn peer(section: &Section<'_, '_>) -> Option<IpAddr> {
    section.optional("peer", |value| {
        let peer = address(value)?;
        if peer.is_unspecified() || peer.is_multicast() || peer.is_loopback() {
            return Err(InvalidValue::new(
                "no other border has this address",
                "give the address that the other border has in this tunnel",
            ));
        }
        Ok(peer)
    })
}

pub(super) fn peers_have_a_key(document: &Document<'_>, config: &Config) {
    let health = document.section("health");
    let places = TunnelRole::ALL
        .into_iter()
        .flat_map(|class| places(document, class));
    let mut tunnels = places.zip(config.tunnels());
    match (
        &config.health.key_file,
        tunnels.find(|(_, (_, tunnel))| tunnel.peer.is_some()),
    ) {
        (None, Some((place, _))) => place.contradiction(
            "peer",
            "probes to it need a key that both borders share, and health.key_file names none"
                .to_owned(),
            "make one with `(umask 077; openssl rand -hex 32 > FILE)`, copy it to the other \
             border and set health.key_file, or leave peer out",
        ),
        (Some(_), None) => health.contradiction(
            "key_file",
            "no tunnel has a peer, so nothing would use the key".to_owned(),
            "set the peer of each tunnel, or leave key_file out",
        ),
        _ => {}
    }
}
