//! `splitter run`, and the commands that speak to it.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;

use nix::sys::signal::Signal;

use super::border::add_refusals;
use super::{Cases, on_border};
use crate::support::site::BINARY;
use crate::transcript::plain;

#[test]
fn words_of_run_are_those_reviewed() {
    on_border("run", |cases| {
        let site = cases.site;
        add_refusals(cases, "run");
        let taken = site.border().enter(|| TcpListener::bind("127.0.0.1:9461"));
        let taken = taken.expect("it exists").expect("it is free");
        cases.add("the port of the metrics is taken", &["run"]);
        drop(taken);
        configure_probes(cases, 0o644);
        cases.add("a key that others may read", &["run"]);
        configure_probes(cases, 0o600);
        let taken = site.border().enter(|| UdpSocket::bind("0.0.0.0:9462"));
        let taken = taken.expect("it exists").expect("it is free");
        cases.add("the port of the probes is taken", &["run"]);
        drop(taken);
        cases.configure("");
        cases.add_as_nobody("without rights", &["run"]);
        let daemon = site.run();
        cases
            .words
            .hide(format!("the process {} ", daemon.id()), "the process ID ");
        cases.add("it runs already", &["run"]);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

/// Has the tunnels probed, with a key of this mode.
fn configure_probes(cases: &Cases, mode: u32) {
    let site = cases.site;
    let key = site.path("key");
    std::fs::write(&key, "07".repeat(32)).expect("a file");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    let tunnel = |index: usize| {
        let gateways = site.topology.borders[0].gateway_addresses(index);
        format!("device = 'tun{index}'\ngateway = {gateways:?}\npeer = '10.9.{index}.2'\n")
    };
    cases.configure(&format!(
        "[health]\nkey_file = {key:?}\n[short]\n{}[long]\n{}",
        tunnel(0),
        tunnel(1)
    ));
}

#[test]
fn words_of_reload_are_those_reviewed() {
    on_border("reload", |cases| {
        let site = cases.site;
        cases.add("no agent", &["reload"]);
        let daemon = site.run();
        cases.add("nothing has changed", &["reload"]);
        cases.add_wrong_files(&["reload"]);
        cases.configure("[flows]\nthreshold = 70\ntable_size = 4096\n[health]\nport = 9463\n");
        cases.add("a key that cannot change at run time", &["reload"]);
        cases.configure("[long]\ndevice = 'nowhere'\n");
        cases.add("no such interface", &["reload"]);
        cases.configure("lan = ['lan0']\n[flows]\nthreshold = 70\ntable_size = 4096\n");
        cases.add("a change that is only shown", &["reload", "--dry-run"]);
        cases.add("a change", &["reload"]);
        cases.add_as_nobody("without rights", &["reload"]);
        let copy = site.path("copy.toml");
        std::fs::copy(site.config(), &copy).expect("a file");
        let mut other = site.border().command(BINARY);
        let other = plain(other.arg("--config").arg(&copy).arg("reload")).output();
        let other = other.expect("it can be started");
        let arguments = ["--config", "SITE/copy.toml", "reload"];
        cases.words.add("another file", &arguments, &other);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn words_of_apply_and_confirm_are_those_reviewed() {
    on_border("apply", |cases| {
        let new = cases.site.path("new.toml").display().to_string();
        let own = cases.site.config().display().to_string();
        cases.configure("lan = ['lan0']\n[flows]\nthreshold = 70\ntable_size = 4096\n");
        std::fs::copy(&own, &new).expect("a file");
        cases.configure("");
        cases.add("no agent", &["apply", &new]);
        let daemon = cases.site.run();
        for (case, arguments) in [
            (
                "a time that is none",
                &["apply", &new, "--confirm", "soon"][..],
            ),
            ("no such file", &["apply", "/nowhere.toml"]),
            ("the agent's own file", &["apply", &own, "--confirm", "1h"]),
            ("a change that is only shown", &["apply", "-n", &new]),
            ("help of confirm", &["confirm", "--help"]),
            ("nothing to confirm", &["confirm"]),
            ("nothing to take back", &["confirm", "--revert"]),
            ("a change for a time", &["apply", &new, "--confirm", "1h"]),
            ("it is taken back", &["confirm", "--revert"]),
            ("too late", &["confirm"]),
            ("once more", &["apply", &new, "--confirm", "1h"]),
            ("it is kept", &["confirm"]),
            ("a change for good", &["apply", &new]),
        ] {
            cases.add(case, arguments);
        }
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn words_of_set_are_those_reviewed() {
    on_border("set", |cases| {
        cases.add("nothing to set", &["set"]);
        cases.add("no agent", &["set", "threshold", "60"]);
        let daemon = cases.site.run();
        for (case, arguments) in [
            ("no such key", &["set", "treshold", "60"][..]),
            ("a value that is none", &["set", "threshold", "0"]),
            (
                "one of two is wrong",
                &["set", "threshold=60", "max_wait_ms=0"],
            ),
            ("a key that cannot change", &["set", "health.port", "9463"]),
            ("a key of the file alone", &["set", "lan", "gen0"]),
            ("no value", &["set", "threshold", "60", "unit"]),
            ("a key of two sections", &["set", "rate_mbit", "60"]),
            (
                "a change that is only shown",
                &["set", "-n", "threshold", "60"],
            ),
            ("a change", &["set", "threshold", "60"]),
            ("what is set already", &["set", "threshold", "60"]),
        ] {
            cases.add(case, arguments);
        }
        cases.add_as_nobody("without rights", &["set", "threshold", "60"]);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[cfg(feature = "top")]
#[test]
fn words_of_top_are_those_reviewed() {
    on_border("top", |cases| {
        cases.add("an interval that is none", &["top", "-i", "0"]);
        cases.add("no such column", &["top", "--sort", "colour"]);
        cases.add("no terminal", &["top"]);
        cases.add("nothing is up", &["top", "--once"]);
        cases.add_wrong_files(&["top", "--once"]);
    });
}
