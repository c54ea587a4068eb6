//! The program that counts what leaves, run by the kernel (`BPF_PROG_TEST_RUN`).

use std::collections::HashMap;

use crate::policy as support;
use crate::support::loaded::{LOOPBACK, Loaded};
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use splitter_config::PacketLog;
use splitter_datapath::Object;
use splitter_policy::config::PolicyConfig;
use splitter_policy::egress_counts::{EgressCounts, IpStart, Marked};
use splitter_policy::flow::{FlowKey, FlowKeyV6};
use splitter_policy::packet::{Network, Transport};
use splitter_policy::reverse::{Arrival, ReverseEntry, counted};
use support::shapes::every_shape_with;

const TCX_NEXT: u32 = -1i32 as u32;
const TABLE_SIZE: u32 = 4_096;
/// Without a mark, with that of the long tunnel and with that of the short one.
const TRAFFIC_CLASSES: [u8; 3] = [0, 0x09, 4 << 2];
/// Of a frame that runs through a test; what has tags has them there.
const IP: usize = 14;

fn counting(prepare: fn(&mut Loaded)) -> Loaded {
    let object = Object::for_level(PacketLog::Off).expect("is embedded");
    let mut kernel = Loaded::new(object.bytes(), TABLE_SIZE);
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
