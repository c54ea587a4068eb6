//! What a configuration needs of the network that it is for.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use splitter_config::{Config, SteeringMode, Tunnel};
use splitter_netlink::{
    Address, DeviceFeatures, Family, Interface, InterfaceName, Interfaces, Netlink, NetlinkError,
    device_features,
};
use splitter_steering::Placements;
use splitter_steering::routes::{Plan, PlanError, audit, hindrances, plan};

use super::{Check, neighbours, redirect, xdp};

/// So many prefixes that are not split are named.
const SHOWN_UNSPLIT: usize = 10;

pub(super) async fn examine(
    netlink: &Netlink,
    config: &Config,
) -> Result<Vec<Check>, NetlinkError> {
    let interfaces = netlink.interfaces().await?;
    let mut checks = Vec::new();
    let ours = xdp::ours(config);
    for name in &config.lan {
        match interfaces.named(name) {
            Ok(interface) => {
                checks.extend(lan(interface, config, ours.as_deref()).await);
                checks.extend(taken_away(interface, &interfaces));
                checks.extend(port(config, interface, &interfaces));
            }
            Err(error) => checks.push(Check::fail(
                format!("interface {name}"),
                error.to_string(),
                "create it, or correct `lan`",
            )),
        }
    }
    for (class, tunnel) in config.tunnels() {
        checks.extend(self::tunnel(netlink, &interfaces, class.name(), tunnel).await?);
    }
    checks.extend(spread(config));
    checks.extend(super::health::examine(netlink, &interfaces, config).await?);
    checks.extend(redirect::examine(netlink, &interfaces, config).await?);
    checks.push(mtu(&interfaces, config));
    // IPv6 has no such filter.
    if config.families().any(|family| family == Family::V4) {
        checks.extend(reverse_path(config));
    }
    checks.extend(policy(netlink, config).await);
    checks.extend(neighbours::examine(netlink, config).await?);
    Ok(checks)
}

async fn lan(interface: &Interface, config: &Config, ours: Option<&[u32]>) -> Vec<Check> {
    let features = device_features(interface).await;
    let name = &interface.name;
    let offload = match features {
        DeviceFeatures {
            lro: Some(true), ..
        } => Check::warn(
            format!("receive offloads of {name}"),
            "LRO is on: it merges packets before they can be counted, and XDP switches it off or \
             is refused",
            format!("ethtool -K {name} lro off"),
        ),
        DeviceFeatures { gro: Some(on), .. } => Check::ok(
            format!("receive offloads of {name}"),
            format!(
                "LRO off, GRO {} (its packets are counted singly)",
                if on { "on" } else { "off" }
            ),
        ),
        _ => Check::warn(
            format!("receive offloads of {name}"),
            "their state is not known",
            format!("see `ethtool -k {name}`"),
        ),
    };
    if config.program_mode() == SteeringMode::Mark {
        // Runs on any device that has an Ethernet header, and counts merged packets as segments.
        let mut checks = vec![link(&interface.name, interface), ethernet(interface)];
        checks.extend(xdp::running_alongside(interface, ours));
        return checks;
    }
    let xdp = xdp::in_the_way(interface, ours)
        .unwrap_or_else(|| xdp::possible(interface, features, config.attach.mode));
    let mut checks = vec![link(&interface.name, interface), xdp, offload];
    checks.extend(xdp::limits(interface, features, config).await);
    checks
}

pub(super) fn link(what: &str, interface: &Interface) -> Check {
    let check = format!("interface {what}");
    if !interface.is_up {
        let remedy = format!("ip link set {} up", interface.name);
        return Check::fail(check, "down", remedy);
    }
    if !interface.has_carrier {
        let detail = format!("no carrier ({})", interface.state);
        return Check::warn(check, detail, "see whether its other end is up");
    }
    Check::ok(
        check,
        format!("up, {}, MTU {}", xdp::driver(interface), interface.mtu),
    )
}

/// Devices on top of an interface of the site, at which packets for their addresses come in: the rules,
/// which select the interface, do not see those.
fn taken_away(interface: &Interface, interfaces: &Interfaces) -> Option<Check> {
    const KINDS: [&str; 3] = ["macvlan", "macvtap", "ipvlan"];
    let is_on_it = |it: &&Interface| {
        let is_of_kind = it.kind.as_deref().is_some_and(|it| KINDS.contains(&it));
        is_of_kind && it.lower == Some(interface.index)
    };
    let upper: Vec<_> = interfaces
        .iter()
        .filter(is_on_it)
        .map(|it| it.name.as_str())
        .collect();
    (!upper.is_empty()).then(|| {
        Check::warn(
            format!("devices on {}", interface.name),
            format!(
                "what is sent to the link address of {} comes in there, and is not split",
                upper.join(" and ")
            ),
            "let the site's hosts have an address of the interface itself as their router (with \
             keepalived, leave out `use_vmac`)",
        )
    })
}

/// A port of something else: its packets are classified, and the rules, which select the interface, do not see them.
/// Where packets are redirected, routes are looked up for the port itself.
fn port(config: &Config, interface: &Interface, interfaces: &Interfaces) -> Option<Check> {
    if config.steering.mode == SteeringMode::Redirect {
        return None;
    }
    let (port, seen) = (&interface.name, &interfaces.seen_as(interface)?.name);
    Some(Check::fail(
        format!("rules for {port}"),
        format!(
            "it is a port of {seen}: what comes in there is taken to come by {seen}, and is not split"
        ),
        format!("name {seen} in its place in `lan`"),
    ))
}

fn ethernet(interface: &Interface) -> Check {
    let check = format!("TC ingress on {}", interface.name);
    match interface.is_ethernet {
        true => Check::ok(check, "by TCX, or by clsact before Linux 6.6"),
        false => Check::fail(
            check,
            "its packets have no Ethernet header, which the splitter goes by",
            "list the Ethernet interfaces behind it as `lan` instead",
        ),
    }
}

async fn tunnel(
    netlink: &Netlink,
    interfaces: &Interfaces,
    class: &str,
    tunnel: &Tunnel,
) -> Result<Vec<Check>, NetlinkError> {
    let what = format!("{} ({class} tunnel)", tunnel.device);
    let interface = match interfaces.named(&tunnel.device) {
        Ok(interface) => interface,
        Err(error) => {
            let remedy = format!("create it, or correct the device under {class}");
            return Ok(vec![Check::fail(
                format!("interface {what}"),
                error.to_string(),
                remedy,
            )]);
        }
    };
    let mut checks = vec![link(&what, interface)];
    for family in [Family::V4, Family::V6] {
        if let Some(gateway) = tunnel.gateway.of(family) {
            let addresses = netlink.addresses(family).await?;
            checks.push(next_hop(&what, gateway, interface, &addresses));
        }
    }
    Ok(checks)
}

fn next_hop(what: &str, gateway: IpAddr, interface: &Interface, addresses: &[Address]) -> Check {
    let check = format!("next hop {gateway} of {what}");
    let is_on_link = |own: &&Address| is_on_link(own, interface.index, gateway);
    let name = &interface.name;
    if addresses.iter().any(|own| own.address == gateway) {
        let remedy = "give the address of the tunnel's other end";
        return Check::fail(check, "this is an address of this host itself", remedy);
    }
    let is_link_local = matches!(gateway, IpAddr::V6(v6) if v6.is_unicast_link_local());
    match addresses.iter().find(is_on_link) {
        Some(own) => Check::ok(check, format!("on the link of {}", own.address)),
        None if is_link_local => Check::ok(check, "link-local"),
        None => Check::warn(
            check,
            format!("no address of {name} has it on its link"),
            format!(
                "give {name} an address in its subnet, or a route: ip route add {gateway} dev {name}"
            ),
        ),
    }
}

/// Whether an address of the interface has the other one in its subnet.
pub(super) fn is_on_link(own: &Address, interface: u32, other: IpAddr) -> bool {
    own.interface == interface
        && IpNet::new(own.address, own.prefix_length).is_ok_and(|net| net.contains(&other))
}

/// Whether the flows of a class with several tunnels would be spread over them.
fn spread(config: &Config) -> Vec<Check> {
    const CHECK: &str = "spreading over several tunnels";
    let spreads = |site: &Config| site.short.are_several() || site.long.are_several();
    if !config.by_site().iter().any(|site| spreads(site)) {
        return Vec::new();
    }
    let hindrances = hindrances(config);
    if hindrances.is_empty() {
        return vec![Check::ok(CHECK, "flows are distinguished by ports, too")];
    }
    let checks = hindrances.into_iter();
    checks
        .map(|it| Check::warn(CHECK, it.problem, it.remedy))
        .collect()
}

fn mtu(interfaces: &Interfaces, config: &Config) -> Check {
    let mtu = |name: &InterfaceName| interfaces.named(name).ok().map(|interface| interface.mtu);
    let tunnels = config.tunnels().map(|(_, tunnel)| &tunnel.device);
    let tunnels: Vec<_> = tunnels.filter_map(mtu).collect();
    let (smallest, widest) = (tunnels.iter().min().copied(), tunnels.iter().max().copied());
    let largest = config.lan.iter().filter_map(mtu).max();
    match (largest, smallest) {
        (Some(lan), Some(tunnel)) if lan > tunnel => Check::warn(
            "MTU",
            format!("packets of the site may have {lan} bytes, a tunnel carries {tunnel}"),
            clamp(tunnel, widest > smallest),
        ),
        (Some(lan), Some(tunnel)) => {
            Check::ok("MTU", format!("{lan} at the site, {tunnel} in the tunnels"))
        }
        _ => Check::warn("MTU", "not comparable without the interfaces", "see above"),
    }
}

/// How segments are kept as short as tunnels are. The path of a SYN is that of the tunnel in which it leaves.
fn clamp(smallest: u32, do_differ: bool) -> String {
    const HEADERS_OF_IPV6_AND_TCP: u32 = 60;
    match do_differ {
        false => "clamp the TCP segment size to the path (nft: tcp option maxseg size set rt mtu), or raise the tunnel's MTU".to_owned(),
        true => format!(
            "clamp the TCP segment size to the smallest tunnel (nft: tcp option maxseg size set {}; `rt mtu` is that of the tunnel \
             in which a connection opens), or give all tunnels one MTU",
            smallest.saturating_sub(HEADERS_OF_IPV6_AND_TCP)
        ),
    }
}

/// The two directions of a flow may take different tunnels: strict filtering drops what comes in
/// by a tunnel that is not the way back to its source.
fn reverse_path(config: &Config) -> Vec<Check> {
    let value = |name: &str| {
        let path = Path::new("/proc/sys/net/ipv4/conf")
            .join(name)
            .join("rp_filter");
        fs::read_to_string(path).ok()?.trim().parse::<u8>().ok()
    };
    let all = value("all").unwrap_or(0);
    let mut checks = Vec::new();
    for device in config.tunnels().map(|(_, tunnel)| &tunnel.device) {
        let check = format!("reverse path filter of {device}");
        // The kernel takes the larger of the two.
        match value(device.as_str()).map(|own| own.max(all)) {
            Some(1) => checks.push(Check::fail(
                check,
                "strict: replies that come by the other tunnel than requests went are dropped",
                format!(
                    "sysctl net.ipv4.conf.all.rp_filter=0; sysctl net.ipv4.conf.{}.rp_filter=2",
                    in_sysctl(device)
                ),
            )),
            Some(2) => checks.push(Check::ok(check, "loose")),
            Some(_) => checks.push(Check::ok(check, "off")),
            None => {}
        }
    }
    checks
}

/// How a key of `sysctl` names a device: there a dot, as VLANs have it, begins the next part.
fn in_sysctl(device: &InterfaceName) -> String {
    device.as_str().replace('.', "/")
}

/// Rules, tables and marks: all that a plan would stumble over; and where packets really go.
async fn policy(netlink: &Netlink, config: &Config) -> Vec<Check> {
    const CHECK: &str = "rules and tables";
    let plan = plan(netlink, config, None).await;
    let is_up = plan.as_ref().is_ok_and(Plan::is_in_place);
    let planned = match plan {
        Ok(plan) if plan.is_in_place() => Check::ok(CHECK, "all in place"),
        Ok(plan) => {
            let detail = format!(
                "free; `splitter plan` shows {} rules and routes",
                plan.actions.len()
            );
            Check::ok(CHECK, detail)
        }
        Err(PlanError::NoSuchInterface(_)) => {
            Check::warn(CHECK, "not examined without the interfaces", "see above")
        }
        Err(error) => Check::fail(
            CHECK,
            error.to_string(),
            "see `ip rule` and `splitter plan`",
        ),
    };
    let mut checks = vec![planned];
    checks.extend(routing(netlink, config, is_up).await);
    checks
}

/// What the kernel says when asked where each class of each family goes.
async fn routing(netlink: &Netlink, config: &Config, is_up: bool) -> Vec<Check> {
    const CHECK: &str = "ways of both classes";
    // A class that has been moved is not in place by this plan, and judged as before it is up.
    let audit = match audit(netlink, config, &Placements::default(), is_up).await {
        Ok(audit) => audit,
        Err(error) => {
            let remedy = "see `ip route get ADDRESS from ADDRESS iif LAN mark MARK`";
            return vec![Check::warn(CHECK, error.to_string(), remedy)];
        }
    };
    if audit.is_clean() {
        let detail = match audit.questions {
            0 => "nothing could be asked: see the interfaces above".to_owned(),
            asked => format!("{asked} questions to the kernel, no prefix that is not split"),
        };
        return vec![Check::ok(CHECK, detail)];
    }
    let shown = audit.unsplit.iter().take(SHOWN_UNSPLIT);
    let mut checks: Vec<_> = shown
        .map(|it| Check::fail(CHECK, it.to_string(), it.remedy.clone()))
        .collect();
    let more = audit.unsplit.len().saturating_sub(SHOWN_UNSPLIT);
    if more > 0 {
        let detail = format!("{more} more prefixes are not split");
        checks.push(Check::fail(CHECK, detail, "see `splitter plan --json`"));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_of_unequal_mtu_need_the_segment_size_of_the_smallest() {
        assert!(clamp(1420, false).contains("rt mtu"));
        assert!(clamp(1420, true).contains("maxseg size set 1360;"));
    }

    #[test]
    fn keys_of_vlans_have_no_more_parts() {
        let vlan: InterfaceName = "wan0.100".to_owned().try_into().unwrap();
        assert_eq!(in_sysctl(&vlan), "wan0/100");
    }
}
