//! Long flows: figure 3, `T4`.

use flow_report::{Plot, Table};

use super::{
    Effort,
    band::Band,
    motivation::{figure as of_motivation, name, over_ratios, plot, worst},
    runs::{Experiment, Metric, Runs, medium as long},
};
use crate::{check::Check, figure::Figure};

/// Gaps in microseconds; the paper has the first.
const GAPS_US: [u32; 4] = [500, 200, 100, 50];

/// How unevenly paths carry long flows: the standard deviation of what they carry of these, of the mean.
const DEVIATION: Metric = |it| it.paths.long_deviation;
const GOODPUT: Metric = |it| long(it).goodput_mbps;

/// LetFlow with each gap, and ECMP, at the most asymmetry.
pub fn experiment(effort: &Effort) -> Experiment {
    let slow = format!("fabric.slow.rtt_ratio = {:?}", worst(effort));
    let mut schemes = vec![(
        "ecmp".to_owned(),
        format!("balance.policy = \"ecmp\"\n{slow}"),
    )];
    for gap in GAPS_US {
        let changes =
            format!("balance.policy = \"letflow\"\nbalance.letflow_gap_us = {gap}\n{slow}");
        schemes.push((format!("letflow-{gap}"), changes));
    }
    Experiment {
        name: "motivation-gaps",
        scenario: "tr-motivation",
        schemes,
        loads: Vec::new(),
        seeds: effort.motivation_seeds,
        messages: None,
    }
}

/// Builds `T4`: figure 3, long flows.
pub fn figure(runs: &Runs, gaps: &Runs, effort: &Effort) -> Figure {
    let mut figure = of_motivation(
        "T4",
        "long flows, figure 3",
        checks(runs, effort),
        plots(runs, effort),
        runs,
    );
    figure.note +=
        " Deviations are of the throughput of long flows over the paths of the leaf that sends.";
    figure.rows.extend(gaps.rows());
    figure.tables.push(gap_table(gaps));
    figure
}

fn checks(runs: &Runs, effort: &Effort) -> Vec<Check> {
    let less = |one, other| over_ratios(runs, effort, one, other, DEVIATION);
    let worst = worst(effort);
    let at_worst =
        |one, other| runs.ratio(&name(one, worst), &name(other, worst), &[None], GOODPUT);
    let again = |scheme| {
        runs.value(&name(scheme, worst), None, |it| {
            long(it).retransmitted_percent
        })
    };
    vec![
        Band::less(1.0).check(
            "deviation over paths, RPS / LetFlow",
            "less",
            less("rps", "letflow"),
        ),
        Band::less(1.0).check("deviation, LetFlow / ECMP", "less", less("letflow", "ecmp")),
        Band::share(1.0, f64::INFINITY).check(
            "sent again, RPS at 3.5",
            "pronouncedly higher",
            again("rps"),
        ),
        Band::share(f64::NEG_INFINITY, 0.1).check(
            "sent again, LetFlow at 3.5",
            "low",
            again("letflow"),
        ),
        Band::more(1.0, f64::INFINITY).check(
            "goodput, LetFlow / ECMP at 3.5",
            "higher",
            at_worst("letflow", "ecmp"),
        ),
        Band::less(0.5).check(
            "goodput, RPS / LetFlow at 3.5",
            "falls precipitously",
            at_worst("rps", "letflow"),
        ),
    ]
}

fn plots(runs: &Runs, effort: &Effort) -> Vec<Plot> {
    vec![
        plot(
            runs,
            effort,
            "Deviation over paths of long flows' throughput",
            "of the mean",
            DEVIATION,
        ),
        plot(runs, effort, "Long flows: segments sent again", "%", |it| {
            long(it).retransmitted_percent
        }),
        plot(runs, effort, "Goodput of long flows", "Mbit/s", GOODPUT),
    ]
}

/// LetFlow with each gap, of what ECMP has.
fn gap_table(gaps: &Runs) -> Table {
    let mut table = Table::new(["LetFlow's gap, us", "deviation / ECMP", "goodput / ECMP"]);
    for gap in GAPS_US {
        let of_ecmp = |metric| {
            let ratio = gaps.ratio(&format!("letflow-{gap}"), "ecmp", &[None], metric);
            ratio.map_or_else(String::new, |it| it.to_text(2))
        };
        table.row([gap.to_string(), of_ecmp(DEVIATION), of_ecmp(GOODPUT)]);
    }
    table
}
