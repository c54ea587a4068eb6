//! What the command refuses, with which exit code and in which words.

use serde_json::Value;

use super::{Listening, cloudburst, stderr};

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
