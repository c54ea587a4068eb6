//! Schemes: who chooses the uplink of a packet, and the queue in front of it.

use std::fmt;
use std::str::FromStr;

/// A way to use several uplinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// ECMP by flow, weighted by rate, with a FIFO in front of each uplink: what a router does.
    Ecmp,
    /// Packets in turn over all uplinks, whatever their rates, with a FIFO in front of each: per-packet ECMP.
    Spray,
    /// ECMP by flow, with a queue for each flow in front of each uplink, which is shaped: as CAKE and
    /// fq_codel do, without their marking and early drops.
    FairQueueing,
    /// The splitter's `policy = "dedicated"`: the first uplink for short flows, the second for long ones.
    Dedicated {
        /// Threshold instead of the recording's.
        threshold: Option<u64>,
    },
    /// The splitter's `policy = "share"`: both classes on both uplinks, short flows first.
    Share {
        /// Threshold instead of the recording's.
        threshold: Option<u64>,
    },
    /// The splitter's `balance = "tr"`: each packet takes the uplink by which it arrives first, short
    /// flows first in front of each.
    Tr {
        /// Threshold instead of the recording's.
        threshold: Option<u64>,
    },
}

/// A scheme that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no scheme `{name}`; give ecmp, spray, fair, dedicated, share or tr, the last three also with a threshold as in share@100"
)]
pub struct SchemeError {
    name: String,
}

impl Scheme {
    /// Returns the name without the threshold.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ecmp => "ecmp",
            Self::Spray => "spray",
            Self::FairQueueing => "fair",
            Self::Dedicated { .. } => "dedicated",
            Self::Share { .. } => "share",
            Self::Tr { .. } => "tr",
        }
    }

    /// Returns whether it makes anything of a threshold.
    pub fn has_threshold(&self) -> bool {
        !matches!(self, Self::Ecmp | Self::Spray | Self::FairQueueing)
    }

    /// Returns the threshold that it has instead of the recording's.
    pub fn own_threshold(&self) -> Option<u64> {
        match self {
            Self::Ecmp | Self::Spray | Self::FairQueueing => None,
            Self::Dedicated { threshold } | Self::Share { threshold } | Self::Tr { threshold } => {
                *threshold
            }
        }
    }

    /// Returns whether it can do with so many uplinks.
    pub fn takes(&self, uplinks: usize) -> bool {
        let is_for_two = matches!(self, Self::Dedicated { .. } | Self::Share { .. });
        !is_for_two || uplinks == 2
    }

    /// Returns whether uplinks are shaped to a little less than they carry, so that packets queue at the
    /// border.
    pub(super) fn shapes(&self) -> bool {
        !matches!(self, Self::Ecmp | Self::Spray | Self::Dedicated { .. })
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self.own_threshold() {
            Some(threshold) => write!(f, "@{threshold}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        let wrong = || SchemeError {
            name: text.to_owned(),
        };
        let (kind, threshold) = match text.split_once('@') {
            None => (text, None),
            Some((kind, number)) => {
                let number = number.parse().ok().filter(|it| (1..1 << 32).contains(it));
                (kind, Some(number.ok_or_else(wrong)?))
            }
        };
        Ok(match (kind, threshold) {
            ("ecmp", None) => Self::Ecmp,
            ("spray", None) => Self::Spray,
            ("fair", None) => Self::FairQueueing,
            ("dedicated", threshold) => Self::Dedicated { threshold },
            ("share", threshold) => Self::Share { threshold },
            ("tr", threshold) => Self::Tr { threshold },
            _ => return Err(wrong()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_read_as_they_are_written() {
        for name in [
            "ecmp",
            "spray",
            "fair",
            "dedicated",
            "share",
            "tr",
            "share@100",
            "dedicated@7",
        ] {
            assert_eq!(name.parse::<Scheme>().unwrap().to_string(), name);
        }
        for wrong in [
            "",
            "cake",
            "ecmp@4",
            "share@",
            "share@0",
            "share@-1",
            "share@4294967296",
        ] {
            assert!(wrong.parse::<Scheme>().is_err(), "{wrong}");
        }
    }
}
