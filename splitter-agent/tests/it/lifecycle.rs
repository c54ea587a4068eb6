//! From `run` or `up` to the end, on real packets: what is set up, what survives, what is left.

use crate::support::daemon;
use crate::support::site;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use aya::programs::links::{FdLink, PinnedLink};
use daemon::Daemon;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use site::{BINARY, Connection, Site, on_site};

const NATIVE: Option<u64> = Some(1);
/// About 7 packets.
const SHORT_BYTES: usize = 10_000;
/// About 140 packets, over any threshold here.
const LONG_BYTES: usize = 200_000;

#[test]
fn run_splits_measures_and_leaves_nothing_on_sigterm() {
    on_site(|site| run_to_the_end(site, Signal::SIGTERM));
}

#[test]
fn run_splits_measures_and_leaves_nothing_on_ctrl_c() {
    on_site(|site| run_to_the_end(site, Signal::SIGINT));
}

#[test]
fn run_ends_when_its_terminal_goes() {
    require!(Program("script"));
    on_site(|site| {
        let before = site.routing();
        // A terminal of its own, which ends with `script`.
        let run = format!(
            "exec {BINARY} --config {} run 2>{}",
            site.config().display(),
            site.path("log").display()
        );
        let mut script = site.border().command("script");
        script.args(["-qec", &run, "/dev/null"]);
        let script = Daemon::start(script, &site.path("script-log"));
        site.wait_for("the daemon to be ready", || match site.get("/ready") {
            Ok((200, _)) => Some(()),
            _ => None,
        });
        script.end(Signal::SIGKILL);
        site.wait_for("the daemon to have cleaned up", || {
            (!site.path("run/test/state.json").exists()).then_some(())
        });
        site.wait_for("the rules to be gone", || {
            (site.routing() == before).then_some(())
        });
        site.assert_clean(&before);
    });
}

fn run_to_the_end(site: &Site, signal: Signal) {
    let before = site.routing();
    let daemon = site.run();
    assert_eq!(site.get("/live").expect("it answers").0, 200);

    let mut short = Connection::open(&site.topology);
    short.send(SHORT_BYTES);
    let mut long = Connection::open(&site.topology);
    long.send(LONG_BYTES);

    let status = site.json(&["status"]);
    assert_eq!(
        (&status["up"], &status["in_place"]),
        (&true.into(), &true.into())
    );
    assert_eq!(status["owner"], "run");
    assert_eq!(status["attached"].as_array().map(Vec::len), Some(2));
    assert_eq!(status["attached"][0]["mode"], "native");
    assert_eq!(status["flows"]["started"], 2);
    assert_eq!(status["flows"]["became_long"], 1);
    assert_eq!(
        (site.xdp_mode("lan0"), site.xdp_mode("gen0")),
        (NATIVE, NATIVE)
    );

    assert_eq!(site.flow_from(short.port())["class"], "short");
    let known = site.flow_from(long.port());
    assert_eq!(known["class"], "long");
    assert_eq!(known["source"], site.topology.client.ipv4.to_string());
    let bytes = known["bytes"].as_u64().expect("a number");
    // All of it and headers of 66 bytes at 1448 a packet, retransmissions aside.
    assert!(
        (LONG_BYTES as u64..LONG_BYTES as u64 * 6 / 5).contains(&bytes),
        "{bytes}"
    );

    let (code, metrics) = site.get("/metrics").expect("it answers");
    assert_eq!(code, 200);
    assert!(
        metrics.contains("\nsplitter_flows_long_total 1\n"),
        "{metrics}"
    );

    assert!(daemon.end(signal).success());
    site.assert_clean(&before);
    // The connection goes on without it.
    long.send(SHORT_BYTES);
}

#[test]
fn second_up_changes_nothing_and_down_restores() {
    on_site(|site| {
        let before = site.routing();
        assert_eq!(site.json(&["plan"])["changed"], true);
        assert_eq!(site.json(&["up"])["changed"], true);
        let up = site.routing();
        assert_ne!(up, before);

        assert_eq!(site.json(&["plan"])["changed"], false);
        assert_eq!(site.json(&["up"])["changed"], false);
        assert_eq!(site.routing(), up);
        assert_eq!(site.json(&["status"])["owner"], "up");
        for name in ["lock", "state.json"] {
            let file = std::fs::metadata(site.path("run/test").join(name)).expect("it exists");
            assert_eq!(file.permissions().mode() & 0o777, 0o600, "{name}");
        }

        let removed = site.json(&["down"])["removed"].clone();
        assert!(
            removed.as_array().is_some_and(|removed| removed.len() > 3),
            "{removed}"
        );
        site.assert_clean(&before);

        assert!(site.splitter(&["down"]).status.success());
        assert_eq!(site.json(&["status"])["up"], false);
    });
}

#[test]
fn programs_are_off_their_devices_after_down_whoever_holds_the_links() {
    on_site(|site| {
        let before = site.routing();
        assert!(site.splitter(&["up"]).status.success());
        let links = site.bpffs().join("splitter/test/links");
        let held = ["lan0", "gen0"].map(|device| {
            let link = PinnedLink::from_pin(links.join(device));
            FdLink::from(link.expect("it is attached"))
        });
        assert!(site.splitter(&["down"]).status.success());
        site.assert_clean(&before);
        drop(held);
    });
}

#[test]
fn run_adopts_what_up_left_and_leaves_it_in_place() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        let up = site.routing();
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);
        let counted = packets(site, &connection);

        let daemon = site.run();
        assert!(daemon.log().contains("adopted"), "{}", daemon.log());
        assert!(packets(site, &connection) >= counted);
        assert!(daemon.end(Signal::SIGTERM).success());

        assert_eq!(site.routing(), up);
        assert_eq!(site.json(&["status"])["in_place"], true);
        connection.send(SHORT_BYTES);
        assert!(packets(site, &connection) > counted);
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

#[test]
fn killed_agent_splits_on_and_down_cleans_up() {
    on_site(|site| {
        let before = site.routing();
        let daemon = site.run();
        let mut connection = Connection::open(&site.topology);
        connection.send(SHORT_BYTES);
        daemon.end(Signal::SIGKILL);

        assert_eq!(site.xdp_mode("lan0"), NATIVE);
        let counted = packets(site, &connection);
        connection.send(LONG_BYTES);
        assert!(packets(site, &connection) > counted);
        let status = site.json(&["status"]);
        assert_eq!(
            (&status["up"], &status["owner"]),
            (&true.into(), &"run".into())
        );

        site.json(&["down"]);
        site.assert_clean(&before);
        connection.send(SHORT_BYTES);
    });
}

#[test]
fn agent_after_a_killed_one_keeps_its_flows_and_cleans_up() {
    on_site(|site| {
        let before = site.routing();
        let mut connection = Connection::open(&site.topology);
        let first = site.run();
        connection.send(LONG_BYTES);
        first.end(Signal::SIGKILL);
        let counted = packets(site, &connection);

        let second = site.run();
        assert!(second.log().contains("adopted"), "{}", second.log());
        let known = site.flow_from(connection.port());
        assert_eq!(known["class"], "long");
        assert!(
            known["packets"].as_u64() >= Some(counted),
            "{known} after {counted}"
        );
        connection.send(SHORT_BYTES);
        assert!(packets(site, &connection) > counted);

        assert!(second.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn up_after_a_killed_run_stays_until_down() {
    on_site(|site| {
        let before = site.routing();
        site.run().end(Signal::SIGKILL);
        site.json(&["up"]);
        assert_eq!(site.json(&["status"])["owner"], "up");
        assert!(site.run().end(Signal::SIGTERM).success());
        assert_eq!(site.json(&["status"])["in_place"], true);
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

#[test]
fn changed_settings_are_applied_and_flows_kept() {
    on_site(|site| {
        site.configure("[flows]\nthreshold = 1000\ntable_size = 4096");
        site.json(&["up"]);
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);
        let counted = packets(site, &connection);
        assert_eq!(site.flow_from(connection.port())["class"], "short");

        site.configure("[flows]\nthreshold = 20\ntable_size = 4096");
        let up = site.json(&["up"]);
        assert_eq!(up["changed"], true);
        assert_eq!(up["plan"]["program"], "keep");
        assert_eq!(up["plan"]["settings"], "write");
        assert_eq!(site.json(&["up"])["changed"], false);

        connection.send(SHORT_BYTES);
        let known = site.flow_from(connection.port());
        assert_eq!(known["class"], "long");
        assert!(
            known["packets"].as_u64() > Some(counted),
            "{known} after {counted}"
        );
        site.json(&["down"]);
    });
}

#[test]
fn interface_dropped_from_the_configuration_is_detached() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        assert_eq!(site.xdp_mode("gen0"), NATIVE);
        site.configure("lan = ['lan0']");
        assert_eq!(site.json(&["plan"])["changed"], true);
        site.json(&["up"]);
        assert_eq!(
            (site.xdp_mode("lan0"), site.xdp_mode("gen0")),
            (NATIVE, None)
        );
        assert_eq!(site.json(&["up"])["changed"], false);
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

#[test]
fn reader_that_has_seen_enough_is_no_error() {
    on_site(|site| {
        for arguments in [&["up"][..], &["status"], &["flows"], &["plan"], &["down"]] {
            let mut child = site
                .command(arguments)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it can be started");
            drop(child.stdout.take());
            let output = child.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{arguments:?}: {output:?}");
        }
    });
}

fn packets(site: &Site, connection: &Connection) -> u64 {
    let known = site.flow_from(connection.port());
    known["packets"].as_u64().expect("a number")
}
