//! Another configuration while delays are measured: what the agent tells its programs is of the one that is in force.

use std::thread::sleep;
use std::time::Duration;

use crate::support::pair::{QUICK, on_pair};

/// Longer than from one look at the tunnels to the next.
const A_LOOK: Duration = Duration::from_millis(400);

#[test]
fn reload_is_not_undone_by_delays_that_were_measured_before() {
    on_pair(|pair| {
        let site = pair.site;
        pair.configure(true, QUICK);
        let right = std::fs::read_to_string(site.config()).expect("a file");
        // Another balancer is another program, which takes long enough to load for a look at the tunnels to wait for it.
        let choose = |balance: &str, rate_mbit: u32| {
            let rated = right.replace("rate_mbit = 100", &format!("rate_mbit = {rate_mbit}"));
            let text = format!("balance = '{balance}'\n{rated}");
            std::fs::write(site.config(), text).expect("a file");
        };
        choose("tr", 90);
        let far = pair.run_far();
        let near = site.run();
        pair.wait_for_echo();
        for round in 0..4 {
            sleep(A_LOOK);
            match round % 2 {
                0 => choose("presto", 80),
                _ => choose("tr", 90),
            }
            assert_eq!(site.json(&["reload"])["applied"], true);
        }
        sleep(4 * A_LOOK);
        let log = near.log();
        assert!(!log.contains("event=\"reconciling\""), "{log}");
        drop((near, far));
    });
}
