use std::{fs, path::Path};

use super::*;

/// Measures nothing: a run has two rows with its scheme and seed.
#[derive(Clone, Debug)]
struct Dummy {
    settings: &'static str,
}

impl Measurement for Dummy {
    type Cell = &'static str;
    type Scheme = &'static str;
    type Row = (String, u64, u8);

    fn name(scheme: Self::Scheme) -> &'static str {
        scheme
    }

    fn case(cell: &Self::Cell) -> String {
        cell[..1].to_owned()
    }

    fn run_of((scheme, seed, _): &Self::Row) -> (&str, u64) {
        (scheme, *seed)
    }

    fn settings(&self) -> String {
        self.settings.to_owned()
    }

    fn run_length(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn obstacle(&self, cell: &Self::Cell, scheme: Self::Scheme) -> Result<Option<String>> {
        let lacks = cell.starts_with('b') && scheme == "two";
        Ok(lacks.then(|| "it is not built".to_owned()))
    }

    fn run(
        &self,
        _: &Self::Cell,
        scheme: Self::Scheme,
        seed: u64,
        _: &CancellationToken,
    ) -> Result<(Vec<Self::Row>, String)> {
        let row = |part| (scheme.to_owned(), seed, part);
        Ok((vec![row(1), row(2)], "two rows".to_owned()))
    }
}

fn campaign(out: &Path) -> Campaign<Dummy> {
    Campaign {
        measurement: Dummy { settings: "1 s" },
        cells: vec!["a-1", "b-1", "b-2"],
        schemes: vec!["one", "two"],
        seeds: 2,
        out: out.to_owned(),
        resume: true,
    }
}

#[test]
fn finished_cell_is_taken_over_if_it_is_whole_and_alike() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let campaign = campaign(directory.path());
    assert_eq!(campaign.length(), Duration::from_secs(24));
    let (cell, schemes) = ("a-1", ["one", "two"]);
    let finished = FinishedCells::open(directory.path(), true)?;
    assert_eq!(campaign.known(&finished, &cell, &schemes), None);
    let rows = campaign.measure(1, &cell, &schemes, &CancellationToken::new())?;
    assert_eq!(rows.len(), 8);
    finished.keep(cell, &campaign.conditions(), &rows)?;
    assert_eq!(campaign.known(&finished, &cell, &schemes), Some(rows));

    let [mut more, mut longer] = [(); 2].map(|()| campaign.clone());
    more.seeds = 3;
    assert_eq!(more.known(&finished, &cell, &schemes), None);
    longer.measurement.settings = "2 s";
    assert_eq!(longer.known(&finished, &cell, &schemes), None);
    // A scheme that can be measured by now, and one that was measured and is not asked for.
    let three = ["one", "two", "three"];
    assert_eq!(campaign.known(&finished, &cell, &three), None);
    let one = campaign.known(&finished, &cell, &["one"]);
    assert_eq!(one.map(|rows| rows.len()), Some(4));
    Ok(())
}

#[test]
fn rows_that_a_later_campaign_does_not_ask_for_are_kept() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut campaign = campaign(directory.path());
    campaign.cells.truncate(1);
    let (all, _) = campaign.run(&CancellationToken::new())?;
    let mut later = campaign.clone();
    later.schemes = vec!["one"];
    later.seeds = 3;
    let (rows, _) = later.run(&CancellationToken::new())?;
    assert_eq!(rows.len(), 6, "three seeds, two rows");
    let (again, _) = campaign.run(&CancellationToken::new())?;
    assert_eq!(again.len(), all.len());
    let finished = FinishedCells::open(directory.path(), true)?;
    let schemes = campaign.schemes_of(&campaign.cells[0], &[]);
    assert!(
        campaign
            .known(&finished, &campaign.cells[0], &schemes)
            .is_some()
    );
    Ok(())
}

#[test]
fn scheme_with_an_obstacle_is_skipped_once_for_each_case() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let campaign = campaign(directory.path());
    let (rows, skips) = campaign.run(&CancellationToken::new())?;
    // Two schemes with a, one with each of both cells of b; two seeds, two rows.
    assert_eq!(rows.len(), 4 * 2 * 2);
    let skips: Vec<_> = skips.iter().map(Skip::to_string).collect();
    assert_eq!(skips, ["two with b: it is not built"]);
    assert_eq!(fs::read_dir(directory.path())?.count(), 3);
    Ok(())
}

#[test]
fn cancelled_campaign_keeps_no_cell() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let ended = campaign(directory.path()).run(&cancel);
    assert_eq!(
        ended.err().map(|it| it.to_string()).as_deref(),
        Some("cancelled")
    );
    assert_eq!(fs::read_dir(directory.path())?.count(), 0);
    Ok(())
}
