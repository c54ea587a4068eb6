//! The keys of a tunnel, which stand in the section of its class or in a list.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use serde_json::{Value as Json, json};
use splitter_netlink::{Family, InterfaceName};

use crate::Config;
use crate::declaration::key;
use crate::declare::section;
use crate::key::Change::{Reload, Set};
use crate::kind::{Kind, Refusals, Value, address, interface, milliseconds, whole};
use crate::values::InvalidValue;

section! {
    /// Describes a tunnel to the other site.
    pub struct Tunnel, GivenTunnel {
        /// Packets leave by this device.
        device: InterfaceName = key("device", Reload, interface())
            .required("name the tunnel's interface, such as device = \"wan0\"")
            .examples(&["\"wan0\"", "\"wan1\""])
            .trade_off("Required without `tunnels`. The tunnels must be on different devices.");

        /// The next hop on that device is IPv4 or IPv6, or a list of one of each.
        gateway: Gateways = key("gateway", Reload, NextHops)
            .derived("the device is point-to-point", |_| Gateways::default())
            .examples(&[
                "[\"192.0.2.1\", \"2001:db8:1::1\"]",
                "[\"198.51.100.1\", \"2001:db8:2::1\"]",
            ])
            .trade_off(
                "A family is split only if all tunnels have a next hop of it; a tunnel with none \
                 at all carries both families, unless it is [one of \
                 several](../explanation/several.md#ipv6).",
            );

        /// States what the tunnel carries. With the rate of the short tunnel a flow leaves that as
        /// soon as its last packet there must have drained, instead of waiting for a gap; with
        /// both, while its packets still wait there, if it waits longer in the long one.
        rate_mbit: Option<NonZeroU32> = key(
            "rate_mbit",
            Set,
            whole(1..=1_000_000).unit("Mbit/s", "Mbit/s").except(
                0,
                "a tunnel of rate 0 would never drain",
                "give its rate in Mbit/s, or leave the key out if it is not known",
            ),
        )
        .optional("not known")
        .examples(&["100"])
        .trade_off(
            "State both if you can: flows then [change tunnels](../explanation/handover.md) \
             without waiting for a pause. Too high is worse than too low: the flow would overtake \
             itself.",
        );

        /// States how long a packet is on its way to the other border while nothing waits.
        delay: Option<Duration> = key("delay_ms", Reload, milliseconds(0..=60_000))
            .optional("half of the shortest round trip of the probes, or 0 without a peer")
            .examples(&["10"])
            .off()
            .trade_off(
                "Only with `balance`. What counts is by how much tunnels differ: too much for one of \
                 them, and packets by it come early.",
            );

        /// The other border has this address in this tunnel, where its agent answers probes. Needs
        /// health.key_file.
        peer: Option<IpAddr> = key("peer", Reload, address().must(is_of_another_border))
            .optional("link and next hop tell whether the tunnel is alive")
            .examples(&["\"192.0.2.1\"", "\"198.51.100.1\""])
            .trade_off(
                "The best evidence, for a probe passes the whole tunnel. The main table must have \
                 a route to it by `device`: being on its link is enough.",
            );

        /// Sets the part of the flows of its class that the tunnel has, of the sum of all weights.
        weight: NonZeroU8 = key("weight", Reload, whole(1..=255))
            .default(NonZeroU8::MIN)
            .listed()
            .trade_off(
                "Proportional to what the tunnels carry, as a rule. A flow stays in one tunnel, so \
                 that a large one can fill it whatever the weight.",
            );
    }
}

/// The tunnels that the example lists, in a comment.
pub(crate) const LISTED_EXAMPLE: [&[(&str, &str)]; 2] = [
    &[
        ("device", "\"wan0\""),
        ("gateway", "[\"192.0.2.1\", \"2001:db8:1::1\"]"),
        ("rate_mbit", "300"),
        ("peer", "\"192.0.2.1\""),
        ("weight", "3"),
    ],
    &[
        ("device", "\"wan2\""),
        ("gateway", "[\"203.0.113.1\", \"2001:db8:3::1\"]"),
        ("rate_mbit", "100"),
        ("peer", "\"203.0.113.1\""),
    ],
];

/// Next hops of a tunnel, one for each family. Both empty means a point-to-point device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gateways {
    /// The IPv4 next hop.
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 next hop.
    pub v6: Option<Ipv6Addr>,
}

impl Gateways {
    /// Returns the next hop of a family, if one is set.
    #[must_use]
    pub fn of(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.map(IpAddr::V4),
            Family::V6 => self.v6.map(IpAddr::V6),
        }
    }

    /// Tells whether the device is point-to-point, so that routes need no next hop.
    #[must_use]
    pub fn is_point_to_point(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }

    /// Tells whether a tunnel with these next hops carries packets of `family`.
    #[must_use]
    pub fn carries(&self, family: Family) -> bool {
        self.is_point_to_point() || self.of(family).is_some()
    }
}

impl Config {
    /// Says by what an agent knows whether a tunnel is alive, in words that follow "by".
    #[must_use]
    pub fn watched_by(&self, tunnel: &Tunnel) -> String {
        let gateway = tunnel.gateway;
        let next_hop = gateway.of(Family::V4).or(gateway.of(Family::V6));
        match (tunnel.peer, next_hop) {
            (Some(peer), _) if self.health.enabled => format!("probes to {peer}"),
            (None, Some(next_hop)) if self.health.enabled => {
                format!("its link and the next hop {next_hop}")
            }
            _ => "its link alone".to_owned(),
        }
    }
}

/// The kind of next hops: at most one of each family.
struct NextHops;

impl Kind for NextHops {
    type Value = Gateways;

    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<Gateways> {
        let one = address().must(can_be_a_next_hop);
        let list = match value.get_ref().as_array() {
            Some(list) => list.iter().collect(),
            None => vec![value],
        };
        if list.is_empty() {
            refuse.add(
                value.span(),
                InvalidValue::new(
                    "the list names no next hop",
                    "name one, or leave the key out for a point-to-point device",
                ),
            );
        }
        let mut gateways = Gateways::default();
        for address in list
            .into_iter()
            .filter_map(|it| one.read(it, refuse))
            .collect::<Vec<_>>()
        {
            let before = match address {
                IpAddr::V4(v4) => gateways.v4.replace(v4).map(IpAddr::V4),
                IpAddr::V6(v6) => gateways.v6.replace(v6).map(IpAddr::V6),
            };
            if let Some(before) = before {
                let problem = format!("{before} and {address} are of the same family");
                let remedy = "give at most one IPv4 and one IPv6 next hop";
                refuse.add(value.span(), InvalidValue::new(problem, remedy));
            }
        }
        Some(gateways)
    }

    fn write(&self, value: &Gateways) -> Json {
        let v4 = value.v4.map(|it| json!(it));
        let v6 = value.v6.map(|it| json!(it));
        match v4.is_none() && v6.is_none() {
            true => Json::Null,
            false => v4.into_iter().chain(v6).collect(),
        }
    }

    fn values(&self) -> String {
        "at most one IPv4 and one IPv6 address".to_owned()
    }

    fn schema(&self) -> Json {
        let one = address().schema();
        json!({ "anyOf": [
            one,
            { "type": "array", "items": one, "minItems": 1, "maxItems": 2, "uniqueItems": true },
        ] })
    }
}

fn can_be_a_next_hop(address: &IpAddr) -> Result<(), InvalidValue> {
    match address.is_unspecified() || address.is_multicast() || address.is_loopback() {
        false => Ok(()),
        true => Err(InvalidValue::new(
            "this address cannot be a next hop",
            "give the address that the other end of the tunnel answers to",
        )),
    }
}

fn is_of_another_border(peer: &IpAddr) -> Result<(), InvalidValue> {
    match peer.is_unspecified() || peer.is_multicast() || peer.is_loopback() {
        false => Ok(()),
        true => Err(InvalidValue::new(
            "no other border has this address",
            "give the address that the other border has in this tunnel",
        )),
    }
}
