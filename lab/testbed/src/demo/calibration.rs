//! Finds the rate that this machine can emulate under the demonstration's own load.
//!
//! An empty machine keeps rates that it does not keep while it also sends, forwards and receives
//! the traffic: so it is that which is tried, from the highest rate down.

use std::{thread, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{DemoError, Options, Progress, Status, experiment, modes, validity};
use crate::{
    experiment::Experiment,
    timed::{Bounds, Meter, RATES_MBIT},
};

/// How long the machine is watched before anything of ours runs.
const IDLE_WATCH: Duration = Duration::from_secs(1);
/// How long a rate is tried: long enough for some long flows to fill the tunnels.
const TRIAL: Duration = Duration::from_secs(2);

/// Says what the machine lacks while nothing of ours runs.
pub(super) fn disturbance() -> Option<String> {
    let meter = Meter::start();
    thread::sleep(IDLE_WATCH);
    let excess = meter.end().exceeded(&Bounds::IDLE)?;
    Some(format!("before it began: {excess}"))
}

/// The highest rate at which the tunnels keep what the comparison needs, in Mbit/s; else the lowest,
/// with what it lacked.
pub(super) fn highest_rate(
    options: &Options,
    progress: &mut dyn Progress,
    cancel: &CancellationToken,
) -> Result<(u32, Vec<String>), DemoError> {
    first_without_objections(RATES_MBIT, |mbit| {
        let measured = trial(options, mbit).run(&mut Trying { mbit, progress }, cancel)?;
        Ok(validity::objections(&measured))
    })
}

/// Tries rates until one has no objection. The last one stands in any case, with its objections.
fn first_without_objections<E>(
    rates: impl IntoIterator<Item = u32>,
    mut objections_at: impl FnMut(u32) -> Result<Vec<String>, E>,
) -> Result<(u32, Vec<String>), E> {
    let mut last = (0, Vec::new());
    for mbit in rates {
        let objections = objections_at(mbit)?.into_iter();
        last = (
            mbit,
            objections
                .map(|it| format!("tried at {mbit} Mbit/s: {it}"))
                .collect(),
        );
        if last.1.is_empty() {
            break;
        }
    }
    Ok(last)
}

/// The mode that asks most of the machine, which comes last, for a moment.
fn trial(options: &Options, mbit: u32) -> Experiment {
    let heaviest = modes(options).pop();
    Experiment {
        modes: Vec::from_iter(heaviest),
        drain: Duration::ZERO,
        ..experiment(options, [mbit; 2], TRIAL, 1)
    }
}

/// Says which rate is tried, in place of the mode.
struct Trying<'a> {
    mbit: u32,
    progress: &'a mut dyn Progress,
}

impl Progress for Trying<'_> {
    fn update(&mut self, status: &Status<'_>) {
        let mode = format!("trying {} Mbit/s", self.mbit);
        self.progress.update(&Status {
            mode: &mode,
            done: 0.0,
            ..*status
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(carried: u32) -> (u32, Vec<String>, usize) {
        let mut trials = 0;
        let (mbit, objections) = first_without_objections([100, 50, 10], |mbit| {
            trials += 1;
            let lacked = (mbit > carried).then(|| "late".to_owned());
            Ok::<_, DemoError>(Vec::from_iter(lacked))
        })
        .expect("no trial fails");
        (mbit, objections, trials)
    }

    #[test]
    fn highest_rate_that_is_carried_is_taken_and_none_below_is_tried() {
        assert_eq!(tried(100), (100, Vec::new(), 1));
        assert_eq!(tried(70), (50, Vec::new(), 2));
    }

    #[test]
    fn lowest_rate_is_taken_with_its_objections_where_none_is_carried() {
        let objections = vec!["tried at 10 Mbit/s: late".to_owned()];
        assert_eq!(tried(5), (10, objections, 3));
    }
}
