//! The same in real time: the command `cloudburst` and iperf3's cubic, between network namespaces.

mod incast;
mod keys;
mod recorder;
mod rig;
mod scenarios;

use std::{path::Path, sync::mpsc, thread};

use anyhow::{Result, anyhow};

use self::{recorder::Sample, rig::Rig, scenarios::Run};
use crate::{
    cell::{Cell, SEED, Scenario},
    outcome::{Curves, Outcome},
    scenario::Figures,
};

const RATES_MBIT: [f64; 2] = [10.0, 100.0];
const RTTS_MS: [f64; 2] = [10.0, 50.0];

/// Cells that are measured in namespaces: every scenario with a drop-tail queue.
pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for &scenario in Scenario::all().iter().filter(|it| it.has_namespaces()) {
        for rate_mbit in RATES_MBIT {
            cells.extend(RTTS_MS.map(|rtt_ms| match scenario {
                Scenario::Incast => Cell::incast(rate_mbit, rtt_ms),
                // A queue of one product of both.
                _ => Cell {
                    scenario,
                    rate_mbit,
                    rtt_ms,
                    queue_bdp: 1.0,
                    seed: SEED,
                    paths: 1,
                },
            }));
        }
    }
    cells
}

/// Measures a cell with the command `program`, and with cubic in its place.
pub(crate) fn measure(cell: &Cell, program: &Path) -> Result<Outcome> {
    let (ours, samples) = run(cell, Some(program))?;
    let (peer, _) = run(cell, None)?;
    let curves = curves(cell, &samples);
    let outcome = Outcome::new(cell, ours, peer, curves);
    // There, QUIC is measured itself.
    let has_quic = cell.scenario == Scenario::Incast;
    let bound = match has_quic {
        true => outcome.bound,
        false => outcome.bound.replace("QUIC", "cubic"),
    };
    Ok(Outcome { bound, ..outcome })
}

/// Runs a scenario in namespaces of its own while what goes through the bottleneck is recorded.
fn run(cell: &Cell, program: Option<&Path>) -> Result<(Figures, Vec<Sample>)> {
    let rig = Rig::new(cell)?;
    thread::scope(|scope| {
        let (over, is_over) = mpsc::channel();
        let recording = scope.spawn(|| recorder::record(&rig, is_over));
        let figures = Run::new(cell, &rig, program).measure();
        drop(over);
        let samples = recording.join();
        let samples = samples.map_err(|_| anyhow!("the recorder has panicked"))?;
        Ok((figures?, samples?))
    })
}

/// Rates of both protocols, as far as the scenario has both, and the queue.
fn curves(cell: &Cell, samples: &[Sample]) -> Curves {
    let other = match cell.scenario {
        Scenario::Cubic | Scenario::Messages | Scenario::Shared => Some("cubic"),
        Scenario::Short => Some("short flows"),
        _ => None,
    };
    recorder::curves(samples, "ours", other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_measured_at_two_rates_and_two_round_trips() {
        let cells = cells();
        for &scenario in Scenario::all().iter().filter(|it| it.has_namespaces()) {
            let mut points: Vec<_> = cells.iter().filter(|it| it.scenario == scenario).collect();
            points.dedup_by_key(|it| (it.rate_mbit as u64, it.rtt_ms as u64));
            assert_eq!(points.len(), 4, "{scenario:?}");
        }
    }

    #[test]
    fn the_buffer_of_an_incast_is_100_kb_at_every_rate() {
        for cell in cells() {
            if cell.scenario == Scenario::Incast {
                assert_eq!(cell.queue_bytes(), 100_000, "{cell}");
            }
        }
    }
}
