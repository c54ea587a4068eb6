//! What `explain`, `status`, `doctor`, `plan` and `verify` say of redirected packets that choose, held against what becomes
//! of packets; and next hops that nobody has used yet.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::*;
use crate::verify::{assert_taken, paths, verify};

/// What `explain` says of both classes between the hosts, over IPv4.
fn explained(site: &Site) -> [Value; 2] {
    let ends = [&site.topology.client, &site.topology.server];
    explained_between(site, ends.map(|it| it.ipv4.into()))
}

fn explained_between(site: &Site, ends: [IpAddr; 2]) -> [Value; 2] {
    let ends = ends.map(|it| it.to_string());
    let said = site.splitter(&["explain", "--json", &ends[0], &ends[1]]);
    let explanation: Value = serde_json::from_slice(&said.stdout).expect("it is JSON");
    assert_eq!(
        explanation["paths"].as_array().map(Vec::len),
        Some(2),
        "{explanation}"
    );
    [0, 1].map(|it| explanation["paths"][it].clone())
}

/// Waits until it says of both that no packet chooses, for that reason.
fn wait_for_no_choice(site: &Site, reason: &str) {
    site.wait_for(&format!("`explain` to say: {reason}"), || {
        let is_said = |path: &Value| {
            path["no_choice"]
                .as_str()
                .is_some_and(|it| it.contains(reason))
        };
        let paths = explained(site);
        let chooses = |it: &Value| !it["balance"].is_null() || it["tunnels"] != json!([]);
        (paths.iter().any(is_said) && !paths.iter().any(chooses)).then_some(())
    });
}

/// Packets over IPv4 that chose while some were sent.
fn chosen_of_some(site: &Site) -> u64 {
    let before = chosen(site);
    connection(site, site.topology.server.ipv4.into()).send(200_000);
    chosen(site) - before
}

/// A default route that IPv6's rules pass over and that programs are led by all the same.
fn ipv6_by_a_route_of_the_main_table_chooses_nothing(site: &Site) {
    let ends = [&site.topology.client, &site.topology.server].map(|it| it.ipv6);
    let [Some(client), Some(server)] = ends else {
        return;
    };
    let border = site.border();
    border
        .run("ip -6 route add default dev tun0")
        .expect("root");
    site.wait_for("`explain` to say by which route IPv6 goes", || {
        let is_led_past = |path: &Value| {
            let reason = path["no_choice"].as_str().unwrap_or_default();
            let by = "the main table leads IPv6 to ::/0 by tun0";
            reason.contains(by) && path["tunnels"] == json!([])
        };
        let paths = explained_between(site, [client.into(), server.into()]);
        paths.iter().all(is_led_past).then_some(())
    });
    border.run("ip -6 route del default").expect("it is there");
}

#[test]
fn explanation_names_the_tunnels_that_packets_get_into_and_else_says_why_none_chooses() {
    on_site(|site| {
        without_offloads(site);
        be_redirectable(site, &TUNNELS);
        site.configure(&choosing_by(site, "drb"));
        site.json(&["up"]);
        wait_for_no_choice(site, "no agent vouches");
        let notes = site.json(&["status"])["redirected"]["choice"]["nobody_because"].clone();
        assert!(
            notes.as_str().is_some_and(|it| it.contains("no agent")),
            "{notes}"
        );
        assert_eq!(chosen_of_some(site), 0);
        let daemon = site.run();
        wait_until_chosen(site);
        // An agent that waits for a processor vouches for nothing meanwhile.
        site.wait_for("`explain` to name both tunnels", || {
            let chooses = |path: &Value| {
                path["balance"] == "drb"
                    && path["tunnels"] == json!(TUNNELS)
                    && path["longest_bytes"] == 1_500
                    && path["not_taken"] == json!([])
            };
            explained(site).iter().all(chooses).then_some(())
        });
        ipv6_by_a_route_of_the_main_table_chooses_nothing(site);
        // Packets of 1,500 bytes fit one of them alone.
        site.border()
            .run("ip link set tun1 mtu 1400")
            .expect("it can");
        site.wait_for("what chooses to be shorter", || {
            explained(site)
                .iter()
                .all(|it| it["longest_bytes"] == 1_400)
                .then_some(())
        });
        // Until the sender has learnt the smaller one's.
        assert!(fallbacks(site, "too_large") == 0.0);
        site.wait_for("a packet to be too long", || {
            chosen_of_some(site);
            (fallbacks(site, "too_large") > 0.0).then_some(())
        });
        site.wait_for("`status` to say up to which length packets choose", || {
            let said = stdout(&site.splitter(&["status"]));
            said.contains("IPv4 packets of more than 1400 bytes do not choose")
                .then_some(())
        });
        for command in ["plan", "doctor"] {
            let said = stdout(&site.splitter(&[command]));
            assert!(
                said.contains("the MTU of tun1 is 1400, less than"),
                "{command}: {said}"
            );
        }
        site.border()
            .run("ip link set tun1 mtu 1500")
            .expect("it can");
        // A route of somebody's leads both classes by one tunnel, which takes the short one alone.
        let rule = format!("to {} lookup main priority 500", site.topology.server.ipv4);
        site.border()
            .run(&format!("ip rule add {rule}"))
            .expect("root");
        wait_for_no_choice(site, "leads long packets to no device");
        // The programs go by what they have looked up until the agent has heard of the rule.
        site.wait_for("no packet to choose", || {
            (chosen_of_some(site) == 0).then_some(())
        });
        site.border()
            .run(&format!("ip rule del {rule}"))
            .expect("root");
        wait_until_chosen(site);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

/// With health checks off, so that nobody else asks.
#[test]
fn next_hop_that_is_stale_from_before_is_asked_though_no_packet_shows_that_it_is_needed() {
    on_site(|site| {
        be_redirectable(site, &TUNNELS);
        let off = "[health]\nenabled = false\n";
        site.configure(&(choosing_by(site, "rps") + off));
        let far = &site.topology.borders[1].namespace;
        let shown = far.run("ip -o link show tun1").expect("it is there");
        let mut words = shown
            .split_whitespace()
            .skip_while(|it| *it != "link/ether");
        let mac = words.nth(1).expect("it has a link address");
        let gateways = site.topology.borders[0].gateway_addresses(1);
        for gateway in &gateways {
            let line = format!("ip neigh replace {gateway} lladdr {mac} dev tun1 nud stale");
            site.border().run(&line).expect("the kernel takes it");
        }
        let daemon = site.run();
        for gateway in &gateways {
            site.wait_for("somebody to ask the next hop", || {
                let line = format!("ip neigh show {gateway} dev tun1");
                let state = site.border().run(&line).expect("it is known");
                state.contains("REACHABLE").then_some(())
            });
        }
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn probes_that_leave_by_the_tunnel_of_the_other_class_are_wrong_though_packets_may_choose_it() {
    on_site(|site| {
        be_redirectable(site, &TUNNELS);
        site.configure(&choosing_by(site, "drb"));
        site.json(&["up"]);
        let server = site.topology.server.ipv4.to_string();
        let (code, report) = verify(site, &["--to", &server]);
        assert_eq!(code, 0, "{report:#}");
        for (class, device) in [("short", TUNNELS[0]), ("long", TUNNELS[1])] {
            for path in paths(&report, class) {
                assert_eq!(path["intended"], json!([device]), "{path}");
                assert_taken(path, device);
            }
        }
        let rule = format!("to {server} lookup main priority 500");
        site.border()
            .run(&format!("ip rule add {rule}"))
            .expect("root");
        let (code, report) = verify(site, &["--to", &server]);
        assert_eq!(code, 1, "{report:#}");
        for path in paths(&report, "long") {
            assert_eq!(path["verdict"], "wrong", "{path}");
            assert_taken(path, TUNNELS[0]);
        }
        site.border()
            .run(&format!("ip rule del {rule}"))
            .expect("root");
        // What opens a connection is never redirected: where none is seen leaving, none leaves.
        let rule = format!("to {server} prohibit priority 500");
        site.border()
            .run(&format!("ip rule add {rule}"))
            .expect("root");
        let (code, report) = verify(site, &["--to", &server]);
        assert_eq!(code, 1, "{report:#}");
        for path in paths(&report, "short").chain(paths(&report, "long")) {
            assert_eq!(path["verdict"], "wrong", "{path}");
            let why = path["why"].as_str().unwrap_or_default();
            assert!(why.contains("was seen leaving the border"), "{why}");
        }
        site.border()
            .run(&format!("ip rule del {rule}"))
            .expect("root");
        site.json(&["down"]);
    });
}
