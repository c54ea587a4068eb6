//! Readers of single values that are more than a string, a word or a number.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use toml::de::DeValue;

use super::document::{Read, string};
use super::values::{InterfaceName, InvalidValue};

pub(super) fn absolute_path(value: &DeValue<'_>) -> Read<PathBuf> {
    let path = PathBuf::from(string(value)?);
    if !path.is_absolute() {
        return Err(InvalidValue::new(
            "this is not an absolute path",
            "start it with a slash",
        ));
    }
    Ok(path)
}

pub(super) fn interface(value: &DeValue<'_>) -> Read<InterfaceName> {
    string(value)?.try_into()
}

pub(super) fn address(value: &DeValue<'_>) -> Read<IpAddr> {
    string(value)?.parse().map_err(|_| {
        InvalidValue::new(
            "this is not an IP address",
            "give one such as \"192.0.2.1\" or \"2001:db8::1\"",
        )
    })
}

pub(super) fn next_hop(address: IpAddr) -> Read<IpAddr> {
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
        return Err(InvalidValue::new(
            "this address cannot be a next hop",
            "give the address that the other end of the tunnel answers to",
        ));
    }
    Ok(address)
}

pub(super) fn prefix(value: &DeValue<'_>) -> Read<IpNet> {
    let net: IpNet = string(value)?.parse().map_err(|_| {
        InvalidValue::new(
            "this is not a prefix",
            "give one such as \"10.2.0.0/16\" or \"2001:db8:b::/48\"",
        )
    })?;
    if net != net.trunc() {
        return Err(InvalidValue::new(
            "address bits beyond the prefix length are set",
            format!("give \"{}\", or a longer prefix", net.trunc()),
        ));
    }
    Ok(net)
}

pub(super) fn socket_address(value: &DeValue<'_>) -> Read<SocketAddr> {
    string(value)?.parse().map_err(|_| {
        InvalidValue::new(
            "this is not an address with a port",
            "give one such as \"127.0.0.1:9461\" or \"[::1]:9461\"",
        )
    })
}
