//! A cell that is measured with real transfers, as briefly as can be.

use std::{
    error::Error,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use flow_testbed::{
    built::assert_current, namespace::TUN, require, require::Requirement::*, wait::within,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

type TestResult = Result<(), Box<dyn Error>>;

const CELL: &str = "30+8-f1-up-loss0-jitter0";

macro_rules! require_rig {
    () => {
        require!(Root, Program("ip"), Program("tc"), Program("nft"), Program("ss") => Ok(()));
        require!(Program("ethtool"), Program("iperf3"), File(TUN) => Ok(()));
        require!(QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000") => Ok(()));
        require!(NftRule("meta mark set numgen inc mod 2 map { 0 : 1, 1 : 2 }") => Ok(()));
        require!(CongestionControl("cubic") => Ok(()));
    };
}

fn bond(out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bond"));
    command.args(["--json", "--quick", "--cell", CELL, "--seeds", "1"]);
    command.args(["--seconds", "1", "--scheme", "best_single,ecmp_packet"]);
    command.arg("--out").arg(out).stdin(Stdio::null());
    command
}

#[test]
fn cell_is_measured_with_all_that_is_promised_of_it() -> TestResult {
    require_rig!();
    let out = tempfile::tempdir()?;
    let output = bond(out.path()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout)?;
    let [single, sprayed] = &rows.as_array().expect("an array")[..] else {
        panic!("two schemes with one seed: {rows}");
    };
    for (row, scheme) in [(single, "best_single"), (sprayed, "ecmp_packet")] {
        assert_eq!(
            (&row["scheme"], &row["case"]),
            (&scheme.into(), &"30+8".into())
        );
        for figure in ["goodput_mbit", "rtt_p50_ms", "rtt_p99_ms", "short_mean_ms"] {
            assert!(row[figure].as_f64() > Some(0.0), "{figure} of {row}");
        }
        for count in [
            "spurious_retransmits",
            "retransmits",
            "paws",
            "flows",
            "seed",
        ] {
            assert!(row[count].is_u64(), "{count} of {row}");
        }
        let [goodput_mbit, share] = ["goodput_mbit", "share_of_sum"].map(|it| row[it].as_f64());
        let difference = goodput_mbit.unwrap_or(0.0) / 38.0 - share.unwrap_or(1.0);
        assert!(difference.abs() < 1e-9, "{row}");
        assert!(row["packets"].as_u64() > Some(100), "{row}");
        // Both ways take 10 ms, and a tunnel's queue up to 60.
        assert!(row["rtt_p50_ms"].as_f64() > Some(20.0), "{row}");
    }
    // One tunnel keeps order; of two by turns, the one that is 20 ms longer does not.
    assert_eq!(single["out_of_order"], 0.0, "{single}");
    assert!(sprayed["out_of_order"].as_f64() > Some(0.01), "{sprayed}");

    let again = bond(out.path()).arg("--resume").output()?;
    let taken_over: Value = serde_json::from_slice(&again.stdout)?;
    for row in [0, 1] {
        for figure in ["scheme", "packets", "retransmits"] {
            assert_eq!(taken_over[row][figure], rows[row][figure]);
        }
    }
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("taken over"), "{said}");
    Ok(())
}

/// With the daemon of this build, where it was built. How much a flow has in two seconds is the machine's
/// to say as well: that it fills both tunnels is held by `balance` in the daemon's tests.
#[test]
fn balancers_are_measured() -> TestResult {
    require_rig!();
    let splitter = Path::new(env!("CARGO_BIN_EXE_bond")).with_file_name("splitter");
    let program = splitter.display().to_string().leak();
    require!(File(program), FileSystem("bpf") => Ok(()));
    assert_current(&splitter, "splitter-agent");
    let out = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_bond"));
    command.args(["--quick", "--json", "--cell", CELL, "--seeds", "1"]);
    command.args(["--seconds", "2", "--scheme", "tr,letflow,tr_paper"]);
    let output = command.arg("--out").arg(out.path()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout)?;
    println!("{rows}");
    let rows = rows.as_array().expect("an array");
    let mut schemes: Vec<_> = rows.iter().map(|row| row["scheme"].as_str()).collect();
    schemes.sort_unstable();
    let expected = ["letflow", "tr", "tr_paper"].map(Some);
    assert_eq!(schemes, expected, "{said}");
    for row in rows {
        for figure in ["goodput_mbit", "rtt_p50_ms", "short_mean_ms"] {
            assert!(row[figure].as_f64() > Some(0.0), "{figure} of {row}");
        }
        assert!(row["packets"].as_u64() > Some(100), "{row}");
    }
    Ok(())
}

#[test]
fn what_the_splitter_refuses_is_named_and_not_measured() -> TestResult {
    require_rig!();
    let out = tempfile::tempdir()?;
    let splitter = out.path().join("splitter");
    fs::write(
        &splitter,
        "#!/bin/sh\necho \"$2:1: balance is not for me\" >&2\nexit 2\n",
    )?;
    fs::set_permissions(&splitter, fs::Permissions::from_mode(0o755))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_bond"));
    command.args(["--quick", "--json", "--cell", CELL, "--seeds", "1"]);
    command.args(["--seconds", "1", "--scheme", "best_single,tr"]);
    command.arg("--splitter").arg(&splitter);
    let output = command.arg("--out").arg(out.path().join("rows")).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout)?;
    let all = rows.as_array().expect("an array");
    assert_eq!(all.len(), 1, "{rows}");
    assert_eq!(all[0]["scheme"], "best_single");
    let line = "not available: tr with 30+8: the splitter refuses it: 1: balance is not for me";
    assert!(said.contains(line), "{said}");
    Ok(())
}

#[test]
fn interrupted_run_ends_at_once_and_leaves_nothing() -> TestResult {
    require_rig!();
    let out = tempfile::tempdir()?;
    let mut command = bond(out.path());
    command.stderr(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let id = Pid::from_raw(child.id().cast_signed());
    let transfers = || {
        let all = descendants(id);
        (all.iter().filter(|it| is_iperf3(**it)).count() == 2).then_some(all)
    };
    let under_way = within(
        Duration::from_secs(10),
        "both ends of the transfers",
        transfers,
    );
    kill(id, Signal::SIGINT)?;
    let ended = || child.try_wait().transpose();
    let status = within(Duration::from_secs(5), "the end", ended)?;
    assert!(!status.success(), "{status}");
    let said = io::read_to_string(child.stdout.take().expect("it is a pipe"))?;
    assert!(said.contains("cancelled"), "{said}");
    assert!(!under_way.iter().any(|it| is_iperf3(*it)), "{under_way:?}");
    assert_eq!(fs::read_dir(out.path())?.count(), 0, "no cell was finished");
    Ok(())
}

fn is_iperf3(process: Pid) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.is_ok_and(|it| it.trim() == "iperf3")
}

/// The processes that a process and its children have started.
fn descendants(process: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|it| it.parse().ok()) {
            found.push(Pid::from_raw(child));
            found.extend(descendants(Pid::from_raw(child)));
        }
    }
    found
}
