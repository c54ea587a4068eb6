//! Tunnels that leave their class and come back, one at a time and all together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use flow_testbed::namespace::NamespaceError;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use splitter_steering::routes::{Action, Plan, plan_move};
use splitter_steering::{Egress, Placement};

use super::{LONG, SHORT, ask, go, placement, router_with, several, share, spread, table};
use crate::support::router::{everything, inside};

#[test]
fn tunnel_that_leaves_takes_its_own_flows_and_gets_them_back() {
    require!(Root, Program("ip"));
    let config = several([1, 1, 1]);
    let router = router_with(&config);
    let steps = |plan: &Plan| {
        let is_replace = |action: &&Action| matches!(action, Action::Replace(_));
        let changes = plan
            .actions
            .iter()
            .filter(|it| !matches!(it, Action::Keep(_)));
        assert_eq!(plan.actions.iter().filter(is_replace).count(), 2, "{plan}");
        assert_eq!(changes.count(), 2, "{plan}");
    };
    let home = everything(&router);
    for family in ["-4", "-6"] {
        let before = spread(&router, family);
        let moved = |after: &BTreeMap<u16, String>, gone: &[&str]| {
            let stayed = before
                .iter()
                .filter(|(_, device)| !gone.contains(&device.as_str()));
            stayed
                .filter(|(port, device)| after[port] != **device)
                .count()
        };
        for (gone, disturbed) in [
            // The one in the middle leaves its flows to both next to it.
            (&["wan2"][..], 0..=0),
            // One at the end leaves them to the next one, which gives as many on: a sixth of
            // all, and six standard deviations.
            (&["wan0"], 95..=240),
            (&["wan3"], 95..=240),
            // A single survivor keeps what it has.
            (&["wan0", "wan3"], 0..=0),
        ] {
            steps(&go(&router, &config, &placement(gone)));
            let after = spread(&router, family);
            let moved = moved(&after, gone);
            println!("{family} without {gone:?}: {moved} of 1000 flows moved needlessly");
            assert!(disturbed.contains(&moved), "{gone:?}: {moved}");
            for device in gone {
                assert_eq!(share(&after, device), 0.0, "{device}");
            }
            steps(&go(&router, &config, &Placement::PRIMARY));
            assert_eq!(spread(&router, family), before);
            assert_eq!(everything(&router), home);
        }
    }
}

#[test]
fn class_takes_over_the_survivors_of_the_other_one() {
    require!(Root, Program("ip"));
    let config = several([3, 1, 1]);
    let router = router_with(&config);
    let both_short = Placement {
        long: Egress::Short,
        ..placement(&["wan2", "wan1"])
    };
    // What carries nothing need not be there.
    router.run("ip link del wan1").unwrap();
    go(&router, &config, &both_short);
    for family in ["-4", "-6"] {
        let shown = table(&router, family, LONG);
        assert!(
            shown.contains("dev wan0 weight 3 nexthop") && shown.contains("dev wan3"),
            "{shown}"
        );
        assert!(!shown.contains("wan2"), "{shown}");
        assert_eq!(shown.matches("nexthop").count(), 2);
    }
    let none = Placement {
        short: Egress::Main,
        long: Egress::Main,
        ..placement(&["wan0", "wan2", "wan3", "wan1"])
    };
    go(&router, &config, &none);
    for family in ["-4", "-6"] {
        assert_eq!(
            table(&router, family, SHORT) + &table(&router, family, LONG),
            ""
        );
    }
}

#[test]
fn what_is_rolled_back_has_the_same_tunnels_as_before() {
    require!(Root, Program("ip"));
    let config = several([3, 2, 1]);
    let router = router_with(&config);
    let both_short = Placement {
        long: Egress::Short,
        ..placement(&["wan2", "wan1"])
    };
    let single = placement(&["wan0", "wan3"]);
    for (from, to) in [
        (Placement::PRIMARY, placement(&["wan0"])),
        (placement(&["wan2"]), Placement::PRIMARY),
        (Placement::PRIMARY, single.clone()),
        (single.clone(), both_short.clone()),
        (both_short.clone(), Placement::PRIMARY),
    ] {
        go(&router, &config, &from);
        let before = everything(&router);
        inside(&router, async |netlink| {
            let moving = plan_move(netlink, &config, &to).await.unwrap();
            let moved = moving.apply(netlink).await.unwrap();
            assert_ne!(everything(&router), before);
            let undone = moved.roll_back(netlink).await;
            assert!(undone.remaining.is_empty(), "{undone}");
        });
        assert_eq!(everything(&router), before, "{from:?} to {to:?}");
    }
    // And when a later step fails: the short class has its tunnels back, the long one finds its own
    // down.
    go(&router, &config, &both_short);
    let tables = || {
        let shown = ["-4", "-6"].map(|family| [SHORT, LONG].map(|it| table(&router, family, it)));
        shown.concat()
    };
    let before = tables();
    inside(&router, async |netlink| {
        let home = plan_move(netlink, &config, &Placement::PRIMARY)
            .await
            .unwrap();
        router.run("ip link set wan1 down").unwrap();
        let failed = home.apply(netlink).await.unwrap_err();
        assert!(
            failed.step == 3 && failed.undone.steps == 2 && failed.undone.remaining.is_empty(),
            "{failed}"
        );
    });
    assert_eq!(tables(), before);
}

/// A lookup of an IPv6 route that is being replaced may lose: it found the old route, whose last
/// reference has gone when it takes its own, and Linux then answers "unreachable". `ip -6 route
/// replace` in a loop during these lookups loses some 0.7 % of them so, and deleting the route before
/// adding it again 23 %. IPv4 loses none.
const LOST_IN_FLIGHT: f64 = 0.02;

#[test]
fn no_packet_finds_no_route_while_tunnels_come_and_go() {
    require!(Root, Program("ip"));
    let config = several([1, 1, 1]);
    let router = router_with(&config);
    let (begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let (asked, lost) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            begun.store(true, Ordering::Relaxed);
            let (mut asked, mut lost) = (0, 0);
            while !ended.load(Ordering::Relaxed) {
                for family in ["-4", "-6"] {
                    match ask(&router, family) {
                        Ok(spread) => {
                            assert_eq!(share(&spread, "isp"), 0.0, "the main table was asked");
                            asked += spread.len();
                        }
                        Err(error) => {
                            asked += unreachable_question(family, &error);
                            lost += 1;
                        }
                    }
                }
            }
            (asked, lost)
        });
        while !begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        inside(&router, async |netlink| {
            for turn in 0..200 {
                let out: &[&str] = [&["wan0"][..], &[], &["wan3", "wan2"], &["wan2"]][turn % 4];
                let plan = plan_move(netlink, &config, &placement(out)).await.unwrap();
                let _ = plan.apply(netlink).await.unwrap();
            }
        });
        ended.store(true, Ordering::Relaxed);
        asking.join().expect("every packet has a route")
    });
    println!("{lost} of {asked} lookups were lost in flight");
    assert!(asked >= 2_000);
    assert!(
        lost as f64 <= LOST_IN_FLIGHT * asked as f64,
        "{lost} of {asked}"
    );
}

/// Which question, from 1, found no IPv6 route. Anything else that went wrong fails the test.
fn unreachable_question(family: &str, error: &NamespaceError) -> usize {
    let text = format!("{error:?}");
    assert!(
        family == "-6" && text.contains("Network is unreachable"),
        "{error}"
    );
    let (_, number) = text.rsplit_once("Command failed -:").unwrap();
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}
