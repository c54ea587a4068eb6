//! Several tunnels for a class, between two sites with real agents and real connections.

use crate::support::claims;
use crate::support::pair;
use crate::support::pauses;
use crate::support::several;
use crate::support::site;
use crate::support::two_each;
use std::time::Duration;

use claims::{FAILOVER_IN_TIME, TAKES_OVER};
use flow_testbed::claim;
use flow_testbed::require;
use flow_testbed::require::Requirement::{NftRule, Program};
use nix::sys::signal::Signal;
use pair::{cut_at, decide_on_pair, mend_at};
use pauses::FAILOVER;
use serde_json::Value;
use several::{COUNTS, Flows, Kind, Seen, add_tunnel, families, sections, share_of};
use site::{on_site, stdout};
use two_each::{
    LONG, SHORT, claim_failover, in_use, pauses_of, reported_tunnels, run_both, two_for_each,
    wait_for_use,
};

#[test]
fn flows_are_spread_by_weight_and_keep_their_tunnel() {
    require!(Program("nft"), NftRule(COUNTS));
    on_site(|site| {
        two_for_each(site);
        site.configure(&sections(site, 0, [&SHORT, &LONG], false));
        let before = site.routing();
        let daemon = site.run();
        let seen = Seen::at(&site.topology.borders[1].namespace);
        for &is_ipv6 in families(site) {
            let mut flows = Flows::open(site, is_ipv6, 400);
            flows.send(400, 1);
            let (in_first, all) = share_of(&seen.flows(is_ipv6, flows.to_port), ["tun0", "tun2"]);
            println!("{in_first} of {all} short flows in tun0");
            assert_eq!(all, 400);
            // Nearly seven standard deviations about 300.
            assert!((240..=360).contains(&in_first), "{in_first}");

            flows.send(64, 400_000);
            let ways = seen.flows(is_ipv6, flows.to_port);
            let (in_first, all) = share_of(&ways, ["tun1", "tun3"]);
            println!("{in_first} of {all} long flows in tun1");
            assert_eq!(all, 64, "{ways:?}");
            // Nearly six about 48; and 64 would be one in a hundred million.
            assert!((28..=63).contains(&in_first), "{in_first}");
            // While they were short they had one tunnel, too, and most of them is in the other.
            assert_eq!(share_of(&ways, ["tun0", "tun2"]).1, 400);
            let of = |device: &str| ways.values().filter_map(|it| it.get(device)).sum::<u64>();
            let (short, long) = (of("tun0") + of("tun2"), of("tun1") + of("tun3"));
            println!("{short} packets in the short tunnels, {long} in the long ones");
            assert!(long > 64 * 100, "{long}");
        }
        let plan = site.json(&["plan"]);
        assert_eq!(plan["changed"], false, "{plan}");
        assert_eq!(plan["plan"]["routes"]["notes"], serde_json::json!([]));
        let devices = |reported: &Value| -> Vec<String> {
            let rows = reported["tunnels"].as_array().expect("a list").iter();
            rows.map(|it| format!("{} {} {}", it["tunnel"], it["device"], it["weight"]))
                .collect()
        };
        let expected = [
            "\"short\" \"tun0\" 3",
            "\"short\" \"tun2\" 1",
            "\"long\" \"tun1\" 3",
            "\"long\" \"tun3\" 1",
        ];
        assert_eq!(devices(&plan), expected);
        assert_eq!(devices(&site.json(&["top", "--once"])), expected);
        assert_eq!(devices(&site.json(&["status"])["health"]), expected);
        assert_eq!(in_use(site).len(), 4);
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn dead_tunnel_leaves_its_class_within_a_second_and_its_flows_go_on_by_the_others() {
    require!(Program("nft"), NftRule(COUNTS));
    decide_on_pair(&FAILOVER_IN_TIME, |pair| {
        let (near, _far) = run_both(pair);
        let site = pair.site;
        let home = site.routing();
        let seen = Seen::at(pair.far());
        let mut flows = Flows::open(site, false, 60);
        flows.send(60, 100);
        let before = seen.flows(false, flows.to_port);
        let (in_first, all) = share_of(&before, ["tun0", "tun2"]);
        assert!(all == 60 && (1..60).contains(&in_first), "{before:?}");

        let pauses = pauses_of(site, 16, || {
            cut_at(pair.far(), "tun0", "drop").expect("it was tried");
            std::thread::sleep(Duration::from_millis(1_500));
        });
        claim_failover(&pauses, &near)?;
        pair.wait_for_seats("short", "long");
        wait_for_use(site, &["tun1", "tun2", "tun3"]);
        flows.send(60, 100);
        let after = seen.flows(false, flows.to_port);
        for (port, ways) in &before {
            let now: Vec<_> = after[port].keys().collect();
            let expected: &[&str] = match ways.contains_key("tun0") {
                true => &["tun0", "tun2"],
                // Who was not in it does not notice.
                false => &["tun2"],
            };
            claim!(
                now == expected,
                "{port}: {now:?}, {health}",
                health = pair.health()
            );
        }
        let health = pair.health();
        let expected = serde_json::json!([{
            "unix_ms": health["moves"][0]["unix_ms"], "site": "default", "class": "short",
            "from": "short", "to": "short", "left": ["tun0"], "taken_up": [],
            "reason": "tun0 is down, no answer",
        }]);
        claim!(health["moves"] == expected, "{health}");
        let of = |name: &str, device: &str| {
            let labels = format!("{{tunnel=\"short\",device=\"{device}\",site=\"default\"}}");
            site.metric(&format!("splitter_{name}{labels}"))
        };
        assert_eq!(
            (of("tunnel_up", "tun0"), of("tunnel_up", "tun2")),
            (0.0, 1.0)
        );
        assert_eq!(
            (of("tunnel_in_use", "tun0"), of("tunnel_in_use", "tun2")),
            (0.0, 1.0)
        );
        claim!(of("tunnel_downs_total", "tun0") == 1.0, "{}", near.log());
        assert_eq!(site.json(&["status"])["in_place"], true);

        mend_at(pair.far(), "tun0");
        wait_for_use(site, &["tun0", "tun1", "tun2", "tun3"]);
        assert_eq!(site.routing(), home);
        flows.send(60, 100);
        // Each is where it was.
        let again = seen.flows(false, flows.to_port);
        for (port, ways) in &before {
            let is_first = ways.contains_key("tun0");
            let way = if is_first { "tun0" } else { "tun2" };
            let (now, before) = (&again[port], &after[port]);
            assert!(now[way] > before[way], "{port}: {now:?}");
        }
        Ok(())
    });
}

#[test]
fn class_goes_to_the_other_ones_survivors_only_when_all_its_tunnels_are_dead() {
    require!(Program("nft"), NftRule(COUNTS));
    decide_on_pair(&FAILOVER_IN_TIME, |pair| {
        let (near, far) = run_both(pair);
        let site = pair.site;
        let home = site.routing();
        let mut flows = Flows::open(site, false, 40);
        flows.send(40, 100);
        for device in ["tun3", "tun0"] {
            cut_at(pair.far(), device, "drop").expect("it was tried");
        }
        wait_for_use(site, &["tun1", "tun2"]);
        pair.wait_for_seats("short", "long");
        let pauses = pauses_of(site, 4, || {
            cut_at(pair.far(), "tun2", "drop").expect("it was tried");
            std::thread::sleep(Duration::from_millis(1_500));
        });
        claim_failover(&pauses, &near)?;
        pair.wait_for_seats("long", "long");
        wait_for_use(site, &["tun1"]);
        assert_eq!(site.get("/ready").expect("it answers").0, 200);
        let seen = Seen::at(pair.far());
        flows.send(40, 100);
        let ways = seen.flows(false, flows.to_port);
        let all_there = ways.values().all(|it| it.keys().eq(["tun1"]));
        claim!(all_there, "{ways:?}\n{}", near.log());
        let moves = "splitter_class_moves_total{class=\"short\",tunnel=\"long\",site=\"default\"}";
        claim!(site.metric(moves) == 1.0, "{}", near.log());

        // One is enough to come home to.
        mend_at(pair.far(), "tun2");
        pair.wait_for_seats("short", "long");
        wait_for_use(site, &["tun1", "tun2"]);
        for device in ["tun3", "tun0"] {
            mend_at(pair.far(), device);
        }
        wait_for_use(site, &["tun0", "tun1", "tun2", "tun3"]);
        assert_eq!(site.routing(), home);
        flows.send(40, 100);
        let mut reported = reported_tunnels(site);
        let reported = reported
            .find(|it| it["device"] == "tun0")
            .expect("it is in the report");
        claim!(reported["downs"] == 1, "{reported}\n{}", near.log());
        assert!(near.end(Signal::SIGTERM).success());
        assert!(far.end(Signal::SIGTERM).success());
        Ok(())
    });
}

#[test]
fn agent_after_a_killed_one_leaves_dead_tunnels_out() {
    require!(Program("nft"), NftRule(COUNTS));
    decide_on_pair(&TAKES_OVER, |pair| {
        let (near, _far) = run_both(pair);
        let site = pair.site;
        cut_at(pair.far(), "tun0", "drop").expect("it was tried");
        wait_for_use(site, &["tun1", "tun2", "tun3"]);
        let moved = site.routing();
        near.end(Signal::SIGKILL);
        assert_eq!(site.json(&["plan"])["changed"], false);
        let second = site.run();
        claim!(site.routing() == moved, "{}", second.log());
        std::thread::sleep(Duration::from_millis(1_500));
        claim!(site.routing() == moved, "{}", second.log());
        mend_at(pair.far(), "tun0");
        wait_for_use(site, &["tun0", "tun1", "tun2", "tun3"]);
        assert_ne!(site.routing(), moved);
        Ok(())
    });
}

#[test]
fn device_of_one_tunnel_that_is_deleted_leaves_the_others_their_class() {
    require!(Program("nft"), NftRule(COUNTS));
    decide_on_pair(&FAILOVER_IN_TIME, |pair| {
        let (near, _far) = run_both(pair);
        let site = pair.site;
        let pauses = pauses_of(site, 16, || {
            std::thread::sleep(Duration::from_millis(300));
            site.border().run("ip link del tun2").expect("it is there");
            std::thread::sleep(Duration::from_millis(1_200));
        });
        let longest = pauses.iter().max().expect("there are some");
        println!("the longest pause was {longest:?}");
        claim!(*longest <= FAILOVER, "{pauses:?}\n{}", near.log());
        wait_for_use(site, &["tun0", "tun1", "tun3"]);
        assert_eq!(site.json(&["status"])["in_place"], true);
        add_tunnel(site, 2, Kind::Veth, 1_500);
        wait_for_use(site, &["tun0", "tun1", "tun2", "tun3"]);
        assert_eq!(site.json(&["plan"])["changed"], false);
        Ok(())
    });
}

#[test]
fn tunnels_are_added_and_removed_while_connections_go_on() {
    require!(Program("nft"), NftRule(COUNTS));
    on_site(|site| {
        two_for_each(site);
        site.configure("");
        let before = site.routing();
        let daemon = site.run();
        let mut flows = Flows::open(site, false, 40);
        flows.send(40, 100);
        for tunnels in [
            [&SHORT[..], &LONG],
            [&SHORT[1..], &LONG],
            [&SHORT, &LONG[..1]],
        ] {
            site.configure(&sections(site, 0, tunnels, false));
            let reported = site.json(&["reload"]);
            assert_eq!(reported["applied"], true, "{reported}");
            let devices = tunnels.iter().copied().flatten();
            let devices: Vec<_> = devices.map(|it| format!("tun{}", it.number)).collect();
            let devices: Vec<_> = devices.iter().map(String::as_str).collect();
            wait_for_use(site, &devices);
            assert_eq!(site.json(&["plan"])["changed"], false);
            flows.send(40, 100);
        }
        // It is listed with its tunnels.
        site.refused(&["set", "short.rate_mbit", "50"], 3);
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn hash_of_addresses_alone_is_reported_by_plan_doctor_up_and_run() {
    require!(Program("nft"), NftRule(COUNTS));
    on_site(|site| {
        two_for_each(site);
        let key = "net.ipv4.fib_multipath_hash_policy";
        site.border().sysctl(key, "0").expect("it is there");
        site.configure(&sections(site, 0, [&SHORT, &LONG], false));
        let remedy = format!("sysctl {key}=1");
        for arguments in [&["plan"][..], &["doctor"], &["up"]] {
            let reported = stdout(&site.splitter(arguments));
            assert!(reported.contains(&remedy), "{arguments:?}: {reported}");
        }
        let daemon = site.run();
        assert!(daemon.log().contains(&remedy), "{}", daemon.log());
        drop(daemon);
        site.border().sysctl(key, "1").expect("it is there");
        let reported = stdout(&site.splitter(&["doctor"]));
        assert!(!reported.contains(&remedy), "{reported}");
        assert!(site.splitter(&["down"]).status.success());
    });
}
