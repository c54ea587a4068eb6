//! A border that is itself overloaded, and what it makes of answers that do not come.

use crate::support::claims;
use crate::support::full_backlog;
use crate::support::pair;
use std::time::Duration;

use claims::STOPPED_AGENT_MOVES_NOTHING;
use flow_testbed::claim;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::timed::disturb;
use full_backlog::FullBacklog;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pair::{Pair, QUICK, decide_on_pair, on_pair};

/// Several times what it takes to give a tunnel up.
const LONG: Duration = Duration::from_secs(4);

fn signs(pair: &Pair<'_>, reason: &str) -> f64 {
    let name = "splitter_overload_signs_total{reason=";
    pair.site.metric(&format!("{name}\"{reason}\"}}"))
}

#[test]
fn missing_answers_move_no_class_while_packets_are_dropped_at_this_machine() {
    require!(Program("nft"));
    let Some(_alone) = disturb() else { return };
    on_pair(|pair| {
        let site = pair.site;
        let (near, _far) = pair.run(QUICK);
        pair.wait_for_echo();
        let home = site.routing();
        let flood = FullBacklog::start(Duration::from_millis(100));
        site.wait_for("a sign of overload", || {
            (signs(pair, "backlog_dropped") > 0.0).then_some(())
        });
        pair.cut("tun1", "drop").expect("it was tried");
        site.wait_for("the long tunnel to be unknown", || {
            let health = pair.health();
            let moves = health["moves"].as_array().map(Vec::len);
            assert_eq!(moves, Some(0), "{health}");
            (health["tunnels"][1]["condition"] == "unknown").then_some(())
        });
        std::thread::sleep(LONG);
        let health = pair.health();
        assert_eq!(health["tunnels"][1]["condition"], "unknown", "{health}");
        assert_ne!(health["tunnels"][0]["condition"], "down", "{health}");
        assert_eq!(
            health["moves"].as_array().map(Vec::len),
            Some(0),
            "{health}"
        );
        assert_eq!(site.routing(), home);
        assert_eq!(site.get("/ready").expect("it answers").0, 200);
        let labels = "{tunnel=\"long\",device=\"tun1\",site=\"default\"}";
        assert_eq!(
            site.metric(&format!("splitter_tunnel_unknown{labels}")),
            1.0
        );
        assert_eq!(site.metric(&format!("splitter_tunnel_up{labels}")), 1.0);
        let overload = health["overload"].as_str().expect("words");
        assert!(overload.contains("packets that had arrived"), "{overload}");
        let log = near.log();
        assert!(log.contains("this machine is overloaded: CPU"), "{log}");

        // A tunnel that is really dead is found out once the machine has room again.
        drop(flood);
        pair.wait_for_seats("short", "short");
        pair.mend("tun1");
        pair.wait_for_seats("short", "long");
        assert_eq!(site.routing(), home);
        assert!(near.end(Signal::SIGTERM).success());
    });
}

#[test]
fn agent_that_was_stopped_for_long_moves_no_class() {
    require!(Program("nft"));
    decide_on_pair(&STOPPED_AGENT_MOVES_NOTHING, |pair| {
        let (near, _far) = pair.run(QUICK);
        pair.wait_for_echo();
        let agent = Pid::from_raw(near.id().cast_signed());
        for _ in 0..3 {
            kill(agent, Signal::SIGSTOP).expect("it is ours");
            std::thread::sleep(Duration::from_secs(2));
            kill(agent, Signal::SIGCONT).expect("it is ours");
            pair.wait_for_echo();
        }
        assert!(signs(pair, "agent_late") >= 3.0, "{}", near.log());
        let health = pair.health();
        let moves = health["moves"].as_array().map(Vec::len);
        claim!(moves == Some(0), "{health}");
        claim!(health["tunnels"][0]["downs"] == 0, "{health}");
        assert!(near.end(Signal::SIGTERM).success());
        Ok(())
    });
}
