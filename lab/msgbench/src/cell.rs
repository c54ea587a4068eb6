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
}

impl Cell {
    /// Returns the round-trip time without queues in ms.
    pub fn rtt_ms(&self) -> f64 {
        self.rtt.as_secs_f64() * 1e3
    }
}

/// Named like `bulk4-0.2ms`.
impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}ms", self.scenario.name(), self.rtt_ms())
    }
}

/// Lists the cells in the order in which they are measured: by round-trip time, and by scenario within.
pub fn cells(rtts: &[Duration], scenarios: &[Scenario]) -> Vec<Cell> {
    let mut cells = Vec::with_capacity(rtts.len() * scenarios.len());
    for &rtt in rtts {
        cells.extend(scenarios.iter().map(|&scenario| Cell { rtt, scenario }));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_named_by_scenario_and_round_trip() {
        let rtts = [200, 10_000].map(Duration::from_micros);
        let cells = cells(&rtts, &[Scenario::Idle, Scenario::Bulk4]);
        let names: Vec<_> = cells.iter().map(Cell::to_string).collect();
        assert_eq!(
            names,
            ["idle-0.2ms", "bulk4-0.2ms", "idle-10ms", "bulk4-10ms"]
        );
    }
}
