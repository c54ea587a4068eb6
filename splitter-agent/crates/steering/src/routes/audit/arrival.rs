//! By which device the packets of an address come to the border.

use std::net::IpAddr;

use splitter_config::Config;
use splitter_netlink::{InterfaceName, Interfaces, Netlink, NetlinkError};

use super::judge::TABLE_LOCAL;
use crate::routes::probe::reach;
/// Says from where packets of an address come to the border, as far as the routes back to it tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// By an interface of the site.
    Lan(InterfaceName),
    /// By a tunnel: from the other side.
    Tunnel(String),
    /// By an interface that is neither.
    Other(String),
    /// From the border itself.
    Own,
    /// From nowhere: no route leads there.
    Unknown,
}

/// Asks the kernel by which device it reaches an address, which is where its packets come in.
///
/// # Errors
/// When the kernel does not answer.
pub async fn arrival(
    netlink: &Netlink,
    config: &Config,
    interfaces: &Interfaces,
    source: IpAddr,
) -> Result<Arrival, NetlinkError> {
    let answer = match reach(netlink, source).await {
        Ok(answer) if !answer.is_dropping => answer,
        Ok(_) | Err(NetlinkError::Refused { .. }) => return Ok(Arrival::Unknown),
        Err(error) => return Err(error),
    };
    if answer.table == TABLE_LOCAL {
        return Ok(Arrival::Own);
    }
    let devices: Vec<_> = answer
        .devices()
        .filter_map(|it| interfaces.name_of(it))
        .collect();
    let mut lan = config.lan.iter();
    if let Some(lan) = lan.find(|it| devices.contains(&it.as_str())) {
        return Ok(Arrival::Lan(lan.clone()));
    }
    let Some(device) = devices.first() else {
        return Ok(Arrival::Unknown);
    };
    let is_tunnel = config
        .tunnels()
        .any(|(_, it)| it.device.as_str() == *device);
    Ok(match is_tunnel {
        true => Arrival::Tunnel((*device).to_owned()),
        false => Arrival::Other((*device).to_owned()),
    })
}
