//! Predictions of cells' flows by the simulator, beside rows that were measured before: nothing is measured.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Instant};

use anyhow::{Context as _, Result, bail, ensure};
use flow_report::{Median, Summary, Table};
use serde::Serialize;

use crate::{
    cell::{Cell, SizeClass},
    change::Variation,
    measurement::Timing,
    prediction::{self, DRAWS, Prediction},
    row::Row,
    schedule::Schedule,
    scheme::Scheme,
};

/// So many seeds at the most, of which the first is 1.
pub(crate) const MOST_SEEDS: u64 = 1_000;

/// The part of a simulation that is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct ForecastArguments {
    /// Print what the simulator has for the flows of the cells, and measure nothing, which needs no root.
    #[arg(long, conflicts_with_all = ["resume", "out", "splitter"])]
    pub(crate) predict: bool,
    /// Rows that --json printed before, to stand beside the simulator's: their cells, schemes and seeds are simulated,
    /// as far as others are not asked for.
    #[arg(long, value_name = "FILE", requires = "predict")]
    pub(crate) measured: Vec<PathBuf>,
    /// Simulate once more with a key of the scenario changed, such as transport.recovery=sack, or with several that have a
    /// semicolon between them, to see what is due to it.
    #[arg(long, value_name = "KEY=VALUE", requires = "predict")]
    vary: Vec<Variation>,
    /// Print comma-separated values instead of a table.
    #[arg(long, requires = "predict", conflicts_with = "json")]
    pub(crate) csv: bool,
}

/// What is simulated.
#[derive(Debug)]
pub(crate) struct Forecast {
    pub(crate) cells: Vec<Cell>,
    pub(crate) schemes: Vec<Scheme>,
    pub(crate) seeds: BTreeSet<u64>,
    pub(crate) timing: Timing,
    /// The first is none.
    variations: Vec<Variation>,
    measured: Vec<Row>,
}

/// Flows of a class with a scheme in a cell, simulated and, if there are such rows, measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ForecastRow {
    case: String,
    load: f64,
    scheme: &'static str,
    size_class: &'static str,
    /// Keys of the scenario that were changed, or `-`.
    changed: String,
    seeds: u64,
    /// Of one simulation of each seed.
    flows: u64,
    /// Of the flows of all seeds, each seed simulated eight times.
    predicted_mean_ms: f64,
    measured_mean_ms: Option<f64>,
    /// Simulated by measured: of the means above, and of the means of each seed the least and the greatest.
    mean_ratio: Option<f64>,
    mean_ratio_least: Option<f64>,
    mean_ratio_greatest: Option<f64>,
    /// The mean over seeds of each seed's 99th percentile.
    predicted_p99_ms: f64,
    measured_p99_ms: Option<f64>,
    p99_ratio: Option<f64>,
    /// The part of the segments that one with a higher number had overtaken, those sent again left out, of flows that
    /// start after the warm-up; in the mean over seeds, of all classes.
    predicted_out_of_order: f64,
    /// The part of the packets with data that one sent later had overtaken, those sent again too, of all that came after the
    /// warm-up.
    measured_out_of_order: Option<f64>,
    /// Segments sent again, of flows that start after the warm-up; in the mean over seeds, of all classes.
    predicted_retransmits: f64,
    /// Segments sent again after the warm-up, also by flows that had started in it.
    measured_retransmits: Option<f64>,
}

impl ForecastArguments {
    /// What is to be simulated of cells, of schemes, all if there is none, and of seeds, from 1 to the number.
    pub(crate) fn forecast(
        &self,
        cells: Vec<Cell>,
        schemes: &[Scheme],
        seeds: u64,
        timing: Timing,
    ) -> Result<Forecast> {
        let mut measured: Vec<Row> = Vec::new();
        for file in &self.measured {
            let place = || format!("cannot take rows from {}", file.display());
            let text = fs::read_to_string(file).with_context(place)?;
            let rows: Vec<Row> = serde_json::from_str(&text).with_context(place)?;
            measured.extend(rows);
        }
        check(&measured)?;
        let mut forecast = Forecast {
            cells,
            schemes: match schemes {
                [] => Scheme::ALL.to_vec(),
                some => some.to_vec(),
            },
            seeds: (1..=seeds).collect(),
            timing,
            variations: [Variation::default()]
                .into_iter()
                .chain(self.vary.iter().cloned())
                .collect(),
            measured,
        };
        if !self.measured.is_empty() {
            forecast.narrow()?;
        }
        Ok(forecast)
    }
}

/// Refuses rows that no campaign prints.
fn check(rows: &[Row]) -> Result<()> {
    let mut runs = BTreeSet::new();
    for it in rows {
        let Row { case, load, .. } = it;
        let (scheme, seed, class) = (&it.scheme, it.seed, &it.size_class);
        ensure!(
            (1..=MOST_SEEDS).contains(&seed),
            "a row is of seed {seed}; there are 1 to {MOST_SEEDS}"
        );
        ensure!(
            runs.insert((case, load.to_bits(), scheme, seed, class)),
            "there are two rows of {class} flows by {scheme} in {case}-load{load} with seed {seed}"
        );
    }
    Ok(())
}

impl Forecast {
    /// Leaves what was measured, and of that what is asked for.
    fn narrow(&mut self) -> Result<()> {
        let rows = &mut self.measured;
        rows.retain(|it| self.cells.iter().any(|cell| it.is_in(cell)));
        rows.retain(|it| self.schemes.iter().any(|scheme| it.scheme == scheme.name()));
        rows.retain(|it| self.seeds.contains(&it.seed));
        ensure!(
            !rows.is_empty(),
            "none of the rows is of a cell, a scheme and a seed that are asked for"
        );
        let has = |is_of: &dyn Fn(&Row) -> bool| rows.iter().any(is_of);
        self.cells.retain(|cell| has(&|it| it.is_in(cell)));
        self.schemes
            .retain(|scheme| has(&|it| it.scheme == scheme.name()));
        self.seeds = rows.iter().map(|it| it.seed).collect();
        Ok(())
    }

    /// Simulates everything; says on standard error how far it is.
    pub(crate) fn run(&self) -> Result<Vec<ForecastRow>> {
        let mut all = Vec::new();
        for (number, cell) in (1..).zip(&self.cells) {
            for scheme in &self.schemes {
                if let Some(reason) = prediction::obstacle(cell, *scheme) {
                    eprintln!("not available: {} in {cell}: {reason}", scheme.name());
                    continue;
                }
                for variation in &self.variations {
                    let began = Instant::now();
                    let runs = self.runs(cell, *scheme, variation)?;
                    eprintln!(
                        "cell {number} of {}: {cell}, changed: {variation}: {} simulated {} times ({:.1} s)",
                        self.cells.len(),
                        scheme.name(),
                        runs.len() as u64 * DRAWS,
                        began.elapsed().as_secs_f64()
                    );
                    let row = |class| self.row(cell, (*scheme, variation), class, &runs);
                    all.extend(SizeClass::ALL.into_iter().filter_map(row));
                }
            }
        }
        Ok(all)
    }

    /// Each seed's prediction: of those that were measured, or of all.
    fn runs(
        &self,
        cell: &Cell,
        scheme: Scheme,
        variation: &Variation,
    ) -> Result<Vec<(u64, Prediction)>> {
        let mut runs = Vec::new();
        for &seed in &self.seeds {
            let mut own = self.of_run(cell, scheme, seed).peekable();
            if !self.measured.is_empty() && own.peek().is_none() {
                continue;
            }
            let length = self.timing.warm_up + self.timing.counting;
            let schedule = Schedule::draw(cell, length, seed)?;
            let counted = (&schedule, self.timing.warm_up);
            let predicted = prediction::of(cell, scheme, seed, counted, variation)?;
            let Some(predicted) = predicted else {
                bail!("{cell} has no flows with seed {seed}, or too many to simulate");
            };
            for row in own {
                let class = SizeClass::ALL
                    .into_iter()
                    .find(|it| it.name() == row.size_class);
                let flows = class.map(|it| predicted.flows(it));
                ensure!(
                    flows == Some(row.flows),
                    "the rows have {} {} flows in {cell} with seed {seed}, where so many seconds, hosts and Mbit/s have {}: \
                     say --quick, --seconds, --hosts and --rate-mbit as when they were measured",
                    row.flows,
                    row.size_class,
                    flows.unwrap_or(0)
                );
            }
            runs.push((seed, predicted));
        }
        Ok(runs)
    }

    fn of_run(&self, cell: &Cell, scheme: Scheme, seed: u64) -> impl Iterator<Item = &Row> {
        let rows = self.measured.iter();
        rows.filter(move |it| it.is_in(cell) && it.scheme == scheme.name() && it.seed == seed)
    }

    /// The row of a class; nothing without a flow.
    fn row(
        &self,
        cell: &Cell,
        (scheme, variation): (Scheme, &Variation),
        class: SizeClass,
        runs: &[(u64, Prediction)],
    ) -> Option<ForecastRow> {
        let of_seed = |(seed, predicted): &(u64, Prediction)| {
            let mut own = self.of_run(cell, scheme, *seed);
            Some(SeedPair {
                flows: predicted.flows(class) as f64,
                mean_ms: predicted.mean_ms(class)?,
                p99_ms: predicted.p99_ms(class)?,
                measured: own.find(|it| it.size_class == class.name()),
            })
        };
        let pairs: Vec<SeedPair<'_>> = runs.iter().filter_map(of_seed).collect();
        let flows: f64 = pairs.iter().map(|it| it.flows).sum();
        let mean_of = |figure: &dyn Fn(&SeedPair<'_>) -> Option<f64>| {
            let each: Option<Vec<f64>> = pairs.iter().map(figure).collect();
            each.filter(|it| !it.is_empty())
                .map(|it| Summary::new(it).mean())
        };
        let by_flows = |figure: &dyn Fn(&SeedPair<'_>) -> Option<f64>| {
            let weighted = |it: &SeedPair<'_>| Some(figure(it)? * it.flows);
            let sum: Option<f64> = pairs.iter().map(weighted).sum();
            sum.map(|it| it / flows)
        };
        let measured_mean = |it: &SeedPair<'_>| it.measured?.mean_ms;
        let ratios = pairs
            .iter()
            .filter_map(|it| Some(it.mean_ms / measured_mean(it)?));
        let ratios = Median::of(ratios);
        let predicted_mean_ms = by_flows(&|it| Some(it.mean_ms)).filter(|_| flows > 0.0)?;
        let predicted_p99_ms = mean_of(&|it| Some(it.p99_ms))?;
        let measured_mean_ms = by_flows(&measured_mean);
        let measured_p99_ms = mean_of(&|it| it.measured?.p99_ms);
        let of_runs = |figure: fn(&Prediction) -> f64| {
            Summary::new(runs.iter().map(|it| figure(&it.1))).mean()
        };
        Some(ForecastRow {
            case: cell.case(),
            load: cell.load,
            scheme: scheme.name(),
            size_class: class.name(),
            changed: variation.to_string(),
            seeds: pairs.len() as u64,
            flows: flows as u64,
            predicted_mean_ms,
            measured_mean_ms,
            mean_ratio: measured_mean_ms.map(|it| predicted_mean_ms / it),
            mean_ratio_least: ratios.map(|it| it.least),
            mean_ratio_greatest: ratios.map(|it| it.greatest),
            predicted_p99_ms,
            measured_p99_ms,
            p99_ratio: measured_p99_ms.map(|it| predicted_p99_ms / it),
            predicted_out_of_order: of_runs(Prediction::out_of_order),
            measured_out_of_order: mean_of(&|it| Some(it.measured?.out_of_order)),
            predicted_retransmits: of_runs(Prediction::retransmits),
            measured_retransmits: mean_of(&|it| Some(it.measured?.retransmits as f64)),
        })
    }
}

/// A seed's flows of a class, simulated and measured.
struct SeedPair<'r> {
    flows: f64,
    mean_ms: f64,
    p99_ms: f64,
    measured: Option<&'r Row>,
}

/// Titles of the columns: those of a class stand once for each.
const COLUMNS: [&str; 3] = ["cell", "scheme", "changed"];
const OF_CLASS: [&str; 4] = ["ms", "measured ms", "ratio", "p99 ratio"];
const OF_RUNS: [&str; 4] = [
    "out of order %",
    "measured out of order %",
    "sent again",
    "measured sent again",
];

/// A line for each cell, scheme and variation.
pub(crate) fn table(rows: &[ForecastRow]) -> Table {
    let classes = SizeClass::ALL.map(SizeClass::name);
    let of_classes = classes
        .iter()
        .flat_map(|class| OF_CLASS.map(|it| format!("{class} {it}")));
    let columns = COLUMNS.map(str::to_owned).into_iter().chain(of_classes);
    let mut table = Table::new(columns.chain(OF_RUNS.map(str::to_owned)));
    let is_same = |one: &ForecastRow, other: &ForecastRow| {
        let key = |it: &ForecastRow| (it.case.clone(), it.load, it.scheme, it.changed.clone());
        key(one) == key(other)
    };
    for of_scheme in rows.chunk_by(is_same) {
        table.row(line(of_scheme, &classes));
    }
    table
}

/// The line of rows that differ by their class alone.
fn line(rows: &[ForecastRow], classes: &[&str]) -> Vec<String> {
    let text = |digits: usize, value: Option<f64>| {
        value.map_or_else(|| "-".to_owned(), |it| format!("{it:.digits$}"))
    };
    let any = &rows[0];
    let mut cells = vec![
        format!("{}-load{}", any.case, any.load),
        any.scheme.to_owned(),
        any.changed.clone(),
    ];
    for class in classes {
        let row = rows.iter().find(|it| it.size_class == *class);
        let ratio = row.and_then(|it| {
            let (least, greatest) = (it.mean_ratio_least?, it.mean_ratio_greatest?);
            Some(format!("{:.2} [{least:.2}, {greatest:.2}]", it.mean_ratio?))
        });
        cells.extend([
            text(2, row.map(|it| it.predicted_mean_ms)),
            text(2, row.and_then(|it| it.measured_mean_ms)),
            ratio.unwrap_or_else(|| "-".to_owned()),
            text(2, row.and_then(|it| it.p99_ratio)),
        ]);
    }
    cells.extend([
        text(1, Some(any.predicted_out_of_order * 100.0)),
        text(1, any.measured_out_of_order.map(|it| it * 100.0)),
        text(0, Some(any.predicted_retransmits)),
        text(0, any.measured_retransmits),
    ]);
    cells
}

#[cfg(test)]
mod tests;
