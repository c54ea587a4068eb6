//! The command as a user meets it: what it prints and how it exits.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStderr, Command, Output, Stdio},
    time::{Duration, Instant},
};

use flow_telemetry::docs::{self, Family};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_cloudburst");
const METRICS_PAGE: &str = include_str!("../../docs/src/reference/cloudburst-metrics.md");
const COMMANDS_PAGE: &str = include_str!("../../docs/src/reference/cloudburst-commands.md");

fn cloudburst(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A process that logs where it is to be found. Killed on drop.
struct Listening {
    child: Child,
    log: BufReader<ChildStderr>,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
}

impl Listening {
    /// Starts a command at a port that the system chooses, and waits until it listens.
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(BINARY)
            .args(arguments)
            .args(["--bind", "127.0.0.1", "--ports", "any:1"])
            .env("RUST_LOG", "info")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut this = Self {
            child,
            log,
            address: SocketAddr::from(([0; 4], 0)),
            metrics: None,
        };
        loop {
            let mut line = String::new();
            assert_ne!(this.log.read_line(&mut line).unwrap(), 0, "it ended");
            let after = |key| {
                let (_, rest) = line.split_once(key)?;
                let end = rest.find([']', ' ', '\n']).unwrap_or(rest.len());
                rest[..end].parse().ok()
            };
            this.metrics = this.metrics.or(after("address="));
            if let Some(address) = after("addresses=[") {
                this.address = address;
                return this;
            }
        }
    }

    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ctrl-C, and how it ended.
    fn interrupt(&mut self) -> Option<i32> {
        let id = i32::try_from(self.child.id()).unwrap();
        // SAFETY: only sends a signal, to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
        self.wait()
    }

    fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn scrape(&self) -> Vec<Family> {
        let mut stream = TcpStream::connect(self.metrics.expect("it serves metrics")).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        docs::parse_exposition(body).expect("it is OpenMetrics")
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ping_tells_times_and_serve_ends_at_ctrl_c() {
    let mut server = Listening::start(&["serve"]);
    let output = cloudburst(&["ping", &server.address(), "-c", "3", "-i", "0.02"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("3 sent, 3 answered; mean "),
        "{}",
        stdout(&output)
    );

    let output = cloudburst(&[
        "ping",
        &server.address(),
        "-c2",
        "-i0.02",
        "-s20k",
        "--json",
    ]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["sent"], &told["answered"]), (&2.into(), &2.into()));
    assert!(told["rtt_ms"]["p99"].as_f64().unwrap() > 0.0);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn ping_of_nobody_fails_and_says_why() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap().to_string();
    let arguments = [
        "ping",
        &address,
        "-c",
        "1",
        "-W",
        "0.3",
        "--bind",
        "127.0.0.1",
    ];
    let output = cloudburst(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).contains("is the peer there, with the same key?"),
        "{}",
        stdout(&output)
    );
    drop(closed);
    let output = cloudburst(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).contains("no route reaches the peer"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn with_another_key_nothing_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| {
        let file = directory.path().join(name).to_str().unwrap().to_owned();
        assert!(cloudburst(&["keygen", &file]).status.success());
        file
    });
    let server = Listening::start(&["serve", "--key-file", &ours]);
    let ping = |key: &str| {
        let peer = server.address();
        let output = cloudburst(&["ping", &peer, "-c1", "-W0.5", "--key-file", key]);
        output.status.code()
    };
    assert_eq!(ping(&ours), Some(0));
    assert_eq!(ping(&theirs), Some(1));
    for command in ["paths", "perf"] {
        let peer = server.address();
        let output = cloudburst(&[command, &peer, "-d0.2", "--key-file", &theirs]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("with the same key?"), "{command}");
    }
}

#[test]
fn a_port_in_use_exits_with_5() {
    let server = Listening::start(&["serve"]);
    let port = server.address.port().to_string();
    let output = cloudburst(&["serve", "--bind", "127.0.0.1", "--ports", &port]);
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains(&format!("127.0.0.1:{port}: another process has it")));
    let arguments = ["serve", "--bind", "127.0.0.1", "--ports", &port, "--json"];
    let told: Value = serde_json::from_slice(&cloudburst(&arguments).stdout).unwrap();
    assert_eq!(told["exit_code"], 5);
}

#[test]
fn a_wrong_command_line_exits_with_2_and_tells_the_value() {
    for (arguments, expected) in [
        (&["ping"][..], "PEER"),
        (&["ping", "host"], "`host` is none of"),
        (&["ping", "h:1", "--rate", "200"], "`200` is no rate"),
        (&["ping", "h:1", "--rate", "9000gbit"], "8kbit to 1000gbit"),
        (&["ping", "h:1", "--share", "2"], "`2` is no share"),
        (&["ping", "h:1", "--dscp", "64"], "`64` is no DSCP"),
        (&["ping", "h:1", "--ports", "any:0"], "0 ports"),
        (&["ping", "h:1", "--size", "5M"], "at most 4M"),
        (&["send", "f", "h:1", "--chunk", "65M"], "at most 4M"),
        (
            &["perf", "h:1", "--load", "1000gbit", "--size", "1"],
            "lower --load",
        ),
        (&["recv", "-o", "-", "--json"], "standard output takes one"),
        (&["serve", "--nonsense"], "--nonsense"),
    ] {
        let output = cloudburst(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            stderr(&output).contains(expected),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn wrong_settings_exit_with_3() {
    for arguments in [
        &["serve", "--key-file", "/nonexistent"][..],
        &["serve", "--bind", "192.0.2.1"],
    ] {
        let output = cloudburst(arguments);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    }
}

#[test]
fn what_is_given_twice_or_taken_is_named_as_it_was_given() {
    let output = cloudburst(&["serve", "-b", "127.0.0.1", "-b", "127.0.0.1"]);
    assert_eq!(output.status.code(), Some(3));
    let told = stderr(&output);
    assert!(
        told.contains("--bind: the local addresses 127.0.0.1"),
        "{told}"
    );

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = cloudburst(&["serve", "--ports", "any:1", "--metrics", &address]);
    assert_eq!(output.status.code(), Some(5));
    let told = stderr(&output);
    assert!(told.contains("--metrics: cannot serve metrics"), "{told}");
}

#[cfg(unix)]
#[test]
fn keygen_is_private_and_overwrites_nothing() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let path = file.to_str().unwrap();
    let output = cloudburst(&["keygen", path, "--id", "7"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let first = fs::read_to_string(&file).unwrap();
    assert!(
        first.starts_with("7:") && first.len() == 67,
        "a number and 64 digits"
    );
    assert!(
        !stdout(&output).contains(first.trim()),
        "the key is not shown"
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let output = cloudburst(&["keygen", path]);
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("--force"));
    assert_eq!(fs::read_to_string(&file).unwrap(), first);
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(cloudburst(&["keygen", path, "--force"]).status.success());
    let beside = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(beside, 1, "nothing is left beside it");
    assert_ne!(fs::read_to_string(&file).unwrap(), first);
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_file_arrives_as_it_was() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = from.path().join("a file");
    // Longer than a chunk, and no multiple of it.
    let content: Vec<u8> = (0..700_001_u32).map(|it| (it % 253) as u8).collect();
    fs::write(&file, &content).unwrap();
    let output = to.path().to_str().unwrap();
    let mut receiver = Listening::start(&["recv", "--output", output, "--json"]);
    let sent = cloudburst(&[
        "send",
        file.to_str().unwrap(),
        &receiver.address(),
        "--json",
    ]);
    assert!(sent.status.success(), "{}", stdout(&sent));
    let told: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(told["bytes"], content.len());
    let digest = blake3::hash(&content).to_hex();
    assert_eq!(told["blake3"], digest.as_str());
    assert_eq!(receiver.wait(), Some(0));
    let mut received = Vec::new();
    let mut output = receiver.child.stdout.take().unwrap();
    output.read_to_end(&mut received).unwrap();
    let received: Value = serde_json::from_slice(&received).unwrap();
    assert_eq!(received[0]["blake3"], digest.as_str());
    assert_eq!(fs::read(to.path().join("a file")).unwrap(), content);
    assert_eq!(
        fs::read_dir(to.path()).unwrap().count(),
        1,
        "nothing is left over"
    );
}

#[test]
fn standard_input_arrives_at_standard_output() {
    let mut receiver = Listening::start(&["recv", "--output", "-"]);
    let mut sender = Command::new(BINARY)
        .args(["send", "-", &receiver.address(), "--chunk", "1k"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let content: Vec<u8> = (0..50_000_u32).flat_map(u32::to_be_bytes).collect();
    sender.stdin.take().unwrap().write_all(&content).unwrap();
    let mut arrived = Vec::new();
    let mut output = receiver.child.stdout.take().unwrap();
    output.read_to_end(&mut arrived).unwrap();
    assert!(sender.wait().unwrap().success());
    assert_eq!(receiver.wait(), Some(0));
    assert!(
        arrived == content,
        "{} bytes of {}",
        arrived.len(),
        content.len()
    );
}

#[test]
fn what_nobody_reads_is_not_stored_and_holds_nobody_up() {
    let mut receiver = Listening::start(&["recv", "--output", "-"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    // More than a pipe holds: it is written when somebody reads, and received before.
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let file = file.to_str().unwrap();
    let sent = cloudburst(&["send", file, &receiver.address(), "--timeout", "1"]);
    assert_eq!(sent.status.code(), Some(1));
    let told = stderr(&sent);
    assert!(told.contains("does not say within 1s"), "{told}");
    assert_eq!(receiver.interrupt(), Some(1), "Ctrl-C ends it all the same");
}

#[test]
fn who_stores_no_files_is_found_out() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "content").unwrap();
    let file = file.to_str().unwrap();
    for mode in ["echo", "size"] {
        let server = Listening::start(&["serve", "--mode", mode]);
        let sent = cloudburst(&["send", file, &server.address()]);
        assert_eq!(sent.status.code(), Some(1));
        let told = stderr(&sent);
        assert!(told.contains("does not say that it stores files"), "{told}");
    }
}

#[test]
fn what_cannot_be_stored_is_told_to_the_sender() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let file = file.to_str().unwrap();
    let output = to.path().to_str().unwrap();
    let server = Listening::start(&["serve", "--mode", "files", "--output", output]);
    let send = || cloudburst(&["send", file, &server.address()]);
    assert_eq!(send().status.code(), Some(0));
    // A directory that is gone refuses root as well.
    fs::remove_dir_all(to.path()).unwrap();
    let sent = send();
    assert_eq!(sent.status.code(), Some(1));
    let told = stderr(&sent);
    assert!(
        told.contains("the peer refuses the file: cannot create"),
        "{told}"
    );
    fs::create_dir(to.path()).unwrap();
    assert_eq!(send().status.code(), Some(0), "the server goes on");
}

#[test]
fn nothing_incomplete_is_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().to_str().unwrap();
    let mut server = Listening::start(&["serve", "--mode", "files", "--output", output]);
    let mut sender = Command::new(BINARY)
        .args(["send", "-", &server.address(), "--chunk", "1k"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = sender.stdin.take().unwrap();
    input.write_all(&[7; 4_096]).unwrap();
    let files = || fs::read_dir(directory.path()).unwrap().count();
    let deadline = Instant::now() + Duration::from_secs(10);
    while files() == 0 {
        assert!(Instant::now() < deadline, "nothing arrives");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.interrupt(), Some(0));
    assert_eq!(files(), 0);
    sender.kill().unwrap();
    sender.wait().unwrap();
}

#[test]
fn ctrl_c_ends_a_send_that_waits_for_standard_input() {
    let server = Listening::start(&["serve"]);
    let mut child = Command::new(BINARY)
        .args(["send", "-", &server.address()])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut sender = Listening {
        log: BufReader::new(child.stderr.take().unwrap()),
        child,
        address: server.address,
        metrics: None,
    };
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(sender.interrupt(), Some(1));
}

#[test]
fn what_cannot_be_read_or_written_is_told() {
    let output = cloudburst(&["send", "/nonexistent", "127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("cannot read /nonexistent"),
        "{}",
        stderr(&output)
    );
    let output = cloudburst(&["send", "/", "127.0.0.1:9"]);
    assert!(
        stderr(&output).contains("/ is a directory"),
        "{}",
        stderr(&output)
    );
    let output = cloudburst(&["recv", "--output", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("cannot use /nonexistent"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_interrupted_recv_fails() {
    let mut receiver = Listening::start(&["recv"]);
    assert_eq!(receiver.interrupt(), Some(1));
    let mut told = String::new();
    receiver.log.read_to_string(&mut told).unwrap();
    assert!(told.contains("not all files have arrived"), "{told}");
}

#[test]
fn perf_counts_what_it_offered() {
    let server = Listening::start(&["serve", "--mode", "size"]);
    let common = ["--json", "-d", "0.5", "--load", "4mbit", "-s", "2k,20k"];
    for more in [&[][..], &["--reply", "5k"]] {
        let peer = server.address();
        let output = cloudburst(&[&["perf", &peer], &common[..], more].concat());
        assert!(output.status.success(), "{}", stdout(&output));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        // 4 Mbit/s for half a second in messages of 11,264 bytes on average.
        let offered = told["offered"].as_u64().unwrap();
        assert!((20..=24).contains(&offered), "{told}");
        assert_eq!(told["delivered"], offered, "{told}");
        assert!(told["completion_ms"]["p50"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn paths_are_listed() {
    let server = Listening::start(&["serve"]);
    let arguments = [
        "paths",
        &server.address(),
        "-d",
        "0.5",
        "--ports",
        "any:3",
        "--json",
    ];
    let output = cloudburst(&[&arguments[..], &["--bind", "127.0.0.1"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let paths = told["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 3, "{told}");
    for path in paths {
        assert_eq!(path["health"], "good");
        assert_eq!(path["remote"], server.address());
    }
}

#[test]
fn page_and_scrape_agree_both_ways() {
    let server = Listening::start(&["serve", "--metrics", "127.0.0.1:0"]);
    assert!(
        cloudburst(&["ping", &server.address(), "-c2", "-i0.02"])
            .status
            .success()
    );
    let (documented, live) = (docs::parse_page(METRICS_PAGE).unwrap(), server.scrape());
    let mismatches = docs::compare(&documented, &live);
    let told: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{told:#?}");
    for row in &documented {
        let family = live.iter().find(|family| family.name == row.name).unwrap();
        for label in row.labels.iter().filter(|label| !label.values.is_empty()) {
            let mut listed: Vec<&str> = label.values.iter().map(String::as_str).collect();
            listed.sort_unstable();
            let live: Vec<&str> = family.label_values(&label.name).into_iter().collect();
            assert_eq!(listed, live, "{}", row.name);
        }
    }
    let value = |name: &str| {
        let family = live.iter().find(|family| family.name == name);
        family.and_then(|family| family.value(&[]))
    };
    assert_eq!(value("cloudburst_messages_received_total"), Some(2.0));
    assert_eq!(value("cloudburst_completion_seconds"), Some(2.0));
    for (reason, _) in cloudburst::protocol::Statistics::default().refused.iter() {
        assert!(
            COMMANDS_PAGE.contains(&format!("`{reason}`")),
            "{reason} is not explained"
        );
    }
}

#[test]
fn completions_and_man_page_know_the_commands() {
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let output = cloudburst(arguments);
        assert!(output.status.success());
        assert!(stdout(&output).contains("keygen"));
    }
}

#[test]
fn every_command_and_flag_is_on_the_page() {
    for command in ["serve", "send", "recv", "ping", "perf", "paths", "keygen"] {
        assert!(
            COMMANDS_PAGE.contains(&format!("\n## {command}\n")),
            "{command}"
        );
        let help = stdout(&cloudburst(&[command, "--help"]));
        let words = help
            .split([' ', ',', '\n'])
            .filter(|it| it.starts_with("--"));
        for flag in words.filter(|it| !matches!(*it, "--help" | "--version")) {
            let flag = flag.trim_end_matches(['.', '`', ':', ';']);
            assert!(COMMANDS_PAGE.contains(flag), "{flag} of {command}");
        }
    }
}
