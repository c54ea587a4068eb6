//! The README's two programs as they stand there, on two machines with an address translator and a
//! stateful firewall between them, with the usual mistakes, and over a slow link.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use cloudburst::SecretKey;
use flow_testbed::{
    home::{Home, SECONDARY, SERVER},
    namespace::Namespace,
    require,
    require::{
        Requirement::{NftRule, Program, QueueingDiscipline, Root},
        skip,
    },
};

use super::examples::example;

const SLOW: &str = "tbf rate 1mbit burst 3200 limit 60000";
/// Bytes of the message that the client sends.
const MESSAGE_BYTES: f64 = 100_000.0;

#[test]
fn the_readme_shows_both_programs_as_they_are() {
    let readme = include_str!("../../README.md");
    for example in [
        include_str!("../../examples/client.rs"),
        include_str!("../../examples/server.rs"),
    ] {
        let (_, code) = example.split_once("\n\n").expect("what it is comes first");
        assert!(readme.contains(code), "the README has another: {code}");
    }
}

/// The machines, and the directory where a program runs in each.
struct Networks {
    home: Home,
    files: PathBuf,
}

impl Drop for Networks {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.files);
    }
}

/// A server that runs. Killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Networks {
    /// With keys at both ends; nothing, if the kernel translates no addresses.
    fn new(name: &str) -> Result<Self, String> {
        // They may have to be built, which takes its time.
        for program in ["client", "server"] {
            example(program);
        }
        let home = Home::new().map_err(|error| error.to_string())?;
        let files = format!("cloudburst-{name}-{}", std::process::id());
        let files = std::env::temp_dir().join(files);
        fs::create_dir_all(&files).unwrap();
        let networks = Self { home, files };
        for (end, secret) in [("client", 1), ("server", 2)] {
            networks.write_key(end, secret);
        }
        Ok(networks)
    }

    /// Both halves, as `keygen` writes them.
    fn write_key(&self, end: &str, secret: u8) {
        let key = SecretKey::new([secret; 32]);
        let public = format!("{}\n", key.public());
        fs::write(self.files.join(format!("{end}.key")), format!("{key}\n")).unwrap();
        fs::write(self.files.join(format!("{end}.pub")), public).unwrap();
    }

    fn command(&self, host: &Namespace, name: &str) -> Command {
        let program = example(name);
        let mut command = host.command(program.to_str().expect("it is UTF-8"));
        command.current_dir(&self.files);
        command
    }

    fn serve(&self) -> Running {
        let mut command = self.command(&self.home.server, "server");
        let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let told = BufReader::new(running.0.stdout.take().unwrap())
            .lines()
            .next();
        let told = told.expect("it says where it listens").unwrap();
        assert!(told.starts_with("listening on"), "{told}");
        running
    }

    /// Runs the client, and says how long it takes.
    fn client(&self, server: &str) -> (Output, Duration) {
        let began = Instant::now();
        let mut command = self.command(&self.home.client, "client");
        let output = command.arg(server).output().unwrap();
        (output, began.elapsed())
    }
}

macro_rules! networks {
    ($name:literal) => {{
        require!(Root, Program("ip"), Program("nft"));
        require!(NftRule("ct state established,related accept"));
        match Networks::new($name) {
            Ok(networks) => networks,
            Err(reason) => {
                fn here() {}
                return skip(std::any::type_name_of_val(&here), &reason);
            }
        }
    }};
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn the_readmes_client_reaches_its_server_from_behind_a_translator_and_a_firewall() {
    let networks = networks!("readme");
    let _server = networks.serve();
    for address in [SERVER, SECONDARY] {
        let (output, _) = networks.client(&format!("{address}:4433-4436"));
        let told = text(&output);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("delivered after"), "{told}");
    }
}

/// Beside a firewall on the server's machine that lets nothing out but answers: one from another address
/// or port than was asked would be none.
#[test]
fn the_readmes_server_answers_beside_a_stateful_firewall() {
    let networks = networks!("guarded");
    networks.home.guard_server("4433-4436").unwrap();
    let _server = networks.serve();
    for address in [SERVER, SECONDARY] {
        let (output, _) = networks.client(&format!("{address}:4433-4436"));
        let told = text(&output);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("delivered after"), "{told}");
    }
}

/// In the host's address, in its name, in the port, and in how it is written.
#[test]
fn the_readmes_client_fails_soon_with_a_typo_in_the_address() {
    let networks = networks!("typo");
    let _server = networks.serve();
    // How long a name takes is the resolver's business.
    for (server, within, says) in [
        ("198.51.100.70:4433-4436", 6, "TimedOut"),
        ("198.51.100.7.invalid:4433-4436", 60, "198.51.100.7.invalid"),
        ("198.51.100.7:4437", 1, "Unreachable"),
        ("198.51.100.7", 1, "198.51.100.7"),
        ("198.51.100.7:4436-4433", 1, "4436-4433"),
    ] {
        let (output, took) = networks.client(server);
        let told = text(&output);
        assert_eq!(output.status.code(), Some(1), "{server}: {told}");
        assert!(told.contains(says), "not `{says}`: {told}");
        assert!(took < Duration::from_secs(within), "{server}: {took:?}");
    }
    let (output, _) = networks.client(&format!("{SERVER}:4433-4436"));
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn the_readmes_client_fails_soon_with_a_wrong_key_and_without_a_server() {
    let networks = networks!("mistakes");
    let server = format!("{SERVER}:4433-4436");
    let fails = |within: Duration, says: &str| {
        let (output, took) = networks.client(&server);
        let told = text(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(says), "not `{says}`: {told}");
        assert!(took < within, "{took:?}: {told}");
    };
    // The system's notice says so; the bounds are for machines that are busy.
    fails(Duration::from_secs(1), "Unreachable");
    let _server = networks.serve();
    // The request waits for its 2 s.
    let patience = Duration::from_secs(6);
    for (end, secret) in [("client", 1), ("server", 2)] {
        networks.write_key(end, 3);
        fails(patience, "TimedOut");
        networks.write_key(end, secret);
    }
    let (output, _) = networks.client(&server);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn the_readmes_client_delivers_over_a_megabit() {
    require!(QueueingDiscipline(SLOW));
    let networks = networks!("slow");
    networks.home.limit(SLOW).unwrap();
    let _server = networks.serve();
    let (output, took) = networks.client(&format!("{SERVER}:4433-4436"));
    assert!(output.status.success(), "{}", text(&output));
    let least = Duration::from_secs_f64(MESSAGE_BYTES * 8.0 / 1e6);
    assert!(took > least * 9 / 10, "the link is no slow one: {took:?}");
}
