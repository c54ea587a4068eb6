//! The demonstration: what the splitter buys against the schemes that a user has already.

mod calibration;
mod comparison;
mod render;
mod validity;

use std::{path::PathBuf, time::Duration};

use tokio_util::sync::CancellationToken;

pub use self::comparison::{
    Comparison, Machine, ModeResult, Settings, Sharing, Speedup, Summary, Tcp,
};
pub use self::render::{render_html, render_text};
pub use crate::experiment::{Progress, Status};
use crate::{
    experiment::{Experiment, ExperimentError, Mode, Traffic},
    require::{Lacking, Requirement},
    scheme::{Scheme, SplitterScheme},
    topology::TopologyOptions,
    workload::{Background, ShortFlows, Workload},
};

/// Names of the modes in results.
pub const ECMP_FLOW: &str = "ecmp_flow";
/// Stands for a mode, as [`ECMP_FLOW`] does.
pub const ECMP_PACKET: &str = "ecmp_packet";
/// Stands for a mode, as [`ECMP_FLOW`] does.
pub const NFT_SPLIT: &str = "nft_split";
/// Stands for a mode, as [`ECMP_FLOW`] does. The splitter with a tunnel for each class.
pub const SPLITTER: &str = "splitter";
/// Stands for a mode, as [`ECMP_FLOW`] does. The same as [`SPLITTER`] where policies are compared.
pub const DEDICATED: &str = "dedicated";
/// Stands for a mode, as [`ECMP_FLOW`] does. The splitter with both classes in both tunnels.
pub const SHARE: &str = "share";

/// Traffic that flows before it counts; less, a quarter, where time is short.
const WARM_UP: Duration = Duration::from_secs(2);
/// The longest wait for flows under way at the end of a slice.
const DRAIN: Duration = Duration::from_millis(2_500);
/// The shortest slice that means anything.
const LEAST_SLICE: Duration = Duration::from_secs(1);
/// What a round should take; a longer demonstration has more rounds, for new seeds tell more than
/// more of the same.
const ROUND: Duration = Duration::from_secs(35);

/// A slice of a contest of policies.
const POLICY_SLICE: Duration = Duration::from_secs(10);
/// What a border shapes tunnels to whose queue lies behind it, in percent.
const SHAPE_PERCENT: u32 = 97;

/// Lists the modes that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contest {
    /// What a user has already, and the splitter with each policy, in the time given.
    Demo,
    /// ECMP and the splitter's policies, in so many rounds of 10 s for each, however long it takes.
    Policies {
        /// How many rounds, each with a seed of its own.
        seeds: u32,
    },
}

/// Settings of the demonstration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Lists the modes that are compared. Default [`Contest::Demo`].
    pub contest: Contest,
    /// Whether the tunnels' queues lie behind the borders, which then shape shared tunnels to 97 %.
    /// Default false: they are the borders' own, and shared tunnels are shaped to all of their rate.
    pub queue_behind_border: bool,
    /// The program `splitter`; without it the other modes are compared among themselves.
    pub splitter: Option<PathBuf>,
    /// How long traffic runs, in all modes together; building and clearing up come on top, some
    /// two seconds a slice. Default 70 s.
    pub total: Duration,
    /// The background's load in percent of both tunnels' rates, in each direction, its packets'
    /// headers included. Default 40.
    pub load_percent: f64,
    /// Rate of each tunnel in Mbit/s. Default `None`: the highest of 100, 50, 20 and 10 that the
    /// tunnels keep here under this load, for both.
    pub rates_mbit: Option<[u32; 2]>,
    /// Which traffic: the same seed gives the same flows. Default 1.
    pub seed: u64,
    /// Packets of a flow that still go into the short tunnel, for both splits. Default 45: SYN,
    /// FIN and acknowledgements count, so that a flow of 40 full packets stays short.
    pub threshold: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            contest: Contest::Demo,
            queue_behind_border: false,
            splitter: None,
            total: Duration::from_secs(70),
            load_percent: 40.0,
            rates_mbit: None,
            seed: 1,
            threshold: 45,
        }
    }
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// This machine or user lacks something.
    #[error("the demonstration cannot run here:\n{}", list(.0))]
    Lacking(Vec<Lacking>),
    /// Not enough time was given.
    #[error("{given:?} are too short to measure anything; give at least {least} s")]
    TooShort {
        /// What was given.
        given: Duration,
        /// What is needed, in whole seconds.
        least: u64,
    },
    /// The experiment failed.
    #[error(transparent)]
    Experiment(ExperimentError),
    /// The demonstration was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl From<ExperimentError> for DemoError {
    fn from(error: ExperimentError) -> Self {
        match error {
            ExperimentError::Cancelled => Self::Cancelled,
            other => Self::Experiment(other),
        }
    }
}

/// Checks that this machine and user can run the demonstration.
///
/// # Errors
/// [`DemoError::Lacking`] with everything that is lacking and what to do about it.
pub fn preflight() -> Result<(), DemoError> {
    use Requirement::*;
    let programs = ["ip", "tc", "ethtool", "nft"].map(Program);
    let facilities = [
        CongestionControl("cubic"),
        FileSystem("bpf"),
        QueueingDiscipline("tbf rate 100mbit burst 3100 limit 250000"),
        NftRule("meta mark set numgen inc mod 2 offset 1"),
        NftRule("ct original packets > 45 ip dscp set 2"),
    ];
    let check = |requirements: &[Requirement]| -> Vec<Lacking> {
        requirements
            .iter()
            .filter_map(|it| it.check().err())
            .collect()
    };
    // The facilities are tried out with the programs, as root.
    let mut lacking = check(&programs);
    lacking.extend(check(&[Root]));
    if lacking.is_empty() {
        lacking = check(&facilities);
    }
    if lacking.is_empty() {
        Ok(())
    } else {
        Err(DemoError::Lacking(lacking))
    }
}

/// Runs the demonstration on this thread, which must last until it returns.
///
/// # Errors
/// [`DemoError::Cancelled`] soon after `cancel`, others for what failed. Nothing remains either way.
pub fn run(
    options: &Options,
    progress: &mut dyn Progress,
    cancel: &CancellationToken,
) -> Result<Comparison, DemoError> {
    let (rounds, slice) = plan(options)?;
    preflight()?;
    let mut why = Vec::from_iter(calibration::disturbance());
    let rates_mbit = match options.rates_mbit {
        Some(rates) => rates,
        None => {
            let (mbit, objections) = calibration::highest_rate(options, progress, cancel)?;
            why.extend(objections);
            [mbit; 2]
        }
    };
    let experiment = experiment(options, rates_mbit, slice, rounds);
    let measured = (slice - experiment.warm_up) * rounds;
    let measurements = experiment.run(progress, cancel)?;
    why.extend(validity::objections(&measurements));
    let xdp_mode = measurements.iter().find_map(|it| it.xdp_mode.clone());
    let modes: Vec<ModeResult> = measurements.into_iter().map(ModeResult::from).collect();
    let settings = Settings {
        rates_mbit,
        calibrated: options.rates_mbit.is_none(),
        load_percent: options.load_percent,
        seed: options.seed,
        threshold: options.threshold,
        rounds: experiment.rounds,
        measured_s: measured.as_secs_f64(),
        queue_behind_border: options.queue_behind_border,
    };
    let valid = why.is_empty();
    Ok(Comparison {
        valid,
        why,
        speedup: Speedup::of(&modes).filter(|_| valid),
        sharing: Sharing::of(&modes).filter(|_| valid),
        modes,
        xdp_mode,
        settings,
    })
}

/// Shares the time out: how many rounds there are, and how long each mode runs in each.
fn plan(options: &Options) -> Result<(u32, Duration), DemoError> {
    let count = u32::try_from(modes(options).len()).unwrap_or(u32::MAX);
    let (rounds, slice) = match options.contest {
        Contest::Policies { seeds } => (seeds.max(1), POLICY_SLICE),
        Contest::Demo => {
            let rounds = options.total.as_secs() / ROUND.as_secs();
            let rounds = u32::try_from(rounds).unwrap_or(u32::MAX).max(1);
            (rounds, options.total / (rounds * count))
        }
    };
    if slice < LEAST_SLICE {
        let least = (LEAST_SLICE * count).as_secs();
        return Err(DemoError::TooShort {
            given: options.total,
            least,
        });
    }
    Ok((rounds, slice))
}

/// All modes, each for so long in each round.
fn experiment(options: &Options, rates_mbit: [u32; 2], slice: Duration, rounds: u32) -> Experiment {
    Experiment {
        modes: modes(options),
        topology: TopologyOptions {
            rates_mbit,
            shape_access: true,
            queue_behind_border: options.queue_behind_border,
            delays: None,
        },
        traffic: Traffic::Drawn(Workload {
            short: ShortFlows {
                per_second: short_per_second(rates_mbit),
                ..ShortFlows::mixed()
            },
            background: Some(Background::elastic(
                options.load_percent / 100.0,
                rates_mbit,
            )),
            length: slice,
            seed: options.seed,
        }),
        warm_up: WARM_UP.min(slice / 4),
        drain: DRAIN,
        rounds,
    }
}

/// Returns as many short flows a second as load a tunnel of 100 Mbit/s by a seventh; fewer on a slower first one,
/// which they would fill where it is theirs alone.
#[must_use]
pub fn short_per_second(rates_mbit: [u32; 2]) -> f64 {
    ShortFlows::mixed().per_second * f64::from(rates_mbit[0].min(100)) / 100.0
}

fn modes(options: &Options) -> Vec<Mode> {
    let threshold = options.threshold;
    let mode = |name: &str, scheme| Mode {
        name: name.to_owned(),
        scheme,
    };
    let mut modes = vec![
        mode(ECMP_FLOW, Scheme::EcmpFlow),
        mode(ECMP_PACKET, Scheme::EcmpPacket),
    ];
    let dedicated_name = match options.contest {
        Contest::Demo => {
            modes.push(mode(NFT_SPLIT, Scheme::NftSplit { threshold }));
            SPLITTER
        }
        Contest::Policies { .. } => DEDICATED,
    };
    if let Some(binary) = &options.splitter {
        let dedicated = SplitterScheme {
            binary: binary.clone(),
            threshold,
            attach: "native".to_owned(),
            states_rates: true,
            configuration: toml::Table::new(),
        };
        let percent = if options.queue_behind_border {
            SHAPE_PERCENT
        } else {
            100
        };
        let share = dedicated.clone().sharing(percent);
        modes.push(mode(dedicated_name, Scheme::Splitter(dedicated)));
        modes.push(mode(SHARE, Scheme::Splitter(share)));
    }
    modes
}

fn list(lacking: &[Lacking]) -> String {
    lacking
        .iter()
        .map(|it| format!("  - {it}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests;
