//! What a run is made of, for a campaign of all of them.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use flow_testbed::campaign::Measurement;
use tokio_util::sync::CancellationToken;

use crate::{
    cell::{Cell, Shape, SizeClass},
    change::Variation,
    measurement::{self, Timing},
    prediction,
    row::Row,
    scheme::Scheme,
};

/// Building a fabric of two leaves, applying a scheme and taking both away takes this long, about; and each leaf
/// more so much more.
const OVERHEAD: Duration = Duration::from_millis(2_500);
const OVERHEAD_OF_LEAF: Duration = Duration::from_millis(1_000);

/// How flows through a fabric are measured.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    pub(crate) timing: Timing,
    pub(crate) shape: Shape,
    /// The program `splitter`.
    pub(crate) splitter: PathBuf,
}

impl Measurement for Fabric {
    type Cell = Cell;
    type Scheme = Scheme;
    type Row = Row;

    fn name(scheme: Scheme) -> &'static str {
        scheme.name()
    }

    fn case(cell: &Cell) -> String {
        cell.case()
    }

    fn run_of(row: &Row) -> (&str, u64) {
        (&row.scheme, row.seed)
    }

    fn settings(&self) -> String {
        format!(
            "{:?}, {} hosts a leaf, {} Mbit/s with bursts of {} bytes, {:?}",
            self.timing,
            self.shape.hosts,
            self.shape.rate_mbit,
            self.shape.burst_bytes,
            self.shape.tcp
        )
    }

    fn run_length(&self) -> Duration {
        let more = u32::from(self.shape.leaves.saturating_sub(2));
        self.timing.whole() + OVERHEAD + OVERHEAD_OF_LEAF * more
    }

    fn obstacle(&self, cell: &Cell, scheme: Scheme) -> Result<Option<String>> {
        scheme.obstacle(cell, &self.splitter)
    }

    fn run(
        &self,
        cell: &Cell,
        scheme: Scheme,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<(Vec<Row>, String)> {
        let outcome = measurement::run(cell, scheme, seed, self.timing, &self.splitter, cancel)?;
        let predicted = prediction::of(
            cell,
            scheme,
            seed,
            (&outcome.schedule, outcome.warm_up),
            &Variation::default(),
        )?;
        let rows = SizeClass::ALL.map(|class| {
            let predicted_ms = predicted.as_ref().and_then(|it| it.mean_ms(class));
            Row::new(cell, scheme, seed, class, &outcome, predicted_ms)
        });
        let short_ms = rows[0].mean_ms.unwrap_or(f64::NAN);
        let summary = format!("short flows of {short_ms:.2} ms");
        Ok((rows.into(), summary))
    }
}

#[cfg(test)]
mod tests {
    use flow_testbed::campaign::Campaign;

    use super::*;
    use crate::{
        cell::{self, tests::SHAPE},
        tcp::{Control, Tcp},
    };

    fn fabric(timing: Timing, shape: Shape) -> Fabric {
        Fabric {
            timing,
            shape,
            splitter: PathBuf::new(),
        }
    }

    #[test]
    fn quick_run_takes_ten_minutes_at_the_most() {
        let shape = Shape { leaves: 4, ..SHAPE };
        let quick = Campaign {
            measurement: fabric(Timing::QUICK, shape),
            cells: cell::chosen(shape, None, true),
            schemes: Scheme::ALL.to_vec(),
            seeds: 3,
            out: PathBuf::new(),
            resume: true,
        };
        assert!(
            quick.length() <= Duration::from_secs(600),
            "{:?}",
            quick.length()
        );
    }

    #[test]
    fn runs_of_other_links_or_tcp_or_for_longer_are_others() {
        let settings = |timing, rate_mbit| {
            let shape = Shape { rate_mbit, ..SHAPE };
            fabric(timing, shape).settings()
        };
        let quick = settings(Timing::QUICK, 70);
        assert_ne!(quick, settings(Timing::FULL, 70));
        assert_ne!(quick, settings(Timing::QUICK, 50));
        let tcp = Tcp {
            control: Control::Reno,
            ..SHAPE.tcp
        };
        let shape = Shape { tcp, ..SHAPE };
        assert_ne!(quick, fabric(Timing::QUICK, shape).settings());
    }
}
