//! `splitter top` in a terminal, and without one.

use crate::support::pty;
use crate::support::site;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::wait::poll;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pty::Terminal;
use serde_json::Value;
use site::{BINARY, Connection, Site, on_site, stderr, stdout};

fn top(site: &Site, more: &[&str]) -> Terminal {
    let config = site.config();
    let config = config.to_str().expect("it is text");
    let program = [&[BINARY, "--config", config, "top", "-i", "0.2"], more].concat();
    Terminal::start(site.border().command("setsid"), &program, 24, 100)
}

#[track_caller]
fn wait_for(terminal: &Terminal, what: &str) {
    let shown = poll(site::PATIENCE, || {
        terminal.text().contains(what).then_some(())
    });
    assert!(shown.is_some(), "no {what} in\n{}", terminal.text());
}

fn ends(site: &Site, terminal: &mut Terminal) -> Option<i32> {
    let status = site.wait_for("top to end", || {
        terminal.child.try_wait().expect("it is ours")
    });
    // What it has written last may not have been drawn yet.
    site.wait_for("the terminal", || terminal.is_given_back().then_some(()));
    status.code()
}

#[test]
fn shows_flows_as_they_come_and_obeys_keys() {
    require!(Program("setsid"), Program("stty"));
    on_site(|site| {
        assert!(site.splitter(&["up"]).status.success());
        let mut terminal = top(site, &[]);
        wait_for(&terminal, "0 flows");
        let mut connection = Connection::open(&site.topology);
        connection.send(300_000);
        let port = format!(":{} -> ", connection.port());
        for shown in [
            &port,
            "tun1",
            "not probed",
            "lan0 native",
            "Mbit/s",
            "vRATE",
        ] {
            wait_for(&terminal, shown);
        }
        assert!(terminal.is_taken());

        terminal.press("s");
        wait_for(&terminal, "vPACKETS");
        terminal.press("r");
        wait_for(&terminal, "^PACKETS");
        terminal.press("/no-such-flow\r");
        wait_for(&terminal, "filter: no-such-flow");
        site.wait_for("no flow", || {
            (!terminal.text().contains(&port)).then_some(())
        });
        terminal.press("/\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\r");
        wait_for(&terminal, &port);
        terminal.press("+");
        wait_for(&terminal, "every 500 ms");
        terminal.press("?");
        wait_for(&terminal, "Any key leaves this");
        terminal.press(" p");
        wait_for(&terminal, "PAUSED");

        terminal.resize(8, 40);
        site.wait_for("fewer columns", || {
            (!terminal.text().contains("TUNNEL")).then_some(())
        });
        wait_for(&terminal, "FLOW");
        terminal.resize(2, 10);
        wait_for(&terminal, "too small");
        terminal.press("q");
        assert_eq!(ends(site, &mut terminal), Some(0));
    });
}

#[test]
fn waits_while_the_instance_is_down_and_ends_at_signals() {
    require!(Program("setsid"));
    on_site(|site| {
        assert!(site.splitter(&["up"]).status.success());
        for end in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            let mut terminal = top(site, &["--sort", "age"]);
            wait_for(&terminal, "vAGE");
            if end == Signal::SIGTERM {
                assert!(site.splitter(&["down"]).status.success());
                wait_for(&terminal, "the instance `test` is down");
                assert!(site.splitter(&["up"]).status.success());
                site.wait_for("it to go on", || {
                    (!terminal.text().contains("is down")).then_some(())
                });
            }
            let id = Pid::from_raw(terminal.child.id().cast_signed());
            kill(id, end).expect("it is ours");
            assert_eq!(ends(site, &mut terminal), Some(0), "{end}");
        }
        let mut terminal = top(site, &[]);
        wait_for(&terminal, "vRATE");
        terminal.press("\x03");
        assert_eq!(ends(site, &mut terminal), Some(0));
    });
}

#[test]
fn nothing_to_show_and_no_terminal_are_refused() {
    require!(Program("setsid"));
    on_site(|site| {
        let mut terminal = top(site, &[]);
        wait_for(
            &terminal,
            "is down; `splitter up` or `splitter run` brings it up",
        );
        assert_eq!(ends(site, &mut terminal), Some(1));

        let output = site.splitter(&["top"]);
        assert_eq!(output.status.code(), Some(1));
        let output = site.splitter(&["top", "--once"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("`test`"));
        let output = site.splitter(&["top", "-i", "0"]);
        assert_eq!(output.status.code(), Some(2));
    });
}

#[test]
fn one_sample_needs_no_terminal() {
    on_site(|site| {
        assert!(site.splitter(&["up"]).status.success());
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        let output = site.splitter(&["top", "--once", "-i", "0.2"]);
        assert!(output.status.success(), "{output:?}");
        let port = format!(":{} -> ", connection.port());
        for shown in [&port, "tun0", "since it is up", "1 of 1 flows"] {
            assert!(
                stdout(&output).contains(shown),
                "{shown}: {}",
                stdout(&output)
            );
        }

        let widest = stdout(&output).lines().map(|it| it.chars().count()).max();
        assert!(widest <= Some(80), "{}", stdout(&output));

        let reported = site.json(&["top", "-i", "0.2"]);
        assert_eq!(reported["flows"][0]["source_port"], connection.port());
        assert!(
            reported["interval_s"].as_f64().is_some_and(|it| it >= 0.16),
            "{reported}"
        );
        assert_eq!(reported["classes"][0]["class"], "short");
        assert_eq!(reported["classes"][1]["tunnel"], "long");
        assert!(
            reported["classes"][0]["packets_per_s"].is_number(),
            "{reported}"
        );
        assert_eq!(reported["tunnels"][0]["rate_mbit"], 100);
        let none = site.json(&["top", "-i", "0.2", "--filter", "no-such-flow"]);
        assert_eq!(
            (&none["flows_matching"], &none["flows"]),
            (&Value::from(0), &Value::Array(Vec::new()))
        );
    });
}
