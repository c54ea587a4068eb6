//! `cloudburst send` and `recv`, and what `serve --mode files` stores.

use std::{
    fs,
    io::{BufReader, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{BINARY, Listening, cloudburst, stdout};

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
    let reported: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(reported["bytes"], content.len());
    let digest = blake3::hash(&content).to_hex();
    assert_eq!(reported["blake3"], digest.as_str());
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
        .args([
            "send",
            "-",
            &receiver.address(),
            "--chunk",
            "1k",
            "--insecure-no-key",
        ])
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
    }
}

#[test]
fn what_cannot_be_stored_is_reported_to_the_sender() {
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
    fs::create_dir(to.path()).unwrap();
    assert_eq!(send().status.code(), Some(0), "the server goes on");
}

#[test]
fn nothing_incomplete_is_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().to_str().unwrap();
    let mut server = Listening::start(&["serve", "--mode", "files", "--output", output]);
    let mut sender = Command::new(BINARY)
        .args([
            "send",
            "-",
            &server.address(),
            "--chunk",
            "1k",
            "--insecure-no-key",
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = sender.stdin.take().unwrap();
    input.write_all(&[7; 4_096]).unwrap();
    wait_for_a_file(directory.path());
    assert_eq!(server.interrupt(), Some(0));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    sender.kill().unwrap();
    sender.wait().unwrap();
}

/// Waits until something is stored there, complete or not.
fn wait_for_a_file(directory: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while fs::read_dir(directory).unwrap().count() == 0 {
        assert!(Instant::now() < deadline, "nothing arrives");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn ctrl_c_ends_a_send_that_waits_for_standard_input() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().to_str().unwrap();
    let server = Listening::start(&["serve", "--mode", "files", "--output", output]);
    let mut child = Command::new(BINARY)
        .args([
            "send",
            "-",
            &server.address(),
            "--insecure-no-key",
            "--chunk",
            "1k",
        ])
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
    // It has sent what there is when the server stores something.
    let mut input = sender.child.stdin.take().unwrap();
    input.write_all(&[7; 4_096]).unwrap();
    wait_for_a_file(directory.path());
    assert_eq!(sender.interrupt(), Some(1));
}

#[test]
fn an_interrupted_recv_fails() {
    let mut receiver = Listening::start(&["recv"]);
    assert_eq!(receiver.interrupt(), Some(1));
}
