//! Values that are written as strings with a form of their own: names, paths, addresses.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use serde_json::{Value as Json, json};
use splitter_netlink::InterfaceName;
use toml::de::DeValue;

use super::{Kind, Refusals, Value, type_of};
use crate::values::{CollectorUrl, InstanceName, InvalidValue, SiteName};

/// The kind of strings with a form of their own.
pub(crate) struct Text<T> {
    parse: fn(String) -> Result<T, InvalidValue>,
    print: fn(&T) -> String,
    values: &'static str,
    /// Keywords of JSON Schema other than the type, as JSON.
    schema: &'static str,
}

/// Reads a string.
pub(crate) fn scalar_string(value: &DeValue<'_>) -> Result<String, InvalidValue> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(InvalidValue::new(
            format!("this is {}, not a string", type_of(value)),
            "write it in quotes",
        )),
    }
}

impl<T: Clone + Send + Sync + 'static> Kind for Text<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<T> {
        let read = scalar_string(value.get_ref()).and_then(self.parse);
        refuse.take(value, read)
    }

    fn write(&self, value: &T) -> Json {
        json!((self.print)(value))
    }

    fn values(&self) -> String {
        self.values.to_owned()
    }

    fn schema(&self) -> Json {
        let mut schema = json!({ "type": "string" });
        let more = serde_json::from_str(self.schema);
        if let (Json::Object(all), Ok(Json::Object(more))) = (&mut schema, more) {
            all.extend(more);
        }
        schema
    }
}

/// Takes the name of an instance.
pub(crate) fn instance_name() -> Text<InstanceName> {
    Text {
        parse: InstanceName::try_from,
        print: ToString::to_string,
        values: "1 to 64 letters, digits, `-`, `_`",
        schema: r#"{"pattern": "^[A-Za-z0-9_-]{1,64}$"}"#,
    }
}

/// Takes the name of a remote site.
pub(crate) fn site_name() -> Text<SiteName> {
    Text {
        parse: SiteName::try_from,
        print: ToString::to_string,
        values: "1 to 32 letters, digits, `-`, `_`, `.`",
        schema: r#"{"pattern": "^[A-Za-z0-9._-]{1,32}$"}"#,
    }
}

/// Takes a path from the root.
pub(crate) fn path() -> Text<PathBuf> {
    Text {
        parse: |text| {
            let path = PathBuf::from(text);
            if !path.is_absolute() {
                return Err(InvalidValue::new(
                    "this is not an absolute path",
                    "start it with a slash",
                ));
            }
            Ok(path)
        },
        print: |path| path.display().to_string(),
        values: "absolute path",
        schema: r#"{"pattern": "^/"}"#,
    }
}

/// Takes the name of a network interface.
pub(crate) fn interface() -> Text<InterfaceName> {
    Text {
        parse: |text| text.try_into().map_err(Into::into),
        print: ToString::to_string,
        values: "interface name",
        schema: r#"{"minLength": 1, "maxLength": 15, "pattern": "^[^/:\\s]+$"}"#,
    }
}

/// Takes an IP address of either family.
pub(crate) fn address() -> Text<IpAddr> {
    Text {
        parse: |text| {
            text.parse().map_err(|_| {
                InvalidValue::new(
                    "this is not an IP address",
                    "give one such as \"192.0.2.1\" or \"2001:db8::1\"",
                )
            })
        },
        print: ToString::to_string,
        values: "IP address",
        schema: r#"{"anyOf": [
            {"format": "ipv4", "pattern": "^[0-9]{1,3}(\\.[0-9]{1,3}){3}$"},
            {"format": "ipv6", "pattern": "^[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*$"}
        ]}"#,
    }
}

/// Takes an IP address with a port.
pub(crate) fn socket_address() -> Text<SocketAddr> {
    Text {
        parse: |text| {
            text.parse().map_err(|_| {
                InvalidValue::new(
                    "this is not an address with a port",
                    "give one such as \"127.0.0.1:9461\" or \"[::1]:9461\"",
                )
            })
        },
        print: ToString::to_string,
        values: "IP address and port",
        schema: r#"{"pattern": "^(\\[[0-9A-Fa-f:.%]+\\]|[0-9.]+):[0-9]{1,5}$"}"#,
    }
}

/// Takes the URL of a collector, without TLS.
pub(crate) fn collector_url() -> Text<CollectorUrl> {
    Text {
        parse: CollectorUrl::try_from,
        print: ToString::to_string,
        values: "URL that begins with `http://`",
        schema: r#"{"pattern": "^http://[^/@\\s]+[^@\\s]*$"}"#,
    }
}

/// Takes an IP prefix without bits beyond its length.
pub(crate) fn prefix() -> Text<IpNet> {
    Text {
        parse: |text| {
            let net: IpNet = text.parse().map_err(|_| {
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
        },
        print: ToString::to_string,
        values: "prefix without bits beyond its length",
        schema: r#"{"pattern": "^[0-9A-Fa-f:.]+/[0-9]{1,3}$"}"#,
    }
}
