//! Cells that are measured with real flows, as briefly as can be.

use std::{
    error::Error,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use flow_testbed::{built::assert_current, require, require::Requirement::*, wait::within};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

type TestResult = Result<(), Box<dyn Error>>;

macro_rules! require_rig {
    () => {
        require!(Root, Program("ip"), Program("tc"), Program("nft"), Program("ethtool") => Ok(()));
        require!(QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000") => Ok(()));
        require!(NftRule("meta mark set numgen inc mod 2 map { 0 : 1, 1 : 2 }") => Ok(()));
        require!(CongestionControl("cubic") => Ok(()));
    };
}

/// Slow links, so that it measures on a machine that is busy.
fn fabric(out: &Path, cell: &str, schemes: &str, seconds: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabric"));
    command.args(["--json", "--quick", "--seeds", "1", "--rate-mbit", "20"]);
    command.args(["--seconds", &seconds.to_string(), "--cell", cell]);
    command.args(["--scheme", schemes, "--out"]).arg(out);
    command.stdin(Stdio::null());
    command
}

#[test]
fn cell_is_measured_with_all_that_is_promised_of_it() -> TestResult {
    require_rig!();
    let out = tempfile::tempdir()?;
    let cell = "2x2-asym2.5-web_search-load0.6";
    let run = || fabric(out.path(), cell, "ecmp_flow,ecmp_packet", 2);
    let output = run().output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout)?;
    println!("{rows}");
    let all = rows.as_array().expect("an array");
    assert_eq!(all.len(), 2 * 3, "two schemes, three classes: {rows}");
    for row in all {
        assert_eq!(
            (&row["case"], &row["load"]),
            (&cell[..22].into(), &0.6.into())
        );
        assert!(row["flows"].as_u64() > Some(0), "{row}");
        for figure in ["mean_ms", "connect_ms", "p99_ms", "goodput", "cpu_s"] {
            assert!(row[figure].as_f64() > Some(0.0), "{figure} of {row}");
        }
        // Data come after the handshake.
        assert!(
            row["connect_ms"].as_f64() < row["mean_ms"].as_f64(),
            "{row}"
        );
        for none in ["ns_per_packet", "prediction_error_us", "memory_mb"] {
            assert!(row[none].is_null(), "{none} of {row}");
        }
        assert!(row["retransmits"].is_u64() && row["seed"] == 1, "{row}");
    }
    let [flow, packet] = [&all[0], &all[3]];
    assert_eq!(
        (&flow["scheme"], &packet["scheme"]),
        (&"ecmp_flow".into(), &"ecmp_packet".into())
    );
    assert!(flow["predicted_mean_ms"].as_f64() > Some(0.0), "{flow}");
    assert!(packet["predicted_mean_ms"].is_null(), "{packet}");
    // A flow that keeps its path keeps its order; by turns over unequal links it does not.
    assert_eq!(flow["out_of_order"], 0.0, "{flow}");
    assert!(packet["out_of_order"].as_f64() > Some(0.01), "{packet}");
    // Turns are as the rates: 20 to 8.
    let share = packet["path_share"][1].as_f64().expect("a number");
    assert!((share - 8.0 / 28.0).abs() < 0.05, "{packet}");

    let again = run().arg("--resume").output()?;
    let taken_over: Value = serde_json::from_slice(&again.stdout)?;
    assert_eq!(taken_over[0]["mean_ms"], rows[0]["mean_ms"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("taken over"), "{said}");
    Ok(())
}

/// With the daemon of this build, where it was built.
#[test]
fn balancers_of_the_splitter_are_measured() -> TestResult {
    require_rig!();
    let splitter = Path::new(env!("CARGO_BIN_EXE_fabric")).with_file_name("splitter");
    let program = splitter.display().to_string().leak();
    require!(File(program), FileSystem("bpf") => Ok(()));
    assert_current(&splitter, "splitter-agent");
    let out = tempfile::tempdir()?;
    // Three leaves: to the leaf that sends, all others lie behind the same links.
    let mut command = fabric(
        out.path(),
        "3x2-asym2.5-web_search-load0.3",
        "tr,letflow,tr_paper",
        // In two, with some thirty flows, the slower path had 0.511 of the packets once.
        5,
    );
    let output = command.args(["--leaves", "3"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout)?;
    println!("{rows}");
    let all = rows.as_array().expect("an array");
    let of = |name: &str| all.iter().filter(|it| it["scheme"] == name).count();
    assert_eq!([of("tr"), of("letflow"), of("tr_paper")], [3; 3], "{said}");
    assert_eq!(all.len(), 9, "{rows}");
    for row in all {
        assert!(row["mean_ms"].as_f64() > Some(0.0), "{row}");
        assert!(row["ns_per_packet"].as_f64() > Some(1.0), "{row}");
        // A daemon at each of three leaves, of some megabytes, and the flow tables of each.
        assert!(row["memory_mb"].as_f64() > Some(3.0), "{row}");
        // In the mean a model is right to within what waits for some packets.
        let error_us = row["prediction_error_us"].as_f64().expect("a number");
        assert!((0.0..20_000.0).contains(&error_us), "{row}");
        // Both are used, by what predicts arrivals the faster one more; to the letter a short flow goes where the fewest
        // short flows are, and only among as many by arrival.
        let share = row["path_share"][1].as_f64().expect("a number");
        let most = if row["scheme"] == "tr" { 0.5 } else { 0.9 };
        assert!((0.02..most).contains(&share), "{row}");
        assert!(row["predicted_mean_ms"].as_f64() > Some(0.0), "{row}");
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
    let cell = "2x2-asym2.5-web_search-load0.3";
    let mut command = fabric(&out.path().join("rows"), cell, "ecmp_flow,tr", 1);
    let output = command.arg("--splitter").arg(&splitter).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout)?;
    let all = rows.as_array().expect("an array");
    assert!(all.iter().all(|it| it["scheme"] == "ecmp_flow"), "{rows}");
    assert_eq!(all.len(), 3, "{rows}");
    let line = "not available: tr with 2x2-asym2.5-web_search: the splitter refuses it: 1: balance is not for me";
    assert!(said.contains(line), "{said}");
    Ok(())
}

#[test]
fn interrupted_run_ends_at_once_and_leaves_nothing() -> TestResult {
    require_rig!();
    let out = tempfile::tempdir()?;
    let mut command = fabric(out.path(), "2x2-sym-web_search-load0.3", "ecmp_flow", 600);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let id = Pid::from_raw(child.id().cast_signed());
    within(Duration::from_secs(20), "flows between hosts", || {
        // A thread for each host, named after its namespace.
        let threads = fs::read_dir(format!("/proc/{id}/task")).ok()?.flatten();
        let names = threads.filter_map(|it| fs::read_to_string(it.path().join("comm")).ok());
        (names.filter(|it| it.starts_with("host")).count() >= 4).then_some(())
    });
    kill(id, Signal::SIGINT)?;
    let ended = || child.try_wait().transpose();
    let status = within(Duration::from_secs(10), "the end", ended)?;
    assert!(!status.success(), "{status}");
    let said = io::read_to_string(child.stdout.take().expect("it is a pipe"))?;
    assert!(said.contains("cancelled"), "{said}");
    assert_eq!(fs::read_dir(out.path())?.count(), 0, "no cell was finished");
    Ok(())
}
