//! The tunnels that carry each class.

use std::fmt;

use serde::{Deserialize, Serialize};
use splitter_netlink::InterfaceName;
use splitter_policy::flow::{Class, TunnelRole};

/// Says where the packets of a class go: to the tunnels of one of the classes, as long as one of them
/// is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Egress {
    /// Into the tunnels of the short class.
    Short,
    /// Into the tunnels of the long class.
    Long,
    /// The way of the main table, because no tunnel is alive.
    Main,
}

impl Egress {
    /// All of them, in the order of their metrics.
    pub const ALL: [Self; 3] = [Self::Short, Self::Long, Self::Main];

    /// The value of the `tunnel` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
            Self::Main => "main",
        }
    }

    /// The tunnel, if it is one.
    #[must_use]
    pub const fn tunnel(self) -> Option<TunnelRole> {
        match self {
            Self::Short => Some(TunnelRole::Short),
            Self::Long => Some(TunnelRole::Long),
            Self::Main => None,
        }
    }

    /// Into the tunnels of a class.
    #[must_use]
    pub const fn of(tunnel: TunnelRole) -> Self {
        match tunnel {
            TunnelRole::Short => Self::Short,
            TunnelRole::Long => Self::Long,
        }
    }
}

impl fmt::Display for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the short tunnel",
            Self::Long => "the long tunnel",
            Self::Main => "the main table",
        })
    }
}

/// Says where both classes go, and by which tunnels. The default is role: each in all its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Where short flows go, and everything that is not split.
    pub short: Egress,
    /// Where long flows go.
    pub long: Egress,
    /// The devices of the tunnels that carry nothing, in the order of the configuration.
    #[serde(default)]
    pub disabled: Vec<InterfaceName>,
}

impl Default for Placement {
    fn default() -> Self {
        Self::PRIMARY
    }
}

impl Placement {
    /// Each class in all its own tunnels.
    pub const PRIMARY: Self = Self {
        short: Egress::Short,
        long: Egress::Long,
        disabled: Vec::new(),
    };

    /// Returns where a class goes.
    #[must_use]
    pub const fn of(&self, class: Class) -> Egress {
        match class {
            Class::Short => self.short,
            Class::Long => self.long,
        }
    }

    /// Returns true where a tunnel carries packets: those of its own class, of the other one or both.
    #[must_use]
    pub fn uses(&self, role: TunnelRole, device: &InterfaceName) -> bool {
        let egress = Egress::of(role);
        (self.short == egress || self.long == egress) && !self.disabled.contains(device)
    }

    /// Returns true where each class is in all its own tunnels.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        *self == Self::PRIMARY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_without_several_tunnels_has_left_is_read() {
        let left: Placement = serde_json::from_str(r#"{"short":"long","long":"long"}"#).unwrap();
        assert_eq!((left.short, left.disabled.len()), (Egress::Long, 0));
    }
}
