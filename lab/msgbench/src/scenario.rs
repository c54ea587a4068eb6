//! Scenarios: conditions on the paths while messages are sent.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::rig::Impairment;

/// A scenario: the conditions on the paths while messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// Idle paths, without impairment.
    Idle,
    /// Every path loses 1% of all packets.
    Loss1,
    /// Every path loses 5% of all packets.
    Loss5,
    /// One of the paths loses everything, from after connections are open.
    Dead,
    /// Bulk TCP in both directions on three of the paths.
    Bulk3,
    /// Bulk TCP in both directions on all paths.
    Bulk4,
    /// The client asks eight servers at once.
    Incast,
}

impl Scenario {
    /// All of them, in the order in which results show them.
    pub const ALL: [Self; 7] = [
        Self::Idle,
        Self::Loss1,
        Self::Loss5,
        Self::Dead,
        Self::Bulk3,
        Self::Bulk4,
        Self::Incast,
    ];

    /// Returns the name for command line and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Loss1 => "loss1",
            Self::Loss5 => "loss5",
            Self::Dead => "dead",
            Self::Bulk3 => "bulk3",
            Self::Bulk4 => "bulk4",
            Self::Incast => "incast",
        }
    }

    /// Describes the scenario for people.
    pub fn about(self) -> &'static str {
        match self {
            Self::Idle => "nothing else on the paths",
            Self::Loss1 => "1% loss on every path",
            Self::Loss5 => "5% loss on every path",
            Self::Dead => "one path dead",
            Self::Bulk3 => "bulk TCP on three paths",
            Self::Bulk4 => "bulk TCP on all paths",
            Self::Incast => "eight servers answer at once",
        }
    }

    /// Returns the impairment of the paths, if there is one.
    pub fn impairment(self) -> Option<Impairment> {
        match self {
            Self::Loss1 => Some(Impairment::Loss { per_mille: 10 }),
            Self::Loss5 => Some(Impairment::Loss { per_mille: 50 }),
            Self::Dead => Some(Impairment::Dead { path: 1 }),
            Self::Idle | Self::Bulk3 | Self::Bulk4 | Self::Incast => None,
        }
    }

    /// The paths with bulk transfers.
    pub fn bulk_paths(self) -> &'static [usize] {
        match self {
            Self::Bulk3 => &[0, 1, 2],
            Self::Bulk4 => &[0, 1, 2, 3],
            _ => &[],
        }
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no such scenario; known are {names}")
        })
    }
}
