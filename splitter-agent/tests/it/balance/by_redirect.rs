//! Packets that choose and are put into their tunnels without the network stack.

mod told;

use std::net::IpAddr;
use std::ops::Range;

use aya::maps::{Array, Map, MapData};
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::topology::TUNNELS;
use nix::sys::signal::Signal;

use super::{BYTES, RATES_MBIT, connection, out_of_order, sent_while, tunnel, without_offloads};
use crate::support::redirected::{be_redirectable, fallbacks, redirected};
use crate::support::site::{Site, on_site, stdout};

/// Two tunnels of those weights by rate, that nobody here shapes.
fn choosing_by(site: &Site, balance: &str) -> String {
    let mut text = format!("balance = '{balance}'\n");
    for (index, rate_mbit) in RATES_MBIT.into_iter().enumerate() {
        text += &format!("[[tunnels]]\n{}weight = {rate_mbit}\n", tunnel(site, index));
    }
    text + "[short]\n[long]\n[steering]\nmode = 'redirect'\n"
}

fn addresses(site: &Site) -> Vec<IpAddr> {
    let server = &site.topology.server;
    let addresses = [Some(server.ipv4.into()), server.ipv6.map(Into::into)];
    addresses.into_iter().flatten().collect()
}

/// Waits until the program has the tunnels' next hops, which the agent looks up once it runs.
pub(super) fn wait_until_chosen(site: &Site) {
    site.wait_for("packets to choose", || {
        let before = chosen(site);
        connection(site, site.topology.server.ipv4.into()).send(50_000);
        (chosen(site) > before).then_some(())
    });
}

/// Packets that have chosen a tunnel.
fn chosen(site: &Site) -> u64 {
    let status = site.json(&["status"]);
    let tunnels = status["chosen"].as_array().expect("there are tunnels");
    let of = |class: &str| {
        let counts = tunnels.iter().map(|it| it["packets"][class].as_u64());
        counts.map(|it| it.expect("a number")).sum::<u64>()
    };
    // What is not split goes by the stack, and chooses nothing.
    assert_eq!(of("other"), 0, "{status}");
    of("short") + of("long")
}

#[test]
fn redirected_packets_of_one_flow_take_both_tunnels_in_both_families() {
    require!(Program("ethtool"));
    on_site(|site| {
        without_offloads(site);
        be_redirectable(site, &TUNNELS);
        for (balance, expected) in [("drb", 0.4..0.6), ("rps", 0.12..0.3)] {
            site.configure(&choosing_by(site, balance));
            let before = site.routing();
            let plan = stdout(&site.splitter(&["plan"]));
            assert!(plan.contains("+ redirect into tun0, tun1"), "{plan}");
            assert!(plan.contains("+ attach the XDP program to lan0"), "{plan}");
            let daemon = site.run();
            wait_until_chosen(site);
            assert_eq!(site.json(&["plan"])["changed"], false);
            for address in addresses(site) {
                let (known, chose) = (redirected(site), chosen(site));
                let mut connection = connection(site, address);
                let sent = sent_while(site, || connection.send(BYTES));
                let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
                let early = out_of_order(&site.topology.server.namespace);
                println!("{balance}, {address}: {sent:?} bytes, {early} segments early so far");
                assert!(expected.contains(&share), "{address}: {sent:?}");
                let packets = redirected(site) - known;
                let all = (BYTES / 1_460) as f64;
                assert!(packets > 0.98 * all, "{packets} of {all}");
                // Nothing is redirected in another way, and the counts are of the same packets.
                let chose = (chosen(site) - chose) as f64;
                assert!(
                    (packets - chose).abs() <= 1.0 + 0.02 * all,
                    "{packets}, {chose} chose"
                );
            }
            for reason in [
                "not_ours",
                "no_route",
                "other_device",
                "too_large",
                "failed",
            ] {
                assert_eq!(fallbacks(site, reason), 0.0, "{reason}");
            }
            shows_it(site);
            assert!(daemon.end(Signal::SIGTERM).success());
            site.assert_clean(&before);
        }
    });
}

/// Compares what the tunnels were handed with what was chosen, and reads what `status` and `explain` say.
fn shows_it(site: &Site) {
    let status = site.json(&["status"]);
    assert_eq!(status["steering"], "redirect");
    for index in [0, 1] {
        let chosen = &status["chosen"][index]["packets"];
        let chose: u64 = ["short", "long"]
            .iter()
            .filter_map(|it| chosen[*it].as_u64())
            .sum();
        let egress = status["egress"].as_array().expect("there are tunnels");
        let own = egress.iter().filter(|it| it["device"] == TUNNELS[index]);
        let left: u64 = own
            .flat_map(|it| ["short", "long"].map(|class| it["packets"][class].as_u64()))
            .flatten()
            .sum();
        // Beside them, SYNs of the class whose tunnel it is.
        assert!(
            (chose..chose + 50).contains(&left),
            "{left} left, {chose} chose: {status}"
        );
    }
    let shown = stdout(&site.splitter(&["status"]));
    assert!(shown.contains("take a tunnel of their class"), "{shown}");
    let ends = [site.topology.client.ipv4, site.topology.server.ipv4].map(|it| it.to_string());
    let explained = stdout(&site.splitter(&["explain", &ends[0], &ends[1]]));
    assert!(
        explained.contains("of the tunnel that they choose"),
        "{explained}"
    );
}

#[test]
fn by_tr_redirected_packets_fill_what_the_model_of_the_queues_has_room_for() {
    on_site(|site| {
        without_offloads(site);
        be_redirectable(site, &TUNNELS);
        site.configure(&choosing_by(site, "tr"));
        let daemon = site.run();
        wait_until_chosen(site);
        // Less than both carry, and more than the first does.
        let client = &site.topology.client.namespace;
        let shaped =
            client.run("tc qdisc replace dev eth0 root tbf rate 36mbit burst 3100 limit 250000");
        shaped.expect("the kernel has it");
        for address in addresses(site) {
            let mut connection = connection(site, address);
            let sent = sent_while(site, || connection.send(BYTES));
            let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
            println!("{address}: {sent:?} bytes");
            // 6 of 36, and what waits in the first one's queue until it is longer than the second's.
            assert!((0.04..0.3).contains(&share), "{address}: {sent:?}");
        }
        let status = stdout(&site.splitter(&["status"]));
        assert!(status.contains("at the rates that are stated"), "{status}");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn without_an_agent_redirected_packets_take_the_tunnel_of_their_class() {
    on_site(|site| {
        without_offloads(site);
        be_redirectable(site, &TUNNELS);
        site.configure(&choosing_by(site, "drb"));
        let first = site.run();
        wait_until_chosen(site);
        let mut connection = connection(site, site.topology.server.ipv4.into());
        connection.send(BYTES / 4);
        first.end(Signal::SIGKILL);
        // Nobody vouches for next hops any more, some two seconds later.
        site.wait_for("nobody to vouch for next hops", || {
            let chose = chosen(site);
            connection.send(100_000);
            (chosen(site) == chose).then_some(())
        });
        let known = redirected_by_status(site);
        let sent = sent_while(site, || connection.send(BYTES / 4));
        // Of a long flow, with few acknowledgements of what comes back.
        assert!(sent[0] < sent[1] / 10, "{sent:?}");
        assert!(redirected_by_status(site) > known + (BYTES / 4 / 1_514) as u64);
        let second = site.run();
        assert!(second.log().contains("adopted"), "{}", second.log());
        wait_until_chosen(site);
        let sent = sent_while(site, || connection.send(BYTES / 4));
        assert!(sent.iter().all(|it| *it > BYTES as u64 / 16), "{sent:?}");
        assert!(second.end(Signal::SIGTERM).success());
    });
}

/// Where no agent serves metrics.
fn redirected_by_status(site: &Site) -> u64 {
    let packets = &site.json(&["status"])["redirected"]["packets"];
    packets.as_u64().expect("a number")
}

#[test]
fn tunnel_that_packets_cannot_be_put_into_is_not_chosen() {
    on_site(|site| {
        without_offloads(site);
        // The second loses what it is given: its other end has GRO off. So nothing parts the classes, either.
        be_redirectable(site, &TUNNELS[..1]);
        site.configure(&choosing_by(site, "drb"));
        let daemon = site.run();
        let plan = stdout(&site.splitter(&["plan"]));
        if plan.contains("= redirect into tun0, tun1") {
            return println!("skipped: this kernel does not say what a veth device takes");
        }
        site.wait_for("the other tunnel to be left out", || {
            let chosen = site.json(&["status"])["chosen"].clone();
            (chosen[0]["usable"] == true && chosen[1]["usable"] == false).then_some(())
        });
        assert_eq!(site.json(&["plan"])["changed"], false);
        let line = format!("ethtool -K {} gro on", TUNNELS[1]);
        let far = &site.topology.borders[1].namespace;
        far.run(&line).expect("it is there");
        let packets = |index: usize| {
            let packets = site.json(&["status"])["chosen"][index]["packets"].clone();
            ["short", "long"].map(|class| packets[class].as_u64().expect("a number"))
        };
        assert_eq!(packets(1), [0; 2]);
        site.wait_for("the other tunnel to be chosen", || {
            connection(site, site.topology.server.ipv4.into()).send(100_000);
            packets(1).iter().all(|it| *it > 10).then_some(())
        });
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

/// The first tunnels' next hops of IPv4, as they lie in memory.
fn hops(site: &Site) -> [u8; 324] {
    let map = site.bpffs().join("splitter/test/maps/TUNNEL_HOPS");
    let map = Map::Array(MapData::from_pin(map).expect("is pinned"));
    let map: Array<_, [u8; 324]> = map.try_into().expect("an array");
    map.get(&0, 0).expect("can be read")
}

#[test]
fn next_hops_of_tunnels_are_what_the_kernel_knows_now() {
    /// Of the second tunnel: its device, and the next hop's link address.
    const DEVICE: Range<usize> = 24..28;
    const NEXT_HOP: Range<usize> = 32..38;
    const MTU: Range<usize> = 0..4;
    on_site(|site| {
        be_redirectable(site, &TUNNELS);
        site.configure(&choosing_by(site, "rps"));
        let daemon = site.run();
        let device = TUNNELS[1];
        let gateway = &site.topology.borders[0].gateway_addresses(1)[0];
        let is_now = |mac: u8| format!("lladdr 02:00:00:00:00:{mac:02} dev {device} nud permanent");
        let changes = [
            (
                "ip link show".to_owned(),
                MTU,
                1_500_u32.to_ne_bytes().to_vec(),
            ),
            (
                format!("ip neigh replace {gateway} {}", is_now(9)),
                NEXT_HOP,
                vec![2, 0, 0, 0, 0, 9],
            ),
            (
                format!("ip link set {device} mtu 1300"),
                MTU,
                1_300_u32.to_ne_bytes().to_vec(),
            ),
            (format!("ip link set {device} down"), DEVICE, vec![0; 4]),
            // What is longer than the other one takes fits none.
            (
                "ip link show".to_owned(),
                MTU,
                1_500_u32.to_ne_bytes().to_vec(),
            ),
        ];
        for (line, bytes, expected) in changes {
            site.border().run(&line).expect("the kernel takes it");
            site.wait_for(&format!("what is so after `{line}`"), || {
                (hops(site)[bytes.clone()] == expected).then_some(())
            });
        }
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
