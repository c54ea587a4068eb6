//! The command `netsim`, which runs scenarios.

mod arguments;
mod commands;

use std::process::ExitCode;

use clap::Parser as _;

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::List(arguments) => commands::list::run(&arguments),
        Command::Sweep(arguments) => commands::sweep::run(&arguments),
        Command::Merge(arguments) => commands::merge::run(&arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
