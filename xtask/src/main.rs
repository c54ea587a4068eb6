//! The project's tasks: everything that plain `cargo` does not do.
//!
//! Compiled before anything else on a fresh clone, so its dependencies are few.

mod bench;
mod codec_count;
mod command;
mod congestion;
mod demo;
mod dist;
mod docs;
mod ebpf;
mod elf;
mod header;
mod instructions;
mod measurement;
mod msgbench;
mod project;
mod reproduction;
mod scale;
mod setup;
mod test;
mod vm_test;
#[cfg(test)]
mod wording;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{project::Project, setup::Purpose};

/// The project's tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what the other tasks need (Debian and Ubuntu; elsewhere list it).
    Setup(setup::Arguments),
    /// Build the kernel programs from source into the objects that are committed.
    BuildEbpf(ebpf::Arguments),
    /// Build the products' programs as they are shipped, and packages of them: deb, rpm, tarballs.
    Dist(dist::Arguments),
    /// Make Cloudburst's header for C from the source of its C interface.
    Header(header::Arguments),
    /// Build the book and hold it against what there is: links, commands, figures, numbers.
    Docs(docs::Arguments),
    /// Run every check that continuous integration runs, or some of them.
    Test(test::Arguments),
    /// Load, attach and try the kernel programs and the agent on other kernels, under qemu.
    VmTest(vm_test::Arguments),
    /// Measure on this machine, in network namespaces, what the splitter buys.
    Demo(demo::Arguments),
    /// Keep two sites with traffic, their status pages and Prometheus running until Ctrl-C.
    Playground(demo::Arguments),
    /// Measure completion times of short and long flows with ECMP and with each of the splitter's policies.
    Fct(demo::FctArguments),
    /// Measure what one TCP flow, or several, get of unequal tunnels, by ECMP, MPTCP and the splitter's balancers.
    Bond(measurement::Arguments),
    /// Hold what the simulator predicts of recorded flows against what a network then does with them.
    Twin(measurement::Arguments),
    /// Measure completion times in a leaf-spine fabric, by ECMP and the splitter's balancers, beside the simulator's.
    Fabric(measurement::Arguments),
    /// Measure what the splitter costs a packet, in ns.
    BenchDatapath(bench::DatapathArguments),
    /// Count what the kernel programs execute for a packet, and hold it against what is recorded.
    CountInstructions(reproduction::Arguments),
    /// Measure what a message costs to encode and decode, compared with other codecs, in us.
    BenchCodec(bench::codec::CodecArguments),
    /// Count the instructions of AArch64 that a message takes to encode and decode, under an emulator.
    CountCodec(bench::Arguments),
    /// Measure how long small messages take over four paths, by TCP, MPTCP, QUIC and others.
    Msgbench(msgbench::Arguments),
    /// Measure the congestion control of messages, alone and next to cubic, in virtual time.
    Congestion(reproduction::Arguments),
    /// Measure how a server of messages grows with its peers, idle or not, and with what it takes.
    Scale(reproduction::Arguments),
    /// Measure figures of the papers again and hold them against what is printed there.
    Reproduce(reproduction::Arguments),
    /// Measure how many packets a coded message takes until it can be decoded.
    CodecOverhead(reproduction::Arguments),
    /// Hold the simulator against ns-3: completion times, and speed.
    Ns3(reproduction::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let project = Project::locate()?;
    match arguments.task {
        Task::Setup(arguments) => setup::task(&arguments),
        Task::BuildEbpf(arguments) => ebpf::task(&project, &arguments),
        Task::Dist(arguments) => dist::task(&project, &arguments),
        Task::Header(arguments) => header::task(&project, &arguments),
        Task::Docs(arguments) => docs::task(&project, &arguments),
        Task::Test(arguments) => test::task(&project, &arguments),
        Task::VmTest(arguments) => vm_test::task(&project, &arguments),
        Task::Demo(arguments) => demo::task(&project, &arguments),
        Task::Playground(arguments) => demo::playground(&project, &arguments),
        Task::Fct(arguments) => demo::fct(&project, &arguments),
        Task::Bond(arguments) => {
            measurement::task(&project, Purpose::Bond, "bond", &[], &arguments)
        }
        Task::Twin(arguments) => measurement::task(
            &project,
            Purpose::Demo,
            "twin",
            &["flow-netsim"],
            &arguments,
        ),
        Task::Fabric(arguments) => {
            measurement::task(&project, Purpose::Demo, "fabric", &[], &arguments)
        }
        Task::BenchDatapath(arguments) => bench::datapath::task(&project, &arguments),
        Task::CountInstructions(arguments) => instructions::task(&project, &arguments),
        Task::BenchCodec(arguments) => bench::codec::task(&project, &arguments),
        Task::CountCodec(arguments) => codec_count::task(&project, &arguments),
        Task::Msgbench(arguments) => msgbench::task(&project, &arguments),
        Task::Congestion(arguments) => congestion::task(&project, &arguments),
        Task::Scale(arguments) => scale::task(&project, &arguments),
        Task::Reproduce(arguments) => reproduction::task(&project, "reproduce", &arguments),
        Task::CodecOverhead(arguments) => {
            reproduction::task(&project, "codec-overhead", &arguments)
        }
        Task::Ns3(arguments) => reproduction::task(&project, "ns3", &arguments),
    }
}
