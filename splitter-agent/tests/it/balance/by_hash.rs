//! Flows that the programs place among several tunnels of their class, whatever the kernel hashes.

use std::collections::BTreeMap;
use std::time::Duration;

use flow_testbed::require;
use flow_testbed::require::Requirement::{NftRule, Program};
use flow_testbed::require::skip;
use nix::sys::signal::Signal;

use super::by_redirect::wait_until_chosen;
use crate::support::redirected::be_redirectable;
use crate::support::several::{COUNTS, Flows, Seen, Ways, families, main_share_of, sections};
use crate::support::site::{Site, on_site, stdout};
use crate::support::two_each::{LONG, SHORT, two_for_each};

/// Two tunnels for each class, 3 to 1 by weight, at a border whose kernel hashes addresses alone: all flows between
/// two hosts would take one tunnel of a class.
fn placed(site: &Site, mode: &str) {
    two_for_each(site);
    for &is_ipv6 in families(site) {
        let family = if is_ipv6 { "ipv6" } else { "ipv4" };
        let key = format!("net.{family}.fib_multipath_hash_policy");
        site.border().sysctl(&key, "0").expect("it is there");
    }
    let steering = format!("[steering]\nmode = '{mode}'\n");
    let tunnels = sections(site, 0, [&SHORT, &LONG], false);
    site.configure(&format!("balance = 'placement'\n{steering}{tunnels}"));
}

#[test]
fn marked_flows_are_placed_by_weight_and_keep_their_tunnel() {
    are_placed_by_weight("mark", 0);
}

#[test]
fn flows_marked_by_dscp_are_placed_by_weight_and_keep_their_tunnel() {
    are_placed_by_weight("dscp", 0);
}

#[test]
fn redirected_flows_are_placed_by_weight_and_keep_their_tunnel() {
    // What opens a flow goes by the stack, which has a hash of its own.
    are_placed_by_weight("redirect", 3);
}

/// Flows of two hosts are spread in both families, all but so many packets of each in one tunnel of each class.
fn are_placed_by_weight(mode: &str, strays: u64) {
    require!(Program("nft"), NftRule(COUNTS));
    on_site(|site| {
        placed(site, mode);
        let is_redirected = mode == "redirect";
        if is_redirected {
            be_redirectable(site, &["tun0", "tun1", "tun2", "tun3"]);
        }
        let before = site.routing();
        let plan = stdout(&site.splitter(&["plan"]));
        assert!(!plan.contains("fib_multipath_hash_policy"), "{plan}");
        let daemon = site.run();
        if is_redirected {
            wait_until_chosen(site);
        }
        let seen = Seen::at(&site.topology.borders[1].namespace);
        for &is_ipv6 in families(site) {
            let mut flows = Flows::open(site, is_ipv6, 200);
            (0..4).for_each(|_| flows.send(200, 1));
            let ways = || seen.flows(is_ipv6, flows.to_port);
            let (in_first, all) = main_share_of(&ways(), ["tun0", "tun2"], strays);
            println!("{mode}: {in_first} of {all} short flows in tun0");
            assert_eq!(all, 200);
            // Six standard deviations about 150.
            assert!((113..=187).contains(&in_first), "{in_first}");

            // A flow that would overtake itself in its long tunnel is held until it pauses.
            flows.send(64, 400_000);
            flows.send(64, 30_000);
            let ways = seen.flows(is_ipv6, flows.to_port);
            let (in_first, all) = main_share_of(&ways, ["tun1", "tun3"], strays);
            println!("{mode}: {in_first} of {all} long flows in tun1");
            assert_eq!(all, 64, "{ways:?}");
            // Nearly six about 48; and 64 would be one in a hundred million.
            assert!((28..=63).contains(&in_first), "{in_first}");
            let of = |device: &str| ways.values().filter_map(|it| it.get(device)).sum::<u64>();
            let (short, long) = (of("tun0") + of("tun2"), of("tun1") + of("tun3"));
            println!("{mode}: {short} packets in the short tunnels, {long} in the long ones");
            assert!(long > 64 * 100, "{long}");
        }
        says_so(site);
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn flows_of_a_tunnel_whose_device_is_down_go_on_by_another_while_no_agent_runs() {
    require!(Program("nft"), NftRule(COUNTS));
    for mode in ["mark", "dscp"] {
        on_site(|site| {
            placed(site, mode);
            assert!(site.splitter(&["up"]).status.success());
            let seen = Seen::at(&site.topology.borders[1].namespace);
            for &is_ipv6 in families(site) {
                let mut flows = Flows::open(site, is_ipv6, 60);
                let of_second = |ways: &BTreeMap<u16, Ways>| {
                    let those = ways.iter().filter(|(_, it)| it.contains_key("tun2"));
                    those
                        .map(|(port, it)| (*port, it.clone()))
                        .collect::<Vec<_>>()
                };
                let before = of_second(&seen.flows(is_ipv6, flows.to_port));
                assert!(!before.is_empty() && before.iter().all(|(_, it)| it.len() == 1));
                let run = |line: &str| site.border().run(line).expect("it is there");
                run("ip link set tun2 down");
                flows.send(60, 1);
                let after = of_second(&seen.flows(is_ipv6, flows.to_port));
                assert_eq!(after.len(), before.len());
                assert!(
                    after.iter().all(|(_, it)| it.contains_key("tun0")),
                    "{after:?}"
                );
                run("ip link set tun2 up");
                if site.topology.client.ipv6.is_some() {
                    // The kernel took them away.
                    for address in ["fd00:9:2::1", "fe80::1"] {
                        run(&format!("ip address add {address}/64 dev tun2 nodad"));
                    }
                }
                // So it did with the routes, and no agent puts them back.
                assert!(site.splitter(&["up"]).status.success());
            }
            assert!(site.splitter(&["down"]).status.success());
        });
    }
}

#[test]
fn flows_of_hosts_that_share_the_kernel_keep_their_tunnel_as_long_as_their_sockets_keep_the_hash() {
    require!(Program("nft"), NftRule(COUNTS));
    on_site(|site| {
        if let Err(error) = site.topology.client.namespace.sysctl(REHASH, "1") {
            let test = concat!(
                env!("CARGO_CRATE_NAME"),
                "::balance::by_hash::",
                "flows_of_hosts_that_share_the_kernel_keep_their_tunnel_as_long_as_their_sockets_keep_the_hash"
            );
            return skip(test, &format!("{error}; use Linux 5.18 or later"));
        }
        placed(site, "mark");
        assert!(site.splitter(&["up"]).status.success());
        let (client, far) = (&site.topology.client, &site.topology.borders[1].namespace);
        let seen = Seen::at(far);
        for &is_ipv6 in families(site) {
            // Whether Linux draws it anew after a timeout, as it does by itself.
            let changed = ["0", "1"].map(|draws_anew| {
                let set = client.namespace.sysctl(REHASH, draws_anew);
                set.expect("it is there");
                let mut flows = Flows::open(site, is_ipv6, 60);
                flows.send(60, 1);
                far.run_with_input("nft -f -", CUT).expect("it was tried");
                flows.send_during(|| {
                    // Three timeouts and more, of 200 ms at first.
                    std::thread::sleep(Duration::from_millis(1_500));
                    far.run("nft delete table inet cut").expect("it is there");
                });
                let ways = seen.flows(is_ipv6, flows.to_port);
                assert_eq!(ways.len(), 60);
                ways.values().filter(|it| it.len() > 1).count()
            });
            println!("{changed:?} of 60 flows were in both tunnels");
            assert_eq!(changed[0], 0);
            assert!(changed[1] > 0);
        }
        assert!(site.splitter(&["down"]).status.success());
    });
}

/// Whether a socket draws its hash anew after a timeout, where it does not say so itself.
const REHASH: &str = "net.core.txrehash";

/// Drops what comes by the tunnels before it is seen.
const CUT: &str = "table inet cut {
chain cut {
type filter hook prerouting priority -400;
iifname \"tun*\" drop
}
}
";

/// What is told of the choice: by class, and of tunnels that each have their part.
fn says_so(site: &Site) {
    let status = site.json(&["status"]);
    let expected = serde_json::json!({ "short": "placement", "long": "placement" });
    assert_eq!(status["balance"], expected);
    let chosen = status["chosen"].as_array().expect("a list");
    let of = |device: &str, class: &str| {
        let row = chosen.iter().find(|it| it["device"] == device);
        row.expect("it is listed")["packets"][class].as_u64()
    };
    for (class, own) in [("short", ["tun0", "tun2"]), ("long", ["tun1", "tun3"])] {
        assert!(own.iter().all(|it| of(it, class) > Some(0)), "{status}");
    }
    // But for flows that turn long, which may stay for a while, each class is in its own; and so nothing is misrouted.
    for device in ["tun1", "tun3"] {
        assert_eq!(of(device, "short"), Some(0), "{status}");
    }
    assert_eq!(status["health"]["strays"], serde_json::json!([]));
    let rows = status["traffic"].as_array().expect("a list").iter();
    let tunnels: Vec<_> = rows.map(|it| it["tunnel"].as_str()).collect();
    assert!(!tunnels.contains(&Some("any")), "{status}");
    let ends = [&site.topology.client, &site.topology.server].map(|it| it.ipv4.to_string());
    let shown = stdout(&site.splitter(&["explain", &ends[0], &ends[1]]));
    for among in ["tun0, tun2", "tun1, tun3"] {
        let words = format!("choice by a hash of the flow among {among}");
        assert!(shown.contains(&words), "{shown}");
    }
}
