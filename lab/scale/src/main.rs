//! Cloudburst with many peers and many messages, on the loopback interface. `cargo xtask scale` builds and calls
//! it.

mod at_once;
mod clients;
mod crowd;
mod idle;
mod in_a_row;
mod process;
mod report;
mod server;
mod worker;

use std::{io::Write as _, time::Duration};

use anyhow::Result;
use clap::Parser;
use flow_cli::{ExitCode, print_json};

use crate::{
    at_once::AtOnce,
    idle::Idle,
    in_a_row::InARow,
    report::{Growth, Report},
};

/// Measures how memory, processor time and wake-ups of a Cloudburst server grow with its peers and with the
/// messages that it takes: peers that are idle, peers that send to it at the same time, and messages of one peer in
/// a row. Server and clients are processes of their own on the loopback interface. Each peer has a socket, a key pair
/// and an address of 127.1.0.0/16, since a server opens at most 50 conversations a second with
/// hosts of one address; peers are in as many processes as the limit of open files (`ulimit -Hn`) asks for, at two
/// files each.
#[derive(Debug, Parser)]
#[command(name = "scale", bin_name = "cargo xtask scale", version)]
struct Arguments {
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Numbers of peers that are idle, up to 15000.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [100, 1_000, 10_000], value_parser = clap::value_parser!(u32).range(1..=15_000))]
    peers: Vec<u32>,
    /// How long idle peers are watched, in seconds.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Idle peers keep their paths alive: they ping when nothing was sent for so many seconds, 15 to 100.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(15..=100))]
    keepalive: Option<u64>,
    /// Numbers of peers that send at the same time, up to 15000.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [10, 100, 1_000], value_parser = clap::value_parser!(u32).range(1..=15_000))]
    senders: Vec<u32>,
    /// Messages of one peer in a row, of 100 bytes.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    messages: u64,
    /// Only this part.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Be the server, for so many peers: what this program starts itself as.
    #[arg(long, value_name = "PEERS", hide = true)]
    serve: Option<u32>,
    /// Be some of its clients.
    #[arg(long, value_name = "JSON", hide = true)]
    clients: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Peers that are idle.
    Idle,
    /// Peers that send at the same time.
    AtOnce,
    /// Messages in a row.
    InARow,
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let result = match (arguments.serve, &arguments.clients) {
        (Some(peers), _) => server::run(peers),
        (None, Some(job)) => clients::run(job),
        (None, None) => measure(&arguments),
    };
    let code = match result {
        Ok(()) => ExitCode::Ok,
        Err(error) => flow_cli::report_error("scale", &error, ExitCode::Failed, arguments.json),
    };
    code.into()
}

fn measure(arguments: &Arguments) -> Result<()> {
    let is_wanted = |part| arguments.only.is_none_or(|only| only == part);
    let mut report = Report::default();
    if is_wanted(Part::InARow) {
        report.in_a_row = InARow::measure(arguments.messages)?;
    }
    if is_wanted(Part::AtOnce) {
        for &senders in &arguments.senders {
            tell(&format!("{senders} peers send at once"));
            report.at_once.push(AtOnce::measure(senders)?);
        }
    }
    if is_wanted(Part::Idle) {
        let keepalive = arguments.keepalive.map(Duration::from_secs);
        for &peers in &arguments.peers {
            tell(&format!("{peers} idle peers"));
            let watched = Duration::from_secs(arguments.seconds);
            report.idle.push(Idle::measure(peers, watched, keepalive)?);
        }
    }
    report.growth = Growth::of(&report);
    match arguments.json {
        true => print_json(&report),
        false => report.print(),
    }
}

/// Says what is measured: it takes minutes.
fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}
