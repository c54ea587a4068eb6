//! C2: coding overhead (Cloudburst §IV-A, figure 7(b)).

use flow_report::{Axis, Plot, Series, Table};
use serde_json::json;

use crate::{
    check::Check,
    figure::Figure,
    sweep::{DEGREES, RECOMMENDED_DEGREE, SYMBOLS, Sweep},
};

/// The size that the paper recommends.
const RECOMMENDED_SYMBOLS: usize = 64;

/// The figure from a sweep.
pub fn figure(sweep: &Sweep) -> Figure {
    let checks = vec![
        at_recommended(sweep),
        beyond_recommended(sweep),
        drops_to_recommended(sweep),
    ];
    let rows = sweep.cells().iter().map(|cell| {
        json!({
            "n": cell.n,
            "d": cell.degree,
            "overhead": cell.overhead(),
            "standard_error": cell.needed.standard_error() / cell.n as f64,
        })
    });
    Figure {
        id: "C2",
        title: "packets needed for each source packet, figure 7(b)",
        note: String::new(),
        checks,
        rows: rows.collect(),
        columns: vec!["n", "d", "overhead", "standard_error"],
        tables: vec![by_degree(sweep), gains(sweep)],
        plots: vec![plot(sweep)],
    }
}

fn at_recommended(sweep: &Sweep) -> Check {
    let ours = sweep
        .cell(RECOMMENDED_SYMBOLS, RECOMMENDED_DEGREE)
        .overhead();
    let (low, high) = (1.05, 1.15);
    let outside = (low - ours).max(ours - high);
    let miss = (outside > 0.0).then(|| format!("by {outside:.3}"));
    let what = "n = 64, d = 5";
    Check::new(what, "1.09", "1.05 to 1.15", format!("{ours:.3}"), miss).with_numbers(
        (low, high),
        Some(1.09),
        ours,
    )
}

fn beyond_recommended(sweep: &Sweep) -> Check {
    let beyond = &sweep.of_size(RECOMMENDED_SYMBOLS)[7 - DEGREES.start()..];
    let most = beyond.iter().map(|it| it.overhead()).fold(0.0, f64::max);
    let miss = (most > 1.05).then(|| format!("by {:.3}", most - 1.05));
    let what = "n = 64, d = 7 to 10";
    let ours = format!("at most {most:.3}");
    Check::new(what, "as at d = 5", "<= 1.05", ours, miss).with_numbers((0.0, 1.05), None, most)
}

fn drops_to_recommended(sweep: &Sweep) -> Check {
    let mut rises = Vec::new();
    for n in SYMBOLS {
        let cells = &sweep.of_size(n)[..=RECOMMENDED_DEGREE - DEGREES.start()];
        for pair in cells.windows(2) {
            let rise = pair[1].overhead() - pair[0].overhead();
            if rise >= 0.0 {
                let (from, to) = (pair[0].degree, pair[1].degree);
                rises.push(format!(
                    "n = {n} rises by {rise:.3} from d = {from} to {to}"
                ));
            }
        }
    }
    let (ours, miss) = if rises.is_empty() {
        ("falls everywhere", None)
    } else {
        ("rises somewhere", Some(rises.join(", ")))
    };
    let what = "d = 1 to 5, each n";
    Check::new(what, "drops for all sizes", "falls", ours.to_owned(), miss)
}

fn by_degree(sweep: &Sweep) -> Table {
    let degrees = DEGREES.map(|degree| format!("d={degree}"));
    let mut table = Table::new(["n".to_owned()].into_iter().chain(degrees));
    for n in SYMBOLS {
        let cells = sweep.of_size(n).iter();
        let overheads = cells.map(|cell| format!("{:.2}", cell.overhead()));
        table.row([n.to_string()].into_iter().chain(overheads));
    }
    table
}

/// Compares degrees beyond the recommended one, which save nothing by the paper.
fn gains(sweep: &Sweep) -> Table {
    let mut table = Table::new(["n", "d = 5", "best d", "there", "saved"]);
    for n in SYMBOLS {
        let cells = sweep.of_size(n);
        let recommended = sweep.cell(n, RECOMMENDED_DEGREE).overhead();
        let best = cells
            .iter()
            .min_by(|a, b| a.overhead().total_cmp(&b.overhead()));
        let Some(best) = best else { continue };
        let saved = 100.0 * (1.0 - best.overhead() / recommended);
        table.row([
            n.to_string(),
            format!("{recommended:.3}"),
            best.degree.to_string(),
            format!("{:.3}", best.overhead()),
            format!("{saved:.1} %"),
        ]);
    }
    table
}

fn plot(sweep: &Sweep) -> Plot {
    let title = "Packets needed for each source packet of a message of n";
    let x = Axis::linear("degree d").range(1.0, 10.0);
    let plot = Plot::new(title, x, Axis::linear("packets needed / n"));
    SYMBOLS.into_iter().fold(plot, |plot, n| {
        let cells = sweep.of_size(n).iter();
        let points = cells.map(|cell| (cell.degree as f64, cell.overhead()));
        plot.with(Series::line(format!("n = {n}"), points.collect()))
    })
}
