//! Figures of the splitter in the simulator: a column beside that of real packets, and an item of its own.

use std::path::Path;

use anyhow::Result;
use flow_report::{Axis, Plot, Series, Table};
use serde_json::{Value, json};

use super::{Effort, Measured, cell::RATE_MBIT, simulated::Network};
use crate::{
    check::{self, Check},
    figure::Figure,
};

/// The items that are simulated: all but `S5`, which is the time that programs take.
pub const SIMULATED: [usize; 5] = [1, 2, 3, 4, 6];
/// The network whose checks make the item's verdict: the paper's rate.
const OF_THE_PAPER: usize = 1;

/// Simulated figures, each at three rates.
pub struct Simulation<'a> {
    networks: [(Network, Measured<'a>); 3],
}

impl<'a> Simulation<'a> {
    /// Nothing yet. Rounds go to, and come from, `directory`.
    pub fn new(effort: &Effort, directory: &'a Path, jobs: usize) -> Self {
        let measured = |network| {
            let measured = Measured::simulated(effort.clone(), directory, network, jobs);
            (network, measured)
        };
        Self {
            networks: effort.networks.map(measured),
        }
    }

    /// A figure of real packets with what the simulator makes of it; `number` is one of [`SIMULATED`].
    ///
    /// # Errors
    ///
    /// If a round cannot be written.
    pub fn beside(&self, number: usize, figure: Figure) -> Result<Figure> {
        let simulated = self.figures(number)?;
        let mut figure = figure.corrected();
        let packets = format!("packets, {RATE_MBIT} Mbit/s");
        let names = simulated.iter().map(|it| &it.0);
        let header = ["check", "paper", "band", &packets].map(str::to_owned);
        let mut table = Table::new(header.into_iter().chain(names.cloned()));
        for check in &simulated[0].1.checks {
            let of = |figure: &Figure| {
                let same = figure.checks.iter().find(|it| it.what == check.what);
                same.map_or_else(|| "not measured".to_owned(), outcome)
            };
            let cells = [&check.what, &check.paper, &check.band].map(String::clone);
            let ours = simulated.iter().map(|it| of(&it.1));
            table.row(cells.into_iter().chain([of(&figure)]).chain(ours));
        }
        figure.tables.push(table);
        figure.columns = simulated[0].1.columns.clone();
        figure.columns.insert(0, "network");
        let own = std::mem::take(&mut figure.rows);
        let all = [(packets, own)].into_iter();
        let all = all.chain(simulated.into_iter().map(|it| (it.0, it.1.rows)));
        for (network, rows) in all {
            let named = rows.into_iter().map(|mut row| {
                row["network"] = json!(network);
                row
            });
            figure.rows.extend(named);
        }
        Ok(figure)
    }

    /// All of it as an item, whose checks are those at the paper's rate.
    ///
    /// # Errors
    ///
    /// If a round cannot be written.
    pub fn figure(&self) -> Result<Figure> {
        // Of each rate, which are judged together.
        let mut checks = self.networks.each_ref().map(|_| Vec::new());
        let mut rows = Vec::new();
        let names = self.networks.each_ref().map(|it| it.0.name());
        let header = ["check", "paper", "band"].map(str::to_owned);
        let mut table = Table::new(header.into_iter().chain(names));
        for number in SIMULATED {
            for ((network, figure), checks) in self.figures(number)?.into_iter().zip(&mut checks) {
                let mine = figure.rows.iter();
                rows.extend(mine.flat_map(|it| values(number, &network, it)));
                checks.extend(figure.checks.into_iter().map(|it| Check {
                    what: format!("S{number}, {}", it.what),
                    ..it
                }));
            }
        }
        checks.iter_mut().for_each(|it| check::correct(it));
        for (index, of_paper) in checks[OF_THE_PAPER].iter().enumerate() {
            let cells = [&of_paper.what, &of_paper.paper, &of_paper.band].map(String::clone);
            let ours = checks.iter().map(|it| outcome(&it[index]));
            table.row(cells.into_iter().chain(ours));
        }
        let checks = std::mem::take(&mut checks[OF_THE_PAPER]);
        Ok(Figure {
            id: "wan",
            title: "figures 4 to 6, simulated at the paper's rate and beside it",
            note: self.note(),
            checks,
            plots: vec![
                plot(
                    &rows,
                    2,
                    "load_percent",
                    Axis::linear("background, % of both tunnels").range(0.0, 45.0),
                ),
                plot(&rows, 1, "threshold", Axis::log("threshold in packets")),
            ],
            rows,
            columns: COLUMNS.to_vec(),
            tables: vec![table],
        })
    }

    fn figures(&self, number: usize) -> Result<Vec<(String, Figure)>> {
        let figure = |(network, measured): &(Network, Measured<'_>)| {
            Ok((network.name(), measured.figure(number)?.corrected()))
        };
        self.networks.iter().map(figure).collect()
    }

    fn note(&self) -> String {
        let each = self.networks.each_ref().map(|(network, _)| {
            format!(
                "{}: {} s, of which {} s count, videos and uploads {} times as large as on real packets",
                network.name(),
                network.length.whole_s,
                network.length.whole_s - network.length.warm_up_s,
                network.size_factor,
            )
        });
        format!(
            "Both borders run the policy that the kernel runs. {}. Verdicts are those at 1 Gbit/s.",
            each.join("; ")
        )
    }
}

/// What was measured, and whether it is what the paper says.
fn outcome(check: &Check) -> String {
    let verdict = check.verdict();
    let word = verdict.split(':').next().unwrap_or_default();
    match check.ours.is_empty() {
        true => word.to_owned(),
        false => format!("{}, {word}", check.ours),
    }
}

/// The fields of the item's rows.
const COLUMNS: [&str; 9] = [
    "item",
    "network",
    "load_percent",
    "threshold",
    "splitter",
    "baseline",
    "statistic",
    "value",
    "half_width",
];

/// The values of a figure's row, one in a row. Of `S6` that is the goodput alone, for the speed-up is that of `S2`.
fn values(number: usize, network: &str, row: &Value) -> Option<Value> {
    let (statistic, value, half_width) = match number {
        1 | 2 => (json!("speed-up"), &row["speed_up"], &row["half_width"]),
        6 => (
            json!("goodput"),
            &row["goodput_ratio"],
            &row["goodput_half_width"],
        ),
        3 => (
            json!(format!("jitter, {}", row["statistic"].as_str()?)),
            &row["ratio"],
            &row["half_width"],
        ),
        _ => (
            json!(format!("completion time, {}", row["statistic"].as_str()?)),
            &row["ratio"],
            &row["half_width"],
        ),
    };
    Some(json!({
        "item": format!("S{number}"), "network": network, "load_percent": row["load_percent"],
        "threshold": row["threshold"], "splitter": row["splitter"], "baseline": row["baseline"],
        "statistic": statistic, "value": value, "half_width": half_width,
    }))
}

/// Speed-ups of `dedicated` against per-flow ECMP, at 40 % load where the load is not what varies.
fn plot(rows: &[Value], number: usize, over: &str, axis: Axis) -> Plot {
    let item = format!("S{number}");
    let is_mine = |row: &&Value| {
        let is_headline = row["splitter"] == "dedicated" && row["baseline"] == "ecmp_flow";
        row["item"] == item
            && (is_headline || (row["splitter"].is_null() && row["load_percent"] == 40))
    };
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in rows.iter().filter(is_mine) {
        let (Some(network), Some(at), Some(value)) = (
            row["network"].as_str(),
            row[over].as_f64(),
            row["value"].as_f64(),
        ) else {
            continue;
        };
        match lines.iter_mut().find(|it| it.0 == network) {
            Some((_, points)) => points.push((at, value)),
            None => lines.push((network.to_owned(), vec![(at, value)])),
        }
    }
    let plot = Plot::new(
        format!("{item}: speed-up of listings, dedicated against per-flow ECMP"),
        axis,
        Axis::linear("speed-up of the mean completion time"),
    );
    lines.into_iter().fold(plot, |plot, (name, points)| {
        plot.with(Series::line(name, points))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitter::cell::Length;

    /// Runs that are long enough to have some listings, at each rate.
    fn effort() -> Effort {
        let quick = Effort::quick();
        let length = |rate_mbit: u32| Length {
            whole_s: 400.0 / f64::from(rate_mbit),
            warm_up_s: 10.0 / f64::from(rate_mbit),
        };
        Effort {
            rounds: 2,
            thresholds: vec![10],
            networks: quick.networks.map(|it| Network {
                length: length(it.rate_mbit),
                ..it
            }),
            ..quick
        }
    }

    #[test]
    fn figure_of_packets_gets_a_column_for_each_rate() {
        let directory = tempfile::tempdir().expect("a directory");
        let effort = effort();
        let simulation = Simulation::new(&effort, directory.path(), 2);
        let absent = super::super::absent("S2", "a title", &[]);
        let figure = simulation.beside(2, absent).expect("it is simulated");
        let records: Vec<_> = figure.tables[0].records().collect();
        let names = [
            "packets, 100 Mbit/s",
            "simulated, 100 Mbit/s",
            "simulated, 1 Gbit/s",
            "simulated, 10 Gbit/s",
        ];
        assert_eq!(records[0][3..], names);
        assert_eq!(records.len(), 4);
        for row in &records[1..] {
            assert_eq!(row[3], "not measured");
            assert!(row[4..].iter().all(|it| it.contains('±')), "{row:?}");
        }
        assert_eq!(figure.columns[0], "network");
        for name in &names[1..] {
            let mine = figure.rows.iter().filter(|it| it["network"] == *name);
            // One pair at each load, and all four at the last.
            assert_eq!(mine.count(), 7, "{name}");
        }
        // What was measured on packets decides.
        assert_eq!(figure.checks.len(), 1);
        assert!(figure.checks[0].undecided);
    }

    #[test]
    fn item_has_the_checks_of_all_simulated_items_at_the_papers_rate() {
        let directory = tempfile::tempdir().expect("a directory");
        let effort = effort();
        let simulation = Simulation::new(&effort, directory.path(), 2);
        let figure = simulation.figure().expect("it is simulated");
        for number in SIMULATED {
            let name = format!("S{number}");
            assert!(figure.checks.iter().any(|it| it.what.starts_with(&name)));
            for (network, _) in &simulation.networks {
                let network = network.name();
                let is_mine = |it: &&Value| it["item"] == name && it["network"] == network;
                let row = figure.rows.iter().find(is_mine);
                let row = row.unwrap_or_else(|| panic!("{name} has no row of {network}"));
                assert!(row["value"].is_f64(), "{row}");
            }
        }
        let of_all = simulation.figures(2).expect("they are known");
        let of_paper = of_all.iter().find(|it| it.0 == "simulated, 1 Gbit/s");
        let expected = &of_paper.expect("the paper's rate").1.checks[0].ours;
        let found = figure.checks.iter().find(|it| it.what.starts_with("S2"));
        assert_eq!(&found.expect("a check").ours, expected);
        // All checks are judged together, and the table has what the item has.
        let judged: Vec<String> = figure.checks.iter().map(outcome).collect();
        let records: Vec<_> = figure.tables[0].records().collect();
        assert_eq!(records[0][4], "simulated, 1 Gbit/s");
        let in_table: Vec<&str> = records[1..].iter().map(|it| &*it[4]).collect();
        assert_eq!(in_table, judged);
    }

    #[test]
    fn rows_have_the_value_of_their_statistic() {
        let row = json!({
            "load_percent": 10, "splitter": "share", "baseline": "ecmp_flow", "threshold": 3, "statistic": "mean",
            "speed_up": 1.0, "half_width": 0.1, "goodput_ratio": 2.0, "goodput_half_width": 0.2, "ratio": 3.0,
        });
        for (number, statistic, value, half_width) in [
            (1, "speed-up", 1.0, 0.1),
            (2, "speed-up", 1.0, 0.1),
            (3, "jitter, mean", 3.0, 0.1),
            (4, "completion time, mean", 3.0, 0.1),
            (6, "goodput", 2.0, 0.2),
        ] {
            let found = values(number, "a network", &row).expect("a row");
            assert_eq!(found["statistic"], statistic);
            assert_eq!(
                (&found["value"], &found["half_width"]),
                (&json!(value), &json!(half_width))
            );
            assert_eq!(
                (&found["network"], &found["load_percent"]),
                (&json!("a network"), &json!(10))
            );
        }
    }
}
