//! The tunnels that carry each class.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use splitter_config::{Config, SiteName};
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
        let mut classes = Class::ALL.into_iter();
        classes.any(|class| self.has(class, role, device))
    }

    /// Returns true where packets of a class go by a tunnel.
    #[must_use]
    pub fn has(&self, class: Class, role: TunnelRole, device: &InterfaceName) -> bool {
        self.of(class) == Egress::of(role) && !self.disabled.contains(device)
    }

    /// Returns true where each class is in all its own tunnels.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        *self == Self::PRIMARY
    }
}

/// Says where the classes of every remote site go. Those of a site that it has no word of are in
/// their own tunnels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Placements(BTreeMap<SiteName, Placement>);

/// One site that has no name of its own is written as agents have done that know one alone.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Sites {
        sites: BTreeMap<SiteName, Placement>,
    },
    One(Placement),
}

impl Placements {
    /// Returns where the classes of a site go.
    #[must_use]
    pub fn of(&self, site: &SiteName) -> &Placement {
        static PRIMARY: Placement = Placement::PRIMARY;
        self.0.get(site).unwrap_or(&PRIMARY)
    }

    /// Notes where the classes of a site go.
    pub fn set(&mut self, site: SiteName, placement: Placement) {
        match placement.is_primary() {
            true => self.0.remove(&site),
            false => self.0.insert(site, placement),
        };
    }

    /// Forgets the sites that a configuration does not have.
    #[must_use]
    pub fn of_sites_in(mut self, config: &Config) -> Self {
        let names = config.site_names();
        self.0.retain(|name, _| names.contains(name));
        self
    }

    /// Returns where a class goes where no site is known to differ from the others.
    #[must_use]
    pub fn common(&self, class: Class) -> Option<Egress> {
        let mut placements = self.0.values();
        match (placements.next(), placements.next()) {
            (None, _) => Some(Placement::PRIMARY.of(class)),
            (Some(only), None) if self.0.contains_key(&SiteName::default()) => Some(only.of(class)),
            _ => None,
        }
    }

    /// Returns true where each class of each site is in all its own tunnels.
    #[must_use]
    pub fn are_primary(&self) -> bool {
        self.0.is_empty()
    }
}

/// Places the classes of the only site, which has no name of its own.
impl From<Placement> for Placements {
    fn from(placement: Placement) -> Self {
        let mut placements = Self::default();
        placements.set(SiteName::default(), placement);
        placements
    }
}

impl From<Written> for Placements {
    fn from(written: Written) -> Self {
        match written {
            Written::One(placement) => placement.into(),
            Written::Sites { sites } => {
                let mut placements = Self::default();
                for (site, placement) in sites {
                    placements.set(site, placement);
                }
                placements
            }
        }
    }
}

impl From<Placements> for Written {
    fn from(placements: Placements) -> Self {
        let Placements(mut sites) = placements;
        let only = SiteName::default();
        match sites.keys().all(|site| *site == only) {
            true => Self::One(sites.remove(&only).unwrap_or_default()),
            false => Self::Sites { sites },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str) -> SiteName {
        name.to_owned().try_into().unwrap()
    }

    fn both_short() -> Placement {
        Placement {
            long: Egress::Short,
            ..Placement::PRIMARY
        }
    }

    #[test]
    fn placements_are_read_as_they_were_written() {
        let mut sites = Placements::default();
        sites.set(site("oslo"), both_short());
        for placements in [Placements::default(), both_short().into(), sites] {
            let text = serde_json::to_string(&placements).unwrap();
            let read: Placements = serde_json::from_str(&text).unwrap();
            assert_eq!(read, placements, "{text}");
        }
    }

    #[test]
    fn class_is_in_the_tunnels_that_it_was_moved_to_but_for_those_that_it_left() {
        let device = |name: &str| InterfaceName::try_from(name.to_owned()).unwrap();
        let placement = Placement {
            disabled: vec![device("tun1")],
            ..both_short()
        };
        let has = |class, role, name| placement.has(class, role, &device(name));
        for class in Class::ALL {
            assert!(has(class, TunnelRole::Short, "tun0"));
            assert!(!has(class, TunnelRole::Short, "tun1"));
            assert!(!has(class, TunnelRole::Long, "tun2"));
        }
        assert!(placement.uses(TunnelRole::Short, &device("tun0")));
        assert!(!placement.uses(TunnelRole::Long, &device("tun2")));
    }

    #[test]
    fn the_only_site_is_written_as_agents_that_know_one_have_done() {
        let written = serde_json::to_string(&Placements::from(both_short())).unwrap();
        assert_eq!(written, r#"{"short":"short","long":"short","disabled":[]}"#);
    }

    #[test]
    fn site_that_is_not_placed_is_in_its_own_tunnels() {
        let mut placements = Placements::default();
        placements.set(site("oslo"), both_short());
        assert_eq!(*placements.of(&site("oslo")), both_short());
        assert!(placements.of(&site("rome")).is_primary() && !placements.are_primary());
        placements.set(site("oslo"), Placement::PRIMARY);
        assert!(placements.are_primary());
    }

    #[test]
    fn what_an_agent_without_several_tunnels_has_left_is_read() {
        let left: Placement = serde_json::from_str(r#"{"short":"long","long":"long"}"#).unwrap();
        assert_eq!((left.short, left.disabled.len()), (Egress::Long, 0));
    }
}
