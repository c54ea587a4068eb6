//! The command line, and what it asks for.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use flow_testbed::require::Requirement;
use msgbench::{
    campaign::Campaign,
    cell::{self, Cell},
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
    /// Measure nothing, and print what the goals come to in an array that --json printed.
    #[arg(long, value_name = "FILE")]
    pub(crate) goals: Option<PathBuf>,
    /// Less of everything, for a look in under a minute; other options still count, and what they name is
    /// measured as briefly.
    #[arg(long)]
    quick: bool,
    /// Conditions during the measurement: idle, loss1, loss5, dead, bulk3, bulk4, bulk4_down, bulk4_queue, incast,
    /// whole_none, whole_splitter, whole_cloudburst, whole_both. Default: all, or with --quick idle, loss1 and bulk4.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    scenarios: Option<Vec<Scenario>>,
    /// Schemes to compare, see below. Default: all but cloudburst with another choice of paths.
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
    /// Loads of transfers in the scenarios of the whole, in percent of all paths in each direction; short flows and
    /// messages come on top. Default: 20,40,60,70.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,...",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    loads: Option<Vec<u32>>,
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
    /// Measure only cells whose name contains this: scenario, round-trip time and load, as in bulk4-0.2ms and
    /// whole_both-0.2ms-load40.
    #[arg(long, value_name = "NAME")]
    cell: Option<String>,
    /// Take over the runs that lie in the directory of a campaign before, and measure the rest.
    #[arg(long)]
    resume: bool,
    /// Directory for the page, the plots as SVG files, and a JSON file of each cell [default: target/msgbench,
    /// with --quick target/msgbench/quick].
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// The program splitter, for scenarios with splitters at the borders [default: the one next to this program].
    #[arg(long, value_name = "FILE")]
    splitter: Option<PathBuf>,
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

const LOADS_PERCENT: [u32; 4] = [20, 40, 60, 70];

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
        let sizes_kb = self.sizes.as_deref().unwrap_or(defaults.sizes_kb);
        let seeds = self.seeds.unwrap_or(defaults.seeds);
        let seconds = self.seconds.unwrap_or(defaults.seconds);
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let splitter = self.splitter.clone();
        let mut campaign = Campaign {
            cells: self.cells(&defaults)?,
            schemes: self.schemes(&defaults)?,
            seeds: (0..seeds).map(|it| self.seed.wrapping_add(it)).collect(),
            workload: Workload {
                per_second: self.per_second,
                sizes: sizes_kb.iter().map(|kb| kb * 1_000).collect(),
                length: duration(seconds, "--seconds")?,
            },
            rate_mbit: self.rate_mbit,
            splitter: splitter.unwrap_or_else(|| own.with_file_name("splitter")),
            out: self.out(),
            resume: self.resume,
        };
        let mut cells = std::mem::take(&mut campaign.cells);
        cells.retain(|cell| !campaign.schemes_of(cell).is_empty());
        if cells.is_empty() {
            bail!(
                "these scenarios measure none of these schemes: whole_none and whole_splitter have those \
                 without Cloudburst, whole_cloudburst and whole_both have cloudburst and paper, and \
                 cloudburst_reserved is measured in whole_both and bulk4_queue"
            );
        }
        campaign.cells = cells;
        Ok(campaign)
    }

    /// Returns the directory for all that is written. A quick look does not replace what took hours.
    pub(crate) fn out(&self) -> PathBuf {
        let default = if self.quick {
            "target/msgbench/quick"
        } else {
            "target/msgbench"
        };
        self.out.clone().unwrap_or_else(|| default.into())
    }

    /// Selects cells. Who names one gets it, also where a quick look would leave it out.
    fn cells(&self, defaults: &Defaults) -> Result<Vec<Cell>> {
        let defaults = if self.cell.is_some() { &FULL } else { defaults };
        let scenarios = self.scenarios.as_deref().unwrap_or(defaults.scenarios);
        let rtts_ms = self.rtt_ms.as_deref().unwrap_or(defaults.rtts_ms);
        let rtts = rtts_ms.iter().map(|ms| duration(ms / 1e3, "--rtt-ms"));
        let loads = self.loads.as_deref().unwrap_or(&LOADS_PERCENT);
        let all = cell::cells(&rtts.collect::<Result<Vec<_>>>()?, scenarios, loads);
        let name = self.cell.as_deref().unwrap_or_default();
        let is_named = |it: &&Cell| it.to_string().contains(name);
        let cells: Vec<Cell> = all.iter().filter(is_named).copied().collect();
        if cells.is_empty() {
            let names: Vec<_> = all.iter().map(Cell::to_string).collect();
            bail!("no cell has such a name; there are {}", names.join(", "));
        }
        Ok(cells)
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
            if !named.unwrap_or(!scheme.is_named_only()) {
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
    let lines = lines.map(|it| format!("  {:19} {}\n", it.name(), it.about()));
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

    fn names(campaign: &Campaign) -> Vec<String> {
        campaign.cells.iter().map(Cell::to_string).collect()
    }

    #[test]
    fn quick_is_a_matter_of_defaults() {
        let schemes = "--schemes=quic";
        let full = campaign(&[schemes]).expect("valid");
        // Two of four scenarios of the whole have it, at four loads.
        assert_eq!((full.cells.len(), full.seeds.len()), ((9 + 2 * 4) * 2, 3));
        let quick =
            campaign(&[schemes, "--quick", "--rtt-ms", "10", "--sizes=5,93"]).expect("valid");
        assert_eq!(names(&quick), ["idle-10ms", "loss1-10ms", "bulk4-10ms"]);
        assert_eq!(quick.seeds.len(), 1);
        assert_eq!(quick.workload.sizes, [5_000, 93_000]);
        assert_ne!(quick.out, full.out);
    }

    #[test]
    fn variants_of_cloudburst_are_measured_where_they_are_named() {
        let schemes = |arguments: &[&str]| {
            let campaign = campaign(arguments).expect("valid");
            let names = campaign.schemes.iter().map(|it| it.name());
            names.collect::<Vec<_>>()
        };
        let all = schemes(&["--scenarios=idle"]);
        assert!(all.contains(&"cloudburst") && !all.contains(&"cloudburst_tr"));
        assert_eq!(schemes(&["--schemes=cloudburst_tr"]), ["cloudburst_tr"]);
    }

    #[test]
    fn quick_look_takes_less_than_a_minute() {
        let quick = campaign(&["--quick"]).expect("valid");
        assert!(quick.count() >= 3 * 3, "{}", quick.count());
        assert!(
            quick.length() < Duration::from_secs(60),
            "{:?}",
            quick.length()
        );
    }

    #[test]
    fn new_scenarios_take_ten_minutes_at_the_most_with_quick() {
        let named = "--scenarios=bulk4_down,bulk4_queue,whole_none,whole_splitter,whole_cloudburst,whole_both";
        let quick = campaign(&["--quick", named]).expect("valid");
        assert!(
            quick.length() < Duration::from_secs(600),
            "{:?}",
            quick.length()
        );
        assert!(names(&quick).contains(&"whole_both-0.2ms-load70".to_owned()));
    }

    #[test]
    fn scenario_without_a_scheme_is_left_out_or_reported() {
        let whole = "--scenarios=whole_none,whole_both";
        let some = campaign(&["--schemes=quic", whole, "--loads=5", "--rtt-ms=1"]).expect("valid");
        assert_eq!(names(&some), ["whole_none-1ms-load5"]);
        let none = campaign(&["--schemes=quic", "--scenarios=whole_both"]);
        let error = none.err().unwrap_or_default();
        assert!(error.contains("measure none"), "{error}");
    }

    #[test]
    fn cell_is_found_by_its_name_whether_quick_or_not() {
        let named = campaign(&["--schemes=quic", "--quick", "--cell=dead-10ms", "--resume"]);
        let named = named.expect("valid");
        assert_eq!(names(&named), ["dead-10ms"]);
        assert!(named.resume);
        let named = campaign(&["--schemes=quic", "--cell=bulk4-", "--scenarios=idle,bulk4"]);
        assert_eq!(names(&named.expect("valid")), ["bulk4-0.2ms", "bulk4-10ms"]);
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
            (["--loads=101"], "101 is not in 1..=100"),
            (["--cell=bulk5"], "there are idle-0.2ms, loss1-0.2ms"),
        ] {
            let error = campaign(&arguments).err().unwrap_or_default();
            assert!(error.contains(reported), "{error}");
        }
    }
}
