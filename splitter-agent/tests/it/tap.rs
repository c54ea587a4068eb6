//! Completion times as the paper measures them: from border to border, by taps.

use crate::support::daemon;
use crate::support::site;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use aya::programs::{SchedClassifier, TcAttachType};
use daemon::Daemon;
use flow_testbed::namespace::Namespace;
use nix::sys::signal::Signal;
use serde_json::Value;
use site::{BINARY, Connection, Site, on_site, output, stderr, stdout};

/// 35 packets, which the tunnel takes about 4 ms to carry.
const BYTES: usize = 50_000;

/// `splitter tap` at a border.
struct Tap {
    daemon: Daemon,
    reported: std::path::PathBuf,
}

impl Tap {
    fn start(site: &Site, border: &Namespace, points: &[&str]) -> Self {
        let reported = site.path(&format!("{}.json", border.name()));
        let mut command = border.command(BINARY);
        command.args(["tap", "--json"]).args(points);
        let daemon = Daemon::start(command, &reported);
        site.wait_for("the tap", || {
            daemon.log().contains("noting flows").then_some(())
        });
        Self { daemon, reported }
    }

    /// Ends it with Ctrl-C; what it reported.
    fn end(self) -> Value {
        assert!(self.daemon.end(Signal::SIGINT).success());
        let reported = std::fs::read_to_string(self.reported).expect("it is there");
        let (_log, json) = reported.split_at(reported.find('{').expect("JSON after the log"));
        serde_json::from_str(json).expect("JSON")
    }
}

/// How many programs look at what leaves by the first tunnel.
fn attached(border: &Namespace) -> usize {
    let ask = || SchedClassifier::query_tcx("tun0", TcAttachType::Egress);
    let (_, programs) = border.enter(ask).expect("it exists").expect("Linux 6.6");
    programs.len()
}

fn flow(reported: &Value, port: u16) -> &Value {
    let mut flows = reported["flows"].as_array().expect("a list").iter();
    flows
        .find(|flow| flow["source_port"] == port)
        .expect("it was seen")
}

fn milliseconds(from: &Value, to: &Value) -> f64 {
    let [from, to] = [from, to].map(|at| at.as_u64().expect("a time"));
    assert!(to > from, "{from} and {to}");
    (to - from) as f64 / 1e6
}

#[test]
fn completion_between_borders_is_what_the_application_sees() {
    on_site(is_what_the_application_sees);
}

fn is_what_the_application_sees(site: &Site) {
    let [near, far] = site.topology.borders.each_ref().map(|it| &it.namespace);
    let before = site.routing();
    let sending = Tap::start(site, near, &["tun0:egress"]);
    assert_eq!(attached(near), 1);
    let receiving = Tap::start(site, far, &["tun0:ingress"]);

    let begun = Instant::now();
    let mut connection = Connection::open(&site.topology);
    connection.send(BYTES);
    let application_ms = begun.elapsed().as_secs_f64() * 1e3;
    let (sent, received) = (sending.end(), receiving.end());

    let port = connection.port();
    let [sent, received] = [&sent, &received].map(|reported| flow(reported, port));
    assert_eq!(sent["source"], site.topology.client.ipv4.to_string());
    assert_eq!(sent["completion_ms"], Value::Null);
    let [sent, received] = [&sent["seen"][0], &received["seen"][0]];
    assert_eq!(
        (&sent["packets"], &sent["bytes"]),
        (&received["packets"], &received["bytes"])
    );
    assert!(sent["bytes"].as_u64() > Some(BYTES as u64), "{sent}");
    let completion_ms = milliseconds(&sent["first_ns"], &received["last_ns"]);
    // From the first packet's way into the tunnel to the last one's way out: the application has
    // begun before and ends after, and the tunnel's rate allows no less, however late the machine is.
    let least_ms = BYTES as f64 * 8.0 / 100e3 * 0.9;
    assert!(
        (least_ms..=application_ms).contains(&completion_ms),
        "{completion_ms} ms on the wire, {application_ms} ms for the application"
    );
    assert_eq!(site.routing(), before, "the taps are gone");
    assert_eq!(attached(near), 0);
}

/// Both borders select the same packets by a key that they share, and find them in each other's reports.
#[test]
fn packets_of_both_borders_are_joined() {
    on_site(|site| {
        let [near, far] = site.topology.borders.each_ref().map(|it| &it.namespace);
        let key = site.path("tap.key");
        std::fs::write(&key, "0123456789abcdef".repeat(4)).expect("a file");
        std::fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("it is ours");
        let key = key.to_str().expect("it is text");
        let start = |border, point| {
            // With half of them, those that are selected are not all by chance alike.
            let options = ["--packets", "2", "--packet-key", key, point];
            Tap::start(site, border, &options)
        };
        let sending = start(near, "tun0:egress");
        let receiving = start(far, "tun0:ingress");
        let mut connection = Connection::open(&site.topology);
        connection.send(BYTES);
        let [from, to] = [(sending, "from"), (receiving, "to")].map(|(tap, name)| {
            let (report, file) = (tap.end(), site.path(name));
            std::fs::write(&file, report.to_string()).expect("a file");
            (report, file)
        });
        let passed = flow(&from.0, connection.port())["seen"][0]["packets"].as_u64();
        let timed = from.0["packets"][0]["packets"].as_array().expect("a list");
        assert!(
            !timed.is_empty() && (timed.len() as u64) < passed.expect("a number"),
            "{timed:?} of {passed:?}"
        );
        assert_eq!(from.0["delays"], Value::Null, "between one point");
        let files = [&from.1, &to.1].map(|it| it.to_str().expect("it is text"));
        let joined = site.json(&["tap", "--join", files[0], files[1]]);
        let counts = ["matched", "unmatched", "ambiguous"].map(|it| joined[it].as_u64());
        assert_eq!(counts, [Some(timed.len() as u64), Some(0), Some(0)]);
        let variation = &joined["variation"][0];
        assert_eq!(variation["packets"].as_u64(), Some(timed.len() as u64 - 1));
        // The tunnel's queue grows and empties in 4 ms, and a machine that stands still is slower.
        let mean_us = variation["mean_us"].as_f64().expect("a number");
        assert!((0.1..100_000.0).contains(&mean_us), "{joined}");
        let text = site.splitter(&["tap", "--join", files[0], files[1]]);
        let expected = format!("{} packets passed both", timed.len());
        assert!(stdout(&text).contains(&expected), "{text:?}");
    });
}

#[test]
fn points_of_one_border_are_joined() {
    on_site(|site| {
        let border = site.border();
        let points = ["--packets", "1", "lan0", "tun0:egress", "tun1:egress"];
        let tap = Tap::start(site, border, &points);
        let mut connection = Connection::open(&site.topology);
        connection.send(BYTES);
        let reported = tap.end();
        assert_eq!(reported["points"][0], "lan0:ingress");
        let upload = flow(&reported, connection.port());
        let seen = upload["seen"].as_array().expect("a list");
        assert_eq!(seen.len(), 2, "at the site and in the one tunnel: {upload}");
        assert_eq!(seen[0]["packets"], seen[1]["packets"]);
        let completion_ms = upload["completion_ms"].as_f64().expect("a time");
        let expected_ms = milliseconds(&seen[0]["first_ns"], &seen[1]["last_ns"]);
        assert!(
            (completion_ms - expected_ms).abs() < 0.001,
            "{completion_ms}"
        );
        let flows = reported["flows"].as_array().expect("a list");
        let both = flows
            .iter()
            .filter(|it| it["seen"].as_array().is_some_and(|it| it.len() == 2));
        let packets: Option<u64> = both.map(|it| it["seen"][0]["packets"].as_u64()).sum();
        assert_eq!(
            reported["delays"]["matched"].as_u64(),
            packets,
            "{reported}"
        );
    });
}

#[test]
fn text_has_a_line_for_each_flow_and_the_time_ends_it() {
    on_site(|site| {
        let mut connection = Connection::open(&site.topology);
        let mut command = site.border().command(BINARY);
        command.args(["tap", "lan0", "tun0:egress", "--seconds", "1"]);
        let output = std::thread::scope(|scope| {
            let reported = scope.spawn(|| output(command));
            // However long it takes to attach.
            while !reported.is_finished() {
                connection.send(1_000);
                std::thread::sleep(Duration::from_millis(20));
            }
            reported.join().expect("no panic")
        });
        assert!(output.status.success(), "{output:?}");
        let source = format!("{}:{}", site.topology.client.ipv4, connection.port());
        let text = stdout(&output);
        assert!(
            text.contains(&source) && text.contains("tun0:egress"),
            "{text}"
        );
    });
}

#[test]
fn point_that_cannot_be_tapped_is_named() {
    on_site(|site| {
        let border = site.border();
        border
            .run("ip tuntap add dev tun9 mode tun")
            .expect("the kernel has it");
        border.run("ip link set tun9 up").expect("it is there");
        let tap = |point: &str| {
            let mut command = border.command(BINARY);
            command.args(["tap", point]);
            let output = output(command);
            (output.status.code(), stderr(&output))
        };
        let (code, reported) = tap("tun9");
        assert_eq!(code, Some(1));
        assert!(reported.contains("tun9"), "{reported}");
        let (code, reported) = tap("lan7:egress");
        assert_eq!(code, Some(1));
        assert!(
            reported.contains("lan7") && reported.contains("gen0"),
            "{reported}"
        );
        let (code, reported) = tap("lan0:out");
        assert_eq!(code, Some(2));
        assert!(reported.contains("lan0:out"), "{reported}");

        // Nor can it be an interface of the site.
        site.configure("lan = ['lan0', 'tun9']");
        let output = site.splitter(&["up"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains("tun9"), "{output:?}");
    });
}
