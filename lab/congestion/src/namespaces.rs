//! The same in real time: the command `cloudburst` and iperf3's cubic, between network namespaces.

mod rig;
mod scenarios;

use std::path::Path;

use anyhow::Result;

use self::{rig::Rig, scenarios::Run};
use crate::{
    cell::{Cell, Scenario},
    outcome::Row,
    scenario::Figures,
};

/// Scenarios that are measured in namespaces. Incast is `cargo xtask msgbench`'s, on hosts that are
/// 100 µs apart.
const SCENARIOS: [Scenario; 10] = [
    Scenario::Alone,
    Scenario::Cubic,
    Scenario::Messages,
    Scenario::Twenty,
    Scenario::Shared,
    Scenario::Drop,
    Scenario::Silent,
    Scenario::Loss90,
    Scenario::Blackout,
    Scenario::Short,
];

/// Cells that are measured in namespaces.
pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for scenario in SCENARIOS {
        for rate_mbit in [10.0, 100.0] {
            cells.extend([10.0, 50.0].map(|rtt_ms| Cell {
                scenario,
                rate_mbit,
                rtt_ms,
                queue_bdp: 1.0,
            }));
        }
    }
    cells
}

/// Measures a cell with the command `program`, and with cubic in its place.
pub(crate) fn measure(cell: &Cell, program: &Path) -> Result<Row> {
    let run = |program: Option<&Path>| -> Result<Figures> {
        let rig = Rig::new(cell)?;
        Run::new(cell, &rig, program).measure()
    };
    let (ours, peer) = (run(Some(program))?, run(None)?);
    Ok(Row {
        scenario: format!("{}_in_namespaces", cell.scenario.name()),
        rate_mbit: cell.rate_mbit,
        rtt_ms: cell.rtt_ms,
        queue_bdp: cell.queue_bdp,
        bound: cell.scenario.bound().replace("QUIC", "cubic"),
        holds: cell.holds(&ours, &peer),
        ours,
        peer,
    })
}
