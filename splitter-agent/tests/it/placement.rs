//! Classes that are moved from one tunnel to the other, or out of both, in a real kernel.

use crate::support::router;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use router::{DESTINATIONS, TUNNELS, config, device, everything, inside, router, up};
use splitter_config::Config;
use splitter_steering::routes::{
    Action, Footprint, PlanError, plan, plan_move, plan_placed, remove_all,
};
use splitter_steering::{Egress, Placement};

#[test]
fn class_of_a_dead_tunnel_is_moved_in_one_step_and_back() {
    require!(Root, Program("ip"));
    let router = router();
    for more in ["", DESTINATIONS] {
        let config = config(more);
        let _ = inside(&router, async |netlink| up(netlink, &config).await);
        let home = everything(&router);
        let places = [
            (Egress::Long, Egress::Long, "wan1", "wan1"),
            (Egress::Short, Egress::Short, "wan0", "wan0"),
            (Egress::Long, Egress::Short, "wan1", "wan0"),
        ];
        for (short, long, short_device, long_device) in places {
            let placement = Placement {
                short,
                long,
                disabled: Vec::new(),
            };
            inside(&router, async |netlink| {
                let moving = plan_move(netlink, &config, &placement).await.unwrap();
                let is_step =
                    |action: &Action| matches!(action, Action::Keep(_) | Action::Replace(_));
                assert!(moving.actions.iter().all(is_step), "{moving}");
                let applied = moving.apply(netlink).await.unwrap();
                applied.verify(netlink, &config).await.unwrap();
                // The whole plan knows it as well, and the one for home does not.
                let same = plan_placed(netlink, &config, &placement.clone().into(), &[])
                    .await
                    .unwrap();
                assert!(same.is_in_place(), "{same}");
                assert!(!plan(netlink, &config, None).await.unwrap().is_in_place());
            });
            for address in ["10.2.3.4", "2001:db8:b::9"] {
                assert_eq!(device(&router, address, 0), short_device);
                assert_eq!(device(&router, address, 2 << 2), long_device);
            }
        }
        inside(&router, async |netlink| {
            let back = plan_move(netlink, &config, &Placement::PRIMARY)
                .await
                .unwrap();
            let _ = back.apply(netlink).await.unwrap();
        });
        assert_eq!(everything(&router), home);
        inside(&router, async |netlink| {
            remove_all(netlink, &Footprint::of(&config)).await.unwrap();
        });
    }
}

#[test]
fn classes_without_a_tunnel_follow_the_main_table_also_without_devices() {
    require!(Root, Program("ip"));
    let router = router();
    let config = config("");
    let _ = inside(&router, async |netlink| up(netlink, &config).await);
    let home = everything(&router);
    let nowhere = Placement {
        disabled: Vec::new(),
        short: Egress::Main,
        long: Egress::Main,
    };
    inside(&router, async |netlink| {
        let moving = plan_move(netlink, &config, &nowhere).await.unwrap();
        let applied = moving.apply(netlink).await.unwrap();
        applied.verify(netlink, &config).await.unwrap();
    });
    assert_eq!(device(&router, "9.9.9.9", 2 << 2), "isp");
    assert_eq!(device(&router, "9.9.9.9", 0), "isp");
    inside(&router, async |netlink| {
        let back = plan_move(netlink, &config, &Placement::PRIMARY)
            .await
            .unwrap();
        // What is undone is as it was moved, not at home.
        let undone = back.apply(netlink).await.unwrap().roll_back(netlink).await;
        assert!(undone.remaining.is_empty(), "{undone}");
        assert!(
            plan_placed(netlink, &config, &nowhere.clone().into(), &[])
                .await
                .unwrap()
                .is_in_place()
        );
        let back = plan_move(netlink, &config, &Placement::PRIMARY)
            .await
            .unwrap();
        let _ = back.apply(netlink).await.unwrap();
    });
    assert_eq!(everything(&router), home);
    // A tunnel that carries nothing need not be there, nor a LAN interface.
    router.run("ip link del wan0").unwrap();
    router.run("ip link del lan").unwrap();
    inside(&router, async |netlink| {
        let long = Placement {
            disabled: Vec::new(),
            short: Egress::Long,
            long: Egress::Long,
        };
        let moving = plan_move(netlink, &config, &long).await.unwrap();
        let _ = moving.apply(netlink).await.unwrap();
        let home = plan_move(netlink, &config, &Placement::PRIMARY).await;
        assert!(
            matches!(home, Err(PlanError::NoSuchInterface(_))),
            "{home:?}"
        );
    });
    assert!(
        router
            .run("ip route show table 10401")
            .unwrap()
            .contains("wan1")
    );
}

#[test]
fn next_hop_and_point_to_point_take_each_others_place() {
    require!(Root, Program("ip"));
    let router = router();
    let text = TUNNELS
        .lines()
        .filter(|line| !line.contains("198.51.100.1"));
    let text: Vec<_> = text.collect();
    let config = Config::parse(&text.join("\n"), "test.toml").unwrap();
    let _ = inside(&router, async |netlink| up(netlink, &config).await);
    let home = everything(&router);
    for (short, long) in [(Egress::Long, Egress::Long), (Egress::Short, Egress::Short)] {
        let away = Placement {
            short,
            long,
            disabled: Vec::new(),
        };
        for placement in [away, Placement::PRIMARY] {
            inside(&router, async |netlink| {
                let moving = plan_move(netlink, &config, &placement).await.unwrap();
                let _ = moving.apply(netlink).await.unwrap();
                let same = plan_placed(netlink, &config, &placement.clone().into(), &[])
                    .await
                    .unwrap();
                assert!(same.is_in_place(), "{same}");
            });
        }
        assert_eq!(everything(&router), home);
    }
}
