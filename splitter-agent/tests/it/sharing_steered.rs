//! Where packets really go under `policy = "share"`: the tunnel and the queue that each flow was placed
//! in, by DSCP and by mark, over veth and VXLAN, IPv4 and IPv6.

use crate::support::changed;
use crate::support::queues;
use crate::support::several;
use crate::support::site;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use changed::{count_dscp, with_dscp};
use flow_testbed::require;
use flow_testbed::require::Requirement::{Device, NftRule, Program};
use nix::sys::signal::Signal;
use queues::sent_by;
use serde_json::Value;
use several::{Kind, add_tunnel, families, sections, tunnel};
use site::{Connection, Site, on_site};

/// In the place of those that are shaped already, of the short and of the long class.
const DEVICES: [&str; 2] = ["tun4", "tun5"];
/// Classes of HTB.
const SHORT: &str = "10";
const LONG: &str = "20";
const COUNTS: &str = "iifname \"tun*\" ip6 dscp != 0 counter";
/// Some forty packets: a flow with as many before it is long.
const BYTES: usize = 65_000;
/// After which a flow may change tunnels without overtaking itself.
const PAUSE: Duration = Duration::from_millis(30);
const FLOWS: usize = 6;

#[test]
fn placed_flows_queue_where_their_mark_says() {
    require!(Program("nft"), NftRule(COUNTS));
    on_site(|site| check(site, "mark", Kind::Veth));
}

#[test]
fn placed_flows_queue_where_their_mark_says_over_vxlan() {
    require!(
        Program("nft"),
        NftRule(COUNTS),
        Device("vxlan id 1 dstport 4789")
    );
    on_site(|site| check(site, "mark", Kind::Over("vxlan")));
}

#[test]
fn placed_flows_queue_where_their_dscp_says_over_vxlan() {
    require!(
        Program("nft"),
        NftRule(COUNTS),
        Device("vxlan id 1 dstport 4789")
    );
    on_site(|site| check(site, "dscp", Kind::Over("vxlan")));
}

fn check(site: &Site, mode: &str, kind: Kind) {
    for number in [4, 5] {
        add_tunnel(site, number, kind, 1_500);
    }
    let tunnels = sections(site, 0, [&[tunnel(4, 1)], &[tunnel(5, 1)]], false);
    site.configure(&format!(
        "policy = 'share'\n{tunnels}[share]\nshape_percent = 97\n[steering]\nmode = '{mode}'\n"
    ));
    let before = (site.routing(), queueing(site));
    count_dscp(site);
    let daemon = site.run();
    for &is_ipv6 in families(site) {
        check_family(site, is_ipv6);
    }
    if mode == "mark" {
        assert_eq!(with_dscp(site), 0, "packets were changed");
    } else {
        assert!(with_dscp(site) > 0);
    }
    assert!(daemon.end(Signal::SIGTERM).success());
    site.assert_clean(&before.0);
    assert_eq!(queueing(site), before.1);
}

fn queueing(site: &Site) -> String {
    site.border().run("tc qdisc show").expect("tc works")
}

fn check_family(site: &Site, is_ipv6: bool) {
    let (client, server) = (&site.topology.client, &site.topology.server);
    let address = match server.ipv6.filter(|_| is_ipv6) {
        Some(address) => IpAddr::V6(address),
        None => server.ipv4.into(),
    };
    let open = || Connection::over(client, server, address);
    let mut short = open();
    short.send(1);
    // A flow may change tunnels with its first packet after a pause: where it is, is asked afterwards.
    let sent = queued(site, || short.send(20_000));
    let (place, reported) = place_of(site, &short, "short");
    assert!(sent[place][0] > 20_000, "{reported}: {sent:?}");
    assert!(others(sent, [place, 0]) < 5_000, "{reported}: {sent:?}");

    let (mut flows, mut places) = (Vec::new(), BTreeSet::new());
    for _ in 0..FLOWS {
        let mut flow = open();
        flow.send(BYTES);
        std::thread::sleep(PAUSE);
        flow.send(BYTES);
        flows.push(flow);
        // Those that are silent count for less.
        flows.iter_mut().for_each(|it| it.send(3_000));
    }
    for flow in &mut flows {
        let sent = queued(site, || flow.send(300_000));
        let (place, reported) = place_of(site, flow, "long");
        assert!(sent[place][1] > 300_000, "{reported}: {sent:?}");
        assert!(others(sent, [place, 1]) < 15_000, "{reported}: {sent:?}");
        places.insert(place);

        // The same flow's acknowledgements.
        let sent = queued(site, || flow.answer(300_000));
        let [[_, one], [_, other]] = sent;
        assert!(one + other < 5_000, "{reported}: {sent:?}");
        assert!(sent[0][0] + sent[1][0] > 2_000, "{reported}: {sent:?}");
    }
    assert_eq!(places.len(), 2, "all long flows are in one tunnel");
}

/// Bytes that left meanwhile by each tunnel, with the short class and the long one.
fn queued(site: &Site, send: impl FnOnce()) -> [[u64; 2]; 2] {
    let all = || {
        let of = |device, class| sent_by(site.border(), device, class).bytes;
        DEVICES.map(|device| [SHORT, LONG].map(|class| of(device, class)))
    };
    let before = all();
    send();
    let after = all();
    [0, 1].map(|device| [0, 1].map(|class| after[device][class] - before[device][class]))
}

fn others(sent: [[u64; 2]; 2], [device, class]: [usize; 2]) -> u64 {
    sent.iter().flatten().sum::<u64>() - sent[device][class]
}

/// The tunnel in which the splitter has put a flow of that class, and all it knows of it.
fn place_of(site: &Site, connection: &Connection, class: &str) -> (usize, Value) {
    let reported = site.flow_from(connection.port());
    assert_eq!(reported["class"], class, "{reported}");
    (usize::from(reported["tunnel"] == "long"), reported)
}
