//! The comparison for readers: a table with the ratios in words, and a page with plots.

use flow_report::{Axis, Bars, Page, Plot, Series, Table};

use super::{
    Comparison, DEDICATED, ECMP_FLOW, ECMP_PACKET, ModeResult, NFT_SPLIT, SHARE, SPLITTER,
    Settings, Sharing, Summary,
};
use crate::experiment::Completions;

/// Points of a cumulative distribution, which is smooth to the eye then.
const CURVE_POINTS: usize = 400;
/// More reasons than these why a comparison is not valid would hide the first ones.
const REASONS_SHOWN: usize = 6;
/// How long the spans of the time line are over which the mean is taken.
const SPAN_S: f64 = 0.5;

/// Table and ratios for the terminal.
pub fn render_text(comparison: &Comparison) -> String {
    let alarm = alarm(comparison, "\n  - ", "\n");
    let mut text = alarm.map_or_else(String::new, |it| it + "\n\n");
    text += &format!(
        "{}\n\n{}\n",
        set_up(&comparison.settings),
        table(comparison).to_text()
    );
    for sentence in sentences(comparison) {
        text += &format!("\n{sentence}");
    }
    text + "\n"
}

/// One HTML file with table, ratios and plots that needs nothing else.
pub fn render_html(comparison: &Comparison) -> String {
    let curve = |title: &str, completions: fn(&ModeResult) -> &Completions| {
        let axis = Axis::linear("share of flows").range(0.0, 1.0);
        let plot = Plot::new(title, Axis::log("flow completion time (ms)"), axis);
        comparison.modes.iter().fold(plot, |plot, mode| {
            let points = completions(mode).distribution_ms().cumulative(CURVE_POINTS);
            plot.with(Series::steps(label(&mode.name), points))
        })
    };
    let page = Page::new("Short flows on a road of their own");
    let page = match alarm(comparison, " ", " ") {
        Some(alarm) => page.alarm(&alarm),
        None => page,
    };
    let page = page.text(&set_up(&comparison.settings));
    // Bars are ratios to the eye.
    let page = if comparison.valid {
        page.bars(&bars(comparison))
    } else {
        page
    };
    page.list(sentences(comparison))
        .table(&table(comparison))
        .heading("Short flows")
        .plot(&curve("Short flows: share finished within a time", |it| {
            &it.short_completions
        }))
        .plot(&time_line(comparison))
        .heading("Long flows")
        .plot(&curve("Long flows: share finished within a time", |it| {
            &it.long_completions
        }))
        .note(
            "Completion time is what an application sees: from the call of connect to the last \
             byte at the receiver. All modes carried the same flows at the same times. CPU is what \
             the whole machine used, traffic generation included. Flows counted as open had not \
             finished when their round ended and are in no other figure.",
        )
        .to_html()
}

/// Says at the top that a comparison tells nothing, and why: each reason after `item`, and what to do
/// after `end`.
fn alarm(comparison: &Comparison, item: &str, end: &str) -> Option<String> {
    let remedy = if comparison.settings.calibrated {
        "Stop what else runs here, and try again."
    } else {
        "Stop what else runs here, or leave out --rates, for such as this machine can carry."
    };
    let mut text = "NOT VALID: this machine cannot tell, so no ratio is given.".to_owned();
    for reason in comparison.why.iter().take(REASONS_SHOWN) {
        text += &format!("{item}{reason}.");
    }
    let more = comparison.why.len().saturating_sub(REASONS_SHOWN);
    if more > 0 {
        text += &format!("{item}And {more} more, which --json lists.");
    }
    (!comparison.valid).then(|| text + end + remedy)
}

/// The means side by side, with what each mode does.
fn bars(comparison: &Comparison) -> Bars {
    let bars = Bars::new("Mean time until a flow is complete: a shorter bar is better");
    let modes = &comparison.modes;
    let bars = modes.iter().fold(bars, |bars, it| {
        bars.row(label(&it.name), meaning(&it.name))
    });
    bars.panel(
        "short flows, 5 to 40 packets",
        "ms",
        modes.iter().map(|it| it.short.mean_ms),
    )
    .panel(
        "long flows, 1.5 MB",
        "ms",
        modes.iter().map(|it| it.long.mean_ms),
    )
}

/// The mean of the short flows that started in each span, per mode.
fn time_line(comparison: &Comparison) -> Plot {
    let title = format!("Short flows over the run: mean over {SPAN_S} s");
    let time = Axis::linear("time (s)").range(0.0, comparison.settings.measured_s);
    let plot = Plot::new(title, time, Axis::log("flow completion time (ms)"));
    comparison.modes.iter().fold(plot, |plot, mode| {
        plot.with(Series::line(
            label(&mode.name),
            span_means(&mode.short_completions.samples),
        ))
    })
}

fn span_means(samples: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    sorted
        .chunk_by(|one, other| (one.0 / SPAN_S).floor() == (other.0 / SPAN_S).floor())
        .map(|span| {
            let middle = ((span[0].0 / SPAN_S).floor() + 0.5) * SPAN_S;
            (
                middle,
                span.iter().map(|it| it.1).sum::<f64>() / span.len() as f64,
            )
        })
        .collect()
}

fn set_up(settings: &Settings) -> String {
    let [short, long] = settings.rates_mbit;
    format!(
        "Two sites, two tunnels of {short} and {long} Mbit/s{}. Short flows of 5 to 40 packets arrive \
         at random, {:.0} a second; transfers of 1.5 MB load both tunnels to {} % in each direction. \
         Each mode was measured for {:.0} s in {} (seed {}).{}",
        if settings.calibrated {
            ", the highest rate that this machine can emulate under this load now"
        } else {
            ""
        },
        super::short_per_second(settings.rates_mbit),
        settings.load_percent,
        settings.measured_s,
        match settings.rounds {
            1 => "one round".to_owned(),
            rounds => format!("{rounds} interleaved rounds"),
        },
        settings.seed,
        if settings.queue_behind_border {
            " The tunnels' queues lie behind the borders, which shape shared tunnels to 97 %."
        } else {
            ""
        }
    )
}

/// A column for each mode, which fits a terminal better than a row.
fn table(comparison: &Comparison) -> Table {
    type Figure = fn(&ModeResult) -> String;
    let rows: [(&str, Figure); 12] = [
        ("short mean (ms)", |it| format!("{:.2}", it.short.mean_ms)),
        ("short p50 (ms)", |it| format!("{:.2}", it.short.p50_ms)),
        ("short p99 (ms)", |it| format!("{:.1}", it.short.p99_ms)),
        ("short flows", |it| flows(&it.short)),
        ("long mean (ms)", |it| format!("{:.0}", it.long.mean_ms)),
        ("long p50 (ms)", |it| format!("{:.0}", it.long.p50_ms)),
        ("long p99 (ms)", |it| format!("{:.0}", it.long.p99_ms)),
        ("long flows", |it| flows(&it.long)),
        ("retransmits", |it| it.tcp.retrans.to_string()),
        ("PAWSEstab", |it| it.tcp.paws_estab.to_string()),
        ("TCPTimeouts", |it| it.tcp.timeouts.to_string()),
        ("CPU (s)", |it| format!("{:.1}", it.cpu_s)),
    ];
    let names = comparison.modes.iter().map(|mode| label(&mode.name));
    let mut table = Table::new(std::iter::once("").chain(names));
    for (name, figure) in rows {
        table.row(std::iter::once(name.to_owned()).chain(comparison.modes.iter().map(figure)));
    }
    table
}

fn flows(summary: &Summary) -> String {
    match summary.unfinished {
        0 => summary.flows.to_string(),
        unfinished => format!("{} (+{unfinished} open)", summary.flows),
    }
}

/// The ratios in plain words, also where the splitter loses.
fn sentences(comparison: &Comparison) -> Vec<String> {
    if !comparison.valid {
        return Vec::new();
    }
    let mut sentences = of_splitter(comparison);
    if let Some(sharing) = &comparison.sharing {
        sentences.extend(of_policies(sharing));
    }
    sentences
}

/// What each policy gains and costs.
fn of_policies(sharing: &Sharing) -> [String; 2] {
    let Sharing {
        short_by_ecmp_flow,
        short_by_dedicated,
        long_by_ecmp_flow,
        long_by_dedicated,
    } = *sharing;
    let dedicated = format!(
        "A tunnel for each class (policy dedicated): short flows take {} as long as with \
         per-flow ECMP, long ones {}. It needs no shaping, and starves long flows of the other \
         tunnel.",
        times(short_by_ecmp_flow / short_by_dedicated),
        times(long_by_ecmp_flow / long_by_dedicated),
    );
    let share = format!(
        "Both classes in both tunnels (policy share): short flows take {} as long as with \
         per-flow ECMP, long ones {}. It shapes the tunnels, so their rates must be known and kept.",
        times(short_by_ecmp_flow),
        times(long_by_ecmp_flow),
    );
    [dedicated, share]
}

fn times(ratio: f64) -> String {
    if ratio.is_finite() {
        format!("{ratio:.2} times")
    } else {
        "an unknown number of times".to_owned()
    }
}

fn of_splitter(comparison: &Comparison) -> Vec<String> {
    let Some(speedup) = &comparison.speedup else {
        return Vec::new();
    };
    let against = [
        (speedup.ecmp_flow_mean, ECMP_FLOW),
        (speedup.ecmp_packet_mean, ECMP_PACKET),
        (speedup.nft_split_mean, NFT_SPLIT),
    ];
    let mut sentences: Vec<String> = against
        .iter()
        .map(|&(ratio, name)| sentence("Short", ratio, name))
        .collect();
    let long = |name: &str| Some(comparison.mode(name)?.long.mean_ms);
    for name in [ECMP_FLOW, NFT_SPLIT] {
        if let (Some(theirs), Some(ours)) = (long(name), long(SPLITTER)) {
            sentences.push(sentence("Long", theirs / ours, name));
        }
    }
    if let Some(mode) = &comparison.xdp_mode {
        sentences.push(format!(
            "The splitter ran as an XDP program in {mode} mode."
        ));
    }
    sentences
}

/// `ratio` is their mean completion time divided by the splitter's.
fn sentence(class: &str, ratio: f64, name: &str) -> String {
    let name = match label(name) {
        article if name == NFT_SPLIT => format!("the {article}"),
        plain => plain.to_owned(),
    };
    let (ratio, precision) = match ratio {
        _ if !ratio.is_finite() => {
            return format!("{class} flows: nothing to compare with {name}.");
        }
        _ if (0.95..=1.05).contains(&ratio) => {
            return format!(
                "{class} flows take as long with {name} as with the splitter, within 5 %."
            );
        }
        _ => (ratio, if ratio < 1.0 { 2 } else { 1 }),
    };
    format!(
        "{class} flows take {ratio:.precision$} times as long with {name} as with the splitter."
    )
}

/// What a mode does, in a few words.
fn meaning(name: &str) -> &str {
    match name {
        ECMP_FLOW => "each flow in one tunnel, by a hash",
        ECMP_PACKET => "packets in both tunnels by turns",
        NFT_SPLIT => "short and long apart, by conntrack",
        SPLITTER | DEDICATED => "short and long apart, by this splitter",
        SHARE => "both in both, short flows first",
        _ => "",
    }
}

pub(super) fn label(name: &str) -> &str {
    match name {
        ECMP_FLOW => "per-flow ECMP",
        ECMP_PACKET => "per-packet ECMP",
        NFT_SPLIT => "nftables split",
        SPLITTER => "splitter",
        DEDICATED => "dedicated",
        SHARE => "share",
        other => other,
    }
}
