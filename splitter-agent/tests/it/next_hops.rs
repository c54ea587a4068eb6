//! What the agent does for next hops that the programs have noted: it voids them with every change,
//! keeps those in use alive, and vouches for none once it ends.

mod longer_route;

use std::time::Duration;

use aya::maps::{Array, Map, MapData};
use flow_testbed::topology::TUNNELS;
use nix::sys::signal::Signal;
use splitter_config::Config;
use splitter_datapath::Pins;
use splitter_instance::next_hop_watch::NextHopWatch;

use crate::support::redirected::{be_redirectable, redirected};
use crate::support::site::{Connection, Site, on_site};

const REDIRECT: &str = "[steering]\nmode = 'redirect'\n[health]\nenabled = false\n";

/// Longer than a test takes: what is voided meanwhile is voided by a notification.
const NO_RENEWAL: Duration = Duration::from_secs(3_600);

fn config(site: &Site) -> Config {
    let text = std::fs::read_to_string(site.config()).expect("a file");
    Config::parse(&text, "test").expect("it is right")
}

fn pins(site: &Site) -> Pins {
    let config = config(site);
    Pins::new(&config.bpffs, &config.pin_dir())
}

/// The generation, and until when somebody vouches for it.
fn trust(site: &Site) -> [u64; 2] {
    ["ROUTING_GENERATION", "VOUCHED_UNTIL"].map(|name| {
        let map = MapData::from_pin(pins(site).map(name));
        let map = Map::Array(map.expect("it is pinned"));
        let map: Array<_, u64> = map.try_into().expect("an array");
        map.get(&0, 0).expect("it is read")
    })
}

#[test]
fn every_change_voids_what_was_noted() {
    on_site(|site| {
        be_redirectable(site, &TUNNELS);
        site.configure(REDIRECT);
        site.json(&["up"]);
        assert_eq!(trust(site)[1], 0, "nobody vouches without an agent");
        let begin = || NextHopWatch::begin(pins(site), &config(site), NO_RENEWAL);
        let watch = site.border().enter(begin).expect("it exists");
        let watch = watch.expect("netlink is there");
        site.wait_for("somebody to vouch", || (trust(site)[1] > 0).then_some(()));
        let (device, other) = (TUNNELS[0], TUNNELS[1]);
        let gateway = &site.topology.borders[0].gateway_addresses(0)[0];
        let neighbour = format!("{gateway} lladdr 02:00:00:00:00:09 dev {device}");
        for line in [
            format!("ip neigh replace {neighbour} nud permanent"),
            format!("ip neigh replace {gateway} dev {device} nud failed"),
            format!("ip neigh replace {neighbour} nud reachable"),
            format!("ip neigh del {gateway} dev {device}"),
            format!("ip link set {device} mtu 1300"),
            format!("ip route add 198.51.100.0/24 dev {device}"),
            format!("ip route replace 198.51.100.0/24 dev {other}"),
            "ip route add 203.0.113.0/24 dev lo table 99".to_owned(),
            "ip rule add pref 9 to 203.0.113.0/24 lookup 99".to_owned(),
            format!("ip addr add 198.51.100.1/32 dev {device}"),
            "sysctl -qw net.ipv4.conf.all.forwarding=0".to_owned(),
            format!("ip link set {device} down"),
            format!("ip link del {device}"),
        ] {
            let [before, ..] = trust(site);
            site.border().run(&line).expect("the kernel takes it");
            let what = format!("a new generation after `{line}`");
            site.wait_for(&what, || (trust(site)[0] != before).then_some(()));
        }
        drop(watch);
        site.border()
            .run("ip link set lo mtu 1400")
            .expect("it can");
        site.wait_for("the end of its word", || {
            (trust(site)[1] == 0).then_some(())
        });
        site.json(&["down"]);
    });
}

#[test]
fn neighbour_that_packets_are_redirected_to_is_kept_alive() {
    on_site(|site| {
        be_redirectable(site, &TUNNELS);
        site.configure(REDIRECT);
        let daemon = site.run();
        let border = &site.topology.borders[0];
        let gateway = border.gateway_addresses(0).swap_remove(0);
        let (device, ip) = (TUNNELS[0], "ip neigh");
        let state = || {
            let shown = site
                .border()
                .run(&format!("{ip} show {gateway} dev {device}"));
            shown.expect("it is known")
        };
        let mac = state();
        let mac = mac
            .split_whitespace()
            .skip_while(|it| *it != "lladdr")
            .nth(1);
        let mac = mac.expect("it has a link address").to_owned();
        let set = |to: &str| {
            let line = format!("{ip} replace {gateway} lladdr {mac} dev {device} nud {to}");
            site.border().run(&line).expect("the kernel takes it");
        };
        // Nobody uses it: it stays as it is.
        set("reachable");
        set("stale");
        std::thread::sleep(Duration::from_secs(1));
        assert!(state().contains("STALE"), "{}", state());

        let mut flow = Connection::open(&site.topology);
        // What opened it went by the stack, which asks once.
        set("reachable");
        let before = redirected(site);
        for _ in 0..5 {
            flow.send(1_000);
        }
        assert!(redirected(site) >= before + 5.0);
        set("stale");
        site.wait_for("somebody to ask the neighbour", || {
            flow.send(1_000);
            state().contains("REACHABLE").then_some(())
        });
        flow.close();
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
