//! Several tunnels for a class that packets are redirected into: by weight, and past a dead one.

use crate::support::claims;
use crate::support::pair;
use crate::support::redirected;
use crate::support::several;
use crate::support::site;
use crate::support::two_each;
use std::time::Duration;

use claims::FAILOVER_IN_TIME;
use flow_testbed::claim;
use flow_testbed::require;
use flow_testbed::require::Requirement::{NftRule, Program};
use nix::sys::signal::Signal;
use pair::{cut_at, decide_on_pair, mend_at};
use redirected::{be_redirectable, fallbacks, redirected};
use several::{COUNTS, Flows, Seen, families, main_share_of, sections};
use site::{on_site, stdout};
use two_each::{LONG, SHORT, claim_failover, pauses_of, run_both_with, two_for_each, wait_for_use};

const REDIRECT: &str = "[steering]\nmode = 'redirect'\n";
const ALL: [&str; 4] = ["tun0", "tun1", "tun2", "tun3"];
/// Packets of a flow at most that go by the stack, which may choose another tunnel: what opens it, and
/// one in 65,536 whose checksum looks unfinished.
const BY_STACK: u64 = 3;

#[test]
fn redirected_flows_are_spread_by_weight_and_keep_their_tunnel() {
    require!(Program("nft"), NftRule(COUNTS));
    on_site(|site| {
        two_for_each(site);
        be_redirectable(site, &ALL);
        site.configure(&(sections(site, 0, [&SHORT, &LONG], false) + REDIRECT));
        let before = site.routing();
        let daemon = site.run();
        let seen = Seen::at(&site.topology.borders[1].namespace);
        for &is_ipv6 in families(site) {
            let known = redirected(site);
            let mut flows = Flows::open(site, is_ipv6, 400);
            flows.send(400, 1);
            flows.send(400, 1);
            let ways = seen.flows(is_ipv6, flows.to_port);
            let (in_first, all) = main_share_of(&ways, ["tun0", "tun2"], BY_STACK);
            println!("{in_first} of {all} short flows in tun0");
            assert_eq!(all, 400);
            // Nearly seven standard deviations about 300.
            assert!((240..=360).contains(&in_first), "{in_first}");

            flows.send(64, 400_000);
            let ways = seen.flows(is_ipv6, flows.to_port);
            let (in_first, all) = main_share_of(&ways, ["tun1", "tun3"], BY_STACK);
            println!("{in_first} of {all} long flows in tun1");
            assert_eq!(all, 64, "{ways:?}");
            // Nearly six about 48; and 64 would be one in a hundred million.
            assert!(
                (28..=63).contains(&in_first),
                "{in_first}: {}",
                stdout(&site.splitter(&["status"]))
            );
            let packets = redirected(site) - known;
            println!("{packets} packets were redirected");
            assert!(packets > 64.0 * 250.0 + 3.0 * 400.0, "{packets}");
        }
        let opened = 400.0 * families(site).len() as f64;
        // Some have to be asked for twice.
        let opening = fallbacks(site, "opening");
        assert!((opened..1.1 * opened).contains(&opening), "{opening}");
        assert_eq!(fallbacks(site, "other_device"), 0.0);
        // The agent asks next hops, also those that the stack happens not to choose.
        let unknown = fallbacks(site, "no_neighbour");
        assert!(unknown < 50.0, "{unknown}");
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn neighbours_in_use_are_asked_no_more_often_than_health_asks() {
    on_site(|site| {
        two_for_each(site);
        be_redirectable(site, &ALL);
        site.configure(&(sections(site, 0, [&SHORT, &LONG], false) + REDIRECT));
        let daemon = site.run();
        let known = redirected(site);
        let mut flows = Flows::open(site, false, 100);
        let changes = std::thread::scope(|scope| {
            // A line for each change of state.
            let mut look = site.border().command("timeout");
            look.args("2 ip monitor neigh dev tun2".split(' '));
            let looking = scope.spawn(move || look.output());
            for _ in 0..8 {
                flows.send(100, 1);
                std::thread::sleep(Duration::from_millis(250));
            }
            looking.join().expect("no panic")
        });
        assert!(redirected(site) - known > 700.0, "it is in use");
        let changes = String::from_utf8(changes.expect("it was tried").stdout).expect("text");
        let count = changes.lines().count();
        println!("{count} changes of state");
        // Health asks each 100 ms: stale, asked, and confirmed.
        assert!((4..=90).contains(&count), "{count}:\n{changes}");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

/// Datagrams are split, too, and all flows stay short.
const ALL_SHORT: &str =
    "[flows]\ntable_size = 4096\nthreshold = 10000\nprotocols = ['tcp', 'udp']\n";

#[test]
fn redirected_flows_leave_a_dead_tunnel_within_a_second_and_return() {
    require!(Program("nft"), NftRule(COUNTS));
    decide_on_pair(&FAILOVER_IN_TIME, |pair| {
        let site = pair.site;
        two_for_each(site);
        be_redirectable(site, &ALL);
        let (near, _far) = run_both_with(pair, &format!("{REDIRECT}{ALL_SHORT}"));
        let seen = Seen::at(pair.far());
        let mut flows = Flows::open(site, false, 60);
        // Each byte is a packet of its own, and is redirected.
        let mut are_redirected = || {
            let before = redirected(site);
            flows.send(60, 1);
            flows.send(60, 1);
            let ways = seen.flows(false, flows.to_port);
            (redirected(site) - before >= 120.0).then_some(ways)
        };
        let before = are_redirected().expect("all are redirected");
        let (in_first, all) = main_share_of(&before, ["tun0", "tun2"], BY_STACK);
        assert!(all == 60 && (1..60).contains(&in_first), "{before:?}");

        let known = redirected(site);
        let pauses = pauses_of(site, 16, || {
            cut_at(pair.far(), "tun0", "drop").expect("it was tried");
            std::thread::sleep(Duration::from_millis(1_500));
        });
        let packets = redirected(site) - known;
        assert!(packets > 16.0 * 20.0, "{packets} of some 2,400");
        claim_failover(&pauses, &near)?;
        pair.wait_for_seats("short", "long");
        wait_for_use(site, &["tun1", "tun2", "tun3"]);
        let Some(without) = are_redirected() else {
            let reported = stdout(&site.splitter(&["status"]));
            return Err(format!("not redirected into the other tunnel: {reported}"));
        };
        for (port, ways) in &before {
            let of = |ways: &several::Ways| ways.get("tun2").copied().unwrap_or(0);
            claim!(of(&without[port]) >= of(ways) + 2, "{port}: {without:?}");
        }

        // Without any of its own the class has those of the other one.
        cut_at(pair.far(), "tun2", "drop").expect("it was tried");
        pair.wait_for_seats("long", "long");
        wait_for_use(site, &["tun1", "tun3"]);
        let lent = site.wait_for("all to be redirected", &mut are_redirected);
        let (_, all) = main_share_of(&lent, ["tun1", "tun3"], BY_STACK);
        claim!(all == 60, "{lent:?}");

        mend_at(pair.far(), "tun0");
        mend_at(pair.far(), "tun2");
        pair.wait_for_seats("short", "long");
        wait_for_use(site, &ALL);
        let again = are_redirected().expect("all are redirected again");
        for (port, ways) in &before {
            let of = |ways: &several::Ways| ways.get("tun0").copied().unwrap_or(0);
            if of(ways) > BY_STACK {
                claim!(
                    of(&again[port]) >= of(&without[port]) + 2,
                    "{port}: {again:?}"
                );
            }
        }

        // A link that goes down is known at once, and a device that has lost its other end loses
        // what is put into it.
        let pauses = pauses_of(site, 16, || {
            std::thread::sleep(Duration::from_millis(300));
            let far = pair.far();
            far.run("ip link set tun2 down").expect("it is there");
            std::thread::sleep(Duration::from_millis(800));
        });
        let longest = pauses.iter().max().expect("there are some");
        println!("the longest pause was {longest:?}");
        claim!(
            *longest <= Duration::from_millis(400),
            "{pauses:?}\n{}",
            near.log()
        );
        wait_for_use(site, &["tun0", "tun1", "tun3"]);
        pair.far().run("ip link set tun2 up").expect("it is there");
        wait_for_use(site, &ALL);
        site.wait_for("all to be redirected", || are_redirected().map(drop));
        let plan = stdout(&site.splitter(&["plan"]));
        claim!(
            plan.contains("= redirect into tun0, tun2, tun1, tun3"),
            "{plan}"
        );
        assert!(near.end(Signal::SIGTERM).success());
        Ok(())
    });
}
