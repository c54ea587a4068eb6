//! Readers of single values.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use ipnet::IpNet;
use splitter_netlink::InterfaceName;
use toml::de::DeValue;

use super::values::InvalidValue;

/// What a reader makes of a value.
pub(super) type Read<T> = Result<T, InvalidValue>;

/// Reads a string.
pub(super) fn string(value: &DeValue<'_>) -> Read<String> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(InvalidValue::new(
            format!("this is {}, not a string", described(value)),
            "write it in quotes",
        )),
    }
}

/// Reads `true` or `false`.
pub(super) fn boolean(value: &DeValue<'_>) -> Read<bool> {
    value.as_bool().ok_or_else(|| {
        InvalidValue::new(
            format!("this is {}, not a yes or no", described(value)),
            "write true or false, without quotes",
        )
    })
}

/// Reads one of a few words.
pub(super) fn word<T: Copy>(words: &[(&str, T)], value: &DeValue<'_>) -> Read<T> {
    let text = string(value)?;
    match words.iter().find(|(word, _)| *word == text) {
        Some((_, meaning)) => Ok(*meaning),
        None => {
            let all: Vec<_> = words
                .iter()
                .map(|(word, _)| format!("\"{word}\""))
                .collect();
            let remedy = format!("give one of {}", all.join(", "));
            Err(InvalidValue::new("this word is not known here", remedy))
        }
    }
}

/// Reads a whole number in a range; `unit` and the default are told when it is not.
pub(super) fn integer(value: &DeValue<'_>, range: RangeInclusive<u32>, hint: &str) -> Read<u32> {
    let remedy = format!(
        "give a whole number from {} to {} {hint}",
        range.start(),
        range.end()
    );
    let Some(number) = value.as_integer() else {
        let problem = format!("this is {}, not a whole number", described(value));
        return Err(InvalidValue::new(problem, remedy));
    };
    i64::from_str_radix(number.as_str(), number.radix())
        .ok()
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| range.contains(number))
        .ok_or_else(|| InvalidValue::new("this is out of range", remedy))
}

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
    string(value)?.try_into().map_err(InvalidValue::from)
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

/// What a value is, with its article, for messages.
pub(super) fn described(value: &DeValue<'_>) -> String {
    let name = value.type_str();
    let article = if name.starts_with(['a', 'i']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {name}")
}
