//! What the taps and the recordings make of packets, by hand and on real ones.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use flow_report::Summary;
use flow_testbed::{require, require::Requirement::*, scheme::Scheme, topology::TopologyOptions};
use splitter_datapath::tap::Passage;
use tokio_util::sync::CancellationToken;

use super::{
    recording::{ETHERNET, PCAP_HEAD, Recorded, Recording, delay_variation_us, packets},
    *,
};
use crate::splitter::{
    client,
    schedule::{Request, requests},
    server,
};

fn flow(port: u16, client: u16, times: &[(u64, u64)]) -> TappedFlow {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let passage = |&(first_ns, last_ns): &(u64, u64)| Passage {
        point: "tun0".parse().unwrap(),
        first_ns,
        last_ns,
        duration_ms: 0.0,
        packets: 1,
        bytes: 1,
    };
    TappedFlow {
        source: address,
        source_port: port,
        destination: address,
        destination_port: client,
        seen: times.iter().map(passage).collect(),
        completion_ms: None,
    }
}

#[test]
fn completion_lasts_from_the_first_departure_to_the_last_arrival_by_either_tunnel() {
    let leaving = [
        flow(8001, 1, &[(5_000_000, 6_000_000), (4_000_000, 4_500_000)]),
        flow(8001, 2, &[(1_004_000_000, 1_005_000_000)]),
        flow(8002, 3, &[(1, 2)]),
        flow(8001, 4, &[(2_000_000_000, 2_000_000_001)]),
    ];
    let arriving = [
        flow(8001, 1, &[(6_000_000, 7_000_000), (5_000_000, 9_000_000)]),
        flow(8001, 2, &[(1_005_000_000, 1_006_000_000)]),
        flow(8002, 3, &[(3, 4)]),
    ];
    // The one that never arrived is none, and another port's is none of these.
    assert_eq!(join(&leaving, &arriving, 8001), [(0.0, 5.0), (1.0, 2.0)]);
}

/// A recording of frames of listings, with the client's port, the identification and the time in us.
fn recording(frames: &[(u16, u16, u32)]) -> Vec<u8> {
    recording_of(8001, frames)
}

fn recording_of(server: u16, frames: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut file = vec![0; PCAP_HEAD];
    for (port, id, at_us) in frames {
        let mut frame = vec![0; ETHERNET];
        frame.extend([0x45, 0, 5, 220]);
        frame.extend(id.to_be_bytes());
        frame.extend([0; 14]);
        frame.extend(server.to_be_bytes());
        frame.extend(port.to_be_bytes());
        frame.extend([0; 16]);
        for word in [0, at_us * 1000, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_ne_bytes());
        }
        file.extend(frame);
    }
    file
}

#[test]
fn jitter_is_the_difference_of_a_flows_successive_delays() {
    let sent = packets(&recording(&[
        (1, 1, 100),
        (2, 7, 110),
        (1, 2, 200),
        (1, 3, 300),
        (1, 4, 400),
    ]));
    // Delays of the first flow: 50, 80, lost, 70.
    let arrived = packets(&recording(&[
        (1, 1, 150),
        (2, 7, 999),
        (1, 2, 280),
        (1, 4, 470),
    ]));
    assert_eq!(delay_variation_us(&sent, &arrived, 8001), [30.0, 10.0]);
    // A video by the same port of the client is another flow.
    let video = |at_us| packets(&recording_of(8002, &[(1, 1, at_us), (1, 2, 2 * at_us)]));
    let with = |more: Recorded, of: &Recorded| [of.clone(), more].concat();
    let (sent, arrived) = (with(video(100), &sent), with(video(105), &arrived));
    assert_eq!(delay_variation_us(&sent, &arrived, 8001), [30.0, 10.0]);
    assert_eq!(delay_variation_us(&sent, &arrived, 8002), [5.0]);
}

#[test]
fn jitter_by_the_taps_is_that_of_the_flows_from_the_port_alone() {
    let packet = |source: u16, packet: u64, at_us: u64| TimedPacket {
        packet,
        at_ns: at_us * 1_000,
        source: (Ipv4Addr::LOCALHOST, source).into(),
        destination: (Ipv4Addr::LOCALHOST, 1).into(),
        dscp: 0,
        fwmark: 0,
    };
    let sent = [
        packet(8001, 1, 100),
        packet(8001, 2, 200),
        packet(8001, 3, 300),
        packet(8002, 4, 400),
    ];
    let arrived = [
        packet(8001, 1, 150),
        packet(8001, 2, 280),
        packet(8001, 3, 370),
        packet(8002, 4, 999),
    ];
    assert_eq!(jitter_us(&sent, &arrived, 8001), [30.0, 10.0]);
    assert!(jitter_us(&sent, &arrived, 8002).is_empty());
}

#[test]
fn recording_that_was_cut_off_ends_before_the_cut() {
    let whole = recording(&[(1, 1, 100), (1, 2, 200)]);
    assert_eq!(packets(&whole).len(), 2);
    assert_eq!(packets(&whole[..whole.len() - 1]).len(), 1);
    assert!(packets(&whole[..10]).is_empty());
}

/// The splitter's tap and tcpdump see the same flows, as long and of as many packets, and the same delays of these.
#[test]
fn tap_and_tcpdump_agree() {
    require!(
        Root,
        Program("ip"),
        Program("tc"),
        Program("ethtool"),
        Program("nginx"),
        Program("curl"),
        Program("tcpdump"),
        FileSystem("bpf"),
        CongestionControl("cubic")
    );
    let files = tempfile::tempdir().unwrap();
    let topology = Topology::build(&TopologyOptions {
        rates_mbit: [100; 2],
        ..TopologyOptions::default()
    })
    .unwrap();
    let applied = Scheme::EcmpFlow
        .apply(&topology, &CancellationToken::new())
        .unwrap();
    let server = server::serve(&topology.server, files.path()).unwrap();
    let taps = WanTap::attach(&topology).unwrap();
    let recording = Recording::start(&topology, files.path()).unwrap();
    let mut requests = requests(&[Kind::List], Duration::from_secs(1), 3);
    let (at, kind) = (Duration::from_millis(200), Kind::Video);
    requests.push(Request { at, kind });
    requests.sort_by_key(|it| it.at);
    let unused = files.path().join("nothing is stored");
    let drain = Duration::from_secs(2);
    let answers = client::visit(
        &topology.client,
        &topology.server,
        requests.clone(),
        unused,
        drain,
    )
    .unwrap();
    assert!(answers.iter().all(|it| it.seconds.is_some()), "{answers:?}");
    let (sent, arrived) = recording.end().unwrap();
    let tapped = taps.arriving.as_ref().unwrap().collect().unwrap();
    let completions = taps.completions(Kind::List).unwrap();
    let jitter = taps.jitter_us().unwrap();
    drop((taps, server));
    applied.remove().unwrap();

    let of = |packets: &Recorded, client: u16| -> Vec<u64> {
        let mine = packets.iter().filter(|(_, key)| key.0.1 == client);
        mine.map(|(at_ns, _)| *at_ns).collect()
    };
    let lists = tapped
        .iter()
        .filter(|it| it.source_port == Kind::List.port());
    let lists: Vec<&TappedFlow> = lists.collect();
    let requested = requests.iter().filter(|it| it.kind == Kind::List);
    assert_eq!(lists.len(), requested.count());
    let mut by_tcpdump = Vec::new();
    for flow in lists {
        let (left, came) = (
            of(&sent, flow.destination_port),
            of(&arrived, flow.destination_port),
        );
        let packets: u64 = flow.seen.iter().map(|it| it.packets).sum();
        assert_eq!(packets, came.len() as u64, "{flow:?}");
        let first = left.iter().min().unwrap();
        by_tcpdump.push((came.iter().max().unwrap() - first) as f64 / 1e6);
    }
    // The recording begins at the other side of the border, some microseconds before the tap; a machine that stands still
    // there is no fault of either, so the middle is compared.
    let median = |of: Vec<f64>| Summary::new(of).median();
    let by_tap = median(completions.iter().map(|it| it.1).collect());
    let by_tcpdump = median(by_tcpdump);
    let off_ms = by_tcpdump - by_tap;
    assert!(
        (0.0..0.2).contains(&off_ms),
        "{by_tap} ms, by tcpdump {by_tcpdump} ms"
    );
    for (kind, by_tap) in TIMED.into_iter().zip(jitter) {
        let by_tcpdump = delay_variation_us(&sent, &arrived, kind.port());
        assert!(by_tap.len() > 50, "{kind:?}: {by_tap:?}");
        assert_eq!(by_tap.len(), by_tcpdump.len(), "{kind:?}");
        let (by_tap, by_tcpdump) = (median(by_tap), median(by_tcpdump));
        println!("{kind:?}: {by_tap} us, by tcpdump {by_tcpdump} us");
        assert!(
            (by_tcpdump - by_tap).abs() < 10.0,
            "{kind:?}: {by_tap} us, by tcpdump {by_tcpdump} us"
        );
    }
}
