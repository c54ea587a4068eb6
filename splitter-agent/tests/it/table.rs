//! The flow tables' sizes: by memory, as stated, and other ones while packets are split.

use std::net::UdpSocket;

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::site::{Connection, Site, on_site, stderr};

/// Over any threshold.
const LONG_BYTES: usize = 200_000;
/// Of a connection that stays short: SYN, acknowledgement and a segment.
const SHORT_BYTES: usize = 1_000;

pub(crate) fn sizes(site: &Site) -> Value {
    site.json(&["status"])["flow_table"]["sizes"].clone()
}

fn packets_of_long(site: &Site, connection: &Connection) -> u64 {
    let flow = site.flow_from(connection.port());
    assert_eq!(flow["class"], "long", "{flow}");
    flow["packets"].as_u64().expect("a count")
}

/// Nothing begins again: neither a flow's count nor what was counted of all.
#[test]
fn other_sizes_keep_every_flow_and_every_count() {
    for steering in ["dscp", "mark", "redirect"] {
        on_site(|site| other_sizes_keep_all(site, steering));
    }
}

fn other_sizes_keep_all(site: &Site, steering: &str) {
    let mode = |size| {
        format!("[steering]\nmode = '{steering}'\n[flows]\ntable_size = {size}\nthreshold = 40\n")
    };
    site.configure(&mode(4_096));
    let before = site.routing();
    let daemon = site.run();
    let mut long = Connection::open(&site.topology);
    long.send(LONG_BYTES);
    let mut short: Vec<_> = (0..20).map(|_| Connection::open(&site.topology)).collect();
    short.iter_mut().for_each(|it| it.send(SHORT_BYTES));
    let counted = |it: &Connection| site.flow_from(it.port())["packets"].clone();
    let known: Vec<_> = short.iter().map(counted).collect();
    let mut packets = packets_of_long(site, &long);
    let up = site.routing();

    for size in [16_384, 1_024, 4_096] {
        let set = site.json(&["set", "table_size", &size.to_string()]);
        assert_eq!(set["changes"][0]["key"], "flows.table_size", "{set}");
        let loaded = sizes(site);
        assert_eq!(loaded["flows"]["ipv4"], size, "{steering}: {loaded}");
        assert_eq!(loaded["flows"]["ipv6"], size, "{loaded}");
        assert!(packets_of_long(site, &long) >= packets, "{steering}");
        long.send(LONG_BYTES);
        let now = packets_of_long(site, &long);
        assert!(now > packets + 100, "{steering}: {now} after {packets}");
        packets = now;
        let kept: Vec<_> = short.iter().map(counted).collect();
        assert_eq!(kept, known, "{steering} {size}");
        let status = site.json(&["status"]);
        // It was long before, and that was counted then.
        assert_eq!(status["flows"]["became_long"], 1, "{steering}: {status}");
        assert_eq!(status["in_place"], true, "{status}");
        assert_eq!(
            site.metric("splitter_flow_table_capacity{family=\"ipv4\"}"),
            f64::from(size)
        );
    }
    if steering != "mark" {
        // The program's number is another, and nothing else is.
        assert_eq!(without_ids(&site.routing()), without_ids(&up));
    }
    assert!(
        daemon.log().contains("event=\"tables_resized\""),
        "{}",
        daemon.log()
    );
    for left in ["earlier", "next"] {
        assert!(!site.bpffs().join("splitter/test").join(left).exists());
    }
    assert!(daemon.end(Signal::SIGTERM).success());
    site.assert_clean(&before);
}

/// What `ip` shows, without the numbers and tags of programs.
fn without_ids(routing: &str) -> String {
    let lines = routing
        .lines()
        .map(|line| line.split(" {").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// As `splitter up` and a reload do it, too; and one that cannot be had changes nothing.
#[test]
fn file_with_another_size_is_taken_by_reload_and_by_up() {
    on_site(|site| {
        site.json(&["up"]);
        let mut long = Connection::open(&site.topology);
        long.send(LONG_BYTES);
        let packets = packets_of_long(site, &long);
        site.configure("[flows]\ntable_size = 9000\ntable_size_ipv6 = 600\n");
        let plan = site.json(&["plan"]);
        assert_eq!(plan["plan"]["program"], "resize", "{plan}");
        assert_eq!(plan["plan"]["flows"]["outcome"], "copied", "{plan}");
        assert_eq!(plan["plan"]["table_flows"]["ipv6"], 600, "{plan}");
        assert_eq!(
            plan["plan"]["table_bytes"],
            2_250 * 264 + 150 * 520,
            "{plan}"
        );
        let up = site.splitter(&["up"]);
        assert!(stderr(&up).contains("flows were copied"), "{}", stderr(&up));
        assert_eq!(sizes(site)["flows"]["ipv4"], 9_000);
        assert!(packets_of_long(site, &long) >= packets);
        assert_eq!(site.json(&["plan"])["changed"], false);

        let daemon = site.run();
        site.configure("[flows]\ntable_size = 2000\n");
        site.json(&["reload"]);
        assert_eq!(sizes(site)["flows"]["ipv4"], 2_000);
        long.send(LONG_BYTES);
        assert!(packets_of_long(site, &long) > packets + 100);
        assert!(daemon.end(Signal::SIGTERM).success());
        site.json(&["down"]);
    });
}

/// With transfers that never pause, so that packets come while the table is copied and after.
#[test]
fn transfers_that_go_on_stay_long_while_the_table_changes() {
    require!(Program("iperf3"));
    on_site(|site| {
        let daemon = site.run();
        let [client, server] = [&site.topology.client, &site.topology.server];
        let mut listen = server.namespace.command("iperf3");
        listen
            .args(["-s", "-1"])
            .stdout(std::process::Stdio::null());
        let mut listening = listen.spawn().expect("it is there");
        site.wait_for("iperf3 to listen", || {
            let listeners = server.namespace.run("ss -Hltn").ok()?;
            listeners.contains(":5201").then_some(())
        });
        let mut transfer = client.namespace.command("iperf3");
        let address = server.ipv4.to_string();
        transfer.args(["-c", &address, "-P", "4", "-t", "30", "-b", "10M", "-J"]);
        let mut transfer = transfer
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("it is there");
        let flows = || site.json(&["status"])["flows"].clone();
        let became_long = |flows: &Value| flows["became_long"].as_u64().expect("a count");
        let settled = site.wait_for("all to be long", || {
            let flows = flows();
            (became_long(&flows) >= 4).then_some(flows)
        });
        let before = long_flows(site, 5201);
        assert_eq!(before.len(), 4, "{before:?}");
        for size in ["8192", "1024", "32768", "4096", "auto", "2048"] {
            site.json(&["set", "table_size", size]);
        }
        let after = long_flows(site, 5201);
        let ports = |flows: &[(u64, u64)]| flows.iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(ports(&after), ports(&before));
        for ((port, was), (_, is)) in before.iter().zip(&after) {
            assert!(is > was, "{port}: {is} packets after {was}");
        }
        // None began again, and none became long once more.
        let now = flows();
        assert_eq!(now["started"], settled["started"], "{now} after {settled}");
        assert_eq!(became_long(&now), became_long(&settled));
        assert_eq!(transfer.try_wait().expect("it is ours"), None, "it goes on");
        let _ = transfer.kill();
        let _ = transfer.wait();
        let _ = listening.kill();
        let _ = listening.wait();
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

/// Ports and packets of the long flows to a port, in the order of their ports.
fn long_flows(site: &Site, port: u16) -> Vec<(u64, u64)> {
    let listing = site.json(&["flows", "--limit", "1000"]);
    let flows = listing["flows"].as_array().into_iter().flatten();
    let long = flows.filter(|it| it["destination_port"] == port && it["class"] == "long");
    let number = |it: &Value| it.as_u64().expect("a number");
    let mut long: Vec<_> = long
        .map(|it| (number(&it["source_port"]), number(&it["packets"])))
        .collect();
    long.sort_unstable();
    long
}

#[test]
fn full_table_grows_by_itself_and_its_flows_go_on() {
    on_site(|site| {
        let flows = "sweep_interval_s = 1\nprotocols = ['tcp', 'udp']\n";
        site.configure(&format!("[flows]\ntable_size = 64\n{flows}"));
        let daemon = site.run();
        let mut long = Connection::open(&site.topology);
        long.send(LONG_BYTES);
        // A table that is loaded stays, until it is full.
        site.json(&["set", "table_size", "auto"]);
        assert_eq!(sizes(site)["flows"]["ipv4"], 64);
        let packets = packets_of_long(site, &long);
        let senders = datagrams(site, 60);
        site.wait_for("the table to grow", || {
            (sizes(site)["flows"]["ipv4"].as_u64() >= Some(128)).then_some(())
        });
        let grown = sizes(site);
        assert_eq!(grown["flows"]["ipv6"], 64, "IPv6 needs no more: {grown}");
        assert!(
            grown["most_bytes"].as_u64() > grown["bytes"].as_u64(),
            "{grown}"
        );
        assert!(packets_of_long(site, &long) >= packets);
        long.send(LONG_BYTES);
        assert!(packets_of_long(site, &long) > packets + 100);
        assert_eq!(site.json(&["status"])["in_place"], true);
        drop(senders);
        // Nor does the next agent take it back.
        daemon.end(Signal::SIGKILL);
        let flows_ipv4 = sizes(site)["flows"]["ipv4"].clone();
        site.configure(&format!("[flows]\n{flows}"));
        let next = site.run();
        assert_eq!(sizes(site)["flows"]["ipv4"], flows_ipv4);
        assert!(next.end(Signal::SIGTERM).success());
    });
}

#[test]
fn full_table_that_is_stated_stays_and_doctor_says_what_to_set() {
    on_site(|site| {
        site.configure(
            "[flows]\ntable_size = 64\nsweep_interval_s = 1\nprotocols = ['tcp', 'udp']\n",
        );
        let daemon = site.run();
        let senders = datagrams(site, 60);
        site.wait_for("the datagrams' flows", || {
            (sizes(site)["entries"]["ipv4"].as_u64() >= Some(48)).then_some(())
        });
        let checks = doctor(site);
        let room = checks
            .iter()
            .find(|it| it["check"] == "room for flows of IPv4");
        let room = room.expect("it is looked at");
        assert_eq!(room["status"], "warn", "{room}");
        let remedy = room["remedy"].as_str().expect("there is one");
        assert!(
            remedy.contains("splitter set table_size 128 table_size_ipv6 64"),
            "{remedy}"
        );
        // As it says.
        site.json(&["set", "table_size", "128", "table_size_ipv6", "64"]);
        let room = doctor(site);
        let room = room
            .iter()
            .find(|it| it["check"] == "room for flows of IPv4");
        assert_eq!(room.expect("it is looked at")["status"], "ok");
        drop(senders);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

fn doctor(site: &Site) -> Vec<Value> {
    let looked = site.splitter(&["doctor", "--json"]);
    serde_json::from_slice(&looked.stdout).expect("JSON")
}

/// So many flows of UDP, of one datagram each.
fn datagrams(site: &Site, count: usize) -> Vec<UdpSocket> {
    let [client, server] = [&site.topology.client, &site.topology.server];
    let send = || {
        let socket = UdpSocket::bind((client.ipv4, 0)).expect("a port");
        socket.send_to(b"x", (server.ipv4, 9)).expect("a route");
        socket
    };
    let send = || (0..count).map(|_| send()).collect();
    client.namespace.enter(send).expect("it exists")
}

#[test]
fn tables_are_made_on_the_node_that_is_stated_and_on_no_other() {
    on_site(|site| {
        let node =
            |number: u32| format!("[flows]\ntable_size = 4096\ntable_numa_node = {number}\n");
        site.configure(&node(1_000));
        let before = site.routing();
        let reported = site.refused(&["up"], 3);
        assert!(
            reported.contains("flows.table_numa_node = 1000: this machine has no such NUMA node"),
            "{reported}"
        );
        site.assert_clean(&before);
        site.configure(&node(0));
        site.json(&["up"]);
        assert_eq!(sizes(site)["numa_node"], 0);
        for name in ["FLOWS_V4", "FLOWS_V6", "TAGS"] {
            const ON_NODE: u32 = 4;
            let path = site.bpffs().join("splitter/test/maps").join(name);
            let map = aya::maps::MapInfo::from_pin(path).expect("it is pinned");
            assert_ne!(map.map_flags() & ON_NODE, 0, "{name}");
        }
        let mut long = Connection::open(&site.topology);
        long.send(LONG_BYTES);
        let packets = packets_of_long(site, &long);
        assert_eq!(site.json(&["plan"])["changed"], false);
        // To the kernel's choice, and back.
        for (numa_node, shown) in [("'any'", Value::Null), ("0", 0.into())] {
            site.configure(&format!(
                "[flows]\ntable_size = 4096\ntable_numa_node = {numa_node}\n"
            ));
            assert_eq!(site.json(&["up"])["plan"]["program"], "resize");
            assert_eq!(sizes(site)["numa_node"], shown);
            assert!(packets_of_long(site, &long) >= packets);
        }
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}
