//! Scenarios: conditions on the paths while messages are sent.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    rig::{BorderOptions, BulkDirections, CLOUDBURST_DSCP, Impairment},
    scheme::Scheme,
};

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
    /// Bulk TCP on all paths in the direction of the answers alone.
    #[serde(rename = "bulk4_down")]
    Bulk4Down,
    /// As [`Bulk4`](Self::Bulk4), between splitters that share the paths and give Cloudburst a queue.
    #[serde(rename = "bulk4_queue")]
    Bulk4Queue,
    /// The client asks eight servers at once.
    Incast,
    /// Transfers and short TCP flows on all paths, and messages by others than Cloudburst.
    WholeNone,
    /// The same between splitters that share the paths.
    WholeSplitter,
    /// The same with messages by Cloudburst, without splitters.
    WholeCloudburst,
    /// The same with messages by Cloudburst, between splitters that give it a queue.
    WholeBoth,
}

impl Scenario {
    /// All of them, in the order in which results show them.
    pub const ALL: [Self; 13] = [
        Self::Idle,
        Self::Loss1,
        Self::Loss5,
        Self::Dead,
        Self::Bulk3,
        Self::Bulk4,
        Self::Bulk4Down,
        Self::Bulk4Queue,
        Self::Incast,
        Self::WholeNone,
        Self::WholeSplitter,
        Self::WholeCloudburst,
        Self::WholeBoth,
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
            Self::Bulk4Down => "bulk4_down",
            Self::Bulk4Queue => "bulk4_queue",
            Self::Incast => "incast",
            Self::WholeNone => "whole_none",
            Self::WholeSplitter => "whole_splitter",
            Self::WholeCloudburst => "whole_cloudburst",
            Self::WholeBoth => "whole_both",
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
            Self::Bulk4Down => "bulk TCP on all paths, in the answers' direction",
            Self::Bulk4Queue => "bulk TCP on all paths, splitters with Cloudburst's queue",
            Self::Incast => "eight servers answer at once",
            Self::WholeNone => "transfers and short flows, neither splitter nor Cloudburst",
            Self::WholeSplitter => "transfers and short flows, splitters without Cloudburst",
            Self::WholeCloudburst => "transfers and short flows, Cloudburst without splitters",
            Self::WholeBoth => "transfers and short flows, splitters with Cloudburst's queue",
        }
    }

    /// Returns the impairment of the paths, if there is one.
    pub fn impairment(self) -> Option<Impairment> {
        match self {
            Self::Loss1 => Some(Impairment::Loss { per_mille: 10 }),
            Self::Loss5 => Some(Impairment::Loss { per_mille: 50 }),
            Self::Dead => Some(Impairment::Dead { path: 1 }),
            _ => None,
        }
    }

    /// The paths with bulk transfers that never end, and their directions.
    pub fn bulk(self) -> Option<(&'static [usize], BulkDirections)> {
        match self {
            Self::Bulk3 => Some((&[0, 1, 2], BulkDirections::Both)),
            Self::Bulk4 | Self::Bulk4Queue => Some((&[0, 1, 2, 3], BulkDirections::Both)),
            Self::Bulk4Down => Some((&[0, 1, 2, 3], BulkDirections::ToClient)),
            _ => None,
        }
    }

    /// Returns true where transfers of a stated load and short flows run beside messages.
    pub fn has_load(self) -> bool {
        matches!(
            self,
            Self::WholeNone | Self::WholeSplitter | Self::WholeCloudburst | Self::WholeBoth
        )
    }

    /// Returns what splitters at both borders do for messages of this scheme; nothing where there are none.
    pub fn borders(self, scheme: &dyn Scheme) -> Option<BorderOptions> {
        let has_queue = self.has_queue();
        let has_splitters = has_queue || self == Self::WholeSplitter;
        has_splitters.then_some(BorderOptions {
            cloudburst_queue: has_queue,
            // Datagrams that have a queue of their own stay on the paths that their sender chose.
            splits_udp: !scheme.is_cloudburst(),
        })
    }

    /// The DSCP of Cloudburst's datagrams: its queue's where it has one, else none.
    pub fn cloudburst_dscp(self) -> u8 {
        if self.has_queue() { CLOUDBURST_DSCP } else { 0 }
    }

    /// Returns true where splitters keep a queue for Cloudburst's datagrams.
    fn has_queue(self) -> bool {
        matches!(self, Self::Bulk4Queue | Self::WholeBoth)
    }

    /// Returns true if messages of this scheme are measured in it.
    pub fn carries(self, scheme: &dyn Scheme) -> bool {
        let is_its_kind = match self {
            Self::WholeNone | Self::WholeSplitter => !scheme.is_cloudburst(),
            Self::WholeCloudburst | Self::WholeBoth => scheme.is_cloudburst(),
            _ => true,
        };
        is_its_kind && (self.has_queue() || !scheme.needs_queue())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme;

    #[test]
    fn every_scenario_is_called_the_same_on_command_line_and_in_results() {
        for scenario in Scenario::ALL {
            let json = serde_json::to_value(scenario).expect("a word");
            assert_eq!(json, scenario.name());
            assert_eq!(scenario.name().parse(), Ok(scenario));
        }
    }

    #[test]
    fn each_part_of_the_whole_is_there_where_its_name_says() {
        let schemes = scheme::all();
        let find = |name: &str| schemes.iter().find(|it| it.name() == name).expect("known");
        let (cloudburst, quic) = (find("cloudburst").as_ref(), find("quic").as_ref());
        assert!(find("paper").is_cloudburst());
        let queue_of =
            |scenario: Scenario| scenario.borders(cloudburst).map(|it| it.cloudburst_queue);
        let expected = [
            (Scenario::WholeNone, false, None, 0),
            (Scenario::WholeSplitter, false, Some(false), 0),
            (Scenario::WholeCloudburst, true, None, 0),
            (Scenario::WholeBoth, true, Some(true), CLOUDBURST_DSCP),
        ];
        for (scenario, is_by_cloudburst, queue, dscp) in expected {
            assert!(scenario.has_load() && scenario.bulk().is_none());
            assert_eq!(scenario.carries(cloudburst), is_by_cloudburst);
            assert_eq!(scenario.carries(quic), !is_by_cloudburst);
            assert_eq!(queue_of(scenario), queue, "{scenario:?}");
            assert_eq!(scenario.cloudburst_dscp(), dscp);
        }
        let reserved = find("cloudburst_reserved").as_ref();
        let shared = Scenario::Bulk4Queue;
        for scenario in Scenario::ALL {
            let has_queue = [shared, Scenario::WholeBoth].contains(&scenario);
            assert_eq!(scenario.carries(reserved), has_queue, "{scenario:?}");
        }
        assert!(shared.carries(quic) && shared.carries(cloudburst));
        assert_eq!(shared.borders(quic).map(|it| it.splits_udp), Some(true));
        assert_eq!(
            shared.borders(cloudburst).map(|it| it.splits_udp),
            Some(false)
        );
    }
}
