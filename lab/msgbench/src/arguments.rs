//! The command line, and what it asks for.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use flow_testbed::require::Requirement;
use msgbench::{
    campaign::Campaign,
    scenario::Scenario,
    scheme::{self, Scheme},
    workload::Workload,
};

/// Measures how long small messages take over four paths: TCP, MPTCP, QUIC and others answer the
/// same requests in network namespaces, in rotation. Needs root.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask msgbench", after_help = schemes_help())]
pub(crate) struct Arguments {
    /// Print one JSON array instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Less of everything, for a look in under a minute; other options still count.
    #[arg(long)]
    quick: bool,
    /// Conditions during the measurement: idle, loss1, loss5, dead, bulk3, bulk4, incast. Default:
    /// all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    scenarios: Option<Vec<Scenario>>,
    /// Schemes to compare, see below. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", value_parser = parse_scheme_name)]
    schemes: Option<Vec<String>>,
    /// Sizes of messages in kB (1,000 bytes). Default: 5,10,20,50,93.
    #[arg(long, value_delimiter = ',', value_name = "KB,...",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sizes: Option<Vec<u32>>,
    /// Round-trip times without queues in ms; up to 0.2 there is no delay but the machine's own.
    /// Default: 0.2,10.
    #[arg(long, value_delimiter = ',', value_name = "MS,...", value_parser = parse_positive)]
    rtt_ms: Option<Vec<f64>>,
    /// How long messages arrive in each measurement. Default: 10.
    #[arg(long, value_parser = parse_positive)]
    seconds: Option<f64>,
    /// Rounds, each with other arrivals; results are medians over them. Default: 3.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Seed of the first round's random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Messages a second, of all sizes together.
    #[arg(long, default_value_t = 70.0, value_parser = parse_positive)]
    per_second: f64,
    /// Rate of each path.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate_mbit: u32,
    /// Directory for the page and the plots as SVG files.
    #[arg(long, default_value = "target/msgbench")]
    pub(crate) out: PathBuf,
}

/// Defaults of a campaign, full or quick.
struct Defaults {
    scenarios: &'static [Scenario],
    schemes: Option<&'static [&'static str]>,
    sizes_kb: &'static [u32],
    rtts_ms: &'static [f64],
    seconds: f64,
    seeds: u64,
}

const FULL: Defaults = Defaults {
    scenarios: &Scenario::ALL,
    schemes: None,
    sizes_kb: &[5, 10, 20, 50, 93],
    rtts_ms: &[0.2, 10.0],
    seconds: 10.0,
    seeds: 3,
};

const QUICK: Defaults = Defaults {
    scenarios: &[Scenario::Idle, Scenario::Loss1, Scenario::Bulk4],
    schemes: Some(&["cloudburst", "tcp_cubic", "tcp_bbr", "mptcp", "quic"]),
    sizes_kb: &[5, 20, 93],
    rtts_ms: &[0.2],
    seconds: 2.5,
    seeds: 1,
};

impl Arguments {
    /// Builds the campaign that the arguments ask for.
    pub(crate) fn campaign(&self) -> Result<Campaign> {
        let defaults = if self.quick { QUICK } else { FULL };
        let scenarios = self.scenarios.clone();
        let sizes_kb = self.sizes.as_deref().unwrap_or(defaults.sizes_kb);
        let rtts_ms = self.rtt_ms.as_deref().unwrap_or(defaults.rtts_ms);
        let seeds = self.seeds.unwrap_or(defaults.seeds);
        let seconds = self.seconds.unwrap_or(defaults.seconds);
        let rtts = rtts_ms.iter().map(|ms| duration(ms / 1e3, "--rtt-ms"));
        Ok(Campaign {
            rtts: rtts.collect::<Result<_>>()?,
            scenarios: scenarios.unwrap_or_else(|| defaults.scenarios.to_vec()),
            schemes: self.schemes(&defaults)?,
            seeds: (0..seeds).map(|it| self.seed.wrapping_add(it)).collect(),
            workload: Workload {
                per_second: self.per_second,
                sizes: sizes_kb.iter().map(|kb| kb * 1_000).collect(),
                length: duration(seconds, "--seconds")?,
            },
            rate_mbit: self.rate_mbit,
        })
    }

    /// Selects schemes: those named must be possible; of all, those that are not are left out.
    fn schemes(&self, defaults: &Defaults) -> Result<Vec<Arc<dyn Scheme>>> {
        let default = defaults
            .schemes
            .map(|names| names.iter().map(|it| (*it).to_owned()).collect());
        let names: Option<Vec<String>> = self.schemes.clone().or(default);
        let mut schemes = Vec::new();
        for scheme in scheme::all() {
            let named = names
                .as_ref()
                .map(|it| it.iter().any(|it| it == scheme.name()));
            if named == Some(false) {
                continue;
            }
            let mut requirements = scheme.requirements().into_iter();
            match requirements.try_for_each(Requirement::check) {
                Ok(()) => schemes.push(scheme),
                Err(lacking) if self.schemes.is_none() => {
                    eprintln!("{} is left out: {lacking}", scheme.name());
                }
                Err(lacking) => {
                    return Err(lacking).context(format!("cannot measure {}", scheme.name()));
                }
            }
        }
        if schemes.is_empty() {
            bail!("no scheme can be measured here");
        }
        Ok(schemes)
    }
}

fn duration(seconds: f64, option: &str) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{option} is too large"))
}

fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && f64::is_finite(value) => Ok(value),
        Ok(_) => Err("must be more than 0".to_owned()),
        Err(_) => Err("not a number".to_owned()),
    }
}

fn parse_scheme_name(text: &str) -> Result<String, String> {
    let known = scheme::all();
    if known.iter().any(|it| it.name() == text) {
        return Ok(text.to_owned());
    }
    let names: Vec<_> = known.iter().map(|it| it.name()).collect();
    Err(format!(
        "there is no such scheme; known are {}",
        names.join(", ")
    ))
}

fn schemes_help() -> String {
    let lines = scheme::all().into_iter();
    let lines = lines.map(|it| format!("  {:15} {}\n", it.name(), it.about()));
    format!("Schemes:\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign(arguments: &[&str]) -> Result<Campaign, String> {
        let arguments = [&["msgbench"], arguments].concat();
        let arguments = Arguments::try_parse_from(arguments).map_err(|it| it.to_string())?;
        arguments.campaign().map_err(|it| it.to_string())
    }

    #[test]
    fn quick_is_a_matter_of_defaults() {
        let schemes = "--schemes=quic";
        let full = campaign(&[schemes]).expect("valid");
        assert_eq!(
            (full.scenarios.len(), full.rtts.len(), full.seeds.len()),
            (7, 2, 3)
        );
        let quick =
            campaign(&[schemes, "--quick", "--rtt-ms", "10", "--sizes=5,93"]).expect("valid");
        assert_eq!((quick.scenarios.len(), quick.seeds.len()), (3, 1));
        assert_eq!(quick.rtts, [Duration::from_millis(10)]);
        assert_eq!(quick.workload.sizes, [5_000, 93_000]);
    }

    #[test]
    fn seeds_follow_each_other() {
        let campaign = campaign(&["--schemes=quic", "--seed=7", "--seeds=2"]).expect("valid");
        assert_eq!(campaign.seeds, [7, 8]);
    }

    #[test]
    fn mistakes_are_reported_with_what_is_known() {
        for (arguments, reported) in [
            (["--schemes=carrier_pigeon"], "known are cloudburst"),
            (["--scenarios=rainy"], "known are idle, loss1"),
            (["--seconds=0"], "more than 0"),
            (["--sizes=0"], "not in 1..=10000"),
        ] {
            let error = campaign(&arguments).err().unwrap_or_default();
            assert!(error.contains(reported), "{error}");
        }
    }
}
