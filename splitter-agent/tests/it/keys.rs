//! Keys of the probes that change while both agents run.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::pair::{Pair, QUICK, on_pair};
use crate::support::site::{BINARY, output};

const OLD: &str = "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef";
const NEW: &str = "ffeeddccbbaa99887766554433221100fedcba9876543210fedcba9876543210";

#[derive(Clone, Copy)]
enum Side {
    Near,
    Far,
}

fn key_file(pair: &Pair, side: Side) -> PathBuf {
    pair.site.path(match side {
        Side::Near => "key",
        Side::Far => "far-key",
    })
}

/// Configures both borders, each with a file of its own.
fn configure(pair: &Pair) {
    pair.configure(true, QUICK);
    let far = std::fs::read_to_string(pair.site.path("far.toml")).expect("a file");
    let [near_key, far_key] = [Side::Near, Side::Far].map(|it| key_file(pair, it));
    let own = far.replace(&format!("{near_key:?}"), &format!("{far_key:?}"));
    assert_ne!(own, far);
    std::fs::write(pair.site.path("far.toml"), own).expect("a file");
    for side in [Side::Near, Side::Far] {
        write(pair, side, &[OLD]);
    }
}

fn write(pair: &Pair, side: Side, keys: &[&str]) {
    let path = key_file(pair, side);
    std::fs::write(&path, keys.join("\n")).expect("a file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("it is ours");
}

fn reload(pair: &Pair, side: Side) -> Value {
    let output = match side {
        Side::Near => pair.site.splitter(&["reload", "--json"]),
        Side::Far => {
            let mut command = pair.far().command(BINARY);
            let config = pair.site.path("far.toml");
            command
                .arg("--config")
                .arg(config)
                .args(["reload", "--json"]);
            output(command)
        }
    };
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn forged(pair: &Pair) -> f64 {
    pair.site
        .metric("splitter_refused_probes_total{reason=\"forged\"}")
}

fn answered(pair: &Pair) -> u64 {
    let health = pair.health();
    let tunnels = health["tunnels"].as_array().into_iter().flatten();
    tunnels.filter(|it| it["evidence"] == "echo").count() as u64
}

#[test]
fn keys_are_changed_while_probes_go_on() {
    require!(Program("nft"));
    on_pair(|pair| {
        configure(pair);
        let (far, near) = (pair.run_far(), pair.site.run());
        pair.wait_for_echo();
        let first = reload(pair, Side::Near);
        assert_eq!(first["changed"], false, "{first}");
        for (near_keys, far_keys) in [
            (&[OLD, NEW][..], &[OLD][..]),
            (&[OLD, NEW], &[OLD, NEW]),
            (&[NEW, OLD], &[OLD, NEW]),
            (&[NEW, OLD], &[NEW, OLD]),
            (&[NEW], &[NEW, OLD]),
            (&[NEW], &[NEW]),
        ] {
            for (side, keys) in [(Side::Near, near_keys), (Side::Far, far_keys)] {
                write(pair, side, keys);
                reload(pair, side);
            }
            // Longer than it takes to declare a tunnel dead.
            std::thread::sleep(Duration::from_millis(1_500));
            assert_eq!(answered(pair), 2, "{}", pair.health());
            assert_eq!(forged(pair), 0.0);
        }
        assert_eq!(pair.health()["moves"], json!([]));
        let log = near.log();
        assert!(!log.contains("another key"), "{log}");
        // The old one is of no use any more.
        write(pair, Side::Far, &[OLD]);
        reload(pair, Side::Far);
        pair.site.wait_for("the old key to be refused", || {
            (forged(pair) > 5.0).then_some(())
        });
        assert!(near.end(Signal::SIGTERM).success());
        drop(far);
    });
}

#[test]
fn wrong_key_is_told_once_and_its_end_too() {
    require!(Program("nft"));
    on_pair(|pair| {
        configure(pair);
        write(pair, Side::Far, &[NEW]);
        let (far, near) = (pair.run_far(), pair.site.run());
        let told = |words: &str| {
            let log = near.log();
            let lines = log.lines().filter(|line| line.contains(words));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        pair.site.wait_for("both tunnels' warnings", || {
            (told("the peer has another key").len() == 2).then_some(())
        });
        std::thread::sleep(Duration::from_secs(2));
        let warnings = told("the peer has another key");
        assert_eq!(warnings.len(), 2, "one for each tunnel: {warnings:?}");
        for word in ["tun0", "health.key_file", "10.9.0.2"] {
            assert!(warnings.iter().any(|it| it.contains(word)), "{warnings:?}");
        }

        // A file that holds no key is refused, and the present one stays.
        write(pair, Side::Near, &["00"]);
        let reported = pair.site.refused(&["reload"], 3);
        assert!(reported.contains("64 hexadecimal"), "{reported}");
        write(pair, Side::Near, &[OLD, NEW]);
        let changed = reload(pair, Side::Near);
        let change = &changed["changes"][0];
        assert_eq!(change["key"], "health.key_file holds", "{changed}");
        let fingerprints = change["to"].as_array().expect("a list");
        assert_eq!(fingerprints.len(), 2);
        assert!(!changed.to_string().contains(&OLD[..8]), "{changed}");
        pair.site.wait_for("the right key", || {
            (told("one of our keys again").len() == 2).then_some(())
        });
        // The far side does not know ours yet.
        write(pair, Side::Far, &[NEW, OLD]);
        reload(pair, Side::Far);
        pair.wait_for_echo();
        assert!(near.end(Signal::SIGTERM).success());
        drop(far);
    });
}
