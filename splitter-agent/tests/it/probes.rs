//! Probes between two real agents: what counts as one, and what is made of their absence.

use crate::support::claims;
use crate::support::pair;
use crate::support::site;
use std::net::UdpSocket;
use std::time::Duration;

use claims::PEER_MAY_END;
use flow_testbed::claim;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use pair::{QUICK, decide_on_pair, on_pair};
use site::stderr;

#[test]
fn peer_whose_agent_ends_does_not_condemn_the_tunnels() {
    require!(Program("nft"));
    decide_on_pair(&PEER_MAY_END, |pair| {
        let (near, far) = pair.run(QUICK);
        pair.wait_for_echo();
        far.end(Signal::SIGKILL);
        std::thread::sleep(Duration::from_secs(4));
        let health = pair.health();
        for tunnel in [0, 1] {
            let reported = &health["tunnels"][tunnel];
            claim!(reported["condition"] == "up", "{health}");
            claim!(reported["evidence"] == "link", "{health}");
        }
        let moves = health["moves"].as_array().map(Vec::len);
        claim!(moves == Some(0), "{health}");
        assert!(
            near.log().contains("its agent does not run"),
            "{}",
            near.log()
        );
        let _far = pair.run_far();
        pair.wait_for_echo();
        Ok(())
    });
}

#[test]
fn what_is_no_probe_is_counted_and_not_answered() {
    require!(Program("nft"));
    on_pair(|pair| {
        let (near, _far) = pair.run(QUICK);
        pair.wait_for_echo();
        let stranger = pair.far().enter(|| UdpSocket::bind("10.9.0.2:0"));
        let stranger = stranger.expect("it exists").expect("a port");
        stranger.connect("10.9.0.1:9462").expect("an address");
        let pause = Some(Duration::from_millis(300));
        stranger.set_read_timeout(pause).expect("a setting");
        for length in 0..100 {
            stranger.send(&vec![b'S'; length]).expect("it is sent");
        }
        let mut forged = [7; 68];
        forged[..8].copy_from_slice(b"SPH\x02\x02\x00\x00\x00");
        let mut other_version = [7; 64];
        other_version[..8].copy_from_slice(b"SPH\x01\x01\x00\x00\x00");
        for _ in 0..10 {
            stranger.send(&forged).expect("it is sent");
            stranger.send(&other_version).expect("it is sent");
        }
        assert!(stranger.recv(&mut [0; 100]).is_err(), "it was answered");
        let refused = |reason: &str| {
            pair.site.metric(&format!(
                "splitter_refused_probes_total{{reason=\"{reason}\"}}"
            ))
        };
        assert_eq!(refused("malformed"), 100.0);
        assert_eq!(refused("forged"), 10.0);
        assert_eq!(refused("version"), 10.0);
        assert_eq!(refused("replayed"), 0.0);
        assert_eq!(pair.egresses(), ("short".into(), "long".into()));
        assert!(near.end(Signal::SIGTERM).success());
    });
}

#[test]
fn another_key_proves_nothing_and_is_counted() {
    require!(Program("nft"));
    on_pair(|pair| {
        pair.configure(true, QUICK);
        let far = pair.run_far();
        let other = "ff".repeat(32);
        std::fs::write(pair.site.path("key"), other).expect("a file");
        let near = pair.site.run();
        let forged = "splitter_refused_probes_total{reason=\"forged\"}";
        pair.site.wait_for("probes with the other key", || {
            (pair.site.metric(forged) > 5.0).then_some(())
        });
        // That the neighbours were entered by hand is seen at its first look at them.
        let health = pair.site.wait_for("a report that goes by the links", || {
            let health = pair.health();
            (health["tunnels"][0]["evidence"] == "link").then_some(health)
        });
        assert_eq!(health["tunnels"][0]["condition"], "up", "{health}");
        drop((near, far));
    });
}

#[test]
fn key_that_others_may_read_and_port_in_use_are_refused_before_anything_is_changed() {
    require!(Program("nft"));
    on_pair(|pair| {
        let site = pair.site;
        let before = site.routing();
        pair.configure(true, "");
        pair.key_mode(0o644);
        let output = site.splitter(&["run"]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let reported = stderr(&output);
        assert!(
            reported.contains("mode 0644") && reported.contains("chmod 600"),
            "{reported}"
        );
        site.assert_clean(&before);

        pair.key_mode(0o600);
        let taken = site.border().enter(|| UdpSocket::bind("0.0.0.0:9462"));
        let taken = taken.expect("it exists").expect("it is free");
        let output = site.splitter(&["run"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains("health.port"), "{output:?}");
        site.assert_clean(&before);
        drop(taken);
        drop(site.run());
    });
}
