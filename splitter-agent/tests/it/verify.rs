//! `splitter verify` at a border: probes that leave by the tunnels, and what it says of them.

use std::collections::BTreeSet;

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::topology::{GENERATOR, LAN, TUNNELS};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::sites::{SECOND, run_two_sites};
use crate::support::daemon::Daemon;
use crate::support::pair::{QUICK, on_pair};
use crate::support::redirected::be_redirectable;
use crate::support::several::sections;
use crate::support::site::{Connection, Site, on_site, output, stderr, stdout};
use crate::support::two_each::{LONG, SHORT, two_for_each};
use crate::support::washed::wash;

/// The far host's addresses, as the command takes them.
fn targets(site: &Site) -> Vec<String> {
    let server = &site.topology.server;
    let ipv6 = server.ipv6.map(|it| it.to_string());
    std::iter::once(server.ipv4.to_string())
        .chain(ipv6)
        .flat_map(|it| ["--to".to_owned(), it])
        .collect()
}

/// What it says of these arguments, and how it ends.
pub(crate) fn verify(site: &Site, arguments: &[&str]) -> (i32, Value) {
    let arguments = [&["verify", "--json", "--count", "3"], arguments].concat();
    let said = site.splitter(&arguments);
    let code = said.status.code().expect("it has ended by itself");
    let report = serde_json::from_slice(&said.stdout);
    (
        code,
        report.unwrap_or_else(|error| panic!("{error}: {said:?}")),
    )
}

fn verify_all(site: &Site) -> (i32, Value) {
    let targets = targets(site);
    let arguments: Vec<_> = targets.iter().map(String::as_str).collect();
    verify(site, &arguments)
}

pub(crate) fn paths<'r>(report: &'r Value, class: &'r str) -> impl Iterator<Item = &'r Value> {
    let paths = report["paths"].as_array().expect("a list");
    assert!(paths.iter().any(|it| it["class"] == class), "{report}");
    paths.iter().filter(move |it| it["class"] == class)
}

/// All of a path's packets have left by this device.
#[track_caller]
pub(crate) fn assert_taken(path: &Value, device: &str) {
    let taken = path["taken"].as_object().expect("a map");
    let devices: Vec<_> = taken.keys().collect();
    assert_eq!(devices, [device], "{path}");
}

/// Every path of the site is as intended: with these marks, and answered.
#[track_caller]
fn assert_ok(site: &Site, code: i32, report: &Value, marks: [&str; 2]) {
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["verdict"], "ok");
    let families = 1 + usize::from(site.topology.server.ipv6.is_some());
    for (class, device, mark) in [
        ("short", TUNNELS[0], marks[0]),
        ("long", TUNNELS[1], marks[1]),
    ] {
        // By each interface of the site.
        assert_eq!(paths(report, class).count(), 2 * families, "{report:#}");
        for path in paths(report, class) {
            assert_eq!(path["verdict"], "ok", "{path}");
            assert_eq!(path["intended"], serde_json::json!([device]), "{path}");
            assert_taken(path, device);
            assert!(path["marked"][mark].as_u64() >= Some(3), "{path}");
            assert_eq!((&path["sent"], &path["answered"]), (&3.into(), &3.into()));
            assert_eq!(path["answered_by"], "tcp", "{path}");
            assert_eq!(path["loss_percent"], 0.0, "{path}");
            let delay = &path["delay_ms"];
            assert!(delay["min"].as_f64() > Some(0.0), "{path}");
            assert!(delay["max"].as_f64() < Some(1_000.0), "{path}");
            assert_eq!(path["mtu"], 1_500, "{path}");
            // The far border has one way back.
            assert_eq!(
                path["came_back_by"],
                serde_json::json!({"tun0": 3}),
                "{path}"
            );
        }
    }
}

fn accepts_local(site: &Site) -> [String; 2] {
    [LAN, GENERATOR].map(|device| {
        let path = format!("/proc/sys/net/ipv4/conf/{device}/accept_local");
        let read = site.border().enter(|| std::fs::read_to_string(&path));
        let read = read.expect("it exists").expect("it is there");
        read.trim().to_owned()
    })
}

#[test]
fn both_classes_and_families_are_proved_to_take_their_tunnels() {
    on_site(|site| {
        site.json(&["up"]);
        let (code, report) = verify_all(site);
        assert_ok(site, code, &report, ["4", "2"]);
        assert_eq!(accepts_local(site), ["0", "0"]);
        let left_out = report["not_covered"].to_string();
        assert!(
            left_out.contains("how the other border splits"),
            "{left_out}"
        );
        assert!(
            left_out.contains("each tunnel there and back"),
            "{left_out}"
        );
        let mut text = vec!["verify".to_owned()];
        text.extend(targets(site));
        let text: Vec<_> = text.iter().map(String::as_str).collect();
        let said = site.splitter(&text);
        assert_eq!(said.status.code(), Some(0));
        let words = stdout(&said);
        let verdict = words.lines().last().unwrap_or_default();
        assert!(verdict.starts_with("ok: all "), "{words}");
        site.json(&["down"]);
    });
}

#[test]
fn program_in_the_network_stack_is_proved_as_well() {
    on_site(|site| {
        site.configure("[attach]\nmode = 'generic'\n");
        site.json(&["up"]);
        let (code, report) = verify_all(site);
        assert_ok(site, code, &report, ["4", "2"]);
        site.json(&["down"]);
    });
}

#[test]
fn marks_beside_packets_are_seen() {
    on_site(|site| {
        site.configure("[steering]\nmode = 'mark'\n");
        site.json(&["up"]);
        let (code, report) = verify_all(site);
        assert_ok(site, code, &report, ["4", "2"]);
        site.json(&["down"]);
    });
}

#[test]
fn bytes_make_a_probe_long_too() {
    on_site(|site| {
        site.configure("[flows]\nunit = 'bytes'\nthreshold = 60000\ntable_size = 4096\n");
        site.json(&["up"]);
        let (code, report) = verify_all(site);
        assert_ok(site, code, &report, ["4", "2"]);
        site.json(&["down"]);
    });
}

#[test]
fn port_that_is_open_answers_too() {
    on_site(|site| {
        site.json(&["up"]);
        let server = &site.topology.server;
        let connection = Connection::open(&site.topology);
        let listen = || std::net::TcpListener::bind((server.ipv4, 0)).expect("a port");
        let listener = server.namespace.enter(listen).expect("it exists");
        let port = listener
            .local_addr()
            .expect("it has one")
            .port()
            .to_string();
        let (code, report) = verify(site, &["--to", &server.ipv4.to_string(), "--tcp", &port]);
        assert_eq!(code, 0, "{report:#}");
        for path in paths(&report, "long") {
            assert_taken(path, TUNNELS[1]);
            assert_eq!(path["port"].to_string(), port);
        }
        connection.close();
        site.json(&["down"]);
    });
}

#[test]
fn rule_of_somebody_else_is_wrong_and_names_the_device() {
    on_site(|site| {
        site.json(&["up"]);
        let server = site.topology.server.ipv4.to_string();
        let border = site.border();
        let rule = format!("to {server} lookup main priority 500");
        border.run(&format!("ip rule add {rule}")).expect("root");
        let (code, report) = verify(site, &["--to", &server]);
        assert_eq!(code, 1, "{report:#}");
        assert_eq!(report["verdict"], "wrong");
        for path in paths(&report, "long") {
            assert_eq!(path["verdict"], "wrong", "{path}");
            assert_taken(path, TUNNELS[0]);
            let why = path["why"].as_str().unwrap_or_default();
            assert!(
                why.contains("left by tun0, though they have the mark 2 of tun1"),
                "{why}"
            );
            let remedy = path["remedy"].as_str().unwrap_or_default();
            assert!(remedy.contains("splitter explain "), "{remedy}");
        }
        for path in paths(&report, "short") {
            assert_eq!(path["verdict"], "ok", "{path}");
        }
        border.run(&format!("ip rule del {rule}")).expect("root");
        // Nothing leaves at all.
        let rule = format!("to {server} prohibit priority 500");
        border.run(&format!("ip rule add {rule}")).expect("root");
        let (code, report) = verify(site, &["--to", &server]);
        assert_eq!(code, 1, "{report:#}");
        for path in paths(&report, "long") {
            let why = path["why"].as_str().unwrap_or_default();
            assert!(why.contains("was seen leaving the border"), "{why}");
        }
        border.run(&format!("ip rule del {rule}")).expect("root");
        site.json(&["down"]);
    });
}

#[test]
fn marks_that_a_firewall_takes_away_are_wrong() {
    require!(Program("nft"));
    on_site(|site| {
        site.json(&["up"]);
        wash(site, &["ipv4", "ipv6"]);
        let (code, report) = verify_all(site);
        assert_eq!(code, 1, "{report:#}");
        for path in paths(&report, "long") {
            assert_eq!(path["verdict"], "wrong", "{path}");
            let why = path["why"].as_str().unwrap_or_default();
            assert!(why.contains("with DSCP 0, which is none of ours"), "{why}");
        }
        site.json(&["down"]);
    });
}

#[test]
fn largest_packet_that_passes_a_tunnel_is_found() {
    on_site(|site| {
        site.json(&["up"]);
        // The far end takes nothing longer, of which the near end knows nothing.
        let far = &site.topology.borders[1].namespace;
        far.run("ip link set tun1 mtu 1380").expect("it is there");
        let server = site.topology.server.ipv4.to_string();
        let (code, report) = verify(site, &["--to", &server]);
        assert_eq!(code, 0, "{report:#}");
        for path in paths(&report, "long") {
            assert_eq!(path["mtu_tried"], 1_500, "{path}");
            // A device takes a VLAN tag more than its MTU.
            let mtu = path["mtu"].as_u64().expect("a number");
            assert!((1_380..=1_384).contains(&mtu), "{path}");
        }
        for path in paths(&report, "short") {
            assert_eq!(path["mtu"], 1_500, "{path}");
        }
        site.json(&["down"]);
    });
}

#[test]
fn host_that_does_not_answer_leaves_it_unknown_and_echoes_count_where_they_may() {
    require!(Program("nft"));
    on_site(|site| {
        site.json(&["up"]);
        let (code, report) = verify(site, &["--to", "10.2.1.77"]);
        assert_eq!(code, 6, "{report:#}");
        for path in paths(&report, "long") {
            assert_eq!(path["verdict"], "unknown", "{path}");
            assert_taken(path, TUNNELS[1]);
            assert_eq!(path["answered_by"], Value::Null);
        }
        // A host whose firewall drops connections, and answers ping.
        let server = &site.topology.server;
        let address = server.ipv4.to_string();
        let chain = "type filter hook input priority 0;\ntcp flags syn drop";
        let table = format!("table ip wall {{\nchain c {{\n{chain}\n}}\n}}\n");
        let walled = server.namespace.run_with_input("nft -f -", &table);
        walled.expect("nft takes it");
        let (code, report) = verify(site, &["--to", &address]);
        assert_eq!(code, 0, "{report:#}");
        for (class, device) in [("short", TUNNELS[0]), ("long", TUNNELS[1])] {
            for path in paths(&report, class) {
                assert_eq!(path["answered_by"], "icmp", "{path}");
                assert_taken(path, device);
                assert_eq!(path["mtu"], 1_500, "{path}");
            }
        }
        let (code, _) = verify(site, &["--to", &address, "--tcp", "80"]);
        assert_eq!(code, 6);
        site.json(&["down"]);
    });
}

#[test]
fn shared_tunnels_are_proved_by_the_marks_that_packets_have() {
    on_site(|site| {
        site.configure("policy = 'share'");
        site.json(&["up"]);
        let (code, report) = verify_all(site);
        assert_eq!(code, 0, "{report:#}");
        let left_out = report["not_covered"].to_string();
        assert!(left_out.contains("each class in each tunnel"), "{left_out}");
        site.json(&["down"]);
    });
}

#[test]
fn signal_ends_it_and_restores_what_ipv4_accepts() {
    on_site(|site| {
        site.json(&["up"]);
        let server = site.topology.server.ipv4.to_string();
        let command = site.command(&["verify", "--to", &server, "--count", "1000"]);
        let probing = Daemon::start(command, &site.path("verify.log"));
        site.wait_for("probes", || {
            accepts_local(site).contains(&"1".to_owned()).then_some(())
        });
        let ended = probing.end(Signal::SIGTERM);
        assert_eq!(ended.code(), Some(6));
        assert_eq!(accepts_local(site), ["0", "0"]);
        site.json(&["down"]);
    });
}

#[test]
fn there_is_nothing_to_verify_while_nothing_is_up() {
    on_site(|site| {
        let arguments = ["verify", "--to", "10.2.1.2"];
        assert!(site.refused(&arguments, 1).contains("is down"));
        site.configure("shadow = true");
        site.json(&["up"]);
        assert!(site.refused(&arguments, 1).contains("is a shadow"));
        site.json(&["down"]);
        for wrong in [
            &["verify"][..],
            &["verify", "--to", "server"],
            &["verify", "--to", "10.2.1.2", "--tcp", "0"],
            &["verify", "--to", "10.2.1.2", "--count", "0"],
        ] {
            let said = output(site.command(wrong));
            assert_eq!(said.status.code(), Some(2), "{}", stderr(&said));
        }
    });
}

#[test]
fn with_redirection_it_says_that_the_stack_s_path_alone_is_proved() {
    on_site(|site| {
        be_redirectable(site, &TUNNELS);
        site.configure("[steering]\nmode = 'redirect'\n");
        site.json(&["up"]);
        let server = site.topology.server.ipv4.to_string();
        let (code, report) = verify(site, &["--to", &server]);
        assert_eq!(code, 0, "{report:#}");
        for path in paths(&report, "long") {
            assert_taken(path, TUNNELS[1]);
        }
        let left_out = report["not_covered"].to_string();
        let expected = "packets that are redirected: probes open connections";
        assert!(left_out.contains(expected), "{left_out}");
        site.json(&["down"]);
    });
}

#[test]
fn way_back_is_proved_where_the_other_border_splits_too() {
    require!(Program("nft"));
    on_pair(|pair| {
        let site = pair.site;
        let (_near, _far) = pair.run(QUICK);
        pair.wait_for_echo();
        let server = site.topology.server.ipv4.to_string();
        let (code, report) = verify(site, &["--to", &server]);
        assert_eq!(code, 0, "{report:#}");
        for (class, device, mark) in [("short", TUNNELS[0], "4"), ("long", TUNNELS[1], "2")] {
            for path in paths(&report, class) {
                let back = &path["way_back"];
                assert_eq!(
                    (&back["verdict"], &back["class"]),
                    (&"ok".into(), &class.into())
                );
                assert_eq!(back["marked"], serde_json::json!({mark: 3}), "{path}");
                assert_eq!(
                    path["came_back_by"],
                    serde_json::json!({device: 3}),
                    "{path}"
                );
            }
        }
        let tunnels = report["tunnels"].as_array().expect("a list");
        assert_eq!(tunnels.len(), 2, "{report:#}");
        for tunnel in tunnels {
            assert_eq!(tunnel["far_agent"], "answers", "{tunnel}");
            assert!(tunnel["round_trip_ms"].as_f64() > Some(0.0), "{tunnel}");
        }
        let summary = report["summary"].as_str().unwrap_or_default();
        assert!(summary.contains("4 of them there and back"), "{summary}");
        assert!(
            summary.ends_with("the other agent answers in 2 of 2 tunnels"),
            "{summary}"
        );

        // The other border sends its long class by the short tunnel, or nobody splits answers there and
        // the host has reflected the mark.
        let rule = format!("from {server} lookup main priority 500");
        pair.far()
            .run(&format!("ip rule add {rule}"))
            .expect("root");
        let (code, report) = verify(site, &["--to", &server]);
        assert_eq!(code, 0, "{report:#}");
        for path in paths(&report, "long") {
            let back = &path["way_back"];
            assert_eq!(back["verdict"], "unknown", "{path}");
            let why = back["why"].as_str().unwrap_or_default();
            let expected = "came back by tun0, though they have the mark 2";
            assert!(why.contains(expected), "{path}");
        }
    });
}

#[test]
fn each_tunnel_of_a_class_is_proved() {
    on_site(|site| {
        two_for_each(site);
        site.configure(&sections(site, 0, [&SHORT, &LONG], false));
        site.json(&["up"]);
        let server = site.topology.server.ipv4.to_string();
        let (code, report) = verify(site, &["--to", &server]);
        assert_eq!(code, 0, "{report:#}");
        for (class, devices) in [("short", ["tun0", "tun2"]), ("long", ["tun1", "tun3"])] {
            for lan in [LAN, GENERATOR] {
                let own = paths(&report, class).filter(|it| it["lan"] == lan);
                let taken: BTreeSet<_> = own
                    .flat_map(|it| it["taken"].as_object().expect("a map").keys())
                    .collect();
                assert!(
                    devices.iter().all(|it| taken.contains(&(*it).to_owned())),
                    "{taken:?}"
                );
            }
        }
        let left_out = report["not_covered"].to_string();
        assert!(!left_out.contains("no probe has left"), "{left_out}");
        site.json(&["down"]);
    });
}

#[test]
fn tunnel_of_another_site_is_wrong() {
    require!(Program("nft"));
    on_pair(|pair| {
        let site = pair.site;
        let (_near, _far) = run_two_sites(pair);
        let (server, second) = (site.topology.server.ipv4.to_string(), SECOND.to_string());
        let targets = ["--to", &server, "--to", &second];
        let (code, report) = verify(site, &targets);
        assert_eq!(code, 0, "{report:#}");
        let sites: BTreeSet<_> = paths(&report, "long")
            .map(|it| (it["site"].as_str(), it["intended"][0].as_str()))
            .collect();
        assert_eq!(
            sites,
            [(Some("one"), Some("tun1")), (Some("two"), Some("tun3"))].into()
        );
        let border = site.border();
        border
            .run("ip route add default via 10.9.1.2 dev tun1 table 77")
            .expect("root");
        let rule = format!("to {second} lookup 77 priority 500");
        border.run(&format!("ip rule add {rule}")).expect("root");
        let (code, report) = verify(site, &targets);
        assert_eq!(code, 1, "{report:#}");
        for path in paths(&report, "long") {
            let expected = if path["site"] == "two" { "wrong" } else { "ok" };
            assert_eq!(path["verdict"], expected, "{path}");
        }
    });
}
