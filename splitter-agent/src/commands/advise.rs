//! `splitter advise`: which threshold suits the flows that are there, or those of a file.

mod recording;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use flow_cli::{group_thousands, print, print_json};
use flow_report::Table;
use splitter_advise::{Advice, Expected, Question, ThresholdUnit, Traffic, Verdict, advise, file};
use splitter_control::{Answer, ControlError, Request, ask};

use super::agent_directory;
use crate::cli::{AdviseArgs, Cli};

/// Prints what the agent, or a file, recommends.
pub(crate) fn run(cli: &Cli, args: &AdviseArgs) -> Result<()> {
    let advice = match (&args.sizes, &args.recording) {
        (Some(path), _) => offline(path, args)?,
        (None, Some(path)) => recording::advice(path, args)?,
        (None, None) => match ask(&agent_directory(cli)?, Request::Advise {})? {
            Answer::Advised(advice) => *advice,
            _ => return Err(ControlError::Answer.into()),
        },
    };
    if cli.json {
        print_json(&advice)
    } else {
        show(&advice)
    }
}

fn offline(path: &Path, args: &AdviseArgs) -> Result<Advice> {
    let source = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let flows = file::read(BufReader::new(source))
        .with_context(|| format!("cannot use {}", path.display()))?;
    let unit = if args.bytes {
        ThresholdUnit::Bytes
    } else {
        ThresholdUnit::Packets
    };
    let (current, most) = if args.bytes {
        (60_000, 1_500_000_000)
    } else {
        (40, 1_000_000)
    };
    let question = Question {
        unit,
        current: args.threshold.unwrap_or(current),
        bounds: [1, most],
        rates: Some(
            args.rates
                .map_or([100.0; 2], |it| it.0)
                .map(|mbit| mbit * 1e6),
        ),
        rtt: Duration::from_secs_f64(args.rtt_ms / 1e3),
        traffic: Traffic::Load(f64::from(args.load) / 100.0),
    };
    Ok(advise(flows.sizes.sample(unit), &question, flows.is_sample))
}

fn show(advice: &Advice) -> Result<()> {
    let unit = &advice.unit;
    let recommended = advice
        .recommended
        .map(|it| group_thousands(it.into()))
        .unwrap_or_default();
    print(match advice.verdict {
        Verdict::Change => format!("Recommended: a threshold of {recommended} {unit}."),
        Verdict::Keep => format!(
            "Recommended: to keep the threshold of {recommended} {unit}, which is within 1 % of the best."
        ),
        Verdict::Uncertain => format!(
            "A threshold of {recommended} {unit} looks best, but that is uncertain: other flows of the same kind could well recommend another."
        ),
        Verdict::TooFewFlows => "No recommendation: too few flows have ended.".to_owned(),
        Verdict::Overloaded => {
            "No recommendation: there is more traffic than the tunnels carry.".to_owned()
        }
    })?;
    if let Some([low, high]) = advice.range {
        print(format_args!(
            "Eight of ten such samples would recommend {} to {}.",
            group_thousands(low.into()),
            group_thousands(high.into())
        ))?;
    }
    for note in &advice.notes {
        print(format_args!("Note: {note}."))?;
    }
    if let Some(expected) = &advice.expected {
        print("")?;
        print(table(advice, expected).to_text())?;
        print(format_args!(
            "\nBy a model of queues, for {:.1} flows a second; `docs/src/explanation/advise.md` says which.",
            advice.flows_per_second
        ))?;
    }
    Ok(())
}

fn table(advice: &Advice, expected: &Expected) -> Table {
    let is_same = advice.verdict == Verdict::Keep;
    let mut columns: Vec<(&str, Option<&Expected>)> = vec![("present", advice.present.as_ref())];
    if !is_same {
        columns.push(("recommended", Some(expected)));
    }
    let headers = std::iter::once("expected").chain(columns.iter().map(|it| it.0));
    let mut table = Table::new(headers.collect::<Vec<_>>());
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let time = |seconds: Option<f64>| {
        seconds.map_or("not known".to_owned(), |it| format!("{:.2} ms", it * 1e3))
    };
    type Cell<'a> = Box<dyn Fn(&Expected) -> String + 'a>;
    let rows: [(&str, Cell<'_>); 11] = [
        (
            "threshold",
            Box::new(|it| group_thousands(it.threshold.into())),
        ),
        (
            "flows that become long",
            Box::new(|it| percent(it.long_flows)),
        ),
        (
            "bytes in the long tunnel",
            Box::new(|it| percent(it.long_bytes)),
        ),
        (
            "load of the short tunnel",
            Box::new(|it| percent(it.short_load)),
        ),
        (
            "load of the long tunnel",
            Box::new(|it| percent(it.long_load)),
        ),
        (
            "wait in the short tunnel",
            Box::new(|it| time(it.short_wait_s)),
        ),
        (
            "mean FCT of short flows",
            Box::new(|it| time(it.short_fct_s)),
        ),
        (
            "mean FCT of those short in both",
            Box::new(|it| time(it.short_in_both_fct_s)),
        ),
        ("mean FCT of long flows", Box::new(|it| time(it.long_fct_s))),
        (
            "mean FCT of those long in both",
            Box::new(|it| time(it.long_in_both_fct_s)),
        ),
        (
            "mean slowdown of all flows",
            Box::new(|it| format!("{:.3}", it.mean_slowdown)),
        ),
    ];
    for (name, cell) in &rows {
        let cells = columns
            .iter()
            .map(|(_, of)| of.map_or("overloaded".to_owned(), cell));
        table.row(
            std::iter::once((*name).to_owned())
                .chain(cells)
                .collect::<Vec<_>>(),
        );
    }
    table
}
