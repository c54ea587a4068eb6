//! `splitter fabric doctor`: what would keep a role from working, or hosts from seeing nothing of it.

use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use serde_json::Value as Json;

use super::rig::{Rig, run};

/// How the checks with a name stand, as the router is now.
fn status(rig: &Rig, router: &Namespace, check: &str) -> String {
    let output = rig.output(router, "doctor");
    let checks: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = checks.as_array().expect("a list");
    let mut found = checks.iter().filter(|it| it["check"] == check);
    let found = found
        .next()
        .unwrap_or_else(|| panic!("{check} is not in {checks:?}"));
    let status = found["status"].as_str().expect("a word").to_owned();
    let has_failed = checks.iter().any(|it| it["status"] == "fail");
    assert_eq!(output.status.success(), !has_failed, "{checks:?}");
    assert_eq!(found["remedy"].is_null(), status == "ok", "{found}");
    status
}

#[test]
fn each_obstacle_of_a_leaf_is_told() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    let mut wrong = Vec::new();
    for (check, obstacle, expected) in [
        ("interface up1", "ip link set up1 down", "fail"),
        ("MTU of the ports", "ip link set up1 mtu 1400", "warn"),
        ("IPv4 forwarding", "sysctl -w net.ipv4.ip_forward=0", "fail"),
        // Of its three bits that a rule by TOS sees.
        (
            "DSCP of the fabric",
            "ip rule add tos 0x04 lookup main",
            "fail",
        ),
        (
            "hosts next to the leaf",
            "ip addr add 10.2.0.9/24 dev host0",
            "fail",
        ),
    ] {
        let before = status(&rig, leaf, check);
        run(leaf, obstacle);
        let after = status(&rig, leaf, check);
        if (&*before, &*after) != ("ok", expected) {
            wrong.push(format!("{check}: {before}, and {after} after `{obstacle}`"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for address in ["10.1.0.1/24", "10.2.0.9/24", "fd00:1::1/64"] {
        run(leaf, &format!("ip addr del {address} dev host0"));
    }
    assert_eq!(status(&rig, leaf, "hosts next to the leaf"), "warn");
    // By default the configuration's own marks are looked at as well.
    assert_eq!(status(&rig, leaf, "queues by DSCP"), "ok");
}
