//! Classes that choose differently: each by a `balance` of its own, and "placement" for what does not choose.

use flow_testbed::topology::TUNNELS;
use serde_json::Value;

use super::{BYTES, SHAPED, connection, sent_while, tunnel, without_offloads};
use crate::support::site::{Connection, Site, on_site, stdout};

/// Some ten packets, of which none makes a flow long.
const FEW_BYTES: usize = 10_000;

/// The first tunnel is the short class's, and the other one the long one's, each shaped; with more keys for each section.
fn classes(site: &Site, short: &str, long: &str) -> String {
    format!(
        "policy = 'share'\n[short]\n{}{short}\n[long]\n{}{long}\n[steering]\nmode = 'mark'\n{SHAPED}",
        tunnel(site, 0),
        tunnel(site, 1)
    )
}

/// Packets that chose each tunnel, of a class.
fn chosen(site: &Site, class: &str) -> [u64; 2] {
    let chosen = site.json(&["status"])["chosen"].clone();
    [0, 1].map(|it| chosen[it]["packets"][class].as_u64().expect("a number"))
}

fn families(site: &Site) -> Vec<Connection> {
    let server = &site.topology.server;
    let addresses = [Some(server.ipv4.into()), server.ipv6.map(Into::into)];
    let addresses = addresses.into_iter().flatten();
    addresses.map(|address| connection(site, address)).collect()
}

#[test]
fn long_flows_fill_all_tunnels_and_short_ones_keep_to_their_own() {
    on_site(|site| {
        without_offloads(site);
        site.configure(&classes(site, "balance = 'placement'", "balance = 'tr'"));
        let before = site.routing();
        let daemon = site.run();
        assert_eq!(site.json(&["plan"])["changed"], false);
        for mut long in families(site) {
            let sent = sent_while(site, || long.send(BYTES));
            let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
            println!("{sent:?} bytes");
            // 8 of 38.
            assert!((0.12..0.3).contains(&share), "{sent:?}");
        }
        for _ in 0..5 {
            families(site).iter_mut().for_each(|it| it.send(FEW_BYTES));
        }
        let (short, long) = (chosen(site, "short"), chosen(site, "long"));
        assert!(short[0] >= 100 && short[1] == 0, "{short:?}");
        assert!(long.iter().all(|it| *it > 500), "{long:?}");
        // What is not split goes with the short class, be it little here.
        assert_eq!(chosen(site, "other")[1], 0);
        let status = site.json(&["status"]);
        assert_eq!(
            status["balance"],
            serde_json::json!({ "short": "placement", "long": "tr" })
        );
        let shown = stdout(&site.splitter(&["status"]));
        let words = "short flows and what is not split keep to the tunnels of their class, long flows choose by tr";
        assert!(shown.contains(words), "{shown}");
        assert!(!shown.contains("longest wait"), "{shown}");
        for row in [
            "short in the short tunnel",
            "long in any tunnel, each packet by tr",
        ] {
            assert!(shown.contains(row), "{shown}");
        }
        explains_the_choice(site);
        takes_a_chosen_tunnel_for_right(site);
        assert!(daemon.end(nix::sys::signal::Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

/// What `explain` says where long flows choose by TR, and short ones keep to the first tunnel.
fn explains_the_choice(site: &Site) {
    let ends = [
        &*site.topology.client.ipv4.to_string(),
        &*site.topology.server.ipv4.to_string(),
    ];
    let explained = site.json(&["explain", ends[0], ends[1]]);
    let paths = explained["paths"].as_array().expect("a list");
    let said: Vec<_> = { paths.iter() }
        .map(|it| (&it["class"], &it["balance"], &it["tunnels"]))
        .collect();
    let [short, long, own, tr] = ["short", "long", "placement", "tr"].map(Value::from);
    let (one, all) = (serde_json::json!([TUNNELS[0]]), serde_json::json!(TUNNELS));
    let expected = [(&short, &own, &one), (&long, &tr, &all)];
    assert_eq!(said, expected, "{explained}");
    let shown = stdout(&site.splitter(&["explain", ends[0], ends[1]]));
    let words = format!("choice by tr among {}, {}", TUNNELS[0], TUNNELS[1]);
    assert!(shown.contains(&words), "{shown}");
}

/// What `verify` says of the first tunnel, which is the short class's and which idle long flows choose, once nothing of before
/// waits there.
fn takes_a_chosen_tunnel_for_right(site: &Site) {
    let server = site.topology.server.ipv4.to_string();
    let has_taken = || {
        let report = site.json(&["verify", "--count", "3", "--to", &server]);
        assert_eq!(report["verdict"], "ok", "{report}");
        let paths = report["paths"].as_array().expect("a list");
        let mut long = paths.iter().filter(|it| it["class"] == "long");
        long.any(|it| it["taken"][TUNNELS[0]].as_u64() > Some(0))
    };
    assert!((0..5).any(|_| has_taken()));
}

#[test]
fn short_flows_choose_and_long_ones_keep_to_their_own() {
    on_site(|site| {
        without_offloads(site);
        site.configure(&classes(site, "balance = 'rps'", "balance = 'placement'"));
        site.json(&["up"]);
        for mut connection in families(site) {
            connection.send(BYTES / 4);
        }
        let (short, long) = (chosen(site, "short"), chosen(site, "long"));
        assert!(short.iter().all(|it| *it > 10), "{short:?}");
        // The first ones stay where the last short one went until they would not overtake it.
        assert!(long[1] > 500 && long[0] < long[1] / 5, "{long:?}");
        site.json(&["down"]);
    });
}

/// The flowlet that the short flow's packets were goes on, in the tunnel of the last one.
#[test]
fn flow_that_turns_long_goes_on_in_the_tunnel_where_it_was() {
    on_site(|site| {
        without_offloads(site);
        let text = classes(site, "balance = 'tr'", "balance = 'letflow'");
        // Longer than all that a short flow may have waiting in the other tunnel, which TR takes therefore.
        let far = text.replace(
            "delay_ms = 1\nbalance = 'letflow'",
            "delay_ms = 40\nbalance = 'letflow'",
        );
        assert_ne!(far, text);
        site.configure(&far);
        site.json(&["up"]);
        for mut connection in families(site) {
            let before = chosen(site, "long");
            connection.send(BYTES / 4);
            let after = chosen(site, "long");
            let long = [0, 1].map(|it| after[it] - before[it]);
            let short = chosen(site, "short");
            println!("{long:?} long packets, {short:?} short ones");
            assert_eq!(short[1], 0, "{short:?}");
            // Nothing pauses for 50 ms.
            assert!(long[0] > 200 && long[1] == 0, "{long:?}");
        }
        site.json(&["down"]);
    });
}

#[test]
fn where_nothing_says_how_flows_are_placed_nobody_chooses() {
    on_site(|site| {
        without_offloads(site);
        let dedicated = |balance: &str| {
            let text = classes(site, "", "").replace("policy = 'share'", "policy = 'dedicated'");
            // Refused where nobody chooses.
            format!("{balance}\n{}", text.replace("delay_ms = 1\n", ""))
        };
        site.configure(&dedicated("balance = 'drb'"));
        site.json(&["up"]);
        let mut before = connection(site, site.topology.server.ipv4.into());
        let sent = sent_while(site, || before.send(BYTES / 4));
        assert!(sent.iter().all(|it| *it > BYTES as u64 / 10), "{sent:?}");
        for balance in ["balance = 'placement'", ""] {
            site.configure(&dedicated(balance));
            site.json(&["up"]);
            assert_eq!(site.json(&["plan"])["changed"], false, "{balance}");
            let status = site.json(&["status"]);
            let (chosen, is_said) = (&status["chosen"], !balance.is_empty());
            assert_eq!(chosen.as_array().map(Vec::is_empty), Some(!is_said));
            assert_eq!(status["balance"].is_null(), !is_said, "{balance}");
            let plan = site.json(&["plan"]);
            assert_eq!(plan.to_string().contains("10411"), is_said, "{plan}");
            let mut connection = connection(site, site.topology.server.ipv4.into());
            let short = sent_while(site, || connection.send(FEW_BYTES));
            assert!(short[0] > FEW_BYTES as u64 && short[1] < 2_000, "{short:?}");
            let long = sent_while(site, || connection.send(BYTES));
            assert!(long[1] > BYTES as u64 * 9 / 10, "{TUNNELS:?}: {long:?}");
        }
        site.json(&["down"]);
    });
}
