//! The words of each command: its help and what it says when something is wrong, one snapshot each.
//!
//! Other tests hold exit codes, JSON and the values that a message must name.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::process::Command;

use super::transcript::{Transcript, plain};
use super::{BINARY, Listening, keyless};

/// Starts with what every command has: its help, and an option that there is not.
fn words_of(command: &'static str) -> Transcript {
    let mut words = Transcript::new("cloudburst", command);
    add_as_given(&mut words, "help", &[command, "--help"]);
    add_as_given(&mut words, "no such option", &[command, "--nonsense"]);
    words
}

/// Adds a case without a key, where a command needs to hear that.
fn add(words: &mut Transcript, case: &str, arguments: &[&str]) {
    let arguments = [arguments, keyless(arguments)].concat();
    add_as_given(words, case, &arguments);
}

fn add_as_given(words: &mut Transcript, case: &str, arguments: &[&str]) {
    let output = plain(Command::new(BINARY).args(arguments)).output();
    words.add(case, arguments, &output.expect("it can be started"));
}

/// Adds what is wrong with the keys of a command: there are none, or not those of the other end.
fn add_keys(words: &mut Transcript, arguments: &[&str], (option, needed): (&str, &str)) {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: String| {
        let file = directory.path().join(name);
        fs::write(&file, text + "\n").expect("a file");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&file, private).expect("ours");
        file.to_str().expect("UTF-8").to_owned()
    };
    let own = write("key", format!("cloudburst-secret:{}", "07".repeat(32)));
    let public = write("peer.pub", format!("cloudburst-public:{}", "07".repeat(32)));
    let secret = write("peer.key", "cloudburst-secret:07".to_owned());
    let shared = write("shared", format!("1:{}", "07".repeat(32)));
    let nobody = write("nobody", "# whoever it will be".to_owned());
    words.hide(directory.path().display(), "KEYS");
    add_as_given(words, "no key", arguments);
    let with = |key_file: &str, others: &[&str]| {
        let given = [arguments, &["--key-file", key_file], others].concat();
        given.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for (case, arguments) in [
        (needed, with(&own, &[])),
        ("a public key in place of our own", with(&public, &[])),
        (
            "a secret key in place of a public one",
            with(&own, &[option, &secret]),
        ),
        (
            "a shared key in place of a public one",
            with(&own, &[option, &shared]),
        ),
        (
            "public keys beside a shared one",
            with(&shared, &[option, &public]),
        ),
        (
            "no such list of public keys",
            with(&own, &[option, "/nonexistent"]),
        ),
        ("a list without a key", with(&own, &[option, &nobody])),
    ] {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        add_as_given(words, case, &arguments);
    }
}

/// Adds cases of a command with a peer, each with these arguments after `h:1`.
fn add_with_peer(words: &mut Transcript, command: &str, cases: &[(&str, &[&str])]) {
    for (case, arguments) in cases {
        add(words, case, &[&[command, "h:1"], *arguments].concat());
    }
}

#[test]
fn words_of_the_program_are_those_reviewed() {
    let mut words = Transcript::new("cloudburst", "cloudburst");
    for (case, arguments) in [
        ("help", &["--help"][..]),
        ("no command", &[]),
        ("no such command", &["receive"]),
    ] {
        add(&mut words, case, arguments);
    }
    words.compare();
}

#[test]
fn words_of_ping_are_those_reviewed() {
    let mut words = words_of("ping");
    add(&mut words, "no peer", &["ping"]);
    add(&mut words, "a peer without a port", &["ping", "host"]);
    add_with_peer(
        &mut words,
        "ping",
        &[
            ("a rate without a unit", &["--reserve", "200"]),
            ("a rate out of range", &["--reserve", "9000gbit"]),
            ("a share above all", &["--share", "2"]),
            ("a DSCP of 7 bits", &["--dscp", "64"]),
            ("no port", &["--ports", "any:0"]),
            ("ports the wrong way round", &["--ports", "5000-4000"]),
            ("a message too long", &["--size", "5M"]),
        ],
    );
    let arguments = ["ping", "192.0.2.1:9", "--bind", "127.0.0.1"];
    add(
        &mut words,
        "from an address that does not reach it",
        &arguments,
    );
    let output = tempfile::tempdir().expect("a directory");
    let output = output.path().to_str().expect("UTF-8");
    let files = Listening::start(&["serve", "--mode", "files", "--output", output]);
    words.hide(files.address(), "FILES");
    let arguments = ["ping", &files.address(), "-c1"];
    add(&mut words, "a peer that takes files", &arguments);
    let arguments = ["ping", "127.0.0.1:9"];
    add_keys(&mut words, &arguments, ("--peer-key", "no key of the peer"));
    // Servers of other tests are at 127.0.0.1, and would take a port that is free again there.
    let nobody = UdpSocket::bind("127.0.0.9:0").expect("a port");
    let peer = nobody.local_addr().expect("it has one").to_string();
    words.hide(&peer, "PEER");
    let arguments = ["ping", &peer, "-c1", "-W0.3", "--bind", "127.0.0.1"];
    add(&mut words, "nobody answers", &arguments);
    words.mask(r"\d+ symbols were sent", "N symbols were sent");
    drop(nobody);
    add(&mut words, "nobody is there", &arguments);
    words.compare();
}

#[test]
fn words_of_serve_are_those_reviewed() {
    let mut words = words_of("serve");
    let server = Listening::start(&["serve"]);
    let port = server.address.port().to_string();
    words.hide(&port, "PORT");
    let arguments = ["serve", "--bind", "127.0.0.1", "--ports", &port];
    add(&mut words, "a port in use", &arguments);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("it has one").to_string();
    words.hide(&address, "ADDRESS");
    let arguments = ["serve", "--ports", "any:1", "--metrics", &address];
    add(&mut words, "the port of the metrics in use", &arguments);
    for (case, arguments) in [
        ("no such key file", &["--key-file", "/nonexistent"][..]),
        ("an address of another host", &["--bind", "192.0.2.1"]),
        ("an address twice", &["-b", "127.0.0.1", "-b", "127.0.0.1"]),
        ("no such mode", &["--mode", "loud"]),
        ("a port in place of an address", &["--metrics", "9462"]),
        (
            "no such directory",
            &["--mode", "files", "--output", "/nonexistent/files"],
        ),
        (
            "no directory",
            &["--mode", "files", "--output", "/dev/null"],
        ),
    ] {
        add(&mut words, case, &[&["serve"], arguments].concat());
    }
    add_keys(&mut words, &["serve"], ("--allow", "nobody on the list"));
    words.compare();
}

#[test]
fn words_of_send_are_those_reviewed() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, vec![7; 1 << 20]).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let mut words = words_of("send");
    words.mask("[0-9a-f]{16}", "ID");
    words.hide(directory.path().display(), "DIRECTORY");
    add(
        &mut words,
        "a chunk too long",
        &["send", "f", "h:1", "--chunk", "65M"],
    );
    add(
        &mut words,
        "no such file",
        &["send", "/nonexistent", "127.0.0.1:9"],
    );
    add(&mut words, "a directory", &["send", "/", "127.0.0.1:9"]);

    let echo = Listening::start(&["serve", "--mode", "echo"]);
    words.hide(echo.address(), "PEER");
    add(
        &mut words,
        "a peer that stores nothing",
        &["send", file, &echo.address()],
    );
    let unread = Listening::start(&["recv", "--output", "-"]);
    words.hide(unread.address(), "PEER");
    let arguments = ["send", file, &unread.address(), "--timeout", "1"];
    add(&mut words, "a peer that does not get rid of it", &arguments);
    let gone = tempfile::tempdir().expect("a directory");
    let output = gone.path().display().to_string();
    let full = Listening::start(&["serve", "--mode", "files", "--output", &output]);
    // A directory that is gone refuses root as well.
    drop(gone);
    words.hide(output, "OUTPUT");
    words.hide(full.address(), "PEER");
    add(
        &mut words,
        "a peer that cannot store",
        &["send", file, &full.address()],
    );
    words.compare();
}

#[test]
fn words_of_recv_are_those_reviewed() {
    let mut words = words_of("recv");
    add(
        &mut words,
        "two things on standard output",
        &["recv", "-o", "-", "--json"],
    );
    add(
        &mut words,
        "no such directory",
        &["recv", "--output", "/nonexistent"],
    );
    words.compare();
}

#[test]
fn words_of_perf_are_those_reviewed() {
    let mut words = words_of("perf");
    add(&mut words, "no peer", &["perf"]);
    add_with_peer(
        &mut words,
        "perf",
        &[(
            "more than can be sent",
            &["--load", "1000gbit", "--size", "1"],
        )],
    );
    add_nobody(&mut words, "perf");
    words.compare();
}

#[test]
fn words_of_paths_are_those_reviewed() {
    let mut words = words_of("paths");
    add(&mut words, "no peer", &["paths"]);
    add_nobody(&mut words, "paths");
    words.compare();
}

/// Adds what a command says of a peer that does not answer.
fn add_nobody(words: &mut Transcript, command: &str) {
    let nobody = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let peer = nobody.local_addr().expect("it has one").to_string();
    words.hide(&peer, "PEER");
    let arguments = [
        command,
        &peer,
        "-d0.2",
        "--bind",
        "127.0.0.1",
        "--insecure-no-key",
    ];
    let output = plain(Command::new(BINARY).args(arguments)).output();
    let output = output.expect("it can be started");
    // The rest is figures.
    let is_pinned = |line: &str| line.contains(" WARN ");
    words.add_lines("nobody answers", &arguments, &output, is_pinned);
}

#[test]
fn words_of_keygen_are_those_reviewed() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("key").display().to_string();
    let mut words = words_of("keygen");
    words.hide(directory.path().display(), "DIRECTORY");
    words.mask("public:[0-9a-f]{64}", "public:KEY");
    add(&mut words, "no file named", &["keygen"]);
    add(&mut words, "a new key", &["keygen", &file]);
    let shared = directory.path().join("shared").display().to_string();
    add(&mut words, "a shared key", &["keygen", "--shared", &shared]);
    add(&mut words, "a file that is there", &["keygen", &file]);
    add(
        &mut words,
        "no such directory",
        &["keygen", "/nonexistent/key"],
    );
    add(&mut words, "a directory", &["keygen", "/", "--force"]);
    let arguments = ["keygen", "--shared", "--id", "256", &file];
    add(&mut words, "no such number", &arguments);
    fs::write(&file, "1:00\nx:secret\n").expect("a file");
    let arguments = ["serve", "--key-file", &file];
    add(&mut words, "a file that holds no key", &arguments);
    words.compare();
}
