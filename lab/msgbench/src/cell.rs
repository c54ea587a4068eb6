//! Cells of a campaign: the conditions under which all schemes are compared.

use std::{fmt, time::Duration};

use crate::scenario::Scenario;

/// A cell of a campaign, in which every scheme is measured with every seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Round-trip time without queues.
    pub rtt: Duration,
    /// Conditions on the paths meanwhile.
    pub scenario: Scenario,
    /// The load of transfers beside, in percent of all paths, in scenarios that have one.
    pub load_percent: Option<u32>,
}

impl Cell {
    /// Returns the round-trip time without queues in ms.
    pub fn rtt_ms(&self) -> f64 {
        self.rtt.as_secs_f64() * 1e3
    }
}

/// Named like `bulk4-0.2ms` or `whole_both-0.2ms-load40`.
impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}ms", self.scenario.name(), self.rtt_ms())?;
        match self.load_percent {
            Some(load) => write!(formatter, "-load{load}"),
            None => Ok(()),
        }
    }
}

/// Lists the cells in the order in which they are measured: by round-trip time, by load, and by scenario within, so
/// that those which are compared follow each other.
pub fn cells(rtts: &[Duration], scenarios: &[Scenario], loads_percent: &[u32]) -> Vec<Cell> {
    let mut cells = Vec::new();
    let (loaded, others): (Vec<Scenario>, Vec<Scenario>) =
        scenarios.iter().partition(|it| it.has_load());
    for &rtt in rtts {
        let cell = |&scenario: &Scenario, load_percent| Cell {
            rtt,
            scenario,
            load_percent,
        };
        cells.extend(others.iter().map(|it| cell(it, None)));
        for &load in loads_percent {
            cells.extend(loaded.iter().map(|it| cell(it, Some(load))));
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_named_by_scenario_round_trip_and_load() {
        let rtts = [200, 10_000].map(Duration::from_micros);
        let scenarios = [
            Scenario::WholeNone,
            Scenario::Bulk4Down,
            Scenario::WholeBoth,
        ];
        let names: Vec<_> = cells(&rtts, &scenarios, &[20, 70])
            .iter()
            .map(Cell::to_string)
            .collect();
        let expected = [
            "bulk4_down-0.2ms",
            "whole_none-0.2ms-load20",
            "whole_both-0.2ms-load20",
            "whole_none-0.2ms-load70",
            "whole_both-0.2ms-load70",
        ];
        assert_eq!(names[..5], expected);
        assert_eq!(names[9], "whole_both-10ms-load70");
    }
}
