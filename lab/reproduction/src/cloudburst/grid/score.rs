//! Scores of the grid's points, and the item that shows them.

use flow_report::{Axis, Plot, Series, Table};
use serde_json::json;

use super::{
    Point, Settings, points,
    targets::{At, CLOSE, ITEMS, Side, TARGETS, Target},
};
use crate::{check::Check, cloudburst::Effort, figure::Figure, tr::runs::Runs};

/// How a point came out.
struct Score {
    point: Point,
    /// Ours by target.
    ours: Vec<Option<f64>>,
    /// The factor that an item's targets are off by in the mean (geometric), by item.
    items: [f64; 4],
    /// The same over items, each of which counts as much.
    joint: f64,
}

impl Score {
    fn of(runs: &Runs, number: usize, point: Point) -> Self {
        let at = At {
            runs,
            point: number,
        };
        let ours: Vec<Option<f64>> = TARGETS.iter().map(|it| (it.ours)(&at)).collect();
        let logarithms = ITEMS.map(|item| {
            let errors = TARGETS.iter().zip(&ours).filter(|(it, _)| it.item == item);
            // What was not measured is as bad as can be.
            let errors: Vec<f64> = errors
                .map(|(it, ours)| ours.map_or(f64::INFINITY, |ours| it.error(ours)))
                .collect();
            errors.iter().sum::<f64>() / errors.len() as f64
        });
        Self {
            point,
            ours,
            items: logarithms.map(f64::exp),
            joint: (logarithms.iter().sum::<f64>() / ITEMS.len() as f64).exp(),
        }
    }
}

/// Builds the item: the points by score, and how close the best of them, or any, comes to each target.
pub fn figure(runs: &Runs, effort: &Effort) -> Figure {
    let points = points().into_iter().enumerate();
    let mut scores: Vec<Score> = points
        .map(|(number, it)| Score::of(runs, number, it))
        .collect();
    let plot = plot(&scores);
    scores.sort_by(|a, b| a.joint.total_cmp(&b.joint));
    let best = scores.first().map_or_else(String::new, |it| {
        format!(
            "The least joint error is a factor of {:.2}, at the point \"{}\".",
            it.joint, it.point.name
        )
    });
    Figure {
        id: "GRID",
        title: "what the paper leaves open of its testbed",
        note: format!(
            "{best} One thing is changed at a time from two centres, {} seeds of {} messages a run. A point's error in an item \
             is the factor between the paper's values and ours, geometric mean over what the paper says there; where it gives an order \
             alone, 1 on the right side. The joint error is the mean over C4, C5, C6 and C9, each as much.",
            effort.grid_seeds, effort.grid_messages
        ),
        checks: TARGETS
            .iter()
            .enumerate()
            .map(|(place, it)| check(it, place, &scores))
            .collect(),
        rows: scores.iter().map(row).collect(),
        columns: COLUMNS.to_vec(),
        tables: vec![table(&scores)],
        plots: vec![plot],
    }
}

/// A target at the best point, and at the point that comes closest to it.
fn check(target: &Target, place: usize, scores: &[Score]) -> Check {
    let what = format!("{}: {}", target.item, target.what);
    let known = scores.iter().filter_map(|it| Some((it, it.ours[place]?)));
    let closest = known.min_by(|a, b| target.error(a.1).total_cmp(&target.error(b.1)));
    let band = format!("within a factor of {CLOSE} at some point");
    let paper = target.paper_text();
    let (Some((point, closest)), Some(best)) = (closest, scores.first()) else {
        let miss = Some("there was nothing to measure".to_owned());
        return Check::new(&what, &paper, &band, String::new(), miss);
    };
    let at_best = best.ours[place].unwrap_or(f64::NAN);
    let off = target.error(closest).exp();
    let miss = (off > CLOSE).then(|| format!("no point is closer than a factor of {off:.2}"));
    let ours = format!(
        "{at_best:.3} at the best point; closest {closest:.3}: {}",
        point.point.name
    );
    let stated = (target.side == Side::Value).then_some(target.paper);
    Check::new(&what, &paper, &band, ours, miss).with_numbers(target.band(), stated, at_best)
}

const COLUMNS: [&str; 13] = [
    "point",
    "memory_kb",
    "shared",
    "coded_with_bulk",
    "plain_hosts",
    "tiny_queue",
    "rto_ms",
    "join_round_trips",
    "C4",
    "C5",
    "C6",
    "C9",
    "joint",
];

fn row(it: &Score) -> serde_json::Value {
    let Settings {
        memory_kb,
        is_shared,
        coded_with_bulk,
        plain_hosts,
        tiny_queue,
        rto_ms,
        join_round_trips,
    } = it.point.settings;
    let [c4, c5, c6, c9] = it.items;
    json!({
        "point": it.point.name, "memory_kb": memory_kb, "shared": is_shared, "coded_with_bulk": coded_with_bulk,
        "plain_hosts": plain_hosts, "tiny_queue": tiny_queue, "rto_ms": rto_ms, "join_round_trips": join_round_trips,
        "C4": c4, "C5": c5, "C6": c6, "C9": c9, "joint": it.joint,
    })
}

fn table(scores: &[Score]) -> Table {
    let mut table = Table::new(["point", "C4", "C5", "C6", "C9", "joint"]);
    for it in scores {
        let numbers = it
            .items
            .iter()
            .chain([&it.joint])
            .map(|it| format!("{it:.2}"));
        table.row(std::iter::once(it.point.name.clone()).chain(numbers));
    }
    table
}

/// Errors in the order of the points.
fn plot(scores: &[Score]) -> Plot {
    let plot = Plot::new(
        "Error of each point: the factor between the paper's values and ours",
        Axis::linear(
            "point, in the order of the rows' names: first those from here, then those to the letter",
        ),
        Axis::log("factor"),
    );
    let line = |name: &str, of: &dyn Fn(&Score) -> f64| {
        let points = scores.iter().enumerate();
        Series::line(
            name,
            points.map(|(number, it)| (number as f64, of(it))).collect(),
        )
    };
    let plot = plot.with(line("joint", &|it| it.joint));
    ITEMS.iter().enumerate().fold(plot, |plot, (place, item)| {
        plot.with(line(item, &|it| it.items[place]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_no_good_point() {
        let none = Runs::new("none", Vec::new());
        let score = Score::of(&none, 0, points().swap_remove(0));
        assert!(score.joint.is_infinite());
        let check = check(&TARGETS[0], 0, &[score]);
        assert!(!check.holds && check.numbers.is_none());
    }
}
