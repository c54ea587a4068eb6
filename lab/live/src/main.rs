//! Packets a second that one core carries, and two: frames that really travel, through native veth.
//!
//! The kernel's generator (`BPF_F_TEST_XDP_LIVE_FRAMES`) runs a program on a batch of 64 frames, which
//! writes the next flow's addresses into each and puts it into a veth device. The far end of that is
//! the router: its driver runs the program that is measured, and what that sends on arrives in a third
//! namespace, where it is counted and dropped. All of it runs on the core of the generator. `generator` is
//! what drawing the frames takes alone, `drop` what it takes to bring them to a program: both are in
//! all other rows.
//!
//! The generator has a few frames whose memory it uses again and again, which a card does not: what a
//! driver fetches from memory is in the caches here. Flows are another thing: their numbers come from a
//! list of 2^20, drawn beforehand. With two cores each has flows of its own, as a card spreads them.
//!
//! | program | what a frame meets |
//! |---|---|
//! | `generator` | is drawn, and dropped there |
//! | `drop` | a program that counts and drops it |
//! | `bare_redirect` | a program that puts it into the tunnel as it is |
//! | `split_drop` | the split program's body, and is dropped |
//! | `lru_conntrack` | the peer: parsed, counted in an `LRU_HASH` with the time, and dropped |
//! | `dscp`, `mark`, `redirect` | the programs that ship, with the stack and its rules where they need it |
//! | `redirect_tr_4` | the same as `redirect`, each frame into the tunnel that it chooses by TR among four that are idle |
//! | `stack` | the network stack, which forwards it |
//! | `nft_split` | the peer: conntrack counts the packets of its connection, nftables marks it, rules route it |
//!
//! Frames are counted where they arrive, and a row whose frames did not arrive, or did not take the way
//! that it claims ([`evidence`]), has no figure: it is named, and the command fails.

#[allow(dead_code, reason = "the tests use the other part of it")]
#[path = "../../../splitter-agent/tests/it/support/loaded.rs"]
mod loaded;
#[allow(dead_code, reason = "the tests use the other part of it")]
#[path = "../../../crates/splitter-policy/tests/support/packet.rs"]
mod packet;

mod choosing;
mod clock;
mod conntrack;
mod evidence;
mod generator;
mod latency;
mod program;
mod rig;
mod row;
mod traffic;

use std::thread::available_parallelism;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use flow_cli::{ExitCode, Signals, print_json};
use flow_testbed::require::Requirement::{Program as Command, Root};
use program::{Program, Router, Sinks, Yardstick};
use tokio_util::sync::CancellationToken;
use traffic::{Size, Traffic};

/// Measures packets a second of one core and of two, in frames that really travel.
#[derive(Clone, Parser)]
struct Arguments {
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
    /// Measure how long frames take at 10, 50 and 90 % of what a core carries.
    #[arg(long)]
    latency: bool,
    /// Measure frames of 64 bytes alone, and each row for half the time.
    #[arg(long, conflicts_with = "latency")]
    quick: bool,
    /// Measure these alone, by their names.
    #[arg(long, value_delimiter = ',', value_name = "PROGRAM")]
    only: Vec<String>,
}

/// What has no figure: because this machine lacks something, or because it was not what its name says.
#[derive(Default)]
struct Missing {
    skipped: Vec<String>,
    wrong: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let json = arguments.json;
    let code = match on_thread(arguments).await {
        Ok(code) => code,
        Err(error) => flow_cli::report_error("live-frames", &error, ExitCode::Failed, json),
    };
    code.into()
}

/// Measures on a thread of its own, so that signals are heard: what was set up is taken back then, and
/// limits that were raised are what they were.
async fn on_thread(arguments: Arguments) -> Result<ExitCode> {
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    let measuring = tokio::task::spawn_blocking(move || measure(&arguments, cancelled));
    let mut signals = Signals::listen()?;
    let mut measuring = std::pin::pin!(measuring);
    loop {
        tokio::select! {
            measured = &mut measuring => break measured.context("the measurement panicked")?,
            _ = signals.next() => cancel.cancel(),
        }
    }
}

fn measure(arguments: &Arguments, cancel: CancellationToken) -> Result<ExitCode> {
    for needed in [Root, Command("ip"), Command("ethtool")] {
        needed
            .check()
            .context("live frames cannot be measured here")?;
    }
    let wanted = wanted(&arguments.only)?;
    let mut missing = Missing::default();
    let mut yardstick = Yardstick::new(cancel)?;
    let measured = if arguments.latency {
        let rows = latency::measure(&wanted, &mut yardstick, &mut missing, !arguments.json)?;
        if arguments.json {
            print_json(&rows)?;
        }
        rows.len()
    } else {
        let rows = throughput(&wanted, &mut yardstick, &mut missing, arguments)?;
        if arguments.json {
            print_json(&rows)?;
        }
        rows.len()
    };
    Ok(missing.report(measured))
}

fn wanted(only: &[String]) -> Result<Vec<Program>> {
    let names = Program::ALL.map(Program::name);
    for name in only {
        ensure!(
            names.contains(&name.as_str()),
            "no program is called {name}: there are {}",
            names.join(", ")
        );
    }
    let is_wanted = |it: &Program| only.is_empty() || only.iter().any(|name| name == it.name());
    Ok(Program::ALL.into_iter().filter(is_wanted).collect())
}

/// All programs under each traffic, one after the other, so that their rows are of the same minutes.
fn throughput(
    programs: &[Program],
    yardstick: &mut Yardstick,
    missing: &mut Missing,
    arguments: &Arguments,
) -> Result<Vec<row::Row>> {
    let most = available_parallelism()?.get();
    if most < 2 {
        missing
            .skipped
            .push("2 cores: the machine has one".to_owned());
    }
    let kinds = Traffic::ALL
        .into_iter()
        .filter(|it| !arguments.quick || it.size == Size::Smallest);
    let cores = || [1, 2].into_iter().filter(|it| *it as usize <= most);
    let cells: Vec<_> = kinds
        .flat_map(|traffic| cores().map(move |cores| (traffic, cores)))
        .collect();
    let routers = missing.set_up(programs, yardstick, Sinks::Counting);
    let _room = conntrack::Room::for_connections(2 << 20);
    let slices = if arguments.quick { 3 } else { row::SLICES };
    let planned = cells.len() * routers.len();
    let mut rows = Vec::new();
    for (traffic, cores) in cells {
        let list = traffic::list(traffic, cores);
        generator::set_list(&mut yardstick.loaded, &list, cores)?;
        for router in &routers {
            match row::measure(yardstick, router, traffic, cores, slices)? {
                Ok(row) => {
                    let done = rows.len() + missing.wrong.len() + 1;
                    if arguments.json {
                        eprintln!("[{done}/{planned}] {row}");
                    } else {
                        println!("{row}");
                    }
                    rows.push(row);
                }
                Err(problem) => missing.wrong.push(format!(
                    "{}, {}, cores {cores}: {problem}",
                    router.program.name(),
                    traffic.name()
                )),
            }
        }
    }
    Ok(rows)
}

impl Missing {
    /// Routers with those programs that this machine can run.
    fn set_up(
        &mut self,
        programs: &[Program],
        yardstick: &mut Yardstick,
        sinks: Sinks,
    ) -> Vec<Router> {
        let mut routers = Vec::new();
        for program in programs {
            let lacking = program
                .requirements()
                .iter()
                .find_map(|it| it.check().err());
            let made = match lacking {
                Some(lacking) => Err(lacking.into()),
                None => Router::new(*program, yardstick, sinks),
            };
            match made {
                Ok(router) => routers.push(router),
                Err(reason) => self.skipped.push(format!("{}: {reason:#}", program.name())),
            }
        }
        routers
    }

    /// Says what has no figure, and how many have one.
    fn report(&self, measured: usize) -> ExitCode {
        for skipped in &self.skipped {
            eprintln!("skipped {skipped}");
        }
        for wrong in &self.wrong {
            eprintln!("no figure for {wrong}");
        }
        let (skipped, wrong) = (self.skipped.len(), self.wrong.len());
        eprintln!("{measured} rows measured, {wrong} without a figure, {skipped} skipped");
        if wrong == 0 {
            ExitCode::Ok
        } else {
            ExitCode::Failed
        }
    }
}
