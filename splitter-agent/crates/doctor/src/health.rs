//! Whether dead tunnels would be noticed.

use std::net::IpAddr;
use std::path::Path;

use splitter_config::{Config, Tunnel};
use splitter_health::KeyRing;
use splitter_netlink::{Family, Interfaces, Netlink, NetlinkError};

use super::Check;
use super::network::is_on_link;

pub(super) async fn examine(
    netlink: &Netlink,
    interfaces: &Interfaces,
    config: &Config,
) -> Result<Vec<Check>, NetlinkError> {
    if !config.health.enabled {
        let remedy = "set health.enabled to true, or watch them by other means";
        return Ok(vec![Check::warn(
            "health of the tunnels",
            "their links alone are watched, so a tunnel that dies behind its link keeps its class",
            remedy,
        )]);
    }
    let mut checks: Vec<Check> = config
        .key_files()
        .into_iter()
        .map(|it| key(config, it))
        .collect();
    for (class, tunnel) in config.tunnels() {
        let check = format!("health of {}", config.name_of(class, tunnel));
        let name = class.name();
        let by = format!("watched by {}", config.watched_by(tunnel));
        checks.push(match (tunnel.peer, tunnel.gateway.is_point_to_point()) {
            (Some(peer), _) => reach(netlink, interfaces, tunnel, name, peer, check, by).await?,
            (None, false) => {
                Check::ok(check, format!("{by}; what dies behind that goes unnoticed"))
            }
            (None, true) => Check::warn(
                check,
                format!("{by}, which most such devices never lose"),
                format!("set its peer, under {name}, to the other border's address in it"),
            ),
        });
    }
    Ok(checks)
}

fn key(config: &Config, path: &Path) -> Check {
    let check = match config.health.key_file.as_deref() == Some(path) {
        true => "health.key_file",
        false => "site.health.key_file",
    };
    match KeyRing::load(path) {
        Ok(keys) => Check::ok(
            check,
            format!(
                "{} is for its owner alone; its keys have the fingerprints {}, as at the other border",
                path.display(),
                keys.fingerprints().join(" and ")
            ),
        ),
        Err(error) => Check::fail(check, error.to_string(), "`splitter run` would refuse it"),
    }
}

/// Whether probes find the peer: they leave by the device, and need a way there.
async fn reach(
    netlink: &Netlink,
    interfaces: &Interfaces,
    tunnel: &Tunnel,
    name: &str,
    peer: IpAddr,
    check: String,
    by: String,
) -> Result<Check, NetlinkError> {
    let Ok(interface) = interfaces.named(&tunnel.device) else {
        return Ok(Check::warn(
            check,
            "not examined without the interface",
            "see above",
        ));
    };
    let family = match peer {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    };
    let addresses = netlink.addresses(family).await?;
    if addresses.iter().any(|own| own.address == peer) {
        let detail = format!("{by}, which is an address of this host itself");
        let remedy =
            format!("set its peer, under {name}, to the other border's address in this tunnel");
        return Ok(Check::fail(check, detail, remedy));
    }
    let link_local = matches!(peer, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let on_link = addresses
        .iter()
        .find(|own| is_on_link(own, interface.index, peer));
    Ok(match on_link {
        Some(own) => Check::ok(check, format!("{by}, on the link of {}", own.address)),
        None if link_local => Check::ok(check, format!("{by}, link-local")),
        None if netlink.has_route(peer, interface.index).await? => Check::ok(
            check,
            format!("{by}, which has a route by {}", tunnel.device),
        ),
        None => Check::warn(
            check,
            format!("{by}, to which there is no way by {}", tunnel.device),
            format!("ip route add {peer} via ... dev {}", tunnel.device),
        ),
    })
}
