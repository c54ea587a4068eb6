//! Rules and routes to several remote sites, as the kernel has them.

use crate::support::hub;
use crate::support::router;

use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use hub::{Remote, add_tunnels, sections};
use router::{device, everything, inside, router, up, up_and_verified};
use splitter_config::{Config, SiteName};
use splitter_steering::routes::{
    Action, Destinations, Footprint, audit, plan, plan_move, plan_placed, remove_all,
};
use splitter_steering::{Egress, Placement, Placements};

const LONG: u8 = 2 << 2;

fn hub(count: usize) -> (Namespace, Config) {
    let router = router();
    add_tunnels(&router, count);
    (router, config(&sections(count)))
}

fn config(sites: &str) -> Config {
    Config::parse(&format!("lan = 'lan'\n{sites}"), "test.toml").unwrap()
}

fn site(remote: &Remote) -> SiteName {
    remote.name().try_into().unwrap()
}

fn both_short() -> Placement {
    Placement {
        long: Egress::Short,
        ..Placement::PRIMARY
    }
}

/// The devices that packets of both classes to a site leave by, in either family.
fn devices(router: &Namespace, remote: &Remote) -> [[String; 2]; 2] {
    let of = |address: &String| [0, LONG].map(|tos| device(router, address, tos));
    remote.addresses().each_ref().map(of)
}

#[test]
fn each_site_has_its_own_tunnels_in_both_families_and_all_is_taken_back() {
    require!(Root, Program("ip"));
    let (router, config) = hub(3);
    let before = everything(&router);
    let verification = inside(&router, async |netlink| {
        let verification = up_and_verified(netlink, &config).await;
        assert!(plan(netlink, &config, None).await.unwrap().is_in_place());
        verification
    });
    assert_eq!(verification.skipped, [""; 0]);
    // Three marks, two families, three sites.
    assert_eq!(verification.probes.len(), 18, "{verification:?}");
    for remote in (0..3).map(Remote::new) {
        let own = [remote.short(), remote.long()];
        assert_eq!(devices(&router, &remote), [own.clone(), own]);
    }
    // However many sites, a packet meets the same rules.
    let rules = router.run("ip rule").unwrap();
    assert_eq!(rules.matches("iif lan").count(), 3, "{rules}");
    assert_eq!(device(&router, "9.9.9.9", LONG), "isp");
    inside(&router, async |netlink| {
        let found = audit(netlink, &config, &Placements::default(), true).await;
        assert!(found.as_ref().unwrap().is_clean(), "{found:?}");
        remove_all(netlink, &Footprint::of(&config)).await.unwrap();
    });
    assert_eq!(everything(&router), before);
}

#[test]
fn move_of_one_site_changes_no_route_to_another() {
    require!(Root, Program("ip"));
    let (router, config) = hub(3);
    let moved = Remote::new(1);
    let _ = inside(&router, async |netlink| up(netlink, &config).await);
    let home = everything(&router);
    // What another site lacks is no reason to stay in a dead tunnel.
    router.run("ip link del l2").unwrap();
    inside(&router, async |netlink| {
        let alone = config.of_site(&site(&moved)).unwrap();
        let moving = plan_move(netlink, &alone, &both_short()).await.unwrap();
        let steps = moving.actions.iter();
        let steps: Vec<_> = steps.filter(|it| !matches!(it, Action::Keep(_))).collect();
        assert_eq!(steps.len(), 2, "one in each family: {moving}");
        let applied = moving.apply(netlink).await.unwrap();
        let whole = Destinations::read(netlink, &config).await.unwrap();
        let verified = applied
            .verify_site(netlink, &config, &site(&moved), &whole)
            .await;
        assert_eq!(verified.unwrap().probes.len(), 6);
    });
    let short = [moved.short(), moved.short()];
    assert_eq!(devices(&router, &moved), [short.clone(), short]);
    let other = Remote::new(0);
    let own = [other.short(), other.long()];
    assert_eq!(devices(&router, &other), [own.clone(), own]);
    inside(&router, async |netlink| {
        let alone = config.of_site(&site(&moved)).unwrap();
        let back = plan_move(netlink, &alone, &Placement::PRIMARY).await;
        let _ = back.unwrap().apply(netlink).await.unwrap();
    });
    let gone = |line: &&str| !line.contains("l2 ");
    let left = everything(&router);
    let left: Vec<_> = left.lines().filter(gone).collect();
    assert_eq!(left, home.lines().filter(gone).collect::<Vec<_>>());
}

#[test]
fn site_that_is_taken_out_leaves_no_route_and_the_others_stay() {
    require!(Root, Program("ip"));
    let (router, config) = hub(3);
    let fewer = self::config(&sections(2));
    inside(&router, async |netlink| {
        let _ = up(netlink, &config).await;
        let mut placements = Placements::default();
        placements.set(site(&Remote::new(0)), both_short());
        let footprint = Footprint::of(&config);
        let next = plan_placed(netlink, &fewer, &placements, &[&footprint]).await;
        let next = next.unwrap();
        let count = |sign: &str| {
            let shown = next.to_string();
            shown.lines().filter(|it| it.starts_with(sign)).count()
        };
        // Both classes of the third in both families; the long class of the first.
        assert_eq!((count("-"), count("~"), count("+")), (4, 2, 0), "{next}");
        let applied = next.apply(netlink).await.unwrap();
        applied.verify(netlink, &fewer).await.unwrap();
    });
    let [address, _] = Remote::new(2).addresses();
    assert_eq!(device(&router, &address, LONG), "isp");
}

#[test]
fn prefix_inside_another_sites_is_verified_and_audited_for_itself() {
    require!(Root, Program("ip"));
    let router = router();
    add_tunnels(&router, 2);
    // The first address of the longer prefix is that of the shorter one.
    let sites = sections(2).replace("10.100.0.0/24", "10.100.0.0/16");
    let config = config(&sites.replace("10.100.1.0/24", "10.100.0.0/17"));
    inside(&router, async |netlink| {
        let verification = up_and_verified(netlink, &config).await;
        assert_eq!(verification.probes.len(), 12, "{verification:?}");
        let found = audit(netlink, &config, &Placements::default(), true).await;
        assert!(found.as_ref().unwrap().is_clean(), "{found:?}");
    });
    assert_eq!(device(&router, "10.100.3.3", LONG), "l1");
    assert_eq!(device(&router, "10.100.200.3", LONG), "l0");
}

#[test]
fn family_that_one_site_alone_carries_is_split_there() {
    require!(Root, Program("ip"));
    let (router, _) = hub(2);
    let v4_alone = sections(2)
        .replace(", \"fd00:100:1::2\"", "")
        .replace(", \"fd00:101:1::2\"", "")
        .replace(", \"fd00:b:1::/48\"", "");
    let config = config(&v4_alone);
    let verification = inside(&router, async |netlink| {
        up_and_verified(netlink, &config).await
    });
    assert_eq!(verification.probes.len(), 9, "{verification:?}");
    let [v4, v6] = Remote::new(1).addresses();
    assert_eq!(device(&router, &v4, LONG), "l1");
    assert_eq!(device(&router, &v6, LONG), "isp");
    let [_, v6] = Remote::new(0).addresses();
    assert_eq!(device(&router, &v6, LONG), "l0");
}
