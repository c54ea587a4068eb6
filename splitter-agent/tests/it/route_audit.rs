//! The kernel asked where each class of each family really goes, on networks as they are: routes in
//! the main table, rules of others, one family more than the configuration has.

use crate::support::router;
use crate::support::site;
use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use nix::sys::signal::Signal;
use router::{DESTINATIONS, config, inside, router, up};
use serde_json::Value;
use site::{Site, on_site};
use splitter_config::Config;
use splitter_steering::Placements;
use splitter_steering::routes::{RouteAudit, UnsplitReason, audit};

const TUNNELS_V4: &str = "
lan = ['lan']
[short]
device = 'wan0'
gateway = '192.0.2.1'
[long]
device = 'wan1'
gateway = '198.51.100.1'
";

/// What is found before the instance is up, and while it is.
fn audits(router: &Namespace, config: &Config) -> [RouteAudit; 2] {
    inside(router, async |netlink| {
        let placement = Placements::default();
        let before = audit(netlink, config, &placement, false).await.unwrap();
        let _ = up(netlink, config).await;
        let after = audit(netlink, config, &placement, true).await.unwrap();
        [before, after]
    })
}

/// Both audits find the same one thing.
fn only_finding(router: &Namespace, config: &Config) -> (UnsplitReason, String, Vec<String>) {
    let [before, after] = audits(router, config);
    assert_eq!(before.unsplit, after.unsplit);
    let [found] = &after.unsplit[..] else {
        panic!("{:#?}", after.unsplit);
    };
    assert!(!found.remedy.is_empty());
    (found.reason, found.to_string(), found.classes.clone())
}

#[test]
fn network_without_anything_in_the_way_is_clean() {
    require!(Root, Program("ip"));
    for more in ["", DESTINATIONS, "[steering]\nmode = 'mark'\n"] {
        let router = router();
        let [before, after] = audits(&router, &config(more));
        assert!(
            before.is_clean() && after.is_clean(),
            "{before:?} {after:?}"
        );
        assert!(after.exempt.is_empty(), "{after:?}");
        assert_eq!(after.questions, 4, "two classes, two families");
    }
}

#[test]
fn route_of_the_main_table_by_the_other_tunnel_is_a_finding() {
    require!(Root, Program("ip"));
    for more in ["", "[routes]\ndestinations = ['10.2.0.0/16', '::/0']\n"] {
        let router = router();
        for line in [
            "ip route add 10.2.0.0/24 via 192.0.2.1",
            "ip -6 route add 2001:db8:b::/64 via 2001:db8:1::1",
        ] {
            router.run(line).unwrap();
        }
        let [before, after] = audits(&router, &config(more));
        assert_eq!(before.unsplit, after.unsplit);
        let found: Vec<_> = after.unsplit.iter().map(ToString::to_string).collect();
        let expected = [
            "10.2.0.0/24 NOT split: main has a more specific route by wan0",
            "2001:db8:b::/64 NOT split: main has a more specific route by wan0",
        ];
        assert_eq!(found, expected);
        let is_right = |reason| reason == UnsplitReason::SpecificRoute;
        assert!(after.unsplit.iter().all(|it| is_right(it.reason)));
        assert!(after.unsplit.iter().all(|it| it.classes == ["long"]));
    }
    // A destination of the same length comes first.
    let router = router();
    router
        .run("ip route add 10.2.0.0/24 via 192.0.2.1")
        .unwrap();
    let exact = config("[routes]\ndestinations = '10.2.0.0/24'\n");
    let [before, after] = audits(&router, &exact);
    assert!(
        before.is_clean() && after.is_clean(),
        "{before:?} {after:?}"
    );
}

#[test]
fn more_specific_route_to_elsewhere_keeps_its_meaning_and_is_named() {
    require!(Root, Program("ip"));
    let router = router();
    router
        .run("ip route add 10.2.4.0/24 via 203.0.113.1")
        .unwrap();
    let [before, after] = audits(&router, &config(DESTINATIONS));
    for audit in [before, after] {
        assert!(audit.is_clean(), "{audit:?}");
        let lines = audit.lines(9);
        assert_eq!(
            lines,
            ["10.2.4.0/24 is not split: a more specific route leads by isp, which is no tunnel"]
        );
    }
    // Without destinations that is what more specific routes are for.
    let [_, after] = audits(&router, &config(""));
    assert!(after.is_clean() && after.exempt.is_empty(), "{after:?}");
}

#[test]
fn rule_in_front_is_a_finding_by_its_number() {
    require!(Root, Program("ip"));
    let cases = [
        ("to 10.2.0.0/16", "10.2.0.0/16"),
        ("from 10.1.0.0/24", "IPv4"),
        // Of networks behind the site's own, too.
        ("from 10.1.9.0/24", "IPv4"),
        ("from 10.1.9.0/24 to 10.2.0.0/16", "10.2.0.0/16"),
        ("ipproto tcp dport 443", "IPv4"),
    ];
    for (selector, destination) in cases {
        let router = router();
        for line in [
            "ip route add default via 203.0.113.1 table 200",
            &format!("ip rule add {selector} lookup 200 priority 500"),
        ] {
            router.run(line).unwrap();
        }
        let (reason, words, classes) = only_finding(&router, &config(""));
        assert_eq!(reason, UnsplitReason::Rule, "{words}");
        let expected =
            format!("{destination} NOT split: rule 500 sends it to table 200 (ip rule 500:");
        assert!(words.starts_with(&expected), "{selector}: {words}");
        assert_eq!(classes, ["short", "long"], "{selector}");
    }
    let router = router();
    router
        .run("ip rule add to 10.2.0.0/16 unreachable priority 500")
        .unwrap();
    let (reason, words, _) = only_finding(&router, &config(""));
    assert_eq!(reason, UnsplitReason::Rule, "{words}");
    assert!(words.contains("rule 500 drops it"), "{words}");
}

#[test]
fn rule_that_nothing_of_the_site_meets_is_no_finding() {
    require!(Root, Program("ip"));
    let router = router();
    for line in [
        "ip route add default via 203.0.113.1 table 200",
        "ip rule add iif isp lookup 200 priority 500",
        "ip rule add fwmark 0x80000/0xff0000 lookup 200 priority 501",
        // A table without a route for it.
        "ip rule add to 10.2.0.0/16 lookup 201 priority 502",
        // Behind ours.
        "ip rule add to 10.2.0.0/16 lookup 200 priority 1700",
    ] {
        router.run(line).unwrap();
    }
    let [before, after] = audits(&router, &config(""));
    assert!(
        before.is_clean() && after.is_clean(),
        "{before:?} {after:?}"
    );
}

#[test]
fn family_without_next_hops_is_a_finding_unless_it_is_not_meant() {
    require!(Root, Program("ip"));
    let router = router();
    let v4_only = Config::parse(TUNNELS_V4, "test.toml").unwrap();
    let (reason, words, classes) = only_finding(&router, &v4_only);
    assert_eq!(reason, UnsplitReason::NoNextHop);
    assert_eq!(
        words,
        "IPv6 NOT split: the short tunnel and the long tunnel have no IPv6 gateway, so all of it \
         leaves by isp"
    );
    assert_eq!(classes, ["short", "long"]);
    let meant = format!("{TUNNELS_V4}[routes]\ndestinations = '0.0.0.0/0'\n");
    let [_, after] = audits(&router, &Config::parse(&meant, "test.toml").unwrap());
    assert!(after.is_clean(), "{after:?}");
    // Who does not route IPv6 is not asked for a gateway.
    router.run("ip -6 route del default").unwrap();
    let [_, after] = audits(&router, &v4_only);
    assert!(after.is_clean(), "{after:?}");
}

#[test]
fn route_that_is_taken_away_is_a_finding_of_its_class() {
    require!(Root, Program("ip"));
    let router = router();
    let config = config("");
    let _ = audits(&router, &config);
    router.run("ip link set wan1 down").unwrap();
    let after = inside(&router, async |netlink| {
        audit(netlink, &config, &Placements::default(), true)
            .await
            .unwrap()
    });
    assert_eq!(after.unsplit.len(), 2, "{after:?}");
    for found in after.unsplit {
        assert_eq!(found.reason, UnsplitReason::NoRoute);
        assert_eq!(found.classes, ["long"]);
        assert!(found.problem.ends_with("sends it by wan0"), "{found}");
    }
}

#[test]
fn route_that_drops_is_a_finding_of_its_class() {
    require!(Root, Program("ip"));
    let router = router();
    let config = config("");
    let _ = audits(&router, &config);
    // In the place of the class' own.
    let drops = "ip route replace blackhole default table 10402";
    router.run(drops).unwrap();
    let after = inside(&router, async |netlink| {
        audit(netlink, &config, &Placements::default(), true)
            .await
            .unwrap()
    });
    let [found] = &after.unsplit[..] else {
        panic!("{after:#?}");
    };
    assert_eq!(found.reason, UnsplitReason::Dropped, "{found}");
    assert_eq!(found.classes, ["long"]);
}

#[test]
fn ten_thousand_more_specific_routes_are_asked_about() {
    require!(Root, Program("ip"));
    let router = router();
    let lines: String = (0..10_000)
        .map(|number| {
            let (high, low) = (number / 256, number % 256);
            format!("route add 10.{}.{low}.0/24 via 192.0.2.1\n", 64 + high)
        })
        .collect();
    router.run_with_input("ip -batch -", &lines).unwrap();
    let begin = std::time::Instant::now();
    let [before, after] = audits(&router, &config(""));
    println!("two audits and one start: {:?}", begin.elapsed());
    assert_eq!(before.unsplit, after.unsplit);
    assert_eq!(after.unsplit.len(), 10_000);
    assert_eq!(after.unasked, 0);
    assert_eq!(after.lines(20).len(), 21);
}

/// What the page says while something is not split, from its metrics to its commands.
fn assert_says(site: &Site, prefix: &str, sample: &str) {
    let (status, body) = site.get("/ready").expect("it answers");
    assert_eq!(status, 503, "{body}");
    assert!(
        body.contains(&format!("routing: {prefix} NOT split")),
        "{body}"
    );
    assert!((site.metric(sample) - 1.0).abs() < f64::EPSILON);
    let expected = format!("{prefix} NOT split");
    for command in ["status", "plan"] {
        let output = site.splitter(&[command]);
        let shown = site::stdout(&output);
        assert!(shown.contains(&expected), "{command}: {shown}");
        let routing = &site.json(&[command])["routing"]["unsplit"];
        assert_eq!(routing.as_array().map(Vec::len), Some(1), "{command}");
    }
    let output = site.splitter(&["doctor", "--json"]);
    let checks: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut checks = checks.as_array().expect("a list").iter();
    let failed = checks.find(|it| {
        let detail = it["detail"].as_str().unwrap_or_default();
        it["status"] == "fail" && detail.starts_with(&expected)
    });
    assert!(
        failed.is_some_and(|it| it["remedy"].is_string()),
        "{output:?}"
    );
    assert!(!output.status.success());
}

fn wait_until_ready(site: &Site, is_ready: bool) {
    let status = if is_ready { 200 } else { 503 };
    site.wait_for("readiness to follow the routes", || {
        site.get("/ready").ok().filter(|it| it.0 == status)
    });
}

#[test]
fn agent_says_what_others_keep_from_being_split_while_they_do() {
    on_site(|site| {
        let daemon = site.run();
        let gateways = site.topology.borders[0].gateway_addresses(0);
        let border = site.border();
        // A route that a routing daemon learns, and forgets.
        let route = format!("10.77.0.0/24 via {}", gateways[0]);
        border.run(&format!("ip route add {route}")).expect("root");
        wait_until_ready(site, false);
        assert_says(
            site,
            "10.77.0.0/24",
            "splitter_unsplit_prefixes{family=\"ipv4\",reason=\"specific_route\"}",
        );
        border.run(&format!("ip route del {route}")).expect("root");
        wait_until_ready(site, true);
        // Somebody's rule.
        let rule = "to 10.77.0.0/16 lookup main priority 500";
        border.run(&format!("ip rule add {rule}")).expect("root");
        wait_until_ready(site, false);
        assert_says(
            site,
            "10.77.0.0/16",
            "splitter_unsplit_prefixes{family=\"ipv4\",reason=\"rule\"}",
        );
        border.run(&format!("ip rule del {rule}")).expect("root");
        wait_until_ready(site, true);
        let log = daemon.log();
        assert!(log.contains("10.77.0.0/16 NOT split: rule 500"), "{log}");
        assert!(
            log.contains("all that should be split is split again"),
            "{log}"
        );
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn agent_says_that_a_family_is_not_split() {
    on_site(|site| {
        let tunnel = |index: usize| {
            let gateways = site.topology.borders[0].gateway_addresses(index);
            let device = flow_testbed::topology::TUNNELS[index];
            format!(
                "device = '{device}'\ngateway = '{}'\nrate_mbit = 100\n",
                gateways[0]
            )
        };
        site.configure(&format!("[short]\n{}[long]\n{}", tunnel(0), tunnel(1)));
        let daemon = site.start();
        wait_until_ready(site, false);
        assert_says(
            site,
            "IPv6",
            "splitter_unsplit_prefixes{family=\"ipv6\",reason=\"no_next_hop\"}",
        );
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn rule_that_takes_all_of_the_site_is_a_conflict() {
    on_site(|site| {
        let before = site.routing();
        let lan = site.topology.client.ipv4;
        let rule = format!("from {lan}/8 lookup main priority 500");
        site.border()
            .run(&format!("ip rule add {rule}"))
            .expect("root");
        let reported = site.refused(&["up"], 5);
        assert!(reported.contains("would leave by"), "{reported}");
        site.border()
            .run(&format!("ip rule del {rule}"))
            .expect("root");
        site.assert_clean(&before);
    });
}
