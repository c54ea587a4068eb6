//! Tunnels that lose packets among others of their class: they stay, and so do their flows.

use crate::support::claims;
use crate::support::pair;
use crate::support::several;
use crate::support::two_each;
use std::time::{Duration, Instant};

use claims::LOSSY_STAYS_UP;
use flow_testbed::claim;
use flow_testbed::require;
use flow_testbed::require::Requirement::{NftRule, Program};
use pair::{cut_at, decide_on_pair, mend_at};
use several::{COUNTS, Flows, Seen, share_of};
use two_each::{in_use, reported_tunnels, run_both};

const LOSS: &str = "numgen random mod 100 < 30 drop";
/// In the short class and in the long one.
const LOSSY: [&str; 2] = ["tun0", "tun3"];
/// Long enough for some hundred probes over each.
const MEANWHILE: Duration = Duration::from_secs(8);

#[test]
fn lossy_tunnels_among_several_keep_their_flows() {
    require!(Program("nft"), NftRule(COUNTS));
    decide_on_pair(&LOSSY_STAYS_UP, |pair| {
        let site = pair.site;
        let (near, far) = run_both(pair);
        let home = site.routing();
        let seen = Seen::at(pair.far());
        let mut short = Flows::open(site, false, 24);
        let mut long = Flows::open(site, false, 8);
        short.send(24, 1);
        long.send(8, 200_000);
        let before = seen.flows(false, short.to_port);

        for device in LOSSY {
            cut_at(pair.far(), device, LOSS).expect("it was tried");
        }
        let (start, mut rounds) = (Instant::now(), 0);
        while start.elapsed() < MEANWHILE {
            // All of it arrives, or this panics; and short flows stay short.
            if rounds < 20 {
                short.send(24, 1);
            }
            long.send(8, 3_000);
            rounds += 1;
            assert!(
                start.elapsed() < 4 * MEANWHILE,
                "only {rounds} rounds in {:?}",
                start.elapsed()
            );
        }
        println!("{rounds} rounds in {:?}", start.elapsed());
        let health = pair.health();
        for reported in reported_tunnels(site) {
            let device = reported["device"].as_str().expect("a name");
            claim!(reported["downs"] == 0, "{health}");
            let loss = reported["loss"].as_f64().expect("a share");
            println!("{device} loses {loss}");
            // Of the last probes some are from before, and suspects are probed faster: about 30 %.
            let expected = if LOSSY.contains(&device) {
                0.05..0.6
            } else {
                0.0..0.05
            };
            claim!(expected.contains(&loss), "{device}: {health}");
        }
        claim!(in_use(site).len() == 4, "{health}");
        claim!(
            health["moves"].as_array().is_some_and(Vec::is_empty),
            "{health}"
        );
        for log in [near.log(), far.log()] {
            claim!(!log.contains("leaves tun"), "{log}");
        }
        claim!(site.routing() == home, "{}", near.log());

        // Each flow has its tunnel as before, whether that loses packets or not.
        let after = seen.flows(false, short.to_port);
        let (in_lossy, all) = share_of(&after, ["tun0", "tun2"]);
        println!("{in_lossy} of {all} short flows in the lossy tunnel");
        assert!(all == 24 && (1..24).contains(&in_lossy), "{after:?}");
        for (port, ways) in &before {
            assert!(ways.keys().eq(after[port].keys()), "{port}: {after:?}");
        }
        let ways = seen.flows(false, long.to_port);
        assert_eq!(share_of(&ways, ["tun1", "tun3"]).1, 8, "{ways:?}");
        for device in LOSSY {
            mend_at(pair.far(), device);
        }
        Ok(())
    });
}
