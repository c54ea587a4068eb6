//! The program that counts what leaves, run by the kernel (`BPF_PROG_TEST_RUN`).

use std::collections::HashMap;

use crate::policy as support;
use crate::support::loaded::{LOOPBACK, Loaded};
use aya::Pod;
use aya::maps::Array;
use flow_balance::ServiceTime;
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use splitter_config::PacketLog;
use splitter_datapath::Object;
use splitter_policy::config::PolicyConfig;
use splitter_policy::egress_counts::{EgressCounts, IpStart, Marked};
use splitter_policy::flow::{FlowKey, FlowKeyV6};
use splitter_policy::packet::{Network, Transport};
use splitter_policy::paths::{BalancerNumber, SitePaths};
use splitter_policy::reverse::{Arrival, ReverseEntry, counted};
use support::packet::Packet;
use support::shapes::every_shape_with;

const TCX_NEXT: u32 = -1i32 as u32;
const TABLE_SIZE: u32 = 4_096;
/// Without a mark, with that of the long tunnel and with that of the short one.
const TRAFFIC_CLASSES: [u8; 3] = [0, 0x09, 4 << 2];
/// Of a frame that runs through a test; what has tags has them there.
const IP: usize = 14;

fn counting(prepare: fn(&mut Loaded)) -> Loaded {
    counting_by(BalancerNumber::TR, prepare)
}

fn counting_by(balancer: BalancerNumber, prepare: fn(&mut Loaded)) -> Loaded {
    let object = Object::for_level(PacketLog::Off).expect("is embedded");
    let mut kernel = Loaded::with_balancers(object.bytes(), TABLE_SIZE, [balancer; 2]);
    kernel.load_classifier("count_egress");
    kernel.set(PolicyConfig::default());
    kernel.count_at_site();
    prepare(&mut kernel);
    kernel
}

/// Has the kernel count every shape of packet, each of which passes as it is.
fn count_every_shape(kernel: &Loaded, mut on_host: impl FnMut(&[u8])) {
    for traffic_class in TRAFFIC_CLASSES {
        for shape in every_shape_with(traffic_class) {
            let (verdict, frame) = kernel.run_counting(&shape.frame, 1);
            assert_eq!(verdict, TCX_NEXT);
            assert_eq!(frame, shape.frame);
            on_host(&shape.frame);
        }
    }
}

fn read(frame: &[u8]) -> Option<(FlowKeyV6, Arrival)> {
    let network = Network::parse(frame).ok()?;
    let transport = Transport::parse(frame, &network).ok()?;
    let header = counted(transport, PolicyConfig::default().protocols)?;
    let arrival = Arrival {
        packets: 1,
        bytes: frame.len() as u64,
        now_ns: 0,
        device: LOOPBACK,
        opens: header.flags.opens(),
    };
    Some((FlowKey::new(network.addresses, &header).as_v6(), arrival))
}

#[test]
fn what_comes_back_is_counted_as_on_the_host_and_passes_as_it_is() {
    require!(Root);
    let kernel = counting(|_| {});
    let mut host: HashMap<FlowKeyV6, ReverseEntry> = HashMap::new();
    count_every_shape(&kernel, |frame| {
        let Some((key, arrival)) = read(frame) else {
            return;
        };
        host.entry(key)
            .and_modify(|it| it.count(&arrival, u64::MAX))
            .or_insert_with(|| ReverseEntry::first(&arrival));
    });
    assert!(host.len() > 1, "of both families");
    let without_time = |counts: HashMap<FlowKeyV6, ReverseEntry>| {
        let each = counts.into_iter();
        let each = each.map(|(key, entry)| {
            (
                key,
                ReverseEntry {
                    last_ns: 0,
                    ..entry
                },
            )
        });
        each.collect::<HashMap<_, _>>()
    };
    assert_eq!(without_time(kernel.came_back()), without_time(host));
    assert_eq!(kernel.left(), None);
}

#[test]
fn what_leaves_by_a_tunnel_is_counted_by_its_mark_and_passes_as_it_is() {
    require!(Root);
    let kernel = counting(Loaded::count_at_tunnel);
    let mut host = EgressCounts::ZERO;
    count_every_shape(&kernel, |frame| {
        let start = frame.get(IP..IP + IpStart::BYTES);
        let start = start.map(|it| it.try_into().expect("so many"));
        if let Some(ip) = start.and_then(IpStart::read) {
            let marked = Marked::of(&PolicyConfig::default(), 0, &ip);
            host.count(marked, ip.is_v6, 1, frame.len() as u64);
        }
    });
    let kernel_counts = kernel.left().expect("it is counted");
    for marked in [Marked::Short, Marked::Long, Marked::Unmarked] {
        assert!(host.packets(marked, false) > 0, "{marked:?}");
    }
    assert_eq!(kernel_counts, host);
    assert_eq!(kernel.came_back(), HashMap::new());
}

/// A value that is shared with the kernel program.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Plain<T>(T);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Plain<SitePaths> {}

/// Two tunnels of 80 kbit/s, so that nothing leaves meanwhile; the second one's device is the loopback device.
fn two_tunnels() -> SitePaths {
    let mut site = SitePaths {
        known: 0b11,
        usable: 0b11,
        ..SitePaths::default()
    };
    for tunnel in &mut site.tunnels[..2] {
        tunnel.service = ServiceTime::from_bits_per_second(80_000);
        tunnel.queue_ns = 60_000_000_000;
    }
    site.devices[..2].copy_from_slice(&[LOOPBACK + 1, LOOPBACK]);
    site
}

fn choosing_among(kernel: &mut Loaded, site: SitePaths) {
    let map = kernel.map("SITE_PATHS").try_into();
    let mut paths: Array<_, Plain<SitePaths>> = map.expect("is an array");
    paths.set(0, Plain(site), 0).expect("can be written");
}

/// When the queues in front of the first two tunnels are free, of short flows and of all.
fn free_at_ns(kernel: &mut Loaded) -> [u64; 4] {
    let map = kernel.map("PATH_QUEUES").try_into();
    let queues: Array<_, [u64; 64]> = map.expect("is an array");
    let words = queues.get(&0, 0).expect("can be read");
    [words[0], words[1], words[16], words[17]]
}

#[test]
fn what_did_not_come_from_the_site_enters_the_queue_of_its_tunnel() {
    require!(Root);
    const NOWHERE: u32 = 0;
    const NS_A_BYTE: u64 = 100_000;
    const ARP: [u8; 42] = {
        let mut frame = [0; 42];
        [frame[12], frame[13]] = [0x08, 0x06];
        frame
    };
    let mut kernel = counting(Loaded::count_at_tunnel);
    choosing_among(&mut kernel, two_tunnels());
    let frame = Packet::tcp_v4().bytes();
    // It has chosen a tunnel where it came in.
    kernel.run_leaving(&frame, LOOPBACK, 1_500, 1);
    assert_eq!(free_at_ns(&mut kernel), [0; 4]);
    // The border's own, or from a device that is not of the site, merged segments with all their headers.
    let (verdict, _) = kernel.run_leaving(&frame, NOWHERE, 10_000, 1);
    assert_eq!(verdict, TCX_NEXT);
    let [_, _, _, first_ns] = free_at_ns(&mut kernel);
    assert_eq!(free_at_ns(&mut kernel), [0, 0, 0, first_ns]);
    assert!(first_ns > 10_000 * NS_A_BYTE);
    kernel.run_leaving(&frame, LOOPBACK + 7, 20_000, 1);
    kernel.run_leaving(&ARP, NOWHERE, ARP.len() as u32, 1);
    let [_, _, _, then_ns] = free_at_ns(&mut kernel);
    assert_eq!(then_ns, first_ns + 20_042 * NS_A_BYTE);
    // From the site, without the mark of a tunnel where they have such: it could not be put into the one that it chose.
    choosing_among(
        &mut kernel,
        SitePaths {
            mark_mask: 0xf80,
            ..two_tunnels()
        },
    );
    kernel.run_leaving(&frame, LOOPBACK, 5_000, 1);
    let [_, _, _, last_ns] = free_at_ns(&mut kernel);
    assert_eq!(last_ns, then_ns + 5_000 * NS_A_BYTE);
    // The device is no tunnel's.
    choosing_among(
        &mut kernel,
        SitePaths {
            known: 0b01,
            ..two_tunnels()
        },
    );
    kernel.run_leaving(&frame, NOWHERE, 10_000, 1);
    assert_eq!(free_at_ns(&mut kernel), [0, 0, 0, last_ns]);
}

#[test]
fn nothing_enters_a_queue_where_nobody_chooses() {
    require!(Root);
    let mut kernel = counting_by(BalancerNumber::NONE, Loaded::count_at_tunnel);
    choosing_among(&mut kernel, two_tunnels());
    let frame = Packet::tcp_v4().bytes();
    kernel.run_leaving(&frame, 0, 10_000, 1);
    assert_eq!(free_at_ns(&mut kernel), [0; 4]);
}
