//! Tests on AArch64, run by an emulator of user programs: what is written for that processor's vector
//! instructions, and what counts on how atomic numbers behave there, runs nowhere else here.

use anyhow::Result;

use super::libtest::Tally;
use crate::{command, dist, project::Project};

const TARGET: &str = "aarch64-unknown-linux-musl";

/// Crates that ask nothing of a kernel, and need no compiler of C to be tested.
const PACKAGES: [&str; 3] = ["cloudburst-code", "flow-balance", "splitter-policy"];

/// Tests of an example as a process of its own, which only a kernel that knows the emulator would start.
const OF_PROCESSES: [&str; 2] = [
    "datagrams_of_one_flow_are_spread_by_rate_and_arrive_in_order",
    "what_is_no_path_is_refused_by_name",
];

/// Runs their tests; skips them where the target or the emulator is not installed.
pub(super) fn check(project: &Project) -> Result<Tally> {
    let tools = dist::sysroot_with(TARGET).and_then(|_| dist::emulator("aarch64"));
    let emulator = match tools {
        Ok(emulator) => emulator,
        Err(reason) => return Ok(Tally::skip("tests on AArch64", &format!("{reason:#}"))),
    };
    let variable = |name| format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_{name}");
    command::cargo()
        .args(["test", "--locked", "--target", TARGET, "--lib", "--tests"])
        .args(PACKAGES.map(|package| format!("--package={package}")))
        .arg("--")
        .args(OF_PROCESSES.map(|test| format!("--skip={test}")))
        .env(&variable("LINKER"), "rust-lld")
        .env(&variable("RUNNER"), emulator)
        // An emulator takes some ten times as long.
        .env("PROPTEST_CASES", "32")
        .current_dir(&project.root)
        .run()?;
    Ok(Tally::success())
}
