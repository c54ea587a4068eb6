//! The program from outside: its words, and what it measures of few.

#[allow(dead_code, reason = "shared with the tests of other commands")]
#[path = "../../../../crates/cli/tests/support/transcript.rs"]
mod transcript;

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use transcript::{Transcript, plain};

#[test]
fn words_of_the_program_are_those_reviewed() {
    let mut words = Transcript::new("scale", "scale");
    for (case, arguments) in [
        ("help", &["--help"][..]),
        ("no such option", &["--nonsense"]),
        ("more peers than fit", &["--peers", "100,20000"]),
        ("no such part", &["--only", "busy"]),
        ("a pause that no keepalive has", &["--keepalive", "5"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scale"));
        command.args(arguments);
        let output = plain(&mut command).output();
        words.add(case, arguments, &output.expect("it can be started"));
    }
    words.compare();
}

fn measure(arguments: &[&str]) -> Value {
    report_of(Command::new(env!("CARGO_BIN_EXE_scale")).args(arguments))
}

/// Measures where no process may have more than 400 files open, which is 72 clients.
fn measure_with_few_files(arguments: &[&str]) -> Value {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 400 && exec \"$0\" \"$@\""]);
    report_of(shell.arg(env!("CARGO_BIN_EXE_scale")).args(arguments))
}

fn report_of(command: &mut Command) -> Value {
    let output = command.arg("--json").output().expect("it can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

fn number(value: &Value, pointer: &str) -> f64 {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{pointer} in {value:#}"))
}

#[test]
fn idle_peers_are_known_and_cost_memory_alone() {
    let report = measure(&["--only", "idle", "--peers", "10,200", "--seconds", "2"]);
    for (row, peers) in [("/idle/0", 10.0), ("/idle/1", 200.0)] {
        assert_eq!(number(&report, &format!("{row}/peers")), peers);
        assert!(number(&report, &format!("{row}/cpu_us_per_message")) > 1.0);
    }
    // The book says some 7 kB for a peer with one path; the rest is what memory is given out in.
    let grown = number(&report, "/growth/memory_bytes_per_peer");
    assert!((4_000.0..25_000.0).contains(&grown), "{grown}");
    let woken = number(&report, "/idle/1/wakeups_per_s");
    assert!(woken < 20.0, "{woken} wake-ups a second for idle peers");
    assert!(report["at_once"].as_array().is_some_and(Vec::is_empty));
}

#[test]
fn peers_that_send_at_once_are_all_served() {
    let report = measure(&["--only", "at-once", "--senders", "3,40"]);
    assert_eq!(number(&report, "/at_once/1/senders"), 40.0);
    assert_eq!(number(&report, "/at_once/1/messages"), 200.0);
    assert_eq!(number(&report, "/at_once/1/failed"), 0.0);
    let [half, worst] = ["p50_ms", "max_ms"].map(|it| number(&report, &format!("/at_once/1/{it}")));
    assert!(0.0 < half && half <= worst, "{half} {worst}");
    assert!(number(&report, "/growth/message_cpu_at_once") > 0.0);
}

#[test]
fn peers_are_in_several_processes_where_one_may_not_have_their_files() {
    let report = measure_with_few_files(&["--only", "idle", "--peers", "10,200", "--seconds", "1"]);
    assert_eq!(number(&report, "/idle/1/peers"), 200.0);
    let grown = number(&report, "/growth/memory_bytes_per_peer");
    assert!((4_000.0..25_000.0).contains(&grown), "{grown}");
    let report = measure_with_few_files(&["--only", "at-once", "--senders", "100"]);
    assert_eq!(number(&report, "/at_once/0/messages"), 500.0);
    assert_eq!(number(&report, "/at_once/0/failed"), 0.0);
}

#[test]
fn messages_in_a_row_are_counted_and_leave_nothing_behind() {
    let report = measure(&["--only", "in-a-row", "--messages", "20000"]);
    let rows = report["in_a_row"].as_array().expect("there are rows");
    let counts: Vec<_> = rows.iter().map(|it| it["messages"].as_u64()).collect();
    assert_eq!(counts, [200, 2_000, 10_000, 20_000].map(Some));
    assert!(number(&report, "/in_a_row/3/messages_per_s") > 100.0);
    // A bit for each is what the server remembers; a note of 24 bytes for each would be 500 kB.
    let grown = number(&report, "/growth/server_memory_bytes_per_message");
    assert!(grown < 150.0, "{grown} bytes for each message");
}

/// Processes that a process has started and that have not ended, with their command lines.
fn children(parent: u32) -> Vec<(u32, String)> {
    let processes = fs::read_dir("/proc").expect("it is mounted");
    let ids = processes.filter_map(|it| it.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |id: &u32| {
        let status = fs::read_to_string(format!("/proc/{id}/status"));
        let parent = format!("PPid:\t{parent}");
        status.is_ok_and(|status| status.lines().any(|line| line == parent))
    };
    let named = |id| {
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        (id, line.replace('\0', " "))
    };
    ids.filter(is_child).map(named).collect()
}

/// One that nobody waits for leaves its name behind, and no command line.
fn has_ended(process: u32) -> bool {
    fs::read(format!("/proc/{process}/cmdline")).map_or(true, |line| line.is_empty())
}

#[track_caller]
fn within<T>(bound: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < bound, "waited {bound:?} for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Hundredths of a second for which a process has computed.
fn computed(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind its name, which may have spaces in it, the twelfth.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let field = fields.and_then(|fields| fields.split_whitespace().nth(11));
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// The client has messages under way then, and would wait two seconds for what becomes of them.
#[test]
fn processes_end_at_once_when_the_program_is_killed() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_scale"))
        .args(["--only", "in-a-row", "--messages", "100000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it can be started");
    let started = within(Duration::from_secs(30), "a client that sends", || {
        let started = children(program.id());
        let sends = |(id, line): &(u32, String)| line.contains("--clients") && computed(*id) >= 10;
        started.iter().any(sends).then_some(started)
    });
    program.kill().expect("it is ours");
    program.wait().expect("it is ours");
    within(Duration::from_secs(1), "its processes to end", || {
        started.iter().all(|(id, _)| has_ended(*id)).then_some(())
    });
}
