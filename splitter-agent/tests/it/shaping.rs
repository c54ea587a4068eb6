//! The policy `share` on a border: queues are set up, repaired, shown and taken away, and traffic
//! of both classes and families crosses in both directions.

use crate::support::queues;
use crate::support::site;
use std::net::IpAddr;

use flow_testbed::topology::TUNNELS;
use queues::sent_by;
use serde_json::Value;
use site::{Connection, Site, on_site};

/// About 280 packets.
const LONG_BYTES: usize = 400_000;
const SHARE: &str = "policy = 'share'\n[share]\nshape_percent = 97\n";

/// Qdiscs, classes and filters of the tunnels, as `tc` shows them.
fn queues(site: &Site) -> String {
    let mut shown = String::new();
    for device in TUNNELS {
        for look in ["tc qdisc show", "tc class show", "tc filter show"] {
            let text = site.border().run(&format!("{look} dev {device}"));
            shown += &text.expect("tc works");
        }
    }
    shown
}

#[test]
fn up_shapes_and_down_restores_what_was_found() {
    on_site(|site| {
        let before = queues(site);
        assert!(before.contains("qdisc tbf"), "{before}");
        site.configure(SHARE);

        let plan = site.splitter(&["plan"]);
        let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
        for device in TUNNELS {
            let line = format!("+ qdisc htb 7400: on {device}: 97 Mbit/s, short flows first");
            assert!(plan.contains(&line), "{plan}");
        }
        assert!(plan.contains("in place of qdisc tbf"), "{plan}");
        assert_eq!(queues(site), before, "a plan changes nothing");

        let up = site.json(&["up"]);
        assert_eq!(up["changed"], true);
        let shaped = queues(site);
        for part in [
            "qdisc htb 7400: root",
            "class htb 7400:10 parent 7400:1 leaf 7410: prio 0",
            "class htb 7400:20 parent 7400:1 leaf 7420: prio 1",
            "ceil 97Mbit",
            "bytecode",
        ] {
            assert!(
                shaped.matches(part).count() >= TUNNELS.len(),
                "{part}: {shaped}"
            );
        }
        assert_eq!(
            site.json(&["up"])["changed"],
            false,
            "a second time changes nothing"
        );

        // What somebody else undid is seen and mended.
        site.border()
            .run(&format!(
                "tc class change dev {} parent 7400:1 classid 7400:20 htb rate 50mbit",
                TUNNELS[1]
            ))
            .expect("tc works");
        assert_eq!(site.json(&["plan"])["changed"], true);
        assert_eq!(site.json(&["up"])["changed"], true);
        assert_eq!(site.json(&["plan"])["changed"], false);

        assert!(site.splitter(&["down"]).status.success());
        assert_eq!(queues(site), before);
        let removed = site.json(&["down"]);
        assert_eq!(
            removed["removed"],
            Value::Array(Vec::new()),
            "a second time removes nothing"
        );
    });
}

#[test]
fn dedicated_again_gives_the_tunnels_back() {
    on_site(|site| {
        let before = queues(site);
        site.configure(SHARE);
        assert!(site.splitter(&["up"]).status.success());
        site.configure("policy = 'dedicated'\n");
        assert!(site.splitter(&["up"]).status.success());
        assert_eq!(queues(site), before);
        assert_eq!(site.json(&["plan"])["changed"], false);
        assert!(site.splitter(&["down"]).status.success());
    });
}

#[test]
fn root_that_could_not_be_restored_is_refused() {
    on_site(|site| {
        let device = TUNNELS[1];
        for line in [
            format!("tc qdisc replace dev {device} root handle 7: htb default 1"),
            format!("tc class add dev {device} parent 7: classid 7:1 htb rate 90mbit"),
        ] {
            site.border().run(&line).expect("tc works");
        }
        let before = queues(site);
        site.configure(SHARE);
        let output = site.splitter(&["up"]);
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            reported.contains("tun1") && reported.contains("htb 7:"),
            "{reported}"
        );
        assert_eq!(queues(site), before, "nothing was changed");
    });
}

/// What the kernels of `vm-test` have, and what is said where one has none.
#[test]
fn long_flows_have_fair_queues_or_it_is_said_that_the_kernel_has_none() {
    on_site(|site| {
        let before = queues(site);
        site.configure(&format!("{SHARE}long_queue = 'fq_codel'\n"));
        let output = site.splitter(&["up"]);
        let shaped = queues(site);
        if output.status.success() {
            let fair = "qdisc fq_codel 7420: parent 7400:20";
            assert!(shaped.matches(fair).count() >= TUNNELS.len(), "{shaped}");
            assert_eq!(site.json(&["plan"])["changed"], false);
            assert!(site.splitter(&["down"]).status.success());
        } else {
            assert_eq!(output.status.code(), Some(3), "{output:?}");
            let reported = String::from_utf8_lossy(&output.stderr).into_owned();
            let remedy = "or set share.long_queue = \"fifo\"";
            assert!(reported.contains(remedy), "{reported}");
        }
        assert_eq!(queues(site), before, "it is as it was");
    });
}

#[test]
fn cloudburst_gets_a_queue_of_a_few_packets() {
    on_site(|site| {
        site.configure(&format!(
            "{SHARE}cloudburst_dscp = 44\ncloudburst_packets = 3\n"
        ));
        assert!(site.splitter(&["up"]).status.success());
        let shaped = queues(site);
        assert!(
            shaped.contains("qdisc pfifo 7430: parent 7400:30 limit 3p"),
            "{shaped}"
        );
        assert!(
            shaped.contains("class htb 7400:30 parent 7400:1 leaf 7430: prio 0"),
            "{shaped}"
        );
        assert!(site.splitter(&["down"]).status.success());
    });
}

#[test]
fn both_classes_and_families_cross_both_tunnels() {
    on_site(|site| {
        site.configure(SHARE);
        let daemon = site.run();
        let (client, server) = (&site.topology.client, &site.topology.server);
        for (from, to) in [(client, server), (server, client)] {
            for address in std::iter::once(IpAddr::from(to.ipv4)).chain(to.ipv6.map(IpAddr::from)) {
                for _ in 0..4 {
                    let mut connection = Connection::over(from, to, address);
                    connection.send(LONG_BYTES);
                    connection.close();
                }
            }
        }
        let status = site.json(&["status"]);
        let flows = &status["flows"];
        let count = |name: &str| flows[name].as_u64().expect("a count");
        let placed = count("stayed") + count("moved_drained") + count("stayed_at_max_wait");
        assert_eq!(count("became_long"), placed, "{flows}");
        // What comes from the other site is acknowledgements here.
        assert!((4..=8).contains(&count("became_long")), "{flows}");
        assert_eq!(count("moved_at_max_wait"), 0, "{flows}");
        for class in ["10", "20"] {
            let sent = sent_packets(site, class);
            assert!(sent > 100, "{sent} packets in class {class}");
        }
        drop(daemon);
        assert!(
            site.splitter(&["down"]).status.success(),
            "also after a crash"
        );
        assert!(!queues(site).contains("7400:"));
    });
}

/// What both tunnels' class has sent.
fn sent_packets(site: &Site, class: &str) -> u64 {
    let of = |device: &str| sent_by(site.border(), device, class).packets;
    TUNNELS.into_iter().map(of).sum()
}
