//! Which tunnel packets leave by.

use flow_testbed::topology::TUNNELS;

use super::site::{Site, stdout};

/// Nearly all bytes that leave the first site meanwhile, leave by this tunnel.
pub(crate) fn leaves_by(site: &Site, tunnel: usize, send: impl FnOnce()) {
    let sent = || {
        TUNNELS.map(|device| {
            let counters = site.border().device_counters(device);
            counters.expect("it is there").sent_bytes
        })
    };
    let before = sent();
    send();
    let after = sent();
    let grown = [0, 1].map(|index| after[index] - before[index]);
    assert!(
        grown[tunnel] >= 9_000 && grown[1 - tunnel] < grown[tunnel] / 4,
        "{grown:?} bytes left by {TUNNELS:?}: {}",
        stdout(&site.splitter(&["status"]))
    );
}
