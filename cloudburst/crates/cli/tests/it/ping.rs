//! `cloudburst ping`, and who answers.

use serde_json::Value;

use super::{Listening, cloudburst, stderr, stdout};

#[test]
fn ping_reports_times_and_serve_ends_at_ctrl_c() {
    let mut server = Listening::start(&["serve"]);
    let output = cloudburst(&["ping", &server.address(), "-c", "3", "-i", "0.02"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    let output = cloudburst(&[
        "ping",
        &server.address(),
        "-c2",
        "-i0.02",
        "-s20k",
        "--json",
    ]);
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&reported["sent"], &reported["answered"]),
        (&2.into(), &2.into())
    );
    assert!(reported["rtt_ms"]["p99"].as_f64().unwrap() > 0.0);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn ping_of_nobody_fails() {
    // Away from the servers of other tests, which would take the port when it is free again.
    let closed = std::net::UdpSocket::bind("127.0.0.9:0").unwrap();
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
    drop(closed);
    let output = cloudburst(&arguments);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn with_another_key_nothing_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| {
        let file = directory.path().join(name).to_str().unwrap().to_owned();
        assert!(cloudburst(&["keygen", &file, "--shared"]).status.success());
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
    }
}

/// Each end has its key, and a list of those who may speak, like WireGuard's.
#[test]
fn only_who_is_on_the_list_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [server, client, stranger] = ["server", "client", "stranger"].map(|name| {
        let made = cloudburst(&["keygen", &path(name)]);
        assert!(made.status.success(), "{}", stderr(&made));
        stdout(&made).trim().to_owned()
    });
    std::fs::write(path("allowed"), format!("# who may\n{client} the client\n")).unwrap();
    let serving = Listening::start(&[
        "serve",
        "--key-file",
        &path("server"),
        "--allow",
        &path("allowed"),
    ]);
    let ping = |own: &str, peer_key: &str| {
        let peer = serving.address();
        let own = path(own);
        let output = cloudburst(&[
            "ping",
            &peer,
            "-c1",
            "-W0.5",
            "--key-file",
            &own,
            "--peer-key",
            peer_key,
        ]);
        output.status.code()
    };
    assert_eq!(ping("client", &server), Some(0));
    assert_eq!(ping("stranger", &server), Some(1), "it is not on the list");
    assert_eq!(
        ping("client", &stranger),
        Some(1),
        "the server is somebody else"
    );
}
