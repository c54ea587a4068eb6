//! Rules and routes against a real kernel, each test in network namespaces of its own.

use crate::support::router;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use router::{
    DESTINATIONS, TUNNELS, config, device, everything, inside, router, up, up_and_verified,
};
use splitter_config::Config;
use splitter_steering::Placements;
use splitter_steering::routes::{
    Action, Footprint, PlanError, VerifyError, audit, plan, remove_all,
};

#[test]
fn marked_packets_take_their_tunnels() {
    require!(Root, Program("ip"));
    for matching in ["dscp", "tos", "auto"] {
        let router = router();
        let config = config(&format!("[marks]\nmatch = '{matching}'\n"));
        let verification = inside(&router, async |netlink| {
            up_and_verified(netlink, &config).await
        });
        assert_eq!(verification.probes.len(), 6, "{verification:?}");
        assert!(verification.skipped.is_empty(), "{verification:?}");
        for destination in ["9.9.9.9", "2606:4700::1111"] {
            assert_eq!(device(&router, destination, 4 << 2), "wan0", "{matching}");
            assert_eq!(device(&router, destination, 2 << 2), "wan1", "{matching}");
            assert_eq!(device(&router, destination, 0), "wan0", "{matching}");
        }
        // Specific routes of the main table win.
        assert_eq!(device(&router, "203.0.113.1", 2 << 2), "isp");
    }
}

#[test]
fn exact_match_distinguishes_what_the_legacy_mask_does_not() {
    require!(Root, Program("ip"));
    let router = router();
    let config = config("[marks]\nmatch = 'dscp'\nshort = 10\nlong = 2\n");
    inside(&router, async |netlink| {
        up_and_verified(netlink, &config).await
    });
    assert_eq!(device(&router, "9.9.9.9", 2 << 2), "wan1");
    assert_eq!(device(&router, "9.9.9.9", 10 << 2), "wan0");
}

#[test]
fn only_destinations_are_steered_when_they_are_named() {
    require!(Root, Program("ip"));
    let router = router();
    let config = config(DESTINATIONS);
    let verification = inside(&router, async |netlink| {
        up_and_verified(netlink, &config).await
    });
    assert_eq!(verification.probes.len(), 6, "{verification:?}");
    assert_eq!(device(&router, "10.2.3.4", 2 << 2), "wan1");
    assert_eq!(device(&router, "2001:db8:b::9", 2 << 2), "wan1");
    assert_eq!(device(&router, "2001:db8:b::9", 0), "wan0");
    assert_eq!(device(&router, "9.9.9.9", 2 << 2), "isp");
}

#[test]
fn traffic_between_two_site_interfaces_stays_at_the_site() {
    require!(Root, Program("ip"));
    let router = router();
    for line in [
        "ip link add lan2 type veth peer far-lan2",
        "ip link set lan2 up",
        "ip link set far-lan2 up",
        "ip addr add 10.3.0.1/16 dev lan2",
        "ip addr add 2001:db8:c::1/64 dev lan2 nodad",
    ] {
        router.run(line).unwrap();
    }
    let text = TUNNELS.replace("['lan']", "['lan', 'lan2']")
        + "[routes]\ndestinations = ['10.0.0.0/8', '172.16.0.0/12', '2001:db8::/32']\n";
    let config = Config::parse(&text, "test.toml").unwrap();
    inside(&router, async |netlink| {
        up_and_verified(netlink, &config).await;
        assert!(plan(netlink, &config, None).await.unwrap().is_in_place());
    });
    let rules = router.run("ip rule").unwrap();
    for length in [8, 12] {
        let rule = format!("lookup main suppress_prefixlength {length}");
        assert!(rules.contains(&rule), "{rules}");
    }
    for tos in [0, 2 << 2, 4 << 2] {
        assert_eq!(device(&router, "10.3.0.5", tos), "lan2");
        assert_eq!(device(&router, "2001:db8:c::5", tos), "lan2");
    }
    assert_eq!(device(&router, "10.2.3.4", 2 << 2), "wan1");
    assert_eq!(device(&router, "10.2.3.4", 0), "wan0");
    assert_eq!(device(&router, "2001:db8:b::9", 2 << 2), "wan1");
    // What is more specific on the way out wins, too, and the rest goes by the main table.
    router
        .run("ip route add 10.4.0.0/16 via 203.0.113.1")
        .unwrap();
    assert_eq!(device(&router, "10.4.0.9", 2 << 2), "isp");
    assert_eq!(device(&router, "9.9.9.9", 2 << 2), "isp");
}

#[test]
fn specific_route_is_held_against_the_destination_in_which_it_lies() {
    require!(Root, Program("ip"));
    let router = router();
    for line in [
        "ip link add lan2 type veth peer far-lan2",
        "ip link set lan2 up",
        "ip link set far-lan2 up",
        "ip addr add 10.3.0.1/24 dev lan2",
        "ip addr add 2001:db8:c::1/64 dev lan2 nodad",
        // Exactly a destination, as a routing daemon would have it.
        "ip route add 10.2.0.0/24 via 203.0.113.1",
        "ip -6 route add 2001:db8:b::/64 via 2001:db8:3::1",
        // Inside the first, and inside the second.
        "ip route add 10.4.0.0/16 via 203.0.113.1",
        "ip route add 10.2.0.128/25 via 203.0.113.1",
    ] {
        router.run(line).unwrap();
    }
    let more = "[routes]\ndestinations = ['0.0.0.0/0', '10.2.0.0/24', '::/0', '2001:db8:b::/64']\n";
    let config = config(more);
    let before = everything(&router);
    inside(&router, async |netlink| {
        up_and_verified(netlink, &config).await;
        assert!(plan(netlink, &config, None).await.unwrap().is_in_place());
    });
    for (tos, tunnel) in [(0, "wan0"), (4 << 2, "wan0"), (2 << 2, "wan1")] {
        // Another interface of the site, whose prefix is as long as the other destination's.
        assert_eq!(device(&router, "10.3.0.5", tos), "lan2");
        assert_eq!(device(&router, "2001:db8:c::5", tos), "lan2");
        assert_eq!(device(&router, "10.4.0.9", tos), "isp");
        assert_eq!(device(&router, "10.2.0.129", tos), "isp");
        assert_eq!(device(&router, "10.2.0.9", tos), tunnel);
        assert_eq!(device(&router, "2001:db8:b::9", tos), tunnel);
        assert_eq!(device(&router, "9.9.9.9", tos), tunnel);
        assert_eq!(device(&router, "2606:4700::1111", tos), tunnel);
    }
    let audited = inside(&router, async |netlink| {
        audit(netlink, &config, &Placements::default(), true)
            .await
            .unwrap()
    });
    assert_eq!(audited.unsplit, [], "{audited:?}");
    let exempt: Vec<_> = audited
        .exempt
        .iter()
        .map(|it| it.destination.to_string())
        .collect();
    assert_eq!(exempt, ["10.2.0.128/25", "10.4.0.0/16"]);
    inside(&router, async |netlink| {
        let removed = remove_all(netlink, &Footprint::of(&config)).await.unwrap();
        assert_eq!(removed.len(), 2 * 6 + 8, "{removed:?}");
    });
    assert_eq!(everything(&router), before);
}

#[test]
fn long_flows_fall_through_when_their_tunnel_goes_away() {
    require!(Root, Program("ip"));
    let router = router();
    let config = config("");
    let _ = inside(&router, async |netlink| up(netlink, &config).await);
    router.run("ip link del wan1").unwrap();
    assert_eq!(device(&router, "9.9.9.9", 2 << 2), "wan0");
}

#[test]
fn point_to_point_devices_need_no_next_hop() {
    require!(Root, Program("ip"));
    let router = router();
    let text = "lan = 'lan'\n[short]\ndevice = 'wan0'\n[long]\ndevice = 'wan1'\n";
    let config = Config::parse(text, "test.toml").unwrap();
    let shown = inside(&router, async |netlink| {
        let applied = up(netlink, &config).await;
        applied.verify(netlink, &config).await.unwrap();
        applied.plan().to_string()
    });
    assert!(
        shown.contains("+ ip route default dev wan0 table 10401 proto 94\n"),
        "{shown}"
    );
    assert!(
        router
            .run("ip route show table 10402")
            .unwrap()
            .contains("proto 94 scope link")
    );
}

#[test]
fn second_plan_keeps_everything() {
    require!(Root, Program("ip"));
    let router = router();
    for more in ["", DESTINATIONS, "[marks]\nmatch = 'tos'\n"] {
        let config = config(more);
        inside(&router, async |netlink| {
            let first = plan(netlink, &config, None).await.unwrap();
            let is_addition = |action: &Action| matches!(action, Action::Add(_));
            assert!(first.actions.iter().all(is_addition), "{first}");
            let applied = first.apply(netlink).await.unwrap();
            applied.verify(netlink, &config).await.unwrap();
            let second = plan(netlink, &config, None).await.unwrap();
            assert!(second.is_in_place(), "{second}");
            let removed = remove_all(netlink, &Footprint::of(&config)).await.unwrap();
            assert_eq!(removed.len(), second.actions.len());
            let again = remove_all(netlink, &Footprint::of(&config)).await.unwrap();
            assert_eq!(again, []);
        });
    }
}

#[test]
fn what_the_user_has_is_restored() {
    require!(Root, Program("ip"));
    let router = router();
    for line in [
        "ip rule add from 10.9.0.0/16 lookup 77 priority 500",
        "ip rule add to 10.8.0.0/16 lookup 77 priority 2000 protocol 94",
        "ip route add 10.8.0.0/16 dev isp table 77 proto 94",
    ] {
        router.run(line).unwrap();
    }
    let before = everything(&router);
    let config = config("");
    inside(&router, async |netlink| {
        up_and_verified(netlink, &config).await;
    });
    assert_ne!(everything(&router), before);
    inside(&router, async |netlink| {
        remove_all(netlink, &Footprint::of(&config)).await.unwrap();
    });
    assert_eq!(everything(&router), before);
}

#[test]
fn failing_step_is_named_and_the_others_undone() {
    require!(Root, Program("ip"));
    let router = router();
    let before = everything(&router);
    let text = TUNNELS.replace("198.51.100.1", "100.64.0.1");
    let config = Config::parse(&text, "test.toml").unwrap();
    let message = inside(&router, async |netlink| {
        let plan = plan(netlink, &config, None).await.unwrap();
        plan.apply(netlink).await.unwrap_err().to_string()
    });
    assert_eq!(everything(&router), before);
    let step = "+ ip route default via 100.64.0.1 dev wan1 table 10402";
    assert!(message.contains(step), "{message}");
}

#[test]
fn changed_configuration_replaces_what_the_old_one_left() {
    require!(Root, Program("ip"));
    let router = router();
    let old = config("[routes]\nrule_priority = 300\n");
    let new = config("[marks]\nlong = 1\n[routes]\ndestinations = '10.2.0.0/16'\n");
    inside(&router, async |netlink| {
        let _ = up(netlink, &old).await;
        let previous = Footprint::of(&old);
        let change = plan(netlink, &new, Some(&previous)).await.unwrap();
        let is_removal = |action: &&Action| matches!(action, Action::Remove(_));
        assert_eq!(
            change.actions.iter().filter(is_removal).count(),
            10,
            "{change}"
        );
        let applied = change.apply(netlink).await.unwrap();
        applied.verify(netlink, &new).await.unwrap();
        let again = plan(netlink, &new, Some(&previous)).await.unwrap();
        assert!(again.is_in_place(), "{again}");
    });
    assert_eq!(device(&router, "10.2.0.9", 1 << 2), "wan1");
    assert!(!router.run("ip rule").unwrap().contains("30"));
}

#[test]
fn rolling_back_restores_what_a_change_removed() {
    require!(Root, Program("ip"));
    let router = router();
    let old = config("");
    let new = config("[marks]\nlong = 1\n");
    let _ = inside(&router, async |netlink| up(netlink, &old).await);
    let before = everything(&router);
    inside(&router, async |netlink| {
        let undone = up(netlink, &new).await.roll_back(netlink).await;
        assert!(undone.remaining.is_empty(), "{undone}");
    });
    assert_eq!(everything(&router), before);
}

#[test]
fn conflicts_are_reported_and_nothing_is_changed() {
    require!(Root, Program("ip"));
    let cases = [
        (
            "ip route add 10.7.0.0/16 dev isp table 10401",
            "table 10401 already holds a route",
        ),
        (
            "ip -6 route add 2001:db8:7::/48 dev isp table 10402",
            "ip -6 route 2001:db8:7::/48",
        ),
        (
            "ip rule add from all lookup 5 priority 1601",
            "this priority is taken",
        ),
        (
            "ip rule add iif lan lookup main priority 900",
            "selects what arrives at lan",
        ),
        (
            "ip rule add tos 0x08 lookup main priority 900",
            "selects our mark, DSCP 2",
        ),
        (
            "ip rule add iif isp lookup 5 priority 1600 protocol 94",
            "another instance",
        ),
    ];
    for (line, expected) in cases {
        let router = router();
        router.run(line).unwrap();
        let before = everything(&router);
        let error = inside(&router, async |netlink| {
            plan(netlink, &config(""), None).await
        });
        let Err(PlanError::Conflicts(conflicts)) = error else {
            panic!("{line}: {error:?}")
        };
        assert_eq!(conflicts.len(), 1, "{conflicts:?}");
        let reported = conflicts[0].to_string();
        assert!(reported.contains(expected), "{reported}");
        assert_eq!(everything(&router), before);
    }
}

#[test]
fn rules_that_do_not_matter_are_no_conflict() {
    require!(Root, Program("ip"));
    let router = router();
    for line in [
        "ip rule add iif lan lookup main priority 1700",
        "ip rule add iif isp lookup main priority 900",
        "ip rule add iif isp tos 0x08 lookup main priority 901",
        "ip rule add fwmark 1 lookup 5 priority 902",
    ] {
        router.run(line).unwrap();
    }
    let config = config("");
    inside(&router, async |netlink| {
        up_and_verified(netlink, &config).await;
    });
}

#[test]
fn verification_sees_a_rule_in_front() {
    require!(Root, Program("ip"));
    let lines = [
        "ip rule add from 10.1.0.0/24 lookup main priority 900",
        "ip rule add from 10.1.0.0/24 unreachable priority 900",
        "ip -6 rule add from 2001:db8:a::/64 lookup main priority 900",
    ];
    for line in lines {
        for more in ["", DESTINATIONS] {
            let router = router();
            let before = everything(&router);
            let config = config(more);
            inside(&router, async |netlink| {
                let applied = up(netlink, &config).await;
                router.run(line).unwrap();
                let error = applied.verify(netlink, &config).await.unwrap_err();
                let expected = matches!(
                    error,
                    VerifyError::WrongWay { .. } | VerifyError::Dropped { .. }
                );
                assert!(expected, "{line}: {error}");
                router.run(&line.replace(" add ", " del ")).unwrap();
                assert!(applied.roll_back(netlink).await.remaining.is_empty());
            });
            assert_eq!(everything(&router), before);
        }
    }
}

#[test]
fn verification_sees_what_was_taken_away() {
    require!(Root, Program("ip"));
    let router = router();
    let config = config("");
    inside(&router, async |netlink| {
        let applied = up(netlink, &config).await;
        router.run("ip rule del priority 1601").unwrap();
        let reported = applied.verify(netlink, &config).await.unwrap_err();
        let reported = reported.to_string();
        let missing = "+ ip rule 1601: from all iif lan dscp 2";
        assert!(reported.contains(missing), "{reported}");
    });
}

#[test]
fn verification_sees_a_host_that_does_not_forward() {
    require!(Root, Program("ip"));
    let router = router();
    router.sysctl("net.ipv4.ip_forward", "0").unwrap();
    let config = config("");
    inside(&router, async |netlink| {
        let applied = up(netlink, &config).await;
        let reported = applied.verify(netlink, &config).await.unwrap_err();
        let reported = reported.to_string();
        assert!(
            reported.ends_with("`sysctl net.ipv4.ip_forward=1`"),
            "{reported}"
        );
    });
}

#[test]
fn missing_interface_is_named_with_those_present() {
    require!(Root, Program("ip"));
    let router = router();
    router.run("ip link del wan1").unwrap();
    let error = inside(&router, async |netlink| {
        plan(netlink, &config(""), None).await.unwrap_err()
    });
    let message = error.to_string();
    assert!(
        message.contains("wan1") && message.contains("wan0"),
        "{message}"
    );
}

#[test]
fn removal_after_the_devices_have_gone() {
    require!(Root, Program("ip"));
    let router = router();
    let config = config("");
    let _ = inside(&router, async |netlink| up(netlink, &config).await);
    router.run("ip link del wan0").unwrap();
    router.run("ip link del lan").unwrap();
    inside(&router, async |netlink| {
        let removed = remove_all(netlink, &Footprint::of(&config)).await.unwrap();
        assert_eq!(removed.len(), 8, "{removed:?}");
    });
    assert!(!router.run("ip rule").unwrap().contains("lan"));
}
