//! Refusals of the command: exit codes, and the values that are named; its words are in
//! `wording.rs`.

use serde_json::Value;

use super::{Listening, as_given, cloudburst, stderr};

#[test]
fn a_port_in_use_exits_with_5() {
    let server = Listening::start(&["serve"]);
    let port = server.address.port().to_string();
    let output = cloudburst(&["serve", "--bind", "127.0.0.1", "--ports", &port]);
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains(&format!("127.0.0.1:{port}")));
    let arguments = ["serve", "--bind", "127.0.0.1", "--ports", &port, "--json"];
    let reported: Value = serde_json::from_slice(&cloudburst(&arguments).stdout).unwrap();
    assert_eq!(reported["exit_code"], 5);
}

#[test]
fn a_wrong_command_line_exits_with_2_and_names_the_value() {
    for (arguments, expected) in [
        (&["ping"][..], "PEER"),
        (&["ping", "host"], "`host`"),
        (&["ping", "h:1", "--reserve", "200"], "`200`"),
        (&["ping", "h:1", "--reserve", "9000gbit"], "9000gbit"),
        (&["ping", "h:1", "--share", "2"], "`2`"),
        (&["ping", "h:1", "--share", "0.5"], "--reserve <RATE>"),
        (&["ping", "h:1", "--dscp", "64"], "`64`"),
        (&["ping", "h:1", "--ports", "any:0"], "any:0"),
        (&["ping", "h:1", "--size", "5M"], "4M"),
        (&["send", "f", "h:1", "--chunk", "65M"], "4M"),
        (
            &["perf", "h:1", "--load", "1000gbit", "--size", "1"],
            "--load",
        ),
        (&["recv", "-o", "-", "--json"], "--json"),
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
fn nothing_is_sent_unprotected_unless_that_is_said() {
    for arguments in [&["serve"][..], &["ping", "127.0.0.1:9", "-c1"]] {
        let output = as_given(arguments);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let told = stderr(&output);
        assert!(
            told.contains("--key-file") && told.contains("--insecure-no-key"),
            "{told}"
        );
    }
}

#[test]
fn a_key_pair_needs_the_others_public_key() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    let key = key.to_str().unwrap();
    assert!(cloudburst(&["keygen", key]).status.success());
    for (arguments, option) in [
        (&["serve", "--key-file", key][..], "--allow"),
        (&["ping", "127.0.0.1:9", "--key-file", key], "--peer-key"),
    ] {
        let output = cloudburst(arguments);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains(option), "{}", stderr(&output));
    }
}

#[test]
fn what_is_given_twice_or_taken_is_named_as_it_was_given() {
    let output = cloudburst(&["serve", "-b", "127.0.0.1", "-b", "127.0.0.1"]);
    assert_eq!(output.status.code(), Some(3));
    let reported = stderr(&output);
    assert!(
        reported.contains("--bind: ") && reported.contains("127.0.0.1"),
        "{reported}"
    );

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = cloudburst(&["serve", "--ports", "any:1", "--metrics", &address]);
    assert_eq!(output.status.code(), Some(5));
    let reported = stderr(&output);
    assert!(reported.contains("--metrics: "), "{reported}");
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let output = cloudburst(&["send", "/nonexistent", "127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("/nonexistent"),
        "{}",
        stderr(&output)
    );
    let output = cloudburst(&["send", "/", "127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(1));
    // Nobody makes files there.
    #[cfg(target_os = "linux")]
    {
        let output = cloudburst(&["keygen", "/sys/key"]);
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        assert!(stderr(&output).contains("/sys/key"), "{}", stderr(&output));
    }
    let output = cloudburst(&["recv", "--output", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("/nonexistent"),
        "{}",
        stderr(&output)
    );
}
