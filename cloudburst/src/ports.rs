//! Ports of ours.

use std::{fmt, ops::RangeInclusive, str::FromStr};

/// Most sockets for each local address, and most ports of a peer.
pub(crate) const MAX_PORTS: u16 = 256;

/// Which ports are bound at each local address. One socket each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ports {
    /// So many, which the system chooses: for those who begin.
    Any(u16),
    /// These: for those who are to be found.
    Range(RangeInclusive<u16>),
}

impl Ports {
    /// Returns a range of one port.
    pub const fn one(port: u16) -> Self {
        Self::Range(port..=port)
    }

    /// Returns how many ports there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Any(count) => usize::from(*count),
            Self::Range(range) => range.len(),
        }
    }

    /// Whether somebody is to be found at them: none is left to the system.
    pub(crate) fn are_named(&self) -> bool {
        match self {
            Self::Any(_) => false,
            Self::Range(ports) => *ports.start() != 0,
        }
    }

    /// The ports to bind, 0 for one that the system chooses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let (any, range) = match self {
            Self::Any(count) => (*count, None),
            Self::Range(range) => (0, Some(range.clone())),
        };
        std::iter::repeat_n(0, usize::from(any)).chain(range.into_iter().flatten())
    }
}

impl Default for Ports {
    /// 16 that the system chooses.
    fn default() -> Self {
        Self::Any(16)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any(count) => write!(formatter, "any:{count}"),
            Self::Range(range) if range.start() == range.end() => {
                write!(formatter, "{}", range.start())
            }
            Self::Range(range) => write!(formatter, "{}-{}", range.start(), range.end()),
        }
    }
}

/// Says what is wrong with ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortsError {
    /// Neither of the forms.
    #[error(
        "`{0}` is none of `4433`, `4433-4448` and `any:16`; ports are 1 to 65535, the lower one first"
    )]
    Form(String),
    /// None, or more than are of use.
    #[error("`{given}` are {count} ports; it must be 1 to {MAX_PORTS}")]
    Count {
        /// The text that was given.
        given: String,
        /// How many these are.
        count: usize,
    },
}

impl FromStr for Ports {
    type Err = PortsError;

    /// Reads `4433`, `4433-4448` or `any:16`.
    fn from_str(given: &str) -> Result<Self, PortsError> {
        let form = || PortsError::Form(given.to_owned());
        let ports = match given.strip_prefix("any:") {
            Some(count) => Self::Any(count.parse().map_err(|_| form())?),
            None => Self::Range(range(given).ok_or_else(form)?),
        };
        match ports.count() {
            1..=MAX_PORTS_USIZE => Ok(ports),
            count => Err(PortsError::Count {
                given: given.to_owned(),
                count,
            }),
        }
    }
}

pub(crate) const MAX_PORTS_USIZE: usize = MAX_PORTS as usize;

/// Port 0 is no port: the system would choose another for each socket. A range that ends before it begins is a mistake,
/// and none.
pub(crate) fn range(given: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = given.split_once('-').unwrap_or((given, given));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (0 < first && first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_and_written_alike() {
        for text in ["4433", "4433-4448", "any:16"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        assert_eq!("4433-4448".parse::<Ports>().unwrap().count(), 16);
        assert_eq!(Ports::Any(2).iter().collect::<Vec<_>>(), [0, 0]);
        assert_eq!(Ports::Range(5..=6).iter().collect::<Vec<_>>(), [5, 6]);
    }

    #[test]
    fn wrong_ports_are_named_with_their_value() {
        for text in ["", "0", "x", "1-", "70000", "any:", "any:-1", "0-3", "9-8"] {
            let error = text.parse::<Ports>().unwrap_err();
            assert_eq!(error, PortsError::Form(text.to_owned()));
        }
        for (text, count) in [("any:0", 0), ("1-257", 257)] {
            let error = text.parse::<Ports>().unwrap_err();
            assert!(error.to_string().contains(&format!("are {count} ports")));
        }
    }
}
