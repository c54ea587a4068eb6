//! An agent that classifies and measures, and touches nothing.

use crate::support::pair;
use crate::support::site;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use pair::{QUICK, on_pair};
use serde_json::json;
use site::{Connection, on_site};

#[test]
fn a_shadow_measures_and_touches_nothing() {
    require!(Program("nft"));
    on_site(|site| {
        let before = site.border().run("ip rule").expect("ip works");
        // Nor need its tunnels exist.
        let text = std::fs::read_to_string(site.config()).expect("a file");
        let text = format!("shadow = true\n{}", text.replace("tun1", "later0"));
        std::fs::write(site.config(), text).expect("a file");
        let daemon = site.run();
        assert_eq!(site.border().run("ip rule").expect("ip works"), before);
        assert_eq!(site.metric("splitter_shadow"), 1.0);

        // What the client marks itself gets to the server as it is, before and after the threshold.
        let server = &site.topology.server;
        let count = |dscp: u8| {
            let chain = server
                .namespace
                .run("nft list chain ip t in")
                .expect("nft works");
            let line = chain
                .lines()
                .find(|line| line.contains(&format!("c{dscp}\"")))
                .unwrap_or_default();
            let mut words = line
                .split_whitespace()
                .skip_while(|word| *word != "packets");
            words
                .nth(1)
                .and_then(|word| word.parse::<u64>().ok())
                .unwrap_or_default()
        };
        let rules = "table ip t { chain in { type filter hook input priority 0;\n\
                     ip dscp 4 counter comment \"c4\"\nip dscp 2 counter comment \"c2\"\n\
                     ip dscp 0 counter comment \"c0\"\n }\n}\n";
        server
            .namespace
            .run_with_input("nft -f -", rules)
            .expect("nft works");
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        assert_eq!((count(4), count(2)), (0, 0));
        assert!(count(0) > 100, "{}", count(0));
        connection.close();

        let status = site.json(&["status"]);
        assert_eq!(
            (&status["shadow"], &status["in_place"]),
            (&true.into(), &true.into())
        );
        assert_eq!(status["flows"]["became_long"], 1);
        assert_eq!(status["completion"][1]["flows"], 1);
        assert!(
            status["completion"][1]["p50_s"].as_f64() > Some(0.0),
            "{status}"
        );

        // To the split and back, while it runs.
        site.configure("shadow = false");
        assert_eq!(site.json(&["reload"])["applied"], true);
        assert_ne!(site.border().run("ip rule").expect("ip works"), before);
        let mut connection = Connection::open(&site.topology);
        connection.send(20_000);
        assert!(count(4) > 10, "{}", count(4));
        site.json(&["set", "shadow", "true"]);
        assert_eq!(site.border().run("ip rule").expect("ip works"), before);
        let marked = count(4);
        connection.send(20_000);
        assert_eq!(count(4), marked);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn shadow_watches_its_tunnels_and_moves_nothing_until_it_splits() {
    require!(Program("nft"));
    on_pair(|pair| {
        let site = pair.site;
        let rules = || {
            let looks = ["ip rule", "ip route show table all"];
            looks.map(|look| site.border().run(look).expect("ip works"))
        };
        let before = rules();
        pair.configure(true, QUICK);
        let text = std::fs::read_to_string(site.config()).expect("a file");
        std::fs::write(site.config(), format!("shadow = true\n{text}")).expect("a file");
        let far = pair.run_far();
        let near = site.run();
        pair.wait_for_echo();
        pair.cut("tun0", "drop").expect("it was tried");
        let condition = |of: &str| {
            site.wait_for("the tunnel's condition", || {
                (pair.health()["tunnels"][0]["condition"] == of).then_some(())
            });
        };
        condition("down");
        let (_, metrics) = site.get("/metrics").expect("it answers");
        assert!(
            metrics.contains(
                "splitter_tunnel_up{tunnel=\"short\",device=\"tun0\",site=\"default\"} 0\n"
            ),
            "{metrics}"
        );
        assert_eq!(site.get("/ready").expect("it answers").0, 200);
        assert_eq!(pair.health()["moves"], json!([]));
        assert_eq!(rules(), before);
        for reported in [
            site.json(&["top", "-i", "0.1"]),
            serde_json::from_str(&site.get("/status.json").expect("it answers").1).expect("JSON"),
        ] {
            // Nothing is routed, so that no class has a place.
            for class in [0, 1] {
                assert!(reported["classes"][class]["tunnel"].is_null(), "{reported}");
            }
        }

        // Once it splits, the class goes where it can.
        site.json(&["set", "shadow", "false"]);
        pair.wait_for_seats("long", "long");
        assert_ne!(rules(), before);
        Connection::open(&site.topology).send(100_000);
        // And back: the routes go, whatever the tunnel does.
        site.json(&["set", "shadow", "true"]);
        assert_eq!(rules(), before);
        pair.mend("tun0");
        condition("up");
        assert_eq!(rules(), before);
        site.json(&["set", "shadow", "false"]);
        pair.wait_for_seats("short", "long");
        assert!(near.end(Signal::SIGTERM).success());
        assert!(far.end(Signal::SIGTERM).success());
        assert_eq!(rules(), before);
    });
}
