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

/// Cloudburst's protocol, whose encryption is ring's: that takes a compiler of C. Its unit tests alone: they take 128 s here and 10
/// on the machine's own processor, and the virtual worlds take that a minute and a half.
const SEALED: [&str; 4] = [
    "cloudburst-wire",
    "cloudburst-security",
    "cloudburst-congestion",
    "cloudburst-proto",
];

/// Tests of the library over its in-memory network. The emulator's UDP sockets lack options that all others need.
const IN_MEMORY: &str = "in_memory::";

/// Runs their tests; skips them where the target or the emulator is not installed, and those that are sealed where no compiler
/// of C is.
pub(super) fn check(project: &Project) -> Result<Tally> {
    let tools = dist::sysroot_with(TARGET).and_then(|_| dist::emulator("aarch64"));
    let emulator = match tools {
        Ok(emulator) => emulator,
        Err(reason) => return Ok(Tally::skip("tests on AArch64", &format!("{reason:#}"))),
    };
    let test = || {
        let variable = |name| format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_{name}");
        command::cargo()
            .args(["test", "--locked", "--target", TARGET])
            .env(&variable("LINKER"), "rust-lld")
            .env(&variable("RUNNER"), &emulator)
            // An emulator takes some ten times as long.
            .env("PROPTEST_CASES", "32")
            .current_dir(&project.root)
    };
    test()
        .args(["--lib", "--tests"])
        .args(PACKAGES.map(|package| format!("--package={package}")))
        .arg("--")
        .args(OF_PROCESSES.map(|test| format!("--skip={test}")))
        .run()?;
    let compiler = match dist::c_compiler_of(TARGET) {
        Ok(compiler) => compiler,
        Err(reason) => {
            let name = "tests of Cloudburst's protocol on AArch64";
            return Ok(Tally::skip(name, &format!("{reason:#}")));
        }
    };
    let test = || test().env("CC_aarch64_unknown_linux_musl", compiler);
    test()
        .arg("--lib")
        .args(SEALED.map(|package| format!("--package={package}")))
        .run()?;
    test()
        .args(["--test=it", "--package=cloudburst-fec", IN_MEMORY])
        .run()?;
    Ok(Tally::success())
}
