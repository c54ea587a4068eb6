//! What a run is made of, for a campaign of all of them.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use flow_testbed::campaign::Measurement;
use tokio_util::sync::CancellationToken;

use crate::{
    cell::Cell,
    measurement::{self, Timing},
    row::Row,
    scheme::Scheme,
};

/// Building the testbed, applying a scheme and taking both away takes this long, about.
const OVERHEAD: Duration = Duration::from_millis(1_500);

/// How transfers over tunnels are measured.
#[derive(Clone, Debug)]
pub(crate) struct Bonding {
    pub(crate) timing: Timing,
    /// The program `splitter`.
    pub(crate) splitter: PathBuf,
}

impl Measurement for Bonding {
    type Cell = Cell;
    type Scheme = Scheme;
    type Row = Row;

    fn name(scheme: Scheme) -> &'static str {
        scheme.name()
    }

    fn case(cell: &Cell) -> String {
        cell.case.name.to_owned()
    }

    fn run_of(row: &Row) -> (&str, u64) {
        (&row.scheme, row.seed)
    }

    fn settings(&self) -> String {
        format!("{:?}", self.timing)
    }

    fn run_length(&self) -> Duration {
        self.timing.whole() + Duration::from_secs(1) + OVERHEAD
    }

    fn obstacle(&self, cell: &Cell, scheme: Scheme) -> Result<Option<String>> {
        scheme.obstacle(cell.case, &self.splitter)
    }

    fn run(
        &self,
        cell: &Cell,
        scheme: Scheme,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<(Vec<Row>, String)> {
        let outcome = measurement::run(cell, scheme, seed, self.timing, &self.splitter, cancel)?;
        let row = Row::new(cell, scheme, seed, &outcome);
        let summary = format!("{:.3} of the sum", row.share_of_sum);
        Ok((vec![row], summary))
    }
}

#[cfg(test)]
mod tests {
    use flow_testbed::campaign::Campaign;

    use super::*;
    use crate::cell;

    #[test]
    fn quick_run_takes_ten_minutes_at_the_most() {
        let quick = Campaign {
            measurement: Bonding {
                timing: Timing::QUICK,
                splitter: PathBuf::new(),
            },
            cells: cell::chosen(None, true),
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
    fn runs_that_count_for_longer_are_others() {
        let bonding = |timing| Bonding {
            timing,
            splitter: PathBuf::new(),
        };
        assert_ne!(
            bonding(Timing::QUICK).settings(),
            bonding(Timing::FULL).settings()
        );
    }
}
