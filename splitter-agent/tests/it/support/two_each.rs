//! Two tunnels for each class between two borders, what is reported of them, and who waits while one of
//! them is dead.

use std::collections::BTreeSet;
use std::time::Duration;

use flow_testbed::claim;
use serde_json::Value;

use super::daemon::Daemon;
use super::pair::{Pair, QUICK};
use super::pauses::{FAILOVER, PERIOD, longest_pauses};
use super::several::{
    Kind, Tunnel, add_tunnel, far_configuration, hash_by_ports, sections, tunnel,
};
use super::site::Site;

pub(crate) const SHORT: [Tunnel; 2] = [tunnel(0, 3), tunnel(2, 1)];
pub(crate) const LONG: [Tunnel; 2] = [tunnel(1, 3), tunnel(3, 1)];

/// Two tunnels for each class, `tun0` and `tun2` for short flows, `tun1` and `tun3` for long ones.
pub(crate) fn two_for_each(site: &Site) {
    for number in [2, 3] {
        add_tunnel(site, number, Kind::Veth, 1_500);
    }
    hash_by_ports(site);
}

/// What `splitter status` reports of each tunnel.
pub(crate) fn reported_tunnels(site: &Site) -> impl Iterator<Item = Value> {
    let tunnels = site.json(&["status"])["health"]["tunnels"].take();
    let tunnels = tunnels.as_array().cloned();
    tunnels.unwrap_or_default().into_iter()
}

/// The devices that carry packets by what it reports.
pub(crate) fn in_use(site: &Site) -> BTreeSet<String> {
    let used = reported_tunnels(site).filter(|it| it["in_use"] == true);
    used.map(|it| it["device"].as_str().expect("a name").to_owned())
        .collect()
}

pub(crate) fn wait_for_use(site: &Site, devices: &[&str]) {
    let wanted: BTreeSet<_> = devices.iter().map(|it| (*it).to_owned()).collect();
    site.wait_for("the tunnels to be used", || {
        (in_use(site) == wanted).then_some(())
    });
}

/// The longest pause of each of `count` flows between the sites while `meanwhile` goes on.
pub(crate) fn pauses_of(site: &Site, count: usize, meanwhile: impl FnOnce()) -> Vec<Duration> {
    let (client, server) = (&site.topology.client, &site.topology.server);
    longest_pauses([client, server], count, meanwhile)
}

/// The class has left the tunnel in time, and not before its flows had noticed.
pub(crate) fn claim_failover(pauses: &[Duration], near: &Daemon) -> Result<(), String> {
    let longest = pauses.iter().max().expect("there are some");
    println!("the longest pause was {longest:?}");
    assert!(*longest > PERIOD * 10, "nothing was cut");
    claim!(*longest <= FAILOVER, "{pauses:?}\n{}", near.log());
    Ok(())
}

/// Both borders with two tunnels a class, that probe each other over all four.
pub(crate) fn run_both(pair: &Pair<'_>) -> (Daemon, Daemon) {
    two_for_each(pair.site);
    run_both_with(pair, "")
}

/// The same over tunnels that are there, with `more` in the first one's configuration.
pub(crate) fn run_both_with(pair: &Pair<'_>, more: &str) -> (Daemon, Daemon) {
    let site = pair.site;
    // For the key.
    pair.configure(true, QUICK);
    let health = format!("[health]\nkey_file = {:?}\n{QUICK}", site.path("key"));
    let sections = |border| sections(site, border, [&SHORT, &LONG], true) + &health;
    site.configure(&(sections(0) + more));
    run_with_far(pair, &sections(1))
}

/// Both borders, the far one by what is [made its own](far_configuration) of `sections`, until they probe
/// each other over all tunnels.
pub(crate) fn run_with_far(pair: &Pair<'_>, sections: &str) -> (Daemon, Daemon) {
    let site = pair.site;
    let far = far_configuration(site, sections);
    std::fs::write(site.path("far.toml"), far).expect("a file");
    let far = pair.run_far();
    let near = site.run();
    site.wait_for("the echo of all tunnels", || {
        let tunnels = pair.health()["tunnels"].clone();
        let by_echo = |it: &Value| it["evidence"] == "echo" && it["condition"] == "up";
        tunnels.as_array()?.iter().all(by_echo).then_some(())
    });
    // At a start twice the usual silence is borne.
    std::thread::sleep(Duration::from_millis(800));
    (near, far)
}
