//! `splitter run` on a border that is not all there yet: devices that come late, or are down, or
//! without their addresses.

use crate::support::daemon;
use crate::support::hub;
use crate::support::site;

use daemon::Daemon;
use flow_testbed::namespace::Namespace;
use hub::Remote;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use site::{Connection, Site, on_site};

/// So that what had failed would come back while a test waits.
const QUICK: &str = "[health]\nhold_down_s = 1\nmax_hold_down_s = 2\n";
/// About 140 packets, over any threshold here.
const LONG_BYTES: usize = 200_000;

fn far(site: &Site) -> &Namespace {
    &site.topology.borders[1].namespace
}

fn ip(border: &Namespace, command: &str) {
    border.run(&format!("ip {command}")).expect("root");
}

/// Gives both ends of a tunnel their addresses, whatever they had.
fn give_addresses(site: &Site, tunnel: usize) {
    for (border, own) in [(site.border(), 1), (far(site), 2)] {
        ip(border, &format!("address flush dev tun{tunnel}"));
        give_address(site, border, tunnel, own);
    }
}

fn give_address(site: &Site, border: &Namespace, tunnel: usize, own: u8) {
    ip(
        border,
        &format!("address add 10.9.{tunnel}.{own}/24 dev tun{tunnel}"),
    );
    if site.topology.client.ipv6.is_some() {
        let v6 = format!("fd00:9:{tunnel}::{own}/64");
        ip(border, &format!("address add {v6} dev tun{tunnel} nodad"));
    }
}

/// Makes a tunnel that is not there, as both borders' own scripts would: link, then addresses.
fn make(site: &Site, tunnel: usize) {
    let device = format!("tun{tunnel}");
    site.border()
        .connect(&device, far(site), &device)
        .expect("root");
    for border in [site.border(), far(site)] {
        ip(border, &format!("link set {device} up"));
    }
    give_addresses(site, tunnel);
}

fn ready(site: &Site) -> (u16, String) {
    site.get("/ready").expect("it answers")
}

fn wait_to_say(site: &Site, daemon: &Daemon, status: u16, words: &str) {
    let mut last = None;
    let all = (status, format!("{words}\n"));
    let is_said = || {
        assert!(daemon.is_running(), "it ended:\n{}", daemon.log());
        last = site.get("/ready").ok();
        (last.as_ref() == Some(&all)).then_some(())
    };
    if flow_testbed::wait::poll(site::PATIENCE, is_said).is_none() {
        panic!("{last:?} and not {all:?}:\n{}", daemon.log());
    }
}

fn health(site: &Site) -> Value {
    site.json(&["status"])["health"].take()
}

/// How often the log has an event.
fn events(daemon: &Daemon, event: &str) -> usize {
    let named = format!("event=\"{event}\"");
    daemon.log().matches(&named).count()
}

fn link_metric(site: &Site, tunnel: &str, device: &str, state: &str) -> f64 {
    site.metric(&format!(
        "splitter_tunnel_link{{tunnel=\"{tunnel}\",device=\"{device}\",site=\"default\",state=\"{state}\"}}"
    ))
}

/// Starts the agent while the long tunnel is in this state, `brought_about` so; then has it
/// `mended`. Flows are split by what there is, all is named, and each change is told once.
fn long_tunnel_comes_later(
    state: &str,
    why: &str,
    bring_about: impl FnOnce(&Site) + Send,
    mend: impl FnOnce(&Site) + Send,
) {
    long_tunnel_comes_later_with(QUICK, state, why, bring_about, mend);
}

fn long_tunnel_comes_later_with(
    configuration: &str,
    state: &str,
    why: &str,
    bring_about: impl FnOnce(&Site) + Send,
    mend: impl FnOnce(&Site) + Send,
) {
    on_site(|site| {
        site.configure(configuration);
        bring_about(site);
        let before = site.routing();
        let daemon = site.start();
        let words = format!(
            "ready, but degraded: tunnels: tun1 is down, {why}; the long class is in the short tunnel"
        );
        wait_to_say(site, &daemon, 200, &words);
        let report = health(site);
        assert_eq!(report["tunnels"][1]["link"], state, "{report}");
        assert_eq!(report["classes"][1]["tunnel"], "short", "{report}");
        assert_eq!(link_metric(site, "long", "tun1", state), 1.0);
        assert_eq!(link_metric(site, "long", "tun1", "up"), 0.0);
        assert_eq!(link_metric(site, "short", "tun0", "up"), 1.0);
        let shown = site.splitter(&["status"]);
        let shown = site::stdout(&shown);
        let degraded = words.replace("ready, but degraded: tunnels:", "  degraded:");
        assert!(shown.contains(&degraded), "{shown}");
        assert_eq!(site.json(&["status"])["in_place"], true);
        // Long flows, too, have a way.
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);
        assert_eq!(site.flow_from(connection.port())["class"], "long");

        mend(site);
        wait_to_say(site, &daemon, 200, "ready");
        let report = health(site);
        assert_eq!(report["classes"][1]["tunnel"], "long", "{report}");
        assert_eq!(report["tunnels"][1]["downs"], 0, "it has never failed");
        assert_eq!(
            report["moves"].as_array().map(Vec::len),
            Some(2),
            "{report}"
        );
        assert_eq!(site.json(&["status"])["in_place"], true);
        let sent = || site.border().device_counters("tun1").expect("it is there");
        let before_it = sent().sent_bytes;
        connection.send(LONG_BYTES);
        let by_it = sent().sent_bytes - before_it;
        assert!(by_it > LONG_BYTES as u64 / 2, "{by_it} by the tunnel");
        let log = daemon.log();
        assert_eq!(events(&daemon, "tunnel_awaited"), 1, "{log}");
        assert_eq!(events(&daemon, "class_moved"), 2, "{log}");
        assert_eq!(events(&daemon, "tunnel_down"), 0, "{log}");
        assert_eq!(events(&daemon, "reconcile_failed"), 0, "{log}");
        assert!(daemon.end(Signal::SIGTERM).success());
        assert!(!before.contains("proto 94"));
        assert!(!site.routing().contains("proto 94"));
    });
}

#[test]
fn tunnel_that_is_absent_at_the_start_is_taken_once_it_is_there() {
    long_tunnel_comes_later(
        "absent",
        "no such device",
        |site| ip(site.border(), "link del tun1"),
        |site| make(site, 1),
    );
}

#[test]
fn tunnel_that_is_absent_at_the_start_is_taken_in_every_way_of_steering() {
    for steering in ["mark", "redirect"] {
        long_tunnel_comes_later_with(
            &format!("[steering]\nmode = '{steering}'\n{QUICK}"),
            "absent",
            "no such device",
            |site| ip(site.border(), "link del tun1"),
            |site| make(site, 1),
        );
    }
}

#[test]
fn links_are_looked_at_where_nobody_is_asked() {
    let configuration = format!("{QUICK}enabled = false\n");
    long_tunnel_comes_later_with(
        &configuration,
        "absent",
        "no such device",
        |site| ip(site.border(), "link del tun1"),
        |site| make(site, 1),
    );
    long_tunnel_comes_later_with(
        &configuration,
        "no_address",
        "no address in the network of its gateway",
        |site| ip(site.border(), "address flush dev tun1"),
        |site| give_addresses(site, 1),
    );
}

#[test]
fn tunnel_that_dies_behind_its_link_keeps_its_class_where_nobody_is_asked() {
    on_site(|site| {
        site.configure(&format!("{QUICK}enabled = false\n"));
        let daemon = site.run();
        // Next hops that would be found dead within a second, were they asked.
        for tunnel in 0..2 {
            ip(far(site), &format!("address flush dev tun{tunnel}"));
            ip(
                site.border(),
                &format!("neigh flush dev tun{tunnel} nud all"),
            );
        }
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert_eq!(ready(site), (200, "ready\n".to_owned()));
        let report = health(site);
        for tunnel in report["tunnels"].as_array().expect("two") {
            assert_eq!(tunnel["evidence"], "link", "{report}");
            assert_eq!(tunnel["condition"], "up", "{report}");
        }
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn tunnel_that_is_down_at_the_start_is_taken_once_it_is_up() {
    long_tunnel_comes_later(
        "down",
        "link down",
        |site| ip(site.border(), "link set tun1 down"),
        |site| {
            ip(site.border(), "link set tun1 up");
            give_addresses(site, 1);
        },
    );
}

#[test]
fn tunnel_without_an_address_at_the_start_is_taken_once_it_has_one() {
    long_tunnel_comes_later(
        "no_address",
        "no address in the network of its gateway",
        |site| ip(site.border(), "address flush dev tun1"),
        |site| give_addresses(site, 1),
    );
}

#[test]
fn tunnel_whose_gateway_is_in_no_network_of_its_is_taken_once_it_is() {
    long_tunnel_comes_later(
        "no_address",
        "no address in the network of its gateway",
        |site| {
            let border = site.border();
            ip(border, "address flush dev tun1");
            ip(border, "address add 10.77.1.1/24 dev tun1");
        },
        |site| give_addresses(site, 1),
    );
}

#[test]
fn shared_tunnel_that_is_absent_at_the_start_is_shaped_and_taken_once_it_is_there() {
    on_site(|site| {
        site.configure(&format!("policy = 'share'\n{QUICK}"));
        ip(site.border(), "link del tun1");
        let daemon = site.start();
        let words = "ready, but degraded: tunnels: tun1 is down, no such device; the long class is \
                     in the short tunnel";
        wait_to_say(site, &daemon, 200, words);
        let is_shaped = |device: &str| {
            let shown = site.border().run(&format!("tc qdisc show dev {device}"));
            shown.expect("tc works").contains("qdisc htb 7400:")
        };
        assert!(is_shaped("tun0"));
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);
        make(site, 1);
        wait_to_say(site, &daemon, 200, "ready");
        site.wait_for("the tunnel to be shaped", || {
            is_shaped("tun1").then_some(())
        });
        connection.send(LONG_BYTES);
        assert_eq!(site.json(&["status"])["in_place"], true);
        assert_eq!(events(&daemon, "reconciling"), 0, "{}", daemon.log());
        assert!(daemon.end(Signal::SIGTERM).success());
        assert!(!is_shaped("tun0") && !is_shaped("tun1"));
    });
}

#[test]
fn interface_of_the_site_that_is_absent_at_the_start_is_attached_once_it_is_there() {
    on_site(|site| {
        ip(site.border(), "link del gen0");
        let daemon = site.start();
        let words = "ready, but degraded: dataplane: there is no gen0";
        wait_to_say(site, &daemon, 200, words);
        assert_eq!(site.xdp_mode("lan0"), Some(1));
        let status = site.json(&["status"]);
        assert_eq!(status["absent"], json!(["gen0"]), "{status}");
        assert_eq!(status["in_place"], false);
        let shown = site::stdout(&site.splitter(&["status"]));
        assert!(
            shown.contains("  gen0: not there; attached once it is\n"),
            "{shown}"
        );
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);
        assert_eq!(site.flow_from(connection.port())["class"], "long");

        let border = site.border();
        ip(border, "link add gen0 type veth peer name far-gen0");
        ip(border, "link set gen0 up");
        ip(border, "link set far-gen0 up");
        wait_to_say(site, &daemon, 200, "ready");
        assert_eq!(site.xdp_mode("gen0"), Some(1));
        let status = site.json(&["status"]);
        assert_eq!(
            (&status["in_place"], &status["absent"]),
            (&true.into(), &json!([]))
        );

        // All of them: nothing is split.
        ip(border, "link del gen0");
        ip(border, "link del lan0");
        let words = "not ready: dataplane: there is no lan0 and gen0";
        wait_to_say(site, &daemon, 503, words);
        let log = daemon.log();
        assert_eq!(events(&daemon, "interface_absent"), 3, "{log}");
        assert_eq!(events(&daemon, "interface_appeared"), 1, "{log}");
        assert_eq!(events(&daemon, "reconcile_failed"), 0, "{log}");
        assert!(daemon.end(Signal::SIGTERM).success());
        assert!(!site.routing().contains("proto 94"));
    });
}

#[test]
fn packets_go_as_the_machine_routes_them_while_all_tunnels_are_absent_at_the_start() {
    on_site(|site| {
        site.configure(QUICK);
        // A way that is no tunnel of the splitter's.
        make(site, 2);
        for device in ["tun0", "tun1"] {
            ip(site.border(), &format!("link del {device}"));
        }
        for (border, other) in [(site.border(), 2), (far(site), 1)] {
            ip(border, &format!("route replace default via 10.9.2.{other}"));
        }
        let daemon = site.start();
        let words = "not ready: tunnels: no tunnel is alive; packets follow the main table";
        wait_to_say(site, &daemon, 503, words);
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG_BYTES);
        assert_eq!(site.flow_from(connection.port())["class"], "long");
        assert_eq!(events(&daemon, "tunnel_awaited"), 2);

        make(site, 0);
        let words = "ready, but degraded: tunnels: tun1 is down, no such device; the long class is \
                     in the short tunnel";
        wait_to_say(site, &daemon, 200, words);
        make(site, 1);
        wait_to_say(site, &daemon, 200, "ready");
        connection.send(LONG_BYTES);
        assert!(daemon.end(Signal::SIGTERM).success());
        assert!(!site.routing().contains("proto 94"));
    });
}

#[test]
fn site_whose_tunnel_is_absent_at_the_start_leaves_the_others_alone() {
    on_site(|site| {
        let border = site.border();
        hub::add_tunnels(border, 2);
        site.configure(&format!("[short]\n[long]\n{QUICK}{}", hub::sections(2)));
        ip(border, "link del l1");
        let daemon = site.start();
        let words = "ready, but degraded: tunnels: site1: l1 is down, no such device; the long class \
                     is in the short tunnel";
        wait_to_say(site, &daemon, 200, words);
        let classes = |report: &Value| {
            let classes = report["classes"].as_array().cloned().unwrap_or_default();
            let long = classes.into_iter().filter(|it| it["class"] == "long");
            long.map(|it| it["tunnel"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(classes(&health(site)), ["long", "short"]);
        let of_the_other = || {
            let lines = site.routing();
            let lines = lines.lines().filter(|it| it.starts_with("10.100.0.0/24 "));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let before = of_the_other();
        assert_eq!(before.len(), 2, "{before:?}");

        hub::add_tunnel(border, &Remote::new(1), 1);
        wait_to_say(site, &daemon, 200, "ready");
        assert_eq!(classes(&health(site)), ["long", "long"]);
        assert_eq!(of_the_other(), before);
        assert_eq!(events(&daemon, "class_moved"), 2, "{}", daemon.log());
        assert!(daemon.end(Signal::SIGTERM).success());
        assert!(!site.routing().contains("proto 94"));
    });
}

#[test]
fn what_is_brought_up_by_hand_or_new_in_a_reload_has_to_be_there() {
    on_site(|site| {
        let before = site.routing();
        for changes in ["lan = ['lan0', 'lan9']", "[long]\ndevice = 'lan9'\n"] {
            site.configure(changes);
            let said = site.refused(&["up"], 1);
            assert!(said.contains("there is no interface lan9"), "{said}");
            site.assert_clean(&before);
        }
        site.configure("");
        ip(site.border(), "link del tun1");
        let daemon = site.start();
        site.wait_for("the long class to be elsewhere", || {
            let (_, said) = site.get("/ready").ok()?;
            said.contains("tun1 is down").then_some(())
        });
        // Nothing of what is in force, absent or not, hinders a change of something else.
        let other = "[flows]\nthreshold = 70\ntable_size = 4096\n";
        site.configure(other);
        assert_eq!(site.json(&["reload"])["applied"], true);
        // But what is new does, also where it would carry nothing now.
        for changes in ["lan = ['lan0', 'lan9']", "[long]\ndevice = 'lan9'\n"] {
            site.configure(&format!("{changes}\n"));
            let said = site.refused(&["reload"], 1);
            assert!(said.contains("there is no interface lan9"), "{said}");
            assert!(said.contains("correct the name or create"), "{said}");
        }
        assert!(ready(site).1.contains("tun1 is down"));
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
