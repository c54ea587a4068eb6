//! Tunnels that die, lose packets and come back, between two real agents.

use crate::support::claims;
use crate::support::pair;
use crate::support::pauses;
use crate::support::site;
use std::time::{Duration, Instant};

use claims::{FAILOVER_IN_TIME, FLAPPING_MOVES_LITTLE, LOSSY_STAYS_UP, TAKES_OVER};
use flow_testbed::claim;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use pair::{QUICK, cut_at, decide_on_pair, mend_at, on_pair};
use pauses::{FAILOVER, PERIOD, longest_pause};
use serde_json::Value;
use site::Connection;

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn class_of_a_dead_tunnel_moves_within_a_second_and_returns() {
    require!(Program("nft"));
    decide_on_pair(&FAILOVER_IN_TIME, |pair| {
        let site = pair.site;
        let before = site.routing();
        let (near, far) = pair.run(QUICK);
        pair.wait_for_echo();
        let home = site.routing();
        let (client, server) = (&site.topology.client, &site.topology.server);

        // Each way is cut where what takes it arrives; the other way stays open.
        for (from, to, border) in [
            (client, server, pair.far()),
            (server, client, site.border()),
        ] {
            let pause = longest_pause([from, to], || {
                cut_at(border, "tun0", "drop").expect("it was tried");
                std::thread::sleep(Duration::from_millis(1_500));
            });
            println!("the longest pause was {pause:?}");
            assert!(pause > PERIOD * 10, "nothing was cut");
            claim!(pause <= FAILOVER, "{pause:?}\n{}", near.log());
            pair.wait_for_seats("long", "long");
            assert_ne!(site.routing(), home);

            let mended = Instant::now();
            mend_at(border, "tun0");
            pair.wait_for_seats("short", "long");
            assert!(
                mended.elapsed() >= Duration::from_secs(1),
                "before its hold-down"
            );
            // What both borders do, but for when.
            site.wait_for("the far side", || {
                let far = pair.site.path("far-log");
                let log = std::fs::read_to_string(far).expect("it is there");
                log.contains("from the long tunnel to the short tunnel")
                    .then_some(())
            });
            assert_eq!(site.routing(), home);
        }

        let health = pair.health();
        // Nothing else has moved; what a machine that stands still makes of it is no fault.
        claim!(health["tunnels"][0]["downs"] == 2, "{health}");
        let moves = health["moves"].as_array().map(Vec::len);
        claim!(moves == Some(4), "{health}");
        let reason = health["moves"][0]["reason"].as_str().expect("words");
        assert_eq!(reason, "tun0 is down, no answer");
        let moves = "splitter_class_moves_total{class=\"short\",tunnel=";
        assert_eq!(
            site.metric(&format!("{moves}\"long\",site=\"default\"}}")),
            2.0
        );
        assert_eq!(
            site.metric(&format!("{moves}\"short\",site=\"default\"}}")),
            2.0
        );
        assert_eq!(
            site.metric(
                "splitter_tunnel_downs_total{tunnel=\"short\",device=\"tun0\",site=\"default\"}"
            ),
            2.0
        );
        let of_long = |name: &str| {
            let labels = "{tunnel=\"long\",device=\"tun1\",site=\"default\"}";
            site.metric(&format!("splitter_{name}{labels}"))
        };
        let downs = of_long("tunnel_downs_total");
        claim!(downs == 0.0, "the long tunnel went down {downs} times");
        let lost = "splitter_probes_lost_total{tunnel=\"short\",device=\"tun0\",site=\"default\"}";
        assert!(site.metric(lost) > 10.0);
        let round_trip = of_long("tunnel_round_trip_seconds");
        claim!((0.0..0.1).contains(&round_trip), "{round_trip}");
        let jitter = of_long("tunnel_jitter_seconds");
        claim!((0.0..0.1).contains(&jitter), "{jitter}");
        let of_class = |class: &str, part: &str| {
            let labels = format!("{{class=\"{class}\",site=\"default\"}}");
            site.metric(&format!("splitter_class_jitter_seconds_{part}{labels}"))
        };
        // The long class was in no other tunnel, and met what its own has.
        let met = of_class("long", "count");
        let sent = of_long("probes_sent_total");
        assert!(met < sent, "{met} of {sent}");
        for class in ["short", "long"] {
            let (count, sum_s) = (of_class(class, "count"), of_class(class, "sum"));
            assert!(count > 10.0, "{class}: {count}");
            claim!(
                (0.0..0.1).contains(&(sum_s / count)),
                "{class}: {sum_s} s of {count}"
            );
        }

        assert!(near.end(Signal::SIGTERM).success());
        assert!(far.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
        assert!(!site.path("run/test/health.json").exists());
        Ok(())
    });
}

#[test]
fn long_flow_goes_on_when_its_tunnel_dies() {
    require!(Program("nft"));
    on_pair(|pair| {
        let (_near, _far) = pair.run(QUICK);
        pair.wait_for_echo();
        let mut connection = Connection::open(&pair.site.topology);
        connection.send(400_000);
        pair.cut("tun1", "drop").expect("it was tried");
        connection.send(400_000);
        pair.wait_for_seats("short", "short");
        connection.send(400_000);
        pair.mend("tun1");
        pair.wait_for_seats("short", "long");
        connection.send(400_000);
    });
}

#[test]
fn packets_follow_the_main_table_when_both_tunnels_are_dead() {
    require!(Program("nft"));
    on_pair(|pair| {
        let site = pair.site;
        let (near, _far) = pair.run(QUICK);
        pair.wait_for_echo();
        let home = site.routing();
        for device in ["tun0", "tun1"] {
            pair.cut(device, "drop").expect("it was tried");
        }
        pair.wait_for_seats("main", "main");
        assert_eq!(site.get("/ready").expect("it answers").0, 503);
        for table in [10_401, 10_402] {
            let routes = site.border().run(&format!("ip route show table {table}"));
            assert_eq!(routes.unwrap_or_default(), "");
        }
        assert_eq!(site.json(&["status"])["in_place"], true);
        let moved = site
            .metric("splitter_class_moves_total{class=\"short\",tunnel=\"main\",site=\"default\"}");
        assert!(moved >= 1.0, "{}", near.log());

        // The first one to answer gets both, at once, for there is nothing better.
        pair.mend("tun1");
        pair.wait_for_seats("long", "long");
        assert_eq!(site.get("/ready").expect("it answers").0, 200);
        pair.mend("tun0");
        pair.wait_for_seats("short", "long");
        assert_eq!(site.routing(), home);
    });
}

#[test]
fn lossy_tunnels_keep_their_classes() {
    require!(Program("nft"));
    decide_on_pair(&LOSSY_STAYS_UP, |pair| {
        let _agents = pair.run(QUICK);
        pair.wait_for_echo();
        for device in ["tun0", "tun1"] {
            let rule = "numgen random mod 100 < 30 drop";
            pair.cut(device, rule).expect("it was tried");
        }
        std::thread::sleep(Duration::from_secs(12));
        let health = pair.health();
        for tunnel in [0, 1] {
            let reported = &health["tunnels"][tunnel];
            claim!(reported["downs"] == 0, "{health}");
            // Suspects are probed faster, so that more is lost than 30 % of the probes of a calm
            // time; far from all of them in any case.
            let loss = number(&reported["loss"]);
            claim!((0.1..0.6).contains(&loss), "{health}");
        }
        let moves = health["moves"].as_array().map(Vec::len);
        claim!(moves == Some(0), "{health}");
        Ok(())
    });
}

#[test]
fn next_hop_and_link_are_the_evidence_where_there_is_no_peer() {
    require!(Program("nft"));
    decide_on_pair(&FAILOVER_IN_TIME, |pair| {
        let site = pair.site;
        pair.configure(false, QUICK);
        // As on a real link, where addresses are resolved.
        for device in ["tun0", "tun1"] {
            site.border()
                .run(&format!("ip neigh flush nud permanent dev {device}"))
                .expect("root");
        }
        let daemon = site.run();
        site.wait_for("the next hops to be asked", || {
            let tunnels = pair.health()["tunnels"].clone();
            let asked = |index: usize| tunnels[index]["evidence"] == "neighbour";
            (asked(0) && asked(1)).then_some(())
        });
        let (client, server) = (&site.topology.client, &site.topology.server);
        let pause = longest_pause([client, server], || {
            std::thread::sleep(Duration::from_millis(500));
            pair.cut("tun0", "drop").expect("it was tried");
            std::thread::sleep(Duration::from_millis(1_500));
        });
        assert!(pause > PERIOD * 10, "nothing was cut");
        claim!(pause <= FAILOVER, "{pause:?}\n{}", daemon.log());
        pair.wait_for_seats("long", "long");
        pair.mend("tun0");
        pair.wait_for_seats("short", "long");

        // A link that goes down is known at once.
        let pause = longest_pause([client, server], || {
            std::thread::sleep(Duration::from_millis(500));
            pair.far()
                .run("ip link set tun0 down")
                .expect("it is there");
            std::thread::sleep(Duration::from_millis(800));
        });
        claim!(
            pause <= Duration::from_millis(400),
            "{pause:?}\n{}",
            daemon.log()
        );
        let health = pair.health();
        let reason = health["moves"]
            .as_array()
            .and_then(|moves| moves.last())
            .expect("a move");
        assert_eq!(reason["reason"], "tun0 is down, link down");
        Ok(())
    });
}

#[test]
fn tunnel_that_goes_down_and_up_a_hundred_times_takes_few_moves() {
    require!(Program("nft"));
    decide_on_pair(&FLAPPING_MOVES_LITTLE, |pair| {
        let site = pair.site;
        let before = site.routing();
        let (near, far) = pair.run(QUICK);
        pair.wait_for_echo();
        let home = site.routing();
        let open = near.descriptors();
        // The far end; its IPv6 address goes with each turn, and nobody needs it there.
        for _ in 0..100 {
            pair.far()
                .run("ip link set tun0 down")
                .expect("it is there");
            std::thread::sleep(Duration::from_millis(10));
            pair.far().run("ip link set tun0 up").expect("it is there");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mac = "02:00:00:09:00:01";
        let neighbour = format!("ip neigh replace 10.9.0.1 lladdr {mac} dev tun0 nud permanent");
        pair.far().run(&neighbour).expect("it is there");
        let moves = pair.health()["moves"].as_array().map(Vec::len);
        pair.wait_for_seats("short", "long");
        let after = pair.health();
        let all = after["moves"].as_array().map(Vec::len).unwrap_or_default();
        println!("{moves:?} moves meanwhile, {all} in all");
        claim!((2..=8).contains(&all), "{after}");
        assert_eq!(site.routing(), home);
        near.wait_for_descriptors(open + 2);
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        assert!(near.end(Signal::SIGTERM).success());
        assert!(far.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
        Ok(())
    });
}

#[test]
fn device_that_is_deleted_and_created_again_gets_its_class_back() {
    require!(Program("nft"));
    decide_on_pair(&FAILOVER_IN_TIME, |pair| {
        let site = pair.site;
        let (near, _far) = pair.run(QUICK);
        pair.wait_for_echo();
        let (client, server) = (&site.topology.client, &site.topology.server);
        let pause = longest_pause([client, server], || {
            std::thread::sleep(Duration::from_millis(300));
            site.border().run("ip link del tun0").expect("it is there");
            std::thread::sleep(Duration::from_millis(1_200));
        });
        claim!(pause <= FAILOVER, "{pause:?}\n{}", near.log());
        pair.wait_for_seats("long", "long");
        site.wait_for("it to be ready", || {
            (site.get("/ready").expect("it answers").0 == 200).then_some(())
        });
        assert_eq!(site.json(&["status"])["in_place"], true);

        site.border()
            .connect("tun0", pair.far(), "tun0")
            .expect("root");
        for (border, own) in [(site.border(), 1), (pair.far(), 2)] {
            let has_ipv6 = site.topology.client.ipv6.is_some();
            border.run("ip link set tun0 up").expect("it is there");
            border
                .run(&format!("ip address add 10.9.0.{own}/24 dev tun0"))
                .expect("root");
            if has_ipv6 {
                let address = format!("ip address add fd00:9:0::{own}/64 dev tun0 nodad");
                border.run(&address).expect("root");
            }
        }
        pair.wait_for_seats("short", "long");
        pair.wait_for_echo();
        assert_eq!(site.json(&["plan"])["changed"], false);
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        Ok(())
    });
}

#[test]
fn agent_after_a_killed_one_leaves_a_class_out_of_its_dead_tunnel() {
    require!(Program("nft"));
    decide_on_pair(&TAKES_OVER, |pair| {
        let site = pair.site;
        let before = site.routing();
        let (near, far) = pair.run(QUICK);
        pair.wait_for_echo();
        pair.cut("tun0", "drop").expect("it was tried");
        pair.wait_for_seats("long", "long");
        let moved = site.routing();
        near.end(Signal::SIGKILL);
        assert_eq!(site.json(&["plan"])["changed"], false);

        let second = site.run();
        claim!(site.routing() == moved, "{}", second.log());
        std::thread::sleep(Duration::from_millis(1_500));
        let egresses = pair.egresses();
        claim!(egresses == ("long".into(), "long".into()), "{egresses:?}");
        pair.mend("tun0");
        pair.wait_for_seats("short", "long");
        pair.cut("tun1", "drop").expect("it was tried");
        pair.wait_for_seats("short", "short");
        assert!(second.end(Signal::SIGTERM).success());
        assert!(far.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
        Ok(())
    });
}
