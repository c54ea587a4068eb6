//! Ctrl-C in the middle of a measurement.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flow_testbed::require;
use flow_testbed::require::Requirement::{NftRule, Program, Root};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LIMIT: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

fn limit() -> Option<u64> {
    fs::read_to_string(LIMIT).ok()?.trim().parse().ok()
}

#[test]
fn interrupted_measurement_ends_soon_and_leaves_limits_as_they_were() {
    require!(
        Root,
        Program("ip"),
        Program("ethtool"),
        Program("nft"),
        NftRule("ct original packets > 40 meta mark set 0x200"),
    );
    let before = limit();
    let mut measuring = Command::new(env!("CARGO_BIN_EXE_live-frames"))
        .args(["--json", "--only", "nft_split"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    // Until it measures: where the limit was high enough, for a while.
    let begun = Instant::now();
    while limit() == before && begun.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(measuring.try_wait().expect("is a child"), None);
    let id = Pid::from_raw(measuring.id().try_into().expect("an id"));
    kill(id, Signal::SIGINT).expect("is there");
    let interrupted = Instant::now();
    let output = measuring.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(1));
    // A round of the generator, and the namespaces.
    assert!(interrupted.elapsed() < Duration::from_secs(10));
    assert_eq!(limit(), before);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(!printed.contains("ns_per_packet"), "no rows: {printed}");
}
