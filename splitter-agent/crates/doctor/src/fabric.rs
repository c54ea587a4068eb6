//! What would keep a leaf or a spine from working here, or hosts from seeing what they would see without it.

use std::collections::BTreeSet;

use splitter_config::{Config, Fabric, FabricConfig, FabricRole};
use splitter_netlink::{Address, Family, Interface, Interfaces, Netlink, NetlinkError};
use splitter_policy::dscp::Dscp;
use splitter_steering::routes::{Selector, other_rules, our_rules};

use super::network::link;
use super::{Check, machine};

/// Examines the machine and its network for a role in a fabric; `splitter` is the configuration by which
/// the same machine splits flows, if it does.
///
/// # Errors
/// When not even the kernel's interfaces can be listed.
pub async fn examine_fabric(
    netlink: &Netlink,
    config: &FabricConfig,
    splitter: Option<&Config>,
) -> Result<Vec<Check>, NetlinkError> {
    let fabric = &config.fabric;
    let interfaces = netlink.interfaces().await?;
    let mut checks = machine::examine_for(&config.bpffs, &families(fabric));
    let mut ports = Vec::new();
    for port in &fabric.ports {
        let device = port.device.as_str();
        match interfaces.named(&port.device) {
            Ok(interface) => {
                checks.extend(self::port(device, interface, &interfaces));
                ports.push(interface);
            }
            Err(error) => checks.push(Check::warn(
                format!("port {device}"),
                error.to_string(),
                "create it, or correct `device`; the agent attaches to it when it comes",
            )),
        }
    }
    checks.push(mtu(&ports, &interfaces));
    if fabric.role == FabricRole::Leaf {
        let mut addresses = netlink.addresses(Family::V4).await?;
        addresses.extend(netlink.addresses(Family::V6).await?);
        addresses.retain(|it| is_of_hosts(it, &ports, &interfaces));
        checks.push(hosts(fabric, &addresses));
    }
    checks.push(best_effort(config));
    checks.push(conflicts(
        fabric.dscp.policy(),
        splitter,
        &selected(netlink).await?,
    ));
    Ok(checks)
}

/// The families of the leaves' prefixes; both where a spine does not know them.
fn families(fabric: &Fabric) -> Vec<Family> {
    let prefixes = || fabric.leaves.iter().flat_map(|it| &it.prefixes);
    let is_v4 = |is_v4| prefixes().any(|it| it.addr().is_ipv4() == is_v4);
    let both = [(Family::V4, true), (Family::V6, false)];
    let known = both
        .into_iter()
        .filter(|(_, of)| prefixes().next().is_none() || is_v4(*of));
    known.map(|(family, _)| family).collect()
}

fn port(device: &str, interface: &Interface, interfaces: &Interfaces) -> Vec<Check> {
    let check = format!("port {device}");
    if !interface.is_ethernet {
        return vec![Check::fail(
            check,
            "its packets have no Ethernet header, by which ACKs are found",
            "name the device of the link between leaf and spine",
        )];
    }
    let mut checks = vec![link(device, interface)];
    let is_on_it = |it: &&Interface| {
        it.vlan
            .as_ref()
            .is_some_and(|it| it.carrier == interface.index)
    };
    let vlans: Vec<_> = interfaces.iter().filter(is_on_it).collect();
    if !vlans.is_empty() {
        let names: Vec<_> = vlans.iter().map(|it| it.name.as_str()).collect();
        checks.push(Check::warn(
            format!("VLANs of {device}"),
            format!(
                "{} lie on it: what they carry is restored, and neither written nor read",
                names.join(" and ")
            ),
            "where the fabric's links are these, name them as ports instead",
        ));
    }
    checks
}

/// What a device of hosts lets in, each port has to carry.
fn mtu(ports: &[&Interface], interfaces: &Interfaces) -> Check {
    const CHECK: &str = "MTU of the ports";
    let sizes: BTreeSet<_> = ports.iter().map(|it| it.mtu).collect();
    let (Some(least), Some(most)) = (sizes.first(), sizes.last()) else {
        return Check::warn(CHECK, "not comparable without the ports", "see above");
    };
    if least != most {
        return Check::warn(
            CHECK,
            format!("from {least} to {most}: what takes one path is too long for another"),
            "give all ports the same MTU",
        );
    }
    let is_other = |it: &&Interface| {
        let is_port = ports.iter().any(|port| port.index == it.index);
        it.is_up && it.is_ethernet && !it.is_loopback && !is_port
    };
    match interfaces.iter().filter(is_other).max_by_key(|it| it.mtu) {
        Some(host) if host.mtu > *least => Check::warn(
            CHECK,
            format!(
                "{} lets in packets of {}, the ports carry {least}",
                host.name, host.mtu
            ),
            "raise the MTU of the ports, or lower that of the hosts",
        ),
        _ => Check::ok(CHECK, least.to_string()),
    }
}

/// An address of a device behind which hosts are, and neither a port's nor the router's alone.
fn is_of_hosts(address: &Address, ports: &[&Interface], interfaces: &Interfaces) -> bool {
    let is_its = |it: &&Interface| it.index == address.interface;
    let is_loopback = interfaces.iter().any(|it| it.is_loopback && is_its(&it));
    !is_loopback && !ports.iter().any(is_its)
}

/// A leaf writes what starts with a TTL of 64 at a host that is next to it.
fn hosts(fabric: &Fabric, own: &[Address]) -> Check {
    const CHECK: &str = "hosts next to the leaf";
    let leaves = fabric.leaves.iter().filter(|leaf| {
        let lies_in = |it: &Address| leaf.prefixes.iter().any(|net| net.contains(&it.address));
        own.iter().any(lies_in)
    });
    let numbers: Vec<_> = leaves.map(|it| it.number.to_string()).collect();
    match &numbers[..] {
        [number] => Check::ok(
            CHECK,
            format!("of leaf {number}, whose ACKs are written where they start with a TTL of 64"),
        ),
        [] => Check::warn(
            CHECK,
            "no device but the ports has an address in a prefix of the list: ACKs that have met \
             another router pass as they are (`initial_ttl`), and so does what is in no prefix",
            "have the leaf be the first router of its hosts, and correct `leaves`",
        ),
        several => Check::fail(
            CHECK,
            format!(
                "this machine has addresses in the prefixes of leaves {}",
                several.join(" and ")
            ),
            "give each prefix to the leaf that it lies behind",
        ),
    }
}

fn best_effort(config: &FabricConfig) -> Check {
    let (check, dscp) = ("queues by DSCP", config.fabric.dscp);
    if config.is_best_effort() {
        return Check::ok(check, format!("DSCP {dscp} waits among best effort"));
    }
    Check::warn(
        check,
        format!("`pfifo_fast` and `prio` do not treat DSCP {dscp} as best effort"),
        "take one that leaves a rest of 0 or 1 by 8, such as 41",
    )
}

/// A rule that selects packets by DSCP, or by the bits of the former TOS.
struct SelectedMark {
    /// As `ip rule` writes it.
    rule: String,
    tos: u8,
    /// All bits are looked at.
    is_exact: bool,
}

async fn selected(netlink: &Netlink) -> Result<Vec<SelectedMark>, NetlinkError> {
    let mut selected = Vec::new();
    for rule in our_rules(netlink).await? {
        let (tos, is_exact) = match rule.selector {
            Selector::Dscp(dscp) | Selector::DscpUnmarked { dscp, .. } => (dscp.tos(), true),
            Selector::Tos(tos) | Selector::TosUnmarked { tos, .. } => (tos, false),
            Selector::Any | Selector::Mark { .. } => continue,
        };
        let rule = format!("the splitter's rule {}", rule.priority);
        selected.push(SelectedMark {
            rule,
            tos,
            is_exact,
        });
    }
    for rule in other_rules(netlink).await? {
        let mark = rule.dscp.map(|it| (it << 2, true));
        if let Some((tos, is_exact)) = mark.or_else(|| Some((rule.tos?, false))) {
            selected.push(SelectedMark {
                rule: format!("`{}`", rule.description),
                tos,
                is_exact,
            });
        }
    }
    Ok(selected)
}

/// The bits that a rule by TOS looks at (`IPTOS_RT_MASK`).
const TOS_BITS: u8 = 0x1c;

/// Nobody else may use the fabric's DSCP: what has it is routed otherwise, or taken for a leaf's.
fn conflicts(dscp: Dscp, splitter: Option<&Config>, selected: &[SelectedMark]) -> Check {
    const CHECK: &str = "DSCP of the fabric";
    const REMEDY: &str = "agree on another DSCP on all leaves and spines";
    let own = dscp.value();
    let marks = splitter.map(|it| &it.marks).map(|it| {
        [
            ("marks.short", it.short),
            ("marks.long", it.long),
            ("marks.short_on_long", it.short_on_long),
            ("marks.long_on_short", it.long_on_short),
        ]
    });
    let mut marks = marks.into_iter().flatten();
    if let Some((key, _)) = marks.find(|(_, mark)| mark.get() == own) {
        return Check::fail(
            CHECK,
            format!("{own} is the splitter's {key} on this machine, too"),
            REMEDY,
        );
    }
    let is_selected = |it: &&SelectedMark| {
        let bits = if it.is_exact { 0xfc } else { TOS_BITS };
        own << 2 & bits == it.tos & bits
    };
    match selected.iter().find(is_selected) {
        Some(it) => Check::fail(
            CHECK,
            format!(
                "{} selects what has DSCP {own}: ACKs would take another way",
                it.rule
            ),
            REMEDY,
        ),
        None => Check::ok(
            CHECK,
            format!("no rule and no mark of this machine is {own}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    fn selects(tos: u8, is_exact: bool) -> SelectedMark {
        SelectedMark {
            rule: "a rule".to_owned(),
            tos,
            is_exact,
        }
    }

    #[test]
    fn dscp_is_nobody_elses() {
        let dscp = Dscp::new(41).unwrap();
        let status = |splitter: Option<&Config>, rules: &[SelectedMark]| {
            conflicts(dscp, splitter, rules).status
        };
        assert_eq!(status(None, &[]), Status::Ok);
        assert_eq!(status(None, &[selects(41 << 2, true)]), Status::Fail);
        assert_eq!(status(None, &[selects(9 << 2, true)]), Status::Ok);
        // A rule by TOS sees three of the six bits.
        assert_eq!(status(None, &[selects(9 << 2, false)]), Status::Fail);
        assert_eq!(status(None, &[selects(4 << 2, false)]), Status::Ok);
        let text =
            "lan = 'eth0'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n[marks]\nlong = 41\n";
        let splitter = Config::parse(text, "splitter.toml").unwrap();
        let check = conflicts(dscp, Some(&splitter), &[]);
        assert_eq!(check.status, Status::Fail);
        assert!(check.detail.contains("marks.long"), "{}", check.detail);
    }
}
