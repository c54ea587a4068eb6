//! 144 hosts at 10 Gbit/s: figures 17 and 18, `C10` and `C11`.

use flow_report::{Axis, Plot, Series, Table};
use netsim::Manifest;

use super::{
    Effort,
    experiment::{Experiment, P99, SIZES, against_each, as_they_are, figure, over, percent_text},
    shares_by_load,
};
use crate::{
    check::Check,
    figure::Figure,
    tr::{
        band::Band,
        runs::{Metric, Runs, all, percent},
    },
};

const SCHEMES: [&str; 10] = [
    "dctcp",
    "dctcp-modern",
    "pfabric",
    "qjump",
    "expresspass",
    "expresspass-fast",
    "expresspass-500",
    "cloudburst",
    "cloudburst-strict",
    "cloudburst-native",
];
/// The paper's other schemes than ExpressPass.
const OTHERS: [&str; 4] = ["dctcp", "pfabric", "qjump", "cloudburst"];
/// Schemes that run without bulk, too, and their names then.
const ALONE: [(&str, &str); 5] = [
    ("dctcp", "dctcp-alone"),
    ("pfabric", "pfabric-alone"),
    ("qjump", "qjump-alone"),
    ("expresspass", "expresspass-alone"),
    ("cloudburst", "cloudburst-alone"),
];
/// The scenario's messages without its bulk.
const NO_BULK: &str =
    "traffic = [{ kind = 'poisson', sizes = [5_000, 10_000, 20_000, 50_000, 93_000],
    per_second = 288_000, messages = 30_000, hosts = { pattern = 'all' } }]";
/// 5 and 93 kB among sizes.
const SMALLEST: usize = 0;
const LARGEST: usize = 4;

/// Returns the experiment, with each scheme.
pub fn experiment(effort: &Effort) -> Experiment {
    let mut schemes = as_they_are(&SCHEMES);
    let alone = ALONE.map(|(scheme, name)| (name.to_owned(), scheme, NO_BULK.to_owned()));
    schemes.extend(alone);
    Experiment {
        name: "cloudburst-large",
        scenario: "cloudburst-large",
        schemes: warmed_up(schemes, effort),
        seeds: effort.large_seeds,
        messages: Some(effort.large_messages),
    }
}

/// Lays the time before messages are measured over each scheme.
pub(super) fn warmed_up(
    schemes: Vec<(String, &'static str, String)>,
    effort: &Effort,
) -> Vec<(String, &'static str, String)> {
    let warm_up = format!("warm_up_ms = {}.0\n", effort.large_warm_up_ms);
    let schemes = schemes.into_iter();
    schemes
        .map(|(name, base, changes)| (name, base, format!("{warm_up}{changes}")))
        .collect()
}

/// Builds `C10`: figure 17, the large fabric.
pub fn tails(runs: &Runs) -> Figure {
    let at = |one, other, size: usize| runs.ratio(one, other, &[None], P99[size]);
    let change = |one, other| percent(over(runs, one, other, &P99));
    let mut checks = vec![
        Band::about(0.8, 1.25).check(
            "Cloudburst / DCTCP, 5 kB",
            "insignificant",
            at("cloudburst", "dctcp", SMALLEST),
        ),
        Band::less(1.0).check(
            "Cloudburst / pFabric, 93 kB",
            "first",
            at("cloudburst", "pfabric", LARGEST),
        ),
        Band::less(1.0).check(
            "pFabric / QJump (f = n), 93 kB",
            "second",
            at("pfabric", "qjump", LARGEST),
        ),
        Band::less(1.0).check(
            "QJump (f = n) / DCTCP, 93 kB",
            "third",
            at("qjump", "dctcp", LARGEST),
        ),
    ];
    for (other, name, paper) in [
        ("dctcp", "DCTCP", -40.12),
        ("pfabric", "pFabric", -24.0),
        ("qjump", "QJump (f = n)", -29.63),
    ] {
        let what = format!("Cloudburst against {name}, all sizes");
        let band = Band::drop(paper - 15.0, paper + 15.0);
        checks.push(band.check(&what, &format!("{paper} %"), change("cloudburst", other)));
    }
    checks.extend(worst(runs));
    let us = |scheme, size: usize| {
        runs.value(scheme, None, P99[size])
            .map_or_else(String::new, |it| format!("{:.0}", it.mean))
    };
    let waits = |scheme: &str| runs.value(scheme, None, timeouts).map_or(0.0, |it| it.mean);
    let note = format!(
        "99th percentiles; 2,000 messages a second from each host (A-C12) beside a flow of 10 MB from each. With f = 1, as printed, \
         QJump lets a packet of a host go each 350 us: 34 Mbit/s, where messages are 570 and one of 93 kB alone would take 22 ms. So it \
         is run with f = n, the reading kindest to it. DCTCP is in the paper's ns-2 mode, without fast retransmission and with paths drawn for each packet \
         ({:.0} timeouts of messages a run, {:.0} with pFabric); with modern recovery and paths by flow Cloudburst is at {} over all sizes. This project's own \
         mode: {} against DCTCP, {} against pFabric, {} against Cloudburst's. 93 kB: pFabric {} us, Cloudburst {}, ours {}. \
         ExpressPass against DCTCP: {}, with flows that begin at half of the rate in the place of a sixteenth {}, with 500 Mbit/s of \
         credits on links of 40 Gbit/s, too, {}; bulk goes by credits as well. The paper says nothing of the first and the last.",
        waits("dctcp"),
        waits("pfabric"),
        percent_text(change("cloudburst", "dctcp-modern")),
        percent_text(change("cloudburst-native", "dctcp")),
        percent_text(change("cloudburst-native", "pfabric")),
        percent_text(change("cloudburst-native", "cloudburst")),
        us("pfabric", LARGEST),
        us("cloudburst", LARGEST),
        us("cloudburst-native", LARGEST),
        percent_text(change("expresspass", "dctcp")),
        percent_text(change("expresspass-fast", "dctcp")),
        percent_text(change("expresspass-500", "dctcp")),
    );
    let plot = Plot::new(
        "99th percentile in the large fabric",
        Axis::linear("5 · 10 · 20 · 50 · 93 kB"),
        Axis::log("us"),
    );
    let plot = SCHEMES.iter().fold(plot, |plot, scheme| {
        let point = |size: usize| Some((size as f64, runs.value(scheme, None, P99[size])?.mean));
        plot.with(Series::line(
            *scheme,
            (0..SIZES.len()).filter_map(point).collect(),
        ))
    });
    let plots = vec![plot];
    let title = "large fabric, figure 17";
    Figure {
        tables: vec![table(runs)],
        ..figure("C10", title, note, checks, &[runs], plots)
    }
}

/// ExpressPass against each of the paper's others, than all of which it says it is worse.
fn worst(runs: &Runs) -> [Check; 2] {
    let all_sizes: Metric = |it| all(it).p99_us;
    [("93 kB", P99[LARGEST]), ("all messages", all_sizes)].map(|(what, metric)| {
        let each = against_each(runs, "expresspass", &OTHERS, metric);
        let what = format!("ExpressPass / worst other, {what}");
        Band::more(1.0, f64::INFINITY).check_all(&what, "ExpressPass is worst", each)
    })
}

/// What each scheme waits for, with bulk and without.
fn table(runs: &Runs) -> Table {
    let mut table = Table::new([
        "scheme",
        "mean, us",
        "99 % of 5 kB, us",
        "99 % of 93 kB, us",
        "timeouts a run",
        "credits lost",
        "credits wasted",
    ]);
    let mean_us: Metric = |it| all(it).mean_us;
    let lost: Metric = |it| credits(it, it.totals.credits_dropped);
    let wasted: Metric = |it| credits(it, it.totals.credits_wasted);
    let alone = ALONE.iter().map(|it| it.1);
    for scheme in SCHEMES.into_iter().chain(alone) {
        let cell = |metric: Metric, unit: &str| {
            let value = runs.value(scheme, None, metric);
            value.map_or_else(String::new, |it| format!("{:.0}{unit}", it.mean))
        };
        table.row([
            scheme.to_owned(),
            cell(mean_us, ""),
            cell(P99[SMALLEST], ""),
            cell(P99[LARGEST], ""),
            cell(timeouts, ""),
            cell(lost, " %"),
            cell(wasted, " %"),
        ]);
    }
    table
}

fn timeouts(manifest: &Manifest) -> Option<f64> {
    Some(all(manifest).timeouts as f64)
}

/// A share of the credits that were sent, in percent; nothing where none were.
fn credits(manifest: &Manifest, part: u64) -> Option<f64> {
    let sent = manifest.totals.credits_sent;
    (sent > 0).then(|| 100.0 * part as f64 / sent as f64)
}

/// DCTCP and ExpressPass, and Cloudburst at each share.
pub fn shares_experiment(effort: &Effort) -> Experiment {
    let mut schemes = as_they_are(&["dctcp", "expresspass"]);
    for tenths in &effort.shares {
        let changes = format!("transport.cloudburst.share = {:.1}", share(*tenths));
        schemes.push((name(*tenths), "cloudburst-1.0", changes));
    }
    Experiment {
        name: "cloudburst-oversubscribed",
        scenario: "cloudburst-oversubscribed",
        schemes: warmed_up(schemes, effort),
        seeds: effort.large_seeds,
        messages: Some(effort.large_messages),
    }
}

/// A share of the link.
pub(super) fn share(tenths: u32) -> f64 {
    f64::from(tenths) / 10.0
}

fn name(tenths: u32) -> String {
    format!("cloudburst-{:.1}", share(tenths))
}

/// Builds `C11`: figure 18, shares of the rate.
pub fn shares(runs: &Runs, by_load: &Runs, effort: &Effort) -> Figure {
    let relative = |tenths: u32| over(runs, &name(tenths), "dctcp", &P99);
    let means: Vec<(u32, f64)> = effort
        .shares
        .iter()
        .filter_map(|it| Some((*it, relative(*it)?.mean)))
        .collect();
    let best = means.iter().min_by(|a, b| a.1.total_cmp(&b.1)).copied();
    let (best, least) = best.unwrap_or((0, f64::NAN));
    let miss = (!(4..=7).contains(&best)).then(|| format!("at {:.1}", share(best)));
    let mut checks = vec![
        Check::new(
            "best share of the link, all sizes",
            "about 0.5",
            "0.35 to 0.70",
            format!("{:.1}", share(best)),
            miss,
        )
        .with_numbers((0.35, 0.7), Some(0.5), share(best)),
    ];
    for (end, what) in [
        (effort.shares.first(), "least share / best"),
        (effort.shares.last(), "whole link / best"),
    ] {
        let end = end.copied().unwrap_or(best);
        let ratio = over(runs, &name(end), &name(best), &P99);
        checks.push(Band::more(1.0, f64::INFINITY).check(what, "worse", ratio));
    }
    for (place, size) in SIZES.iter().enumerate() {
        let ours = percent(runs.ratio(&name(5), "dctcp", &[None], P99[place]));
        let what = format!("against DCTCP at 0.5, {size}");
        checks.push(Band::drop(f64::NEG_INFINITY, -8.0).check(&what, "at least -12.88 %", ours));
    }
    let dropped = |tenths: u32| {
        let share =
            |it: &Manifest| Some(100.0 * it.totals.dropped as f64 / it.totals.injected as f64);
        let share: Metric = share;
        runs.value(&name(tenths), None, share)
            .map_or_else(String::new, |it| format!("{:.1} %", it.mean))
    };
    let note = format!(
        "99th percentiles, mean over sizes of what they are of DCTCP's; at the best share {:.2} of it. Of all packets, bulk included, \
         {} are lost at share 0.5 and {} at 1. ExpressPass, which the paper does not run here: {} against DCTCP.",
        least,
        dropped(5),
        dropped(10),
        percent_text(percent(over(runs, "expresspass", "dctcp", &P99))),
    );
    let plot = Plot::new(
        "99th percentile of what it is with DCTCP, 2:1",
        Axis::linear("share of the link"),
        Axis::linear("times"),
    );
    let plot = SIZES.iter().enumerate().fold(plot, |plot, (place, size)| {
        let point = |tenths: &u32| {
            let it = runs.ratio(&name(*tenths), "dctcp", &[None], P99[place])?;
            Some((share(*tenths), it.mean))
        };
        plot.with(Series::line(
            *size,
            effort.shares.iter().filter_map(point).collect(),
        ))
    });
    let title = "shares of an oversubscribed fabric, figure 18";
    Figure {
        tables: vec![shares_by_load::table(by_load, effort)],
        ..figure("C11", title, note, checks, &[runs, by_load], vec![plot])
    }
}
