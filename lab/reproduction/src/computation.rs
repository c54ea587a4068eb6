//! C1: computation overhead (Cloudburst §IV-A, figure 7(a)).

use flow_report::{Axis, Plot, Series, Table};
use serde_json::json;

use crate::{
    check::Check,
    figure::Figure,
    sweep::{Accounting, DEGREES, RECOMMENDED_DEGREE, SYMBOLS, Sweep},
};

/// How many standard errors a fall must exceed to count as one: with 70 cells
/// chance makes smaller ones.
const SIGNIFICANT: f64 = 3.0;

/// Most operations at degree 10, of those at degree 5.
const MOST_GROWTH: f64 = 1.5;

/// The figure from a sweep.
pub fn figure(sweep: &Sweep) -> Figure {
    let headline = Accounting::ALL[0];
    let checks = checks(sweep, headline);
    let rows = sweep.cells().iter().map(|cell| {
        let mut row = serde_json::Map::new();
        row.insert("n".to_owned(), json!(cell.n));
        row.insert("d".to_owned(), json!(cell.degree));
        for accounting in Accounting::ALL {
            let mean = cell.operations(accounting).mean();
            row.insert(accounting.name().to_owned(), json!(mean));
        }
        row.into()
    });
    Figure {
        id: "C1",
        title: "XOR operations to reconstruct a message, figure 7(a)",
        note: String::new(),
        checks,
        rows: rows.collect(),
        columns: ["n", "d"]
            .into_iter()
            .chain(Accounting::ALL.map(Accounting::name))
            .collect(),
        tables: vec![by_degree(sweep, headline), by_accounting(sweep)],
        plots: vec![plot(sweep, headline)],
    }
}

fn checks(sweep: &Sweep, accounting: Accounting) -> Vec<Check> {
    let growth: Vec<f64> = SYMBOLS.map(|n| growth(sweep, n, accounting)).into();
    let least = growth.iter().copied().fold(f64::INFINITY, f64::min);
    let most = growth.iter().copied().fold(0.0, f64::max);
    let excess = (most >= MOST_GROWTH).then(|| format!("by {:.2}", most - MOST_GROWTH));
    let (in_n, in_d) = (
        falls_in_n(sweep, accounting),
        falls_in_degree(sweep, accounting),
    );
    let ours = |miss: &Option<String>, rises: &str| match miss {
        None => rises.to_owned(),
        Some(_) => "falls somewhere".to_owned(),
    };
    vec![
        Check::new(
            "with n, each d",
            "increases",
            "strictly",
            ours(&in_n, "rises everywhere"),
            in_n,
        ),
        Check::new(
            "with d, each n",
            "increases",
            "on the mean",
            ours(&in_d, "no fall beyond chance"),
            in_d,
        ),
        Check::new(
            "d = 10 against d = 5, each n",
            "slows down",
            "< 1.5",
            format!("{least:.2} to {most:.2}"),
            excess,
        )
        .with_numbers((0.0, MOST_GROWTH), None, most),
    ]
}

/// Operations at degree 10 against those at the recommended degree.
fn growth(sweep: &Sweep, n: usize, accounting: Accounting) -> f64 {
    let mean = |degree| sweep.cell(n, degree).operations(accounting).mean();
    mean(*DEGREES.end()) / mean(RECOMMENDED_DEGREE)
}

/// Finds where operations do not grow with n; at degree 1 there may be none at all.
fn falls_in_n(sweep: &Sweep, accounting: Accounting) -> Option<String> {
    let mut falls = Vec::new();
    for degree in DEGREES {
        let mean = |n| sweep.cell(n, degree).operations(accounting).mean();
        if mean(SYMBOLS[SYMBOLS.len() - 1]) == 0.0 {
            continue;
        }
        for pair in SYMBOLS
            .windows(2)
            .filter(|pair| mean(pair[0]) >= mean(pair[1]))
        {
            falls.push(format!("d = {degree} from n = {} to {}", pair[0], pair[1]));
        }
    }
    (!falls.is_empty()).then(|| falls.join(", "))
}

/// Finds where operations fall with the degree by more than chance explains, for each n the deepest
/// fall.
fn falls_in_degree(sweep: &Sweep, accounting: Accounting) -> Option<String> {
    let mut falls = Vec::new();
    for n in SYMBOLS {
        let mut deepest: Option<(f64, usize, usize)> = None;
        for lower in DEGREES {
            for higher in lower + 1..=*DEGREES.end() {
                let [a, b] = [lower, higher].map(|it| sweep.cell(n, it).operations(accounting));
                let fall = a.mean() - b.mean();
                let chance = a.standard_error().hypot(b.standard_error());
                let share = fall / a.mean();
                if fall > SIGNIFICANT * chance && deepest.is_none_or(|it| it.0 < share) {
                    deepest = Some((share, lower, higher));
                }
            }
        }
        if let Some((share, lower, higher)) = deepest {
            let percent = 100.0 * share;
            falls.push(format!(
                "{percent:.1} % less at n = {n} from d = {lower} to {higher}"
            ));
        }
    }
    (!falls.is_empty()).then(|| falls.join(", "))
}

fn by_degree(sweep: &Sweep, accounting: Accounting) -> Table {
    let degrees = DEGREES.map(|degree| format!("d={degree}"));
    let mut table = Table::new(
        [format!("n ({})", accounting.name())]
            .into_iter()
            .chain(degrees),
    );
    for n in SYMBOLS {
        let means = sweep.of_size(n).iter().map(|cell| {
            let mean = cell.operations(accounting).mean();
            format!("{mean:.0}")
        });
        table.row([n.to_string()].into_iter().chain(means));
    }
    table
}

/// Judges the paper's sentence by each accounting.
fn by_accounting(sweep: &Sweep) -> Table {
    let mut table = Table::new([
        "counted",
        "n=64 d=3",
        "d=5",
        "d=10",
        "rises with n",
        "rises with d",
        "d=10 / d=5, n=64",
        "each n",
    ]);
    for accounting in Accounting::ALL {
        let checks = checks(sweep, accounting);
        let mean = |degree| {
            let mean = sweep.cell(64, degree).operations(accounting).mean();
            format!("{mean:.0}")
        };
        table.row([
            accounting.name().to_owned(),
            mean(3),
            mean(RECOMMENDED_DEGREE),
            mean(10),
            checks[0].verdict(),
            checks[1].verdict(),
            format!("{:.2}", growth(sweep, 64, accounting)),
            format!("{}, {}", checks[2].ours, checks[2].verdict()),
        ]);
    }
    table
}

fn plot(sweep: &Sweep, accounting: Accounting) -> Plot {
    let title = "XOR operations to reconstruct a message of n symbols";
    let x = Axis::linear("degree d").range(1.0, 10.0);
    let plot = Plot::new(title, x, Axis::log("XOR operations on symbols"));
    SYMBOLS.into_iter().fold(plot, |plot, n| {
        let points = sweep.of_size(n).iter().map(|cell| {
            let mean = cell.operations(accounting).mean();
            (cell.degree as f64, mean)
        });
        plot.with(Series::line(format!("n = {n}"), points.collect()))
    })
}
