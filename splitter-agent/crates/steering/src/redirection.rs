//! Finds what keeps `steering.mode = "redirect"` from doing what is meant, where it takes a longer look to
//! tell: for people who ask, and not for every look of an agent that watches.

use std::fmt;
use std::net::IpAddr;

use splitter_config::{AttachMode, Config, SteeringMode};
use splitter_netlink::{
    DeviceFeatures, Family, Interface, Interfaces, Netlink, NetlinkError, VlanDevice,
    device_features, takes_redirected,
};
use splitter_policy::flow::TunnelRole;

use crate::routes::{SuppressedRoute, suppressed_routes};

/// Something that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// What is so, and what comes of it.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// Notes what an operator should know of packets that are redirected, besides what the plan says;
/// nothing in other steering modes.
pub async fn notes(netlink: &Netlink, config: &Config) -> Vec<String> {
    let redirects = config.steering.mode == SteeringMode::Redirect;
    // A shadow redirects nothing.
    if !redirects || config.shadow {
        return Vec::new();
    }
    let hints = async {
        let interfaces = netlink.interfaces().await?;
        let mut hints = hidden_tags(&interfaces, config).await;
        hints.extend(unequal_mtus(&interfaces, config).await);
        hints.extend(other_ways(netlink, &interfaces, config).await?);
        Ok(hints)
    };
    match hints.await {
        Ok(hints) => hints.iter().map(ToString::to_string).collect(),
        Err::<_, NetlinkError>(error) => vec![format!(
            "not looked whether redirected packets see their VLAN tags and go their way: {error}"
        )],
    }
}

/// Finds what keeps packets from being put into a device; `None` where nothing does.
pub async fn hindrance(interface: &Interface, attach: AttachMode) -> Option<String> {
    if !interface.is_ethernet {
        return Some("its packets have no Ethernet header".to_owned());
    }
    // Then the stack puts them in, whatever the driver can do.
    if attach == AttachMode::Generic {
        return None;
    }
    let is_veth = interface.kind.as_deref() == Some("veth");
    let Ok(answer) = takes_redirected(interface).await else {
        return Some(
            "the kernel did not answer in time whether it takes redirected packets".to_owned(),
        );
    };
    match answer {
        Some(true) => None,
        Some(false) if is_veth => Some(
            "its other end has neither an XDP program nor GRO on, without which a veth device \
             loses what it is given (`ethtool -K OTHER_END gro on`)"
                .to_owned(),
        ),
        Some(false) => Some("its driver takes no redirected packets".to_owned()),
        // Known not to, but for the other end's state.
        None if is_veth => None,
        None => Some(
            "this kernel cannot say whether its driver takes redirected packets (Linux 6.3 can)"
                .to_owned(),
        ),
    }
}

/// Packets of the site that are too long to choose among the tunnels, as one of these takes less than another.
///
/// Tunnels that packets cannot be put into limit nobody.
pub async fn unequal_mtus(interfaces: &Interfaces, config: &Config) -> Option<Hint> {
    config.balancers()?;
    let named = |name| interfaces.named(name).ok();
    let mut tunnels = Vec::new();
    for interface in config.tunnels().filter_map(|(_, it)| named(&it.device)) {
        if hindrance(interface, config.attach.mode).await.is_none() {
            tunnels.push(interface);
        }
    }
    let smallest = tunnels.iter().min_by_key(|it| it.mtu)?;
    let largest = tunnels.iter().map(|it| it.mtu).max()?;
    let site = config.lan.iter().filter_map(named).map(|it| it.mtu).max()?;
    let mtu = smallest.mtu;
    if mtu >= largest || mtu >= site {
        return None;
    }
    Some(Hint {
        problem: format!(
            "the MTU of {} is {mtu}, less than that of another tunnel ({largest}): packets of more than {mtu} bytes choose \
             no tunnel, and go by the network stack",
            smallest.name
        ),
        remedy: format!(
            "give the site an MTU of {mtu}, clamp the segment size of TCP to it, or give the tunnels one MTU"
        ),
    })
}

/// The LAN interfaces whose VLANs' packets look as if they were their own.
pub async fn hidden_tags(interfaces: &Interfaces, config: &Config) -> Vec<Hint> {
    let mut hints = Vec::new();
    for interface in config.lan.iter().filter_map(|it| interfaces.named(it).ok()) {
        let vlans = vlans_on(interfaces, interface);
        if !vlans.is_empty() {
            hints.extend(hidden_tag(
                interface,
                device_features(interface).await,
                &vlans,
            ));
        }
    }
    hints
}

fn vlans_on<'i>(interfaces: &'i Interfaces, carrier: &Interface) -> Vec<(&'i str, VlanDevice)> {
    let vlans = interfaces.iter().filter_map(|it| Some((it, it.vlan?)));
    let vlans = vlans.filter(|(_, vlan)| vlan.carrier == carrier.index);
    vlans.map(|(it, vlan)| (it.name.as_str(), vlan)).collect()
}

/// A network card that takes tags off notes them next to the packet, where no XDP program looks.
fn hidden_tag(
    interface: &Interface,
    features: DeviceFeatures,
    vlans: &[(&str, VlanDevice)],
) -> Option<Hint> {
    let of_kind = |is_service: bool| {
        let mut vlans = vlans.iter();
        vlans.any(|(_, vlan)| vlan.is_service == is_service)
    };
    let strips = [
        (features.strips_vlan, false, ["rxvlan", "txvlan"]),
        (
            features.strips_service_vlan,
            true,
            ["rx-vlan-stag-hw-parse", "tx-vlan-stag-hw-insert"],
        ),
    ];
    let strips = strips
        .iter()
        .filter(|(strips, is_service, _)| *strips == Some(true) && of_kind(*is_service));
    let settings: Vec<_> = strips.map(|(_, _, settings)| settings).collect();
    if settings.is_empty() {
        return None;
    }
    let off = |end: usize| {
        let settings = settings.iter().map(|it| format!("{} off", it[end]));
        settings.collect::<Vec<_>>().join(" ")
    };
    let name = &interface.name;
    let names: Vec<_> = vlans.iter().map(|(name, _)| *name).collect();
    // Two of these hand over packets with what is noted next to them.
    let other_end = match interface.kind.as_deref() {
        Some("veth") => format!(" (and at its other end `ethtool -K OTHER_END {}`)", off(1)),
        _ => String::new(),
    };
    Some(Hint {
        problem: format!(
            "{name} takes VLAN tags off before XDP sees them, and carries {}: frames of such VLANs \
             are taken for its own, and may be redirected out of their VLAN",
            names.join(", ")
        ),
        remedy: format!(
            "ethtool -K {name} {}{other_end}, or set steering.mode to \"dscp\" or \"mark\", which \
             leave the way to the network stack",
            off(0)
        ),
    })
}

/// Routes of the main table by which programs are led past a class' own tunnels in IPv6.
pub async fn other_ways(
    netlink: &Netlink,
    interfaces: &Interfaces,
    config: &Config,
) -> Result<Vec<Hint>, NetlinkError> {
    if !config.families().any(|family| family == Family::V6) {
        return Ok(Vec::new());
    }
    let routes = suppressed_routes(netlink, config, Family::V6).await?;
    let hints = routes
        .iter()
        .filter_map(|route| other_way(route, interfaces, config));
    Ok(the_first(hints.collect()))
}

/// Why no packet to an address chooses a tunnel, where programs are led past a class' own tunnels; IPv6 only.
///
/// # Errors
/// When the kernel refuses to list its routes.
pub async fn other_way_to(
    netlink: &Netlink,
    interfaces: &Interfaces,
    config: &Config,
    address: IpAddr,
) -> Result<Option<String>, NetlinkError> {
    if !address.is_ipv6() {
        return Ok(None);
    }
    let routes = suppressed_routes(netlink, config, Family::V6).await?;
    let mut covering = routes.iter().filter(|it| it.destination.contains(&address));
    let hint = covering.find_map(|it| other_way(it, interfaces, config));
    Ok(hint.map(|it| it.problem))
}

/// A few, and how many more there are: a main table may have a route for each network of the Internet.
fn the_first(mut hints: Vec<Hint>) -> Vec<Hint> {
    const MOST: usize = 5;
    let more = hints.len().saturating_sub(MOST);
    hints.truncate(MOST);
    if more > 0 {
        hints.push(Hint {
            problem: format!("{more} more routes of the main table are such"),
            remedy: "see `ip -6 route show table main`".to_owned(),
        });
    }
    hints
}

fn other_way(route: &SuppressedRoute, interfaces: &Interfaces, config: &Config) -> Option<Hint> {
    let devices = route.devices.iter();
    let devices: Vec<_> = devices.filter_map(|it| interfaces.name_of(*it)).collect();
    let is_led_past = |class: &TunnelRole| {
        let own: Vec<_> = config.tunnels_of(*class).iter().collect();
        let is_own = |device: &&str| own.iter().any(|it| it.device.as_str() == *device);
        !devices.iter().all(is_own)
    };
    let classes = TunnelRole::ALL.into_iter().filter(is_led_past);
    let classes: Vec<_> = classes.map(|class| class.name()).collect();
    if devices.is_empty() || classes.is_empty() {
        return None;
    }
    let (destination, by) = (route.destination, devices.join(", "));
    let device = match devices[..] {
        [device] => format!(" dev {device}"),
        _ => String::new(),
    };
    Some(Hint {
        problem: format!(
            "the main table leads IPv6 to {destination} by {by}, where the kernel sends programs \
             although the rules pass over it: IPv6 packets of the {} class go by the network stack{}",
            classes.join(" and of the "),
            match config.balancers() {
                Some(_) => ", and none that is sent there chooses a tunnel",
                None => "",
            }
        ),
        remedy: format!(
            "remove it (`ip -6 route del {destination}{device}`) for them to be redirected, or leave \
             it: nothing is lost but speed"
        ),
    })
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { problem, remedy } = self;
        write!(f, "{problem}; {remedy}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_routes_a_few_are_named_and_the_rest_counted() {
        let hints = |count: usize| {
            let hint = |number| Hint {
                problem: format!("route {number}"),
                remedy: String::new(),
            };
            the_first((0..count).map(hint).collect())
        };
        assert_eq!(hints(5).len(), 5);
        let reported = hints(200_000);
        assert_eq!(reported.len(), 6);
        assert!(
            reported[5].problem.starts_with("199995 more routes"),
            "{reported:?}"
        );
    }

    fn interface(name: &str, index: u32, kind: Option<&str>) -> Interface {
        Interface {
            index,
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            is_ethernet: true,
            ..Interface::default()
        }
    }

    fn vlan(name: &str, carrier: u32, is_service: bool) -> Interface {
        Interface {
            vlan: Some(VlanDevice {
                carrier,
                is_service,
            }),
            ..interface(name, 99, Some("vlan"))
        }
    }

    #[test]
    fn tags_are_hidden_where_the_card_takes_those_off_that_its_vlans_have() {
        let card = interface("eth0", 3, None);
        let all = [
            card.clone(),
            vlan("eth0.7", 3, false),
            vlan("eth1.7", 4, false),
        ];
        let all = all.into_iter().collect();
        let vlans = vlans_on(&all, &card);
        let features = |strips_vlan, strips_service_vlan| DeviceFeatures {
            strips_vlan,
            strips_service_vlan,
            ..DeviceFeatures::default()
        };
        let hint = |features| hidden_tag(&card, features, &vlans);
        let reported = hint(features(Some(true), Some(true))).expect("it hides them");
        assert!(
            reported.problem.contains("and carries eth0.7:"),
            "{reported}"
        );
        assert!(
            reported.remedy.starts_with("ethtool -K eth0 rxvlan off,"),
            "{reported}"
        );
        // Those of the other kind matter to nobody here.
        assert_eq!(hint(features(Some(false), Some(true))), None);
        assert_eq!(hint(features(None, None)), None);

        let service = [(
            "eth0.8",
            VlanDevice {
                carrier: 3,
                is_service: true,
            },
        )];
        let reported = hidden_tag(&card, features(Some(true), Some(true)), &service);
        let reported = reported.expect("it hides them");
        assert!(
            reported
                .remedy
                .starts_with("ethtool -K eth0 rx-vlan-stag-hw-parse off,")
        );
        assert_eq!(
            hidden_tag(&card, features(Some(true), Some(false)), &service),
            None
        );
    }

    #[tokio::test]
    async fn smallest_tunnel_is_named_where_it_keeps_packets_of_the_site_from_choosing() {
        let hint = async |balance: &str, mtus: [u32; 3], is_ethernet: bool| {
            let interfaces = ["eth0", "tun0", "tun1"].into_iter().zip(mtus).zip(1..);
            let interfaces = interfaces.map(|((name, mtu), index)| Interface {
                mtu,
                is_ethernet: is_ethernet || name != "tun1",
                ..interface(name, index, None)
            });
            let text = format!(
                "lan = 'eth0'\n{balance}\n[short]\ndevice = 'tun0'\ngateway = '192.0.2.1'\n[long]\ndevice = 'tun1'\n\
                 gateway = '198.51.100.1'\n[steering]\nmode = 'redirect'\n[attach]\nmode = 'generic'\n"
            );
            let config = Config::parse(&text, "").expect("it is right");
            let hint = unequal_mtus(&interfaces.collect(), &config).await;
            hint.map(|it| it.problem)
        };
        let drb = "balance = 'drb'";
        let reported = hint(drb, [1_500, 1_500, 1_420], true).await;
        let reported = reported.expect("full packets do not choose");
        assert!(
            reported.starts_with("the MTU of tun1 is 1420") && reported.contains("(1500)"),
            "{reported}"
        );
        // What the site sends fits all, or none takes more than another.
        assert_eq!(hint(drb, [1_420, 1_500, 1_420], true).await, None);
        assert_eq!(hint(drb, [1_500, 1_420, 1_420], true).await, None);
        assert_eq!(hint("", [1_500, 1_500, 1_420], true).await, None);
        // Nor does one limit anybody that nothing can be put into.
        assert_eq!(hint(drb, [1_500, 1_500, 1_420], false).await, None);
    }

    #[test]
    fn a_route_of_the_main_table_leads_programs_past_the_classes_that_it_does_not_lead_to() {
        let interfaces = ["tun0", "tun1", "eth9"].into_iter().zip(1..);
        let interfaces = interfaces
            .map(|(name, index)| interface(name, index, None))
            .collect();
        let text = "lan = 'eth0'\n[short]\ndevice = 'tun0'\n[long]\ndevice = 'tun1'\n";
        let config = Config::parse(text, "").expect("it is right");
        let hint = |devices: &[u32]| {
            let route = SuppressedRoute {
                destination: "::/0".parse().expect("a prefix"),
                devices: devices.to_vec(),
            };
            other_way(&route, &interfaces, &config).map(|it| it.to_string())
        };
        let reported = hint(&[1]).expect("long flows have another way");
        assert!(
            reported.contains("packets of the long class go by"),
            "{reported}"
        );
        let reported = hint(&[3]).expect("all have another way");
        assert!(
            reported.contains("packets of the short and of the long class go by"),
            "{reported}"
        );
        assert!(
            reported.contains("`ip -6 route del ::/0 dev eth9`"),
            "{reported}"
        );
        assert_eq!(hint(&[]), None);
    }
}
