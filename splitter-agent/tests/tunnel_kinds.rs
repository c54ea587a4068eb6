//! What tunnels may be made of, and how long packets may be: real agents and real connections over
//! two tunnels for each class.

#[path = "support/daemon.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod daemon;
#[path = "support/several.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod several;
#[path = "support/site.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod site;

use std::time::Duration;

use flow_testbed::require;
use flow_testbed::require::Requirement::{Device, NftRule, Program};
use flow_testbed::topology::{GENERATOR, LAN};
use nix::sys::signal::Signal;
use several::{
    COUNTS, Flows, Kind, Seen, add_tunnel, families, hash_by_ports, sections, share_of, tunnel,
};
use site::{Site, on_site};

/// Splits over two tunnels of a kind for each class, and sends packets of this size.
fn split_over(site: &Site, kind: Kind, mtu: u16) {
    let classes = [
        &[tunnel(4, 1), tunnel(5, 1)][..],
        &[tunnel(6, 1), tunnel(7, 1)],
    ];
    for number in 4..8 {
        add_tunnel(site, number, kind, mtu);
    }
    let topology = &site.topology;
    let hosts = [(&topology.client, 0), (&topology.server, 1)];
    for (host, border) in hosts {
        // The shaper in front of it takes no packets of more than 3,100 bytes.
        host.namespace
            .run("tc qdisc del dev eth0 root")
            .expect("it is there");
        let link = |device: &str| format!("ip link set {device} mtu {mtu}");
        host.namespace.run(&link("eth0")).expect("root");
        // What is longer than a packet of the least MTU counts as several.
        for device in [LAN, GENERATOR] {
            let border = &topology.borders[border].namespace;
            border.run(&link(device)).expect("root");
        }
    }
    hash_by_ports(site);
    site.configure(&sections(site, 0, classes, false));
    let before = site.routing();
    let daemon = site.run();
    assert_eq!(site.xdp_mode(LAN), Some(1), "not native:\n{}", daemon.log());
    let seen = Seen::at(&topology.borders[1].namespace);
    for &is_ipv6 in families(site) {
        let mut flows = Flows::open(site, is_ipv6, 64);
        flows.send(64, 1);
        // Nothing is shaped, so that they are over before they may change tunnels but for a pause.
        flows.send(32, usize::from(mtu) * 50);
        std::thread::sleep(Duration::from_millis(20));
        flows.send(32, usize::from(mtu) * 300);
        let ways = seen.flows(is_ipv6, flows.to_port);
        for (devices, count) in [(["tun4", "tun5"], 64), (["tun6", "tun7"], 32)] {
            let (in_first, all) = share_of(&ways, devices);
            println!("{kind:?}: {in_first} of {all} flows in {}", devices[0]);
            assert_eq!(all, count, "{ways:?}");
            assert!((1..count).contains(&in_first), "{in_first} of {all}");
        }
    }
    let status = site.json(&["status"]);
    let traffic = status["traffic"].as_array().expect("a list").iter();
    let long = traffic.filter(|it| it["class"] == "long" && it["tunnel"] == "long");
    let counts: Vec<_> = long
        .map(|it| (it["packets"].as_f64(), it["bytes"].as_f64()))
        .collect();
    let [(Some(packets), Some(bytes))] = counts[..] else {
        panic!("{status}");
    };
    println!(
        "{packets} packets of {} bytes in the long tunnels",
        bytes / packets
    );
    assert!(packets > 32.0 * 100.0, "{status}");
    // Some are acknowledgements.
    assert!(bytes / packets > f64::from(mtu) * 0.7, "{status}");
    // What hosts say of themselves is no TCP; all else was understood.
    let others = ["not_ip", "udp", "other_protocol"];
    let passed = status["passed"].as_array().expect("a list").iter();
    let untreated: Vec<_> = passed
        .filter(|it| others.iter().all(|other| it["reason"] != **other))
        .collect();
    assert!(untreated.is_empty(), "{untreated:?}");
    assert!(daemon.end(Signal::SIGTERM).success());
    site.assert_clean(&before);
}

#[test]
fn jumbo_frames_are_split_over_veth() {
    require!(Program("nft"), NftRule(COUNTS));
    on_site(|site| split_over(site, Kind::Veth, 9_000));
}

#[test]
fn tunnels_may_be_vxlan() {
    require!(
        Program("nft"),
        NftRule(COUNTS),
        Device("vxlan id 1 dstport 4789")
    );
    on_site(|site| split_over(site, Kind::Over("vxlan"), 1_500));
}

#[test]
fn jumbo_frames_are_split_over_vxlan() {
    require!(
        Program("nft"),
        NftRule(COUNTS),
        Device("vxlan id 1 dstport 4789")
    );
    on_site(|site| split_over(site, Kind::Over("vxlan"), 9_000));
}

#[test]
fn tunnels_may_be_vlans() {
    require!(Program("nft"), NftRule(COUNTS), Device("vlan id 1"));
    on_site(|site| split_over(site, Kind::Over("vlan"), 1_500));
}

#[test]
fn tunnels_may_be_gre() {
    require!(
        Program("nft"),
        NftRule(COUNTS),
        Device("gre local 127.0.0.1 remote 127.0.0.2")
    );
    on_site(|site| split_over(site, Kind::Over("gre"), 1_500));
}
