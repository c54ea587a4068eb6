//! `splitter explain` at a border: where flows go, and why, without a daemon.

use flow_testbed::topology::{LAN, TUNNELS};
use serde_json::Value;

use crate::support::site::{Connection, Site, on_site, output};

/// More than the threshold.
const LONG: usize = 300_000;

/// What it says of these ends, and how it ends.
fn explain(site: &Site, ends: &[&str]) -> (i32, Value) {
    let arguments = [&["explain", "--json"], ends].concat();
    let said = site.splitter(&arguments);
    let code = said.status.code().expect("it has ended by itself");
    let explanation = serde_json::from_slice(&said.stdout);
    (
        code,
        explanation.unwrap_or_else(|error| panic!("{error}: {said:?}")),
    )
}

/// It is not split, for a reason that these words tell, and something can be done.
#[track_caller]
fn assert_not_split(site: &Site, ends: &[&str], words: &str) -> Value {
    let (code, explanation) = explain(site, ends);
    assert_eq!(code, 1, "{explanation}");
    assert_eq!(explanation["verdict"], "not_split");
    let why = explanation["why"].as_str().unwrap_or_default();
    assert!(why.contains(words), "{explanation}");
    assert!(explanation["remedy"].is_string(), "{explanation}");
    explanation
}

fn client(site: &Site) -> String {
    site.topology.client.ipv4.to_string()
}

fn server(site: &Site) -> String {
    site.topology.server.ipv4.to_string()
}

/// The path of a class leads by this tunnel, by a rule of ours.
#[track_caller]
fn assert_path(path: &Value, class: &str, tunnel: usize, table: &str) {
    assert_eq!(path["class"], class, "{path}");
    assert_eq!(path["split"], true, "{path}");
    assert_eq!(path["table"], table, "{path}");
    assert_eq!(path["rule"]["ours"], true, "{path}");
    let hops = path["next_hops"].as_array().expect("a list");
    assert_eq!(hops.len(), 1, "{path}");
    assert_eq!(hops[0]["device"], TUNNELS[tunnel], "{path}");
    assert!(hops[0]["gateway"].is_string(), "{path}");
}

#[test]
fn new_flow_is_told_rule_route_and_next_hop_of_both_classes() {
    on_site(|site| {
        site.json(&["up"]);
        let mut pairs = vec![(client(site), format!("{}:443", server(site)))];
        let (near, far) = (site.topology.client.ipv6, site.topology.server.ipv6);
        if let Some((near, far)) = near.zip(far) {
            pairs.push((format!("[{near}]:40000"), format!("[{far}]:443")));
            pairs.push((near.to_string(), far.to_string()));
        }
        for (source, destination) in pairs {
            let (code, explanation) = explain(site, &[&source, &destination]);
            assert_eq!(code, 0, "{explanation}");
            assert_eq!(explanation["verdict"], "split");
            assert_eq!(explanation["flows_matching"], 0);
            let paths = explanation["paths"].as_array().expect("a list");
            assert_eq!(paths.len(), 2, "{explanation}");
            assert_path(&paths[0], "short", 0, "10401");
            assert_path(&paths[1], "long", 1, "10402");
            assert!(paths.iter().all(|it| it["lan"] == LAN), "{explanation}");
        }
        // With the destination alone, what comes in by each interface of the site.
        let (code, explanation) = explain(site, &[&server(site)]);
        assert_eq!(code, 0, "{explanation}");
        assert_eq!(explanation["paths"].as_array().map(Vec::len), Some(4));
        site.json(&["down"]);
    });
}

#[test]
fn long_flow_is_found_in_the_table_with_its_class_and_count() {
    on_site(|site| {
        site.json(&["up"]);
        let mut connection = Connection::open(&site.topology);
        connection.send(LONG);
        let near = format!("{}:{}", client(site), connection.port());
        let (code, explanation) = explain(site, &[&near, &server(site)]);
        assert_eq!(code, 0, "{explanation}");
        assert_eq!(explanation["flows_matching"], 1, "{explanation}");
        let flow = &explanation["flows"][0];
        assert_eq!(flow["class"], "long", "{flow}");
        assert!(flow["packets"].as_u64() > Some(40), "{flow}");
        assert!(
            flow["state"]
                .as_str()
                .is_some_and(|it| it.starts_with("long"))
        );
        // Any flow to that address.
        let (_, to_server) = explain(site, &[&server(site)]);
        assert_eq!(to_server["flows_matching"], 1, "{to_server}");
        // One that is not there.
        let (_, other) = explain(site, &[&format!("{}:1", client(site)), &server(site)]);
        assert_eq!(other["flows_matching"], 0, "{other}");
        connection.close();
        site.json(&["down"]);
    });
}

#[test]
fn rule_of_somebody_else_is_named_with_its_number_and_a_remedy() {
    on_site(|site| {
        site.json(&["up"]);
        let rule = format!("to {} lookup main priority 500", server(site));
        let border = site.border();
        border.run(&format!("ip rule add {rule}")).expect("root");
        let ends = [&*client(site), &*server(site)];
        let explanation = assert_not_split(site, &ends, "rule 500 sends it to table main");
        let long = &explanation["paths"][1];
        assert_eq!(long["reason"], "rule", "{long}");
        assert_eq!(long["rule"]["priority"], 500, "{long}");
        assert_eq!(long["rule"]["ours"], false, "{long}");
        assert_eq!(long["next_hops"][0]["device"], TUNNELS[0], "{long}");
        border.run(&format!("ip rule del {rule}")).expect("root");
        // One that looks at ports is met by a flow with such a port alone.
        let rule = "ipproto tcp dport 443 lookup main priority 500";
        border.run(&format!("ip rule add {rule}")).expect("root");
        assert_eq!(explain(site, &ends).0, 0);
        let with_port = [&*client(site), &*format!("{}:443", server(site))];
        assert_not_split(site, &with_port, "rule 500");
        border.run(&format!("ip rule del {rule}")).expect("root");
        site.json(&["down"]);
    });
}

#[test]
fn ipv6_without_gateways_is_not_split() {
    on_site(|site| {
        let (Some(near), Some(far)) = (site.topology.client.ipv6, site.topology.server.ipv6) else {
            return;
        };
        let tunnel = |index: usize| {
            let gateways = site.topology.borders[0].gateway_addresses(index);
            format!(
                "device = '{}'\ngateway = '{}'\n",
                TUNNELS[index], gateways[0]
            )
        };
        site.configure(&format!("[short]\n{}[long]\n{}", tunnel(0), tunnel(1)));
        site.json(&["up"]);
        let ends = [near.to_string(), format!("[{far}]:443")];
        let ends = [&*ends[0], &*ends[1]];
        let explanation = assert_not_split(site, &ends, "no IPv6 gateway");
        // The main table leads both classes by the first tunnel, which is right for short flows alone.
        assert_eq!(explanation["paths"][0]["split"], true, "{explanation}");
        assert_eq!(explanation["paths"][1]["reason"], "no_next_hop");
        assert_eq!(explain(site, &[&client(site), &server(site)]).0, 0);
        site.json(&["down"]);
    });
}

#[test]
fn address_outside_of_the_destinations_is_not_split() {
    on_site(|site| {
        site.configure("[routes]\ndestinations = '10.77.0.0/16'\n");
        site.json(&["up"]);
        let ends = [&*client(site), &*server(site)];
        let explanation =
            assert_not_split(site, &ends, "outside of routes.destinations (10.77.0.0/16)");
        assert_eq!(explanation["paths"][1]["reason"], "outside");
        assert_eq!(explain(site, &[&client(site), "10.77.1.1"]).0, 0);
        site.json(&["down"]);
    });
}

#[test]
fn flow_from_the_wrong_side_is_split_by_the_other_border() {
    on_site(|site| {
        site.json(&["up"]);
        let mut connection = Connection::open(&site.topology);
        connection.send(100);
        let near = format!("{}:{}", client(site), connection.port());
        let explanation = assert_not_split(site, &[&server(site), &near], "a tunnel");
        let remedy = explanation["remedy"].as_str().unwrap_or_default();
        let expected = format!("`splitter explain {near} {}`", server(site));
        assert!(remedy.contains(&expected), "{remedy}");
        connection.close();
        // The border's own.
        let own = &site.topology.borders[1].gateways[0].to_string();
        assert_not_split(site, &[own, &server(site)], "the border's own address");
        site.json(&["down"]);
    });
}

#[test]
fn state_is_told_without_anything_that_is_up() {
    on_site(|site| {
        let ends = [&*client(site), &*server(site)];
        assert_not_split(site, &ends, "is down");
        site.configure("shadow = true");
        site.json(&["up"]);
        assert_not_split(site, &ends, "a shadow");
        site.json(&["down"]);
    });
}

#[test]
fn marks_beside_packets_are_told_as_such() {
    on_site(|site| {
        site.configure("[steering]\nmode = 'mark'\n");
        site.json(&["up"]);
        let (code, explanation) = explain(site, &[&client(site), &server(site)]);
        assert_eq!(code, 0, "{explanation}");
        let long = &explanation["paths"][1];
        assert!(long["fwmark"].is_u64() && long["dscp"].is_null(), "{long}");
        assert_path(long, "long", 1, "10402");
        site.json(&["down"]);
    });
}

#[test]
fn wrong_addresses_are_mistakes_in_the_command_line() {
    on_site(|site| {
        for ends in [
            &[][..],
            &["server"],
            &["10.2.0.5:0"],
            &["127.0.0.1"],
            &["10.2.0.5", "2001:db8::5"],
            &["10.2.0.5", "10.2.0.6", "10.2.0.7"],
        ] {
            let command = site.command(&[&["explain"], ends].concat());
            assert_eq!(output(command).status.code(), Some(2), "{ends:?}");
        }
    });
}
