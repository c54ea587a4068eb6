//! The examples run as they are and end by themselves.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// `cargo test` builds examples into the directory next to the tests' own; with `--test` it
/// does not.
pub(super) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let example = profile.join("examples").join(file);
    if !example.exists() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--example", name])
            .arg("--target-dir")
            .arg(profile.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.unwrap().success(), "{name} is not built");
    }
    example
}

fn run(name: &str) -> String {
    let mut child = Command::new(example(name))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{name} does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{name}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn ping() {
    assert_eq!(run("ping").lines().count(), 5);
}

#[test]
fn request_response() {
    assert!(run("request_response").contains("burst: many at once"));
}

#[test]
fn in_memory_test() {
    assert!(run("in_memory_test").contains("when the partition was over"));
}

#[test]
fn group_send() {
    let reported = run("group_send");
    assert!(reported.contains("that is a majority"), "{reported}");
    assert!(
        reported.contains("replica 3 does not have it"),
        "{reported}"
    );
}

#[test]
fn records() {
    assert!(run("records").contains("records, the first is"));
}

#[test]
fn telemetry() {
    let told = run("telemetry");
    let numbers = told.split(|letter: char| !letter.is_ascii_digit());
    let numbers: Vec<u32> = numbers.filter_map(|it| it.parse().ok()).collect();
    let [sensors, readings, late, ..] = numbers[..] else {
        panic!("{told}");
    };
    // On a machine that stands still for seconds some are late.
    assert!(sensors == 32 && readings + late >= 640, "{told}");
    assert!(late > 0 || told.contains("the last 21.9 C"), "{told}");
}

#[test]
fn virtual_ip() {
    let told = run("virtual_ip");
    assert_eq!(told, "before: this is primary\nafter:  this is backup\n");
}

#[test]
fn event_loop() {
    assert_eq!(run("event_loop"), "burst: tsrub\nsplitter: rettilps\n");
}

#[test]
fn two_interfaces() {
    let reported = run("two_interfaces");
    assert_eq!(reported.lines().count(), 8, "{reported}");
    assert!(
        reported.lines().all(|line| line.contains("Good")),
        "{reported}"
    );
}
