//! The guide's commands, as a newcomer tries them: from behind an address translator and a stateful
//! firewall, with the usual mistakes, and over a slow link.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use flow_testbed::{
    home::{Home, SECONDARY, SERVER},
    namespace::Namespace,
    require,
    require::{
        Requirement::{NftRule, Program, QueueingDiscipline, Root},
        skip,
    },
    wait,
};
use tempfile::TempDir;

use super::{BINARY, stderr, stdout};

const SLOW: &str = "tbf rate 1mbit burst 3200 limit 60000";

/// The machines, with a directory for their keys and files.
struct Networks {
    home: Home,
    files: TempDir,
}

/// With a directory for what is stored.
fn with_stored(files: TempDir) -> std::io::Result<TempDir> {
    fs::create_dir(files.path().join("stored"))?;
    Ok(files)
}

/// Where the server's log goes, anew for each server.
const LOG: &str = "log";

/// A server that runs. Killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Networks {
    /// Nothing, if the kernel translates no addresses.
    fn new() -> Result<Self, String> {
        Ok(Self {
            home: Home::new().map_err(|error| error.to_string())?,
            files: tempfile::tempdir().and_then(with_stored).unwrap(),
        })
    }

    /// A line of the guide, in the directory where its files are.
    fn command(&self, host: &Namespace, line: &str) -> Command {
        let mut command = host.command(BINARY);
        command.args(line.split_whitespace());
        command.current_dir(self.files.path());
        command
    }

    /// Output of a line of the client's, and how long it takes.
    fn client(&self, line: &str) -> (Output, Duration) {
        let began = Instant::now();
        let output = self.command(&self.home.client, line).output().unwrap();
        (output, began.elapsed())
    }

    /// Makes the keys as the guide says.
    fn make_keys(&self) {
        for (host, secret, public) in [
            (&self.home.client, "client.key", "allowed"),
            (&self.home.server, "server.key", "server.pub"),
        ] {
            let line = format!("keygen {secret}");
            let made = self.command(host, &line).output().unwrap();
            assert!(made.status.success(), "{}", stderr(&made));
            fs::write(self.files.path().join(public), made.stdout).unwrap();
        }
    }

    /// Serves as the guide says, and waits until it does.
    fn serve(&self, options: &str) -> Running {
        let line =
            format!("serve --key-file server.key --allow allowed --ports 4433-4436 {options}");
        let mut command = self.command(&self.home.server, &line);
        let log = fs::File::create(self.files.path().join(LOG)).unwrap();
        let logging = command.stdout(Stdio::null()).stderr(log);
        let running = Running(logging.spawn().unwrap());
        wait::within(Duration::from_secs(10), "the server listens", || {
            // The last of its ports.
            self.home.listens(4436).unwrap().then_some(())
        });
        running
    }
}

/// Warnings in the server's log, once there is one.
fn warnings(networks: &Networks) -> Vec<String> {
    wait::within(Duration::from_secs(10), "the server warns", || {
        let log = fs::read_to_string(networks.files.path().join(LOG)).unwrap();
        let warnings = log.lines().filter(|line| line.contains(" WARN "));
        let warnings: Vec<_> = warnings.map(str::to_owned).collect();
        (!warnings.is_empty()).then_some(warnings)
    })
}

macro_rules! networks {
    () => {{
        require!(Root, Program("ip"), Program("nft"));
        require!(NftRule("ct state established,related accept"));
        match Networks::new() {
            Ok(networks) => networks,
            Err(reason) => {
                fn here() {}
                return skip(std::any::type_name_of_val(&here), &reason);
            }
        }
    }};
}

const KEYS: &str = "--key-file client.key --peer-key server.pub";

#[test]
fn the_guide_works_behind_a_translator_and_a_stateful_firewall() {
    let networks = networks!();
    networks.make_keys();
    let _server = networks.serve("");
    for address in [SERVER, SECONDARY] {
        for line in [
            format!("ping {address}:4433-4436 {KEYS} --count 3 --interval 0.05"),
            format!("paths {address}:4433-4436 {KEYS} --duration 1"),
            format!("perf {address}:4433-4436 {KEYS} --load 5mbit --duration 1"),
        ] {
            let (output, _) = networks.client(&line);
            let reported = stdout(&output);
            assert!(
                output.status.success(),
                "{line}: {reported}{}",
                stderr(&output)
            );
            assert!(
                !line.starts_with("ping") || reported.contains("3 sent, 3 answered"),
                "{reported}"
            );
            assert!(
                !line.starts_with("paths") || !reported.contains("dead"),
                "{reported}"
            );
        }
    }
}

/// The router gets another address: it forgets its translations, and chooses other ports, too.
#[test]
fn another_address_of_the_translator_interrupts_no_transfer() {
    let networks = networks!();
    networks.make_keys();
    let _server = networks.serve("--mode files --output stored");
    let last = std::cell::Cell::new(1);
    send_while(&networks, || {
        std::thread::sleep(Duration::from_millis(700));
        if last.get() < 4 {
            let before = last.replace(last.get() + 1);
            for line in [
                format!("ip address del 198.51.100.{before}/24 dev wan0"),
                format!("ip address add 198.51.100.{}/24 dev wan0", last.get()),
            ] {
                networks.home.router.run(&line).unwrap();
            }
        }
    });
    assert_eq!(last.get(), 4, "it was too quick to be disturbed");
}

/// No link delivers anything for three seconds.
#[test]
fn a_cut_of_three_seconds_interrupts_no_transfer() {
    let networks = networks!();
    networks.make_keys();
    let _server = networks.serve("--mode files --output stored");
    let is_cut = std::cell::Cell::new(false);
    send_while(&networks, || {
        if !is_cut.replace(true) {
            std::thread::sleep(Duration::from_millis(300));
            let router = &networks.home.router;
            router.sysctl("net.ipv4.ip_forward", "0").unwrap();
            std::thread::sleep(Duration::from_secs(3));
            router.sysctl("net.ipv4.ip_forward", "1").unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    });
}

/// Sends a file, with something done all the while, and looks at what was stored.
fn send_while(networks: &Networks, meanwhile: impl Fn()) {
    // 3 MB at 8 Mbit/s: long enough to be disturbed.
    let limited = networks.home.limit("tbf rate 8mbit burst 3200 limit 60000");
    limited.unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).map(|it| (it % 253) as u8).collect();
    fs::write(networks.files.path().join("file"), &content).unwrap();
    let line = format!("send file {SERVER}:4433-4436 {KEYS}");
    let mut sending = networks.command(&networks.home.client, &line);
    let sending = sending.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sending = sending.spawn().unwrap();
    while sending.try_wait().unwrap().is_none() {
        meanwhile();
    }
    let output = sending.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let stored = fs::read(networks.files.path().join("stored/file")).unwrap();
    assert!(stored == content, "it is another file");
}

#[test]
fn a_typo_and_a_server_that_is_down_are_told_apart() {
    let networks = networks!();
    networks.make_keys();
    let ping = |to: &str, keys: &str| networks.client(&format!("ping {to} {keys} --count 1"));
    let failed = |(output, took): (Output, Duration), within: Duration, says: &str| {
        let reported = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{reported}");
        assert!(reported.contains(says), "not `{says}`: {reported}");
        assert!(took < within, "{took:?}: {reported}");
    };
    let soon = Duration::from_secs(1);
    let server = format!("{SERVER}:4433-4436");
    failed(ping(&server, KEYS), soon, "no path reaches the peer");
    {
        let _server = networks.serve("");
        let patience = Duration::from_secs(4);
        // An address where nobody is, and a port where nobody is, in this order: a host says so of few
        // datagrams a second, and has just done it.
        failed(ping("198.51.100.70:4433", KEYS), patience, "no reply");
        let closed = format!("{SERVER}:4437");
        failed(ping(&closed, KEYS), soon, "no path reaches the peer");
        // How long that takes is the resolver's business.
        let name = ping("198.51.100.7.invalid:4433", KEYS);
        failed(name, Duration::from_secs(60), "cannot resolve");
        let (output, _) = ping(&server, KEYS);
        assert!(output.status.success(), "{}", stdout(&output));
    }
    failed(ping(&server, KEYS), soon, "no path reaches the peer");
}

/// The client hears nothing: a server says nothing to strangers. Its log says who it was and why, once.
#[test]
fn a_wrong_key_is_in_the_servers_log() {
    let networks = networks!();
    networks.make_keys();
    let other = stdout(&networks.client("keygen other.key").0);
    fs::write(networks.files.path().join("other.pub"), &other).unwrap();
    let _ = networks.client("keygen --shared shared.key");
    for (keys, says) in [
        (
            "--key-file client.key --peer-key other.pub",
            "it was given another public key than ours",
        ),
        ("--key-file other.key --peer-key server.pub", other.trim()),
        ("--key-file shared.key", "of another kind"),
        ("--insecure-no-key", "it has no key"),
    ] {
        let _server = networks.serve("");
        let line = format!("ping {SERVER}:4433-4436 {keys} --count 1 --timeout 1");
        let (output, _) = networks.client(&line);
        let reported = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{reported}");
        assert!(reported.contains("do the keys fit?"), "{reported}");
        let warnings = warnings(&networks);
        let [warning] = &warnings[..] else {
            panic!("{warnings:#?}");
        };
        // Where the translator of addresses lets it appear.
        let refused = "refused somebody whose key does not fit ours";
        for part in [says, refused, "remote=198.51.100.1:", "datagrams="] {
            assert!(warning.contains(part), "not `{part}`: {warning}");
        }
    }
}

/// The interface takes a megabit, and holds what the socket may: the socket is full, and stays so. There is one
/// socket, full in a fraction of a second: a sender that hears nothing for longer stops filling it.
#[test]
fn what_is_reserved_above_the_interface_is_dropped_and_counted() {
    require!(QueueingDiscipline(SLOW), Program("curl"));
    let networks = networks!();
    networks.make_keys();
    let _server = networks.serve("");
    let slow = "tc qdisc add dev eth0 root tbf rate 1mbit burst 3200 limit 200mb";
    networks.home.client.run(slow).unwrap();
    let line = format!(
        "perf {SERVER}:4433 {KEYS} --ports any:1 --reserve 200mbit --load 200mbit --duration 60 --metrics 127.0.0.1:9464"
    );
    let mut command = networks.command(&networks.home.client, &line);
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    let _sending = Running(quiet.spawn().unwrap());
    wait::within(Duration::from_secs(30), "drops are counted", || {
        let mut curl = networks.home.client.command("curl");
        let output = curl.args(["-s", "http://127.0.0.1:9464/metrics"]).output();
        let metrics = stdout(&output.unwrap());
        let mut lines = metrics.lines();
        let dropped = lines.find_map(|line| line.strip_prefix("cloudburst_send_drops_total "))?;
        (dropped.parse::<u64>().ok()? > 0).then_some(())
    });
}

/// Its host sends few notices, some six at once and one a second: one has to do for all paths. It takes
/// some 80 ms; the bound is for machines that are busy.
#[test]
fn a_closed_port_is_told_at_any_number_of_ports() {
    for ports in [1, 4, 16, 64] {
        // What its host may send is counted by address, and new with each.
        let networks = networks!();
        networks.make_keys();
        let ping = format!("ping {SERVER}:4433 {KEYS} --count 1 --timeout 5 --ports any:{ports}");
        let (output, took) = networks.client(&ping);
        let reported = stdout(&output);
        assert!(
            reported.contains("no path reaches the peer"),
            "{ports}: {reported}"
        );
        assert!(took < Duration::from_secs(1), "{ports} ports: {took:?}");
    }
}

#[test]
fn a_file_is_stored_over_a_megabit_with_defaults() {
    require!(QueueingDiscipline(SLOW));
    let networks = networks!();
    networks.make_keys();
    networks.home.limit(SLOW).unwrap();
    let stored = networks.files.path().join("stored");
    let _server = networks.serve("--mode files --output stored");
    let content = vec![7; 1_500_000];
    fs::write(networks.files.path().join("file"), &content).unwrap();
    let (output, took) = networks.client(&format!("send file {SERVER}:4433-4436 {KEYS} --json"));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(is_stored(&stored.join("file"), &content));
    // Longer than any message was tried for before.
    assert!(
        took > Duration::from_secs(10),
        "the link is no slow one: {took:?}"
    );
    let reported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let [symbols, sent] = ["symbols", "symbols_sent"].map(|it| reported[it].as_f64().unwrap());
    assert!(sent < 1.15 * symbols, "{sent} of {symbols}");
}

fn is_stored(file: &Path, content: &[u8]) -> bool {
    fs::read(file).is_ok_and(|stored| stored == content)
}
