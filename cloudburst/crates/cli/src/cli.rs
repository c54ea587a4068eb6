//! The command line. Each flag is defined here and nowhere else; parser, help, man page and
//! completions all come from it.

use std::{net::SocketAddr, num::NonZeroU8, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use cloudburst::{Ports, Remotes};
use flow_cli::{
    LogFormat,
    pages::{CompletionsArgs, ManArgs},
};

use crate::{
    options::EndpointOptions,
    progress::{Output, Progress},
    values::{BitRate, Bytes, Seconds, key_number, listening_address},
};

/// Sends messages that must not wait: erasure-coded, over several paths at once, until the
/// receiver says stop.
#[derive(Debug, Parser)]
#[command(name = "cloudburst", version, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Cli {
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
    /// How the command prints.
    pub(crate) fn output(&self) -> Output {
        let progress = match &self.command {
            Command::Send(args) => args.progress,
            Command::Perf(args) => args.progress,
            _ => Progress::Auto,
        };
        Output::new(self.json, progress)
    }
}

/// What there is to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer requests, or take files, until Ctrl-C.
    Serve(ServeArgs),
    /// Send a file, or standard input, to a `recv` or a `serve --mode files`.
    Send(SendArgs),
    /// Receive files into a directory, or one to standard output, and end.
    Recv(RecvArgs),
    /// Measure how long a message takes there and back, with a `serve` at the other end.
    Ping(PingArgs),
    /// Offer messages at a rate and measure how long they take to be delivered.
    ///
    /// Each message's time counts from when it was due, so that one that had to wait for another
    /// does not look faster than it was.
    Perf(PerfArgs),
    /// Send small messages and show what each path delivers.
    Paths(PathsArgs),
    /// Make a key, write it to a file that only you can read, and print its public half.
    Keygen(KeygenArgs),
    /// Print a shell's completions.
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Print the manual page.
    #[command(hide = true)]
    Man(ManArgs),
}

/// Where a peer is.
#[derive(Debug, Args)]
pub(crate) struct PeerArg {
    /// The peer: host:4433, 192.0.2.7:4433-4448, [2001:db8::7]:4433, or several of its addresses
    /// with commas between.
    #[arg(value_name = "PEER")]
    pub(crate) peer: Remotes,
    /// The peer's public key, as `keygen` printed it there, or a file that has it; needed where
    /// the key file has a secret key of our own.
    #[arg(short = 'p', long, value_name = "KEY")]
    pub(crate) peer_key: Option<String>,
}

/// Where we are to be found.
#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// Ports to be found at: 4433, or 4433-4448 for more paths.
    #[arg(long, value_name = "PORTS", default_value = "4433")]
    pub(crate) ports: Ports,
    /// Public keys of those who may send, one a line; needed where the key file has a secret key
    /// of our own.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) allow: Option<PathBuf>,
}

/// Where we begin.
#[derive(Debug, Args)]
pub(crate) struct BeginArgs {
    /// Ports to send from, and so paths to each port of the peer: any:16, of which those that
    /// deliver too little are abandoned for others, or 5000-5015, which stay.
    #[arg(long, value_name = "PORTS", default_value = "any:16")]
    pub(crate) ports: Ports,
}

/// Where metrics go meanwhile.
#[derive(Debug, Args)]
pub(crate) struct TelemetryArgs {
    /// Serve metrics over HTTP at this address.
    #[arg(long, value_name = "ADDRESS", value_parser = listening_address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Export metrics and events to the OpenTelemetry collector at this URL, such as
    /// http://127.0.0.1:4318; needs a build with the feature `otlp`. OTEL_EXPORTER_OTLP_ENDPOINT does
    /// the same.
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<String>,
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// What to do with what arrives.
    #[arg(long, value_enum, default_value_t = ServeMode::Echo)]
    pub(crate) mode: ServeMode,
    /// Where files go, with --mode files.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = ".")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
    #[command(flatten)]
    pub(crate) endpoint: EndpointOptions,
}

/// What `serve` does with what arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServeMode {
    /// Answer each request with itself: for `ping`.
    Echo,
    /// Answer each request with as many bytes as it asks for: for `perf --reply`.
    Size,
    /// Write files into a directory: for `send`.
    Files,
}

/// Arguments of `send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The file, or - for standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) peer: PeerArg,
    /// The name to send it under [default: the file's own]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Bytes of each message.
    #[arg(long, value_name = "BYTES", default_value = "256k")]
    pub(crate) chunk: Bytes,
    /// How long the peer may take to say that it has stored a message.
    #[arg(short = 'W', long, value_name = "SECONDS", default_value = "30")]
    pub(crate) timeout: Seconds,
    /// How to tell of what has been sent so far.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) progress: Progress,
    #[command(flatten)]
    pub(crate) begin: BeginArgs,
    #[command(flatten)]
    pub(crate) endpoint: EndpointOptions,
}

/// Arguments of `recv`.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    /// The directory to write to, or - for standard output.
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = ".")]
    pub(crate) output: PathBuf,
    /// End after so many files.
    #[arg(short = 'n', long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) endpoint: EndpointOptions,
}

/// Arguments of `ping`.
#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(crate) peer: PeerArg,
    /// End after so many messages [default: at Ctrl-C]
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Time from one message to the next.
    #[arg(short, long, value_name = "SECONDS", default_value = "1")]
    pub(crate) interval: Seconds,
    /// Bytes of each message.
    #[arg(short, long, value_name = "BYTES", default_value = "64")]
    pub(crate) size: Bytes,
    /// How long a reply is waited for.
    #[arg(short = 'W', long, value_name = "SECONDS", default_value = "2")]
    pub(crate) timeout: Seconds,
    /// Keep translators of addresses and firewalls from forgetting us between two messages: send
    /// something at least this often, 15 to 100 s [default: nothing is sent]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) keepalive: Option<Seconds>,
    #[command(flatten)]
    pub(crate) begin: BeginArgs,
    #[command(flatten)]
    pub(crate) endpoint: EndpointOptions,
}

/// Arguments of `perf`.
#[derive(Debug, Args)]
pub(crate) struct PerfArgs {
    #[command(flatten)]
    pub(crate) peer: PeerArg,
    /// Message bytes offered per second, as bits.
    #[arg(long, value_name = "RATE", default_value = "10mbit")]
    pub(crate) load: BitRate,
    /// Bytes of each message; several, separated by commas, take turns.
    #[arg(
        short,
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "16k"
    )]
    pub(crate) size: Vec<Bytes>,
    /// How long messages are offered.
    #[arg(short, long, value_name = "SECONDS", default_value = "10")]
    pub(crate) duration: Seconds,
    /// Ask for a reply of so many bytes and count until it is there; needs `serve --mode size`.
    #[arg(long, value_name = "BYTES")]
    pub(crate) reply: Option<Bytes>,
    /// How to tell of what has been delivered so far.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) progress: Progress,
    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
    #[command(flatten)]
    pub(crate) begin: BeginArgs,
    #[command(flatten)]
    pub(crate) endpoint: EndpointOptions,
}

/// Arguments of `paths`.
#[derive(Debug, Args)]
pub(crate) struct PathsArgs {
    #[command(flatten)]
    pub(crate) peer: PeerArg,
    /// How long to look.
    #[arg(short, long, value_name = "SECONDS", default_value = "5")]
    pub(crate) duration: Seconds,
    /// Bytes of each message.
    #[arg(short, long, value_name = "BYTES", default_value = "16k")]
    pub(crate) size: Bytes,
    #[command(flatten)]
    pub(crate) begin: BeginArgs,
    #[command(flatten)]
    pub(crate) endpoint: EndpointOptions,
}

/// Arguments of `keygen`.
#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// Where to write the key.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Make a key that all ends share, instead of a key pair of this one.
    #[arg(long)]
    pub(crate) shared: bool,
    /// The shared key's number, which handshakes name it by.
    #[arg(long, default_value = "1", requires = "shared", value_parser = key_number)]
    pub(crate) id: NonZeroU8,
    /// Overwrite the file if there is one.
    #[arg(long)]
    pub(crate) force: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed, or nothing was answered
  2  the command line is wrong
  3  the settings are wrong, or the key file, or there is none
  4  not permitted
  5  in conflict: another process has the port, or a file is in the way";

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
        let before = Cli::try_parse_from(["cloudburst", "--json", "ping", "h:1"]).unwrap();
        let after = Cli::try_parse_from(["cloudburst", "ping", "h:1", "--json"]).unwrap();
        assert_eq!(format!("{before:?}"), format!("{after:?}"));
    }
}
