//! Address families and interface names.

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Tells IPv4 from IPv6 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of a prefix.
    #[must_use]
    pub fn of(net: &IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Name of a network interface, 1 to 15 bytes as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceName(String);

impl InterfaceName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for InterfaceName {
    type Error = InvalidInterfaceName;
    fn try_from(value: String) -> Result<Self, InvalidInterfaceName> {
        let problem = if value.is_empty() {
            "an interface name cannot be empty".to_owned()
        } else if value.len() > 15 {
            format!(
                "an interface name has at most 15 bytes, this has {}",
                value.len()
            )
        } else if value == "." || value == ".." {
            "the kernel allows no such interface name".to_owned()
        } else if value.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c == '\0') {
            "an interface name has no slash, colon or white space".to_owned()
        } else {
            return Ok(Self(value));
        };
        Err(InvalidInterfaceName { problem })
    }
}

impl From<InterfaceName> for String {
    fn from(value: InterfaceName) -> Self {
        value.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error for text that cannot be the name of an interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {}", Self::REMEDY)]
pub struct InvalidInterfaceName {
    /// What is wrong with it.
    pub problem: String,
}

impl InvalidInterfaceName {
    /// The advice that goes with every such error.
    pub const REMEDY: &str = "give a name as `ip link` shows it";
}

/// A list of interface names as a person writes it: "wan0, wan1 and wan2".
#[must_use]
pub fn list_names(names: &[InterfaceName]) -> String {
    let names: Vec<_> = names.iter().map(InterfaceName::as_str).collect();
    match &names[..] {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
