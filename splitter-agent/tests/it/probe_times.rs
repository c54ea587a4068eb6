//! What packets that choose reckon with: round trips of probes, of which kernels and the peer tell what is not the path.

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use serde_json::Value as Json;

use crate::balance::balanced;
use crate::support::pair::{Pair, QUICK, on_pair};
use crate::support::site::stdout;

/// More than the answers after which a part that nobody tells is certain to be one.
const ANSWERS: u64 = 30;
/// In the order of the metric: when the probe left, when its answer came, for how long the peer had it, and what is
/// not possible.
const PARTS: [&str; 4] = ["departure", "arrival", "stay", "impossible_stay"];

/// Has packets of the near site choose by what probes measure.
fn configure(pair: &Pair<'_>) {
    let site = pair.site;
    pair.configure(true, QUICK);
    let tunnels = balanced(site, "tr", true).replace("delay_ms = 1\n", "");
    let key = site.path("key");
    site.configure(&format!("{tunnels}[health]\nkey_file = {key:?}\n{QUICK}"));
}

/// The near agent's report of its first tunnel, when many probes were answered.
fn reported(pair: &Pair<'_>) -> Json {
    pair.wait_for_echo();
    pair.site.wait_for("many answers", || {
        let tunnel = pair.health()["tunnels"][0].clone();
        (tunnel["probes_sent"].as_u64()? > ANSWERS).then_some(tunnel)
    })
}

fn untimed(tunnel: &Json, part: &str) -> u64 {
    let index = PARTS.iter().position(|it| *it == part).expect("a part");
    tunnel["untimed_answers"][index].as_u64().expect("a count")
}

#[test]
fn kernels_tell_what_of_a_round_trip_is_not_the_path() {
    require!(Program("nft"));
    on_pair(|pair| {
        configure(pair);
        let far = pair.site.path("far.toml");
        let text = std::fs::read_to_string(&far).expect("it was written");
        let text = format!("balance = 'tr'\n{text}[steering]\nmode = 'mark'\n");
        std::fs::write(&far, text).expect("a file");
        let _far = pair.run_far();
        let near = pair.site.run();
        let tunnel = reported(pair);
        assert_eq!(tunnel["untimed"], serde_json::json!([]), "{tunnel}");
        for part in PARTS {
            // A kernel that has just been asked may not note the first one.
            assert!(untimed(&tunnel, part) <= 2, "{part}: {tunnel}");
        }
        let status = stdout(&pair.site.splitter(&["status"]));
        assert!(!status.contains("than the path"), "{status}");
        assert!(!near.log().contains("than the path"), "{}", near.log());
        assert!(near.end(Signal::SIGTERM).success());
    });
}

#[test]
fn what_the_peer_does_not_tell_is_logged_once_and_shown() {
    require!(Program("nft"));
    on_pair(|pair| {
        configure(pair);
        // Its packets do not choose, so it does not ask its kernel.
        let _far = pair.run_far();
        let near = pair.site.run();
        let tunnel = reported(pair);
        assert_eq!(tunnel["untimed"], serde_json::json!(["stay"]), "{tunnel}");
        let stays = untimed(&tunnel, "stay");
        assert!(
            stays > ANSWERS / 2 && untimed(&tunnel, "departure") <= 2,
            "{tunnel}"
        );
        let status = stdout(&pair.site.splitter(&["status"]));
        assert!(
            status
                .contains("more in it than the path, since nobody tells how long that takes: stay"),
            "{status}"
        );
        let metric = "splitter_tunnel_untimed_answers_total{tunnel=\"short\",device=\"tun0\",\
                      site=\"default\",part=\"stay\"}";
        assert!(pair.site.metric(metric) >= stays as f64, "{tunnel}");
        let logged = || {
            near.log()
                .matches("the peer does not tell for how long")
                .count()
        };
        assert_eq!(logged(), 2, "once for each tunnel: {}", near.log());
        pair.site.wait_for("many more answers", || {
            let tunnel = pair.health()["tunnels"][0].clone();
            (untimed(&tunnel, "stay") > stays + 2 * ANSWERS).then_some(())
        });
        assert_eq!(logged(), 2, "{}", near.log());
        assert!(near.end(Signal::SIGTERM).success());
    });
}

/// It has the agent's nonce still, of which the peer takes no number twice.
#[test]
fn tunnel_that_is_watched_anew_stays_alive() {
    require!(Program("nft"));
    on_pair(|pair| {
        let (near, _far) = pair.run(QUICK);
        let sent = || pair.health()["tunnels"][0]["probes_sent"].as_u64();
        pair.wait_for_echo();
        let many = || sent().filter(|it| *it > ANSWERS);
        let before = pair.site.wait_for("many answers", many);
        pair.configure(true, "hold_down_s = 2\nmax_hold_down_s = 3\n");
        assert_eq!(pair.site.json(&["reload"])["changed"], true);
        // As long as the peer would refuse what it takes for replayed, and silence counts.
        let mut is_anew = false;
        pair.site.wait_for("as many from the start", || {
            let sent = sent()?;
            is_anew |= sent < before;
            (is_anew && sent >= ANSWERS).then_some(())
        });
        assert!(!near.log().contains("tunnel_down"), "{}", near.log());
        assert!(near.end(Signal::SIGTERM).success());
    });
}
