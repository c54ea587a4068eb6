//! The command line. Each flag is defined here and nowhere else; parser, help, man page and
//! completions all come from it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use flow_cli::LogFormat;
use flow_cli::pages::{CompletionsArgs, ManArgs};
use splitter_config::DEFAULT_PATH;
use splitter_datapath::tap::TapPoint;
use splitter_instance::explanation::Endpoint;

mod advise;
mod record;
#[cfg(feature = "top")]
mod top;

pub(crate) use self::advise::AdviseArgs;
pub(crate) use self::record::{MAX_TIME, RecordArgs};
#[cfg(feature = "top")]
pub(crate) use self::top::TopArgs;

/// Gives short TCP flows a WAN tunnel of their own.
///
/// An XDP program counts each flow's packets where they come in from the site and marks the
/// packet short or long; rules route each class over its own tunnel.
#[derive(Debug, Parser)]
#[command(name = "splitter", version, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Cli {
    /// The configuration file [default: /etc/splitter/splitter.toml]
    #[arg(short, long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,

    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Log as text, journald or json [default: journald where that reads it, else text]
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        value_enum,
        hide_possible_values = true
    )]
    pub(crate) log: Option<LogFormat>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The configuration file that was named, if one was.
    pub(crate) fn named_config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The configuration file that was named, or the default one.
    pub(crate) fn config_path(&self) -> &Path {
        self.named_config().unwrap_or(Path::new(DEFAULT_PATH))
    }
}

/// What there is to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set everything up, split and measure until asked to stop, then restore what was found.
    Run,
    /// Show what `up` would change, and change nothing.
    Plan,
    /// Attach the programs, add rules and routes, and return. A second time changes nothing.
    Up,
    /// Remove everything that `up` or `run` put in place, also after a crash.
    ///
    /// Goes by what the instance has noted where the configuration file is wrong or missing.
    Down(DownArgs),
    /// Have the running agent read its file again, and show what that changes.
    ///
    /// The file is checked as a whole, and refused as a whole when it is wrong or when a key
    /// differs that cannot change at run time. Flows keep what is known of them. SIGHUP does the
    /// same. What `set` had set is dropped.
    Reload(ReloadArgs),
    /// Have the running agent change keys of its configuration, until the next reload.
    ///
    /// As in `splitter set threshold 60` or `splitter set threshold=60`, or with several at once
    /// that belong together, `splitter set unit=bytes threshold=60000`. The file stays as it is.
    Set(SetArgs),
    /// Have the running agent put another file in force, for good or until it is taken back.
    ///
    /// As `reload` does, and what the file says takes the place of what the agent's own file says.
    /// With --confirm it is taken back after that time unless `splitter confirm` is given: by the
    /// agent, also when the connection is lost that this command was given over. Until then the
    /// agent's own file stays as it is, so that an agent that starts again has what was there before.
    Apply(ApplyArgs),
    /// Keep what `apply --confirm` has put in force, also for the next start.
    Confirm(ConfirmArgs),
    /// Recommend a threshold for the flows that ended lately, or for those of a file or a recording.
    ///
    /// Takes the threshold with the lowest mean slowdown of all flows, by a model of queues and
    /// the sizes that the running agent has seen.
    Advise(AdviseArgs),
    /// Show what is attached, how, and what it has counted.
    Status,
    /// List the flows being tracked.
    Flows(FlowsArgs),
    /// Record the sizes, starts and classes of flows into one file, without addresses.
    ///
    /// Looks at the flow table until the time is over or Ctrl-C, then puts the whole file into place.
    /// Works without a daemon, and changes nothing. `netsim run --trace FILE` says what other schemes
    /// would have done to these flows, and `splitter advise --recording FILE` which threshold suits
    /// them. The file counts what was not seen.
    Record(RecordArgs),
    /// Say why a flow goes where it goes: class, count, mark, rule, route and next hop.
    ///
    /// Looks into the flow table, and asks the kernel by which rule and route it sends packets of
    /// each class between these ends. Works without a daemon, and changes nothing. Where a flow is
    /// not split, it says what to do, and the exit code is 1.
    Explain(ExplainArgs),
    /// Prove with real packets that the flows of each class leave by its tunnels and are answered.
    ///
    /// Puts flows of both classes in as if each interface of the site had received them, and sees
    /// by which device and with which mark they leave, and what is answered: delay, loss, and the
    /// largest packet that passes. Their source is the border's own address there. Takes
    /// Linux 5.18 and CAP_NET_RAW. For a path that is not as intended the exit code is 1.
    Verify(VerifyArgs),
    /// Watch flows, classes, tunnels and completion times, live in the terminal.
    ///
    /// Works without a daemon. `?` lists the keys, and q ends it.
    #[cfg(feature = "top")]
    Top(TopArgs),
    /// Tell whether a configuration file is right, without touching the system.
    Check(CheckArgs),
    /// Print what the declarations of the configuration's keys say, for editors and for people.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look for whatever would keep the splitter from working here, and say what to do about it.
    ///
    /// Without a configuration file only the machine is looked at.
    Doctor,
    /// Note when TCP flows pass devices, and how long they take from the first to the next.
    ///
    /// Needs no configuration and changes nothing: programs that only look are attached until
    /// Ctrl-C, by TCX (Linux 6.6) or, before that, clsact. What is printed then is, for each flow
    /// and device, the time of the first and of the last packet, and how many packets and bytes
    /// passed. The completion time is that from the first packet at the first device named to the
    /// last packet at the others.
    Tap(TapArgs),
    /// Be a leaf or a spine of a fabric, whose leaves learn from ACKs how full the spines' ports are.
    ///
    /// By a file of its own [default: /etc/splitter/fabric.toml]. A leaf writes and restores five bits
    /// of the TTL of pure ACKs, a spine writes into them how full its port is, and hosts see all of
    /// them as they would without.
    #[command(subcommand)]
    Fabric(FabricCommand),
    /// Print a shell's completions.
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Print the manual page.
    #[command(hide = true)]
    Man(ManArgs),
}

impl Command {
    /// Tells whether the command draws on the whole terminal.
    pub(crate) fn draws(&self) -> bool {
        match self {
            #[cfg(feature = "top")]
            Self::Top(args) => !args.once,
            _ => false,
        }
    }
}

/// Arguments of `down`.
#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Take down every instance that no agent runs, and remove all rules, routes and shaping of
    /// ours in this network namespace, whoever has left them.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Arguments of `flows`.
#[derive(Debug, Args)]
pub(crate) struct FlowsArgs {
    /// Keep watching, once a second.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Show so many flows at most, those with the most packets first.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    // Not a comment for documentation, which would take brackets for a link.
    #[arg(
        required = true,
        num_args = 1..=2,
        value_name = "ADDRESS[:PORT]",
        help = "The destination, or the source and then the destination: 10.2.0.5, 10.2.0.5:443, \
                2001:db8::5 or [2001:db8::5]:443"
    )]
    pub(crate) ends: Vec<Endpoint>,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// A host at the other site that answers ping or TCP; several, such as one of IPv4 and one of
    /// IPv6, by giving it again.
    #[arg(long, required = true, value_name = "ADDRESS")]
    pub(crate) to: Vec<IpAddr>,
    /// Probe this port of TCP, and take nothing but its answers; without it port 9, and echoes
    /// count where that does not answer.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) tcp: Option<u16>,
    /// Wait for the answers of so many probes on each path, 1 to 1000.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) count: u16,
}

/// Texts about the keys of the configuration.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a JSON Schema, with which an editor completes, explains and checks a file.
    Schema,
    /// Print a configuration that shows every key with its explanation and default.
    Example,
}

/// The role of a leaf or a spine.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum FabricCommand {
    /// Put the role in place, keep it so and serve metrics until asked to stop, then take it back; a
    /// leaf restores what others write until `down`.
    Run,
    /// Put the role in place for good, and return. A second time changes nothing.
    Up,
    /// Take back what `up` or `run` put in place, also after a crash; a leaf when nothing comes any more
    /// that it has to restore.
    Down {
        /// Take a leaf down also while other leaves write to it, whose ACKs hosts then see as written
        #[arg(long)]
        at_once: bool,
        /// Take down every role of this network namespace that no agent runs, by what is pinned, whichever
        /// file it is of; none is read
        #[arg(long)]
        all: bool,
    },
    /// Show what `up` would change, and change nothing.
    Plan,
    /// Show what is attached, what was done to ACKs, and what spines report.
    Status,
    /// Tell whether the configuration file is right, without touching the system.
    Check,
    /// Tell whether machine and network are fit for the role: ports, MTU, hosts, DSCP.
    Doctor,
}

/// Arguments of `reload`.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// Show what would change, and change nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The file to put in force.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Take it back after so long unless it is confirmed: 60s, 5m or 1h.
    #[arg(long, value_name = "TIME", value_parser = flow_cli::seconds, conflicts_with = "dry_run")]
    pub(crate) confirm: Option<u32>,
    /// Show what would change, and change nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `confirm`.
#[derive(Debug, Args)]
pub(crate) struct ConfirmArgs {
    /// Take it back at once instead.
    #[arg(long)]
    pub(crate) revert: bool,
}

/// Arguments of `set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Keys and their values in turns; the section of a key may be left out.
    #[arg(
        required = true,
        num_args = 1..,
        value_names = ["KEY", "VALUE"],
        value_parser = crate::settings::Settings,
        hide_possible_values = true
    )]
    pub(crate) settings: Vec<String>,
    /// Show what would change, and change nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file to check; the one of --config, or the default one, if left out.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

/// Arguments of `tap`.
#[derive(Debug, Args)]
pub(crate) struct TapArgs {
    /// Where to look; the direction is ingress unless it is given.
    #[arg(
        required_unless_present = "join",
        value_name = "DEVICE[:ingress|:egress]"
    )]
    pub(crate) points: Vec<TapPoint>,
    /// End by itself after so many seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: Option<u32>,
    /// Also time one packet in N by itself, all with 1: the first 262,144 at each device.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) packets: Option<u32>,
    /// Select the same packets as the border that has the same file: that of health.key_file.
    #[arg(long, value_name = "FILE", requires = "packets", value_hint = ValueHint::FilePath)]
    pub(crate) packet_key: Option<PathBuf>,
    /// Tap nothing: show how much delays vary from the devices of the one file to those of the
    /// other, both printed with --json and timed with the same key.
    #[arg(long, num_args = 2, action = ArgAction::Set, value_names = ["FROM", "TO"], value_hint = ValueHint::FilePath,
        conflicts_with_all = ["points", "seconds", "packets"])]
    pub(crate) join: Vec<PathBuf>,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done; for `doctor`: nothing failed; for `explain`: it is split;
     for `verify`: all paths are as intended
  1  failed; for `explain`: it is not split;
     for `verify`: a path is not as intended
  2  the command line is wrong
  3  the configuration is wrong
  4  not permitted: run it as root, or with CAP_NET_ADMIN, CAP_BPF and
     CAP_PERFMON
  5  in conflict with rules or routes that are not ours, with another
     instance, or with what cannot change while an agent runs
  6  cannot be told";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_go_anywhere() {
        let before = Cli::try_parse_from(["splitter", "--json", "-c", "a", "status"]).unwrap();
        let after = Cli::try_parse_from(["splitter", "status", "--config", "a", "--json"]).unwrap();
        assert_eq!(format!("{before:?}"), format!("{after:?}"));
    }
}
