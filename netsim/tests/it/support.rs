//! Shared by the tests.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::process::{Command, Output};

use netsim::{Outcome, Overrides, Source};

/// Runs the command.
pub(crate) fn netsim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netsim"))
        .args(arguments)
        .output()
        .expect("the binary starts")
}

/// Runs the text of a scenario, which must be right.
pub(crate) fn outcome(text: &str) -> Outcome {
    let experiment = Source::from_text("test", text)
        .with_paper_machine(paper_machine::simulated)
        .experiment(&Overrides::default());
    let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
    netsim::run(&experiment)
}

/// Returns the message for the text of a scenario that is wrong.
pub(crate) fn error(text: &str) -> String {
    let experiment = Source::from_text("test.toml", text)
        .with_paper_machine(paper_machine::simulated)
        .experiment(&Overrides::default());
    experiment.expect_err("the scenario is wrong").to_string()
}

pub(crate) fn percent_off(value: f64, expected: f64) -> f64 {
    100.0 * (value / expected - 1.0).abs()
}
