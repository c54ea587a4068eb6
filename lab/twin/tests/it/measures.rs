//! Flows that are recorded, predicted and run, as briefly as can be, with the programs of this build.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use flow_testbed::{namespace::TUN, require, require::Requirement::*, wait::within};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

type TestResult = Result<(), Box<dyn Error>>;

macro_rules! require_network {
    () => {
        require!(Root, Program("ip"), Program("tc"), Program("ethtool") => Ok(()));
        require!(Program("nsenter"), File(TUN), FileSystem("bpf") => Ok(()));
        require!(QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000") => Ok(()));
        require!(CongestionControl("cubic") => Ok(()));
        for program in ["splitter", "netsim"] {
            let file = beside(program).display().to_string().leak();
            require!(File(file) => Ok(()));
        }
    };
}

fn beside(program: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_twin")).with_file_name(program)
}

fn twin(out: &Path, seconds: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twin"));
    command.args(["--json", "--seeds", "1", "--loads", "0"]);
    command.args(["--seconds", seconds, "--out"]);
    // As in `target/twin`: programs that it calls look from elsewhere.
    let (parent, name) = (out.parent().unwrap(), out.file_name().unwrap());
    command.current_dir(parent).arg(name).stdin(Stdio::null());
    command
}

/// How near they are is for longer runs on a machine without other work: `cargo xtask twin`.
#[test]
fn recorded_flows_are_predicted_and_run_under_each_policy() -> TestResult {
    require_network!();
    let out = tempfile::tempdir()?;
    let output = twin(out.path(), "2").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout)?;
    let rows = rows.as_array().expect("an array");
    let policies: Vec<_> = rows.iter().map(|it| &it["policy"]).collect();
    assert_eq!(policies, ["ecmp", "dedicated", "share"]);
    for row in rows {
        let run = &row["runs"][0];
        // Each flow is one connection in the recording, whatever was lost of it.
        let flows = &run["short_flows"];
        assert!(flows["measured"].as_f64() > Some(30.0), "{run}");
        assert_eq!(flows["predicted"], flows["measured"], "{run}");
        for figure in ["predicted_short_mean_ms", "measured_short_mean_ms"] {
            // A handshake and half a round trip of 20 ms.
            assert!(row[figure].as_f64() > Some(30.0), "{row}");
        }
        assert_eq!(run["is_recorded"], row["policy"] == "dedicated");
    }
    for file in ["index.html", "twin.json", "load0-seed1.flows"] {
        assert!(out.path().join(file).metadata()?.len() > 1_000, "{file}");
    }
    // The same recording is predicted in the same way.
    let mut again = Command::new(env!("CARGO_BIN_EXE_twin"));
    let again = again.args(["--json", "--again", "--out"]).arg(out.path());
    let again: Value = serde_json::from_slice(&again.output()?.stdout)?;
    assert_eq!(again.as_array(), Some(rows));
    Ok(())
}

#[test]
fn interrupted_run_ends_at_once_and_leaves_nothing() -> TestResult {
    require_network!();
    let out = tempfile::tempdir()?;
    let mut command = twin(out.path(), "60");
    command.stderr(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let id = Pid::from_raw(child.id().cast_signed());
    let recorded = || {
        let all = descendants(id);
        let splitters = all.iter().filter(|it| is_splitter(**it)).count();
        // Two daemons and the recorder.
        (splitters == 3).then_some(all)
    };
    let under_way = within(Duration::from_secs(30), "a recording", recorded);
    kill(id, Signal::SIGINT)?;
    let ended = || child.try_wait().transpose();
    let status = within(Duration::from_secs(5), "the end", ended)?;
    assert!(!status.success(), "{status}");
    let said = io::read_to_string(child.stdout.take().expect("it is a pipe"))?;
    assert!(said.contains("cancelled"), "{said}");
    assert!(
        !under_way.iter().any(|it| is_splitter(*it)),
        "{under_way:?}"
    );
    assert_eq!(fs::read_dir(out.path())?.count(), 0, "nothing was measured");
    Ok(())
}

fn is_splitter(process: Pid) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.is_ok_and(|it| it.trim() == "splitter")
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
