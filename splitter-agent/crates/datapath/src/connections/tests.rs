use std::collections::HashMap;

use proptest::prelude::*;
use splitter_config::Balance;
use splitter_policy::flow::{FlowKeyV4, FlowKeyV6};
use splitter_policy::packet::protocol;
use splitter_policy::reverse::ReverseEntry;

use super::*;

const NOW_NS: u64 = 1_000_000_000_000;
const TUNNEL: u32 = 7;

/// What is known of one direction.
#[derive(Clone, Copy, Debug)]
struct Known {
    in_table: Option<FlowEntry>,
    counted: Option<ReverseEntry>,
}

fn key(number: u8, ports: [u8; 4], protocol: u8) -> FlowKey {
    let (ports, protocol) = (u32::from_ne_bytes(ports), protocol.into());
    let address = |last| u32::from_ne_bytes([10, 0, number, last]);
    match number % 2 {
        0 => FlowKey::V4(FlowKeyV4 {
            source: address(1),
            destination: address(2),
            ports,
            protocol,
        }),
        _ => FlowKey::V6(FlowKeyV6 {
            source: [number.into(), 1],
            destination: [number.into(), 2],
            ports,
            protocol,
        }),
    }
}

fn entry() -> impl Strategy<Value = FlowEntry> {
    (1..50_u64, 1..9_000_u64, 0..4_u64).prop_map(|(packets, bytes, seconds)| FlowEntry {
        packets,
        bytes,
        first_seen_ns: NOW_NS - seconds * 1_000_000_000,
        last_seen_ns: NOW_NS,
        ..FlowEntry::default()
    })
}

fn counts() -> impl Strategy<Value = ReverseEntry> {
    (1..50_u64, 1..9_000_u64).prop_map(|(packets, bytes)| ReverseEntry {
        packets,
        bytes,
        last_ns: NOW_NS,
        device: TUNNEL,
        reserved: 0,
    })
}

fn known() -> impl Strategy<Value = Known> {
    let either = (
        proptest::option::of(entry()),
        proptest::option::of(counts()),
    );
    either.prop_map(|(in_table, counted)| Known { in_table, counted })
}

/// Connections between ends of their own, with what is known of either direction.
fn connections() -> impl Strategy<Value = Vec<(FlowKey, [Known; 2])>> {
    let protocols = prop_oneof![Just(protocol::TCP), Just(protocol::UDP)];
    let one = (any::<[u8; 4]>(), protocols, [known(), known()]);
    proptest::collection::vec(one, 0..12).prop_map(|drawn| {
        let numbered = drawn.into_iter().zip(0..);
        let named = numbered
            .map(|((ports, protocol, known), number)| (key(number, ports, protocol), known));
        named.collect()
    })
}

/// What is shown of all that is known.
fn shown(connections: &[(FlowKey, [Known; 2])]) -> Vec<Connection> {
    let mut table = HashMap::new();
    let mut counted = HashMap::new();
    for (key, known) in connections {
        let keys = [*key, reversed(key).expect("it has ports")];
        for (key, known) in keys.into_iter().zip(known) {
            table.extend(known.in_table.map(|entry| (key, entry)));
            counted.extend(known.counted.map(|entry| (key, entry)));
        }
    }
    let counted = |flow: &FlowKey| counted.get(&reversed(flow)?).copied();
    let devices = TunnelDevices {
        roles: vec![(TUNNEL, TunnelRole::Long)],
        balancers: None,
    };
    let other = |key: &FlowKey| table.get(key).copied();
    let flows = table.iter();
    flows
        .filter_map(|flow| Connection::new(flow, other, counted, &devices, NOW_NS))
        .collect()
}

/// Where a connection is shown, whichever of its directions stands for it.
fn of<'a>(shown: &'a [Connection], key: &FlowKey) -> Vec<&'a Connection> {
    let (source, destination) = key.addresses();
    let ends = [source, destination];
    let is_its =
        |it: &&Connection| ends.contains(&it.flow.source) && ends.contains(&it.flow.destination);
    shown.iter().filter(is_its).collect()
}

/// Of a class whose packets may take any tunnel nothing else is said, and what comes back is the other border's choice.
#[test]
fn tunnels_are_named_by_class_where_packets_do_not_choose() {
    let devices = |short, long| TunnelDevices {
        roles: vec![(TUNNEL, TunnelRole::Long)],
        balancers: Some(Balancers { short, long }),
    };
    let named = |devices: &TunnelDevices| {
        let of = |class: Class| devices.tunnel_of(class, class.own_tunnel());
        let [short, long] = Class::ALL.map(of);
        (short, long, devices.arrived_by(TUNNEL))
    };
    let (tr, own) = (Balance::Tr, Balance::Placement);
    assert_eq!(named(&devices(tr, tr)), ("any", "any", Some("any")));
    assert_eq!(named(&devices(own, tr)), ("short", "any", Some("any")));
    // A flow that turns long stays where it was for a while.
    assert_eq!(named(&devices(tr, own)), ("any", "any", Some("any")));
    let nobody_chooses = TunnelDevices {
        balancers: None,
        ..devices(own, own)
    };
    assert_eq!(named(&nobody_chooses), ("short", "long", Some("long")));
    assert_eq!(nobody_chooses.arrived_by(TUNNEL + 1), None);
}

proptest! {
    #[test]
    fn connection_is_shown_once_with_all_that_is_known_of_both_directions(all in connections()) {
        let shown = shown(&all);
        for (key, [one, other]) in &all {
            let found = of(&shown, key);
            let (own, back) = match (one.in_table, other.in_table) {
                (None, None) => {
                    prop_assert!(found.is_empty());
                    continue;
                }
                (Some(own), None) => (own.bytes, other.counted.map(|it| it.bytes)),
                (None, Some(own)) => (own.bytes, one.counted.map(|it| it.bytes)),
                // Each of them is in the table; what was counted of them besides is the same packets.
                (Some(one), Some(other)) => (one.bytes, Some(other.bytes)),
            };
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(found[0].bytes(), own + back.unwrap_or(0));
            prop_assert_eq!(found[0].reverse.is_some(), back.is_some());
        }
        let in_table = all.iter().filter(|(_, [a, b])| a.in_table.or(b.in_table).is_some());
        prop_assert_eq!(shown.len(), in_table.count());
    }

    #[test]
    fn direction_with_more_bytes_fills_and_of_one_that_is_not_seen_nothing_is_said(
        all in connections(),
    ) {
        for it in shown(&all) {
            let more = it.reverse.and_then(|reverse| match it.flow.bytes.cmp(&reverse.bytes) {
                std::cmp::Ordering::Less => Some(Direction::In),
                std::cmp::Ordering::Equal => None,
                std::cmp::Ordering::Greater => Some(Direction::Out),
            });
            prop_assert_eq!(it.fills, more);
        }
    }

    #[test]
    fn both_borders_of_a_connection_show_it_the_other_way_round(out in entry(), back in counts()) {
        let key = key(0, [0, 80, 1, 187], protocol::TCP);
        let other = reversed(&key).expect("it has ports");
        let here = Known { in_table: Some(out), counted: None };
        let there = Known { in_table: None, counted: Some(back) };
        let near = shown(&[(key, [here, there])]);
        let far = shown(&[(other, [here, there])]);
        prop_assert_eq!(near[0].flow.source, far[0].flow.destination);
        prop_assert_eq!(near[0].reverse, far[0].reverse);
        prop_assert_eq!(near[0].fills, far[0].fills);
    }
}

#[test]
fn what_came_back_before_a_flow_began_is_of_an_earlier_one() {
    let began = FlowEntry {
        first_seen_ns: NOW_NS,
        packets: 1,
        ..FlowEntry::default()
    };
    let reverse_at = |last_ns| {
        let counted = ReverseEntry {
            packets: 9,
            bytes: 900,
            last_ns,
            device: TUNNEL,
            reserved: 0,
        };
        let known = [
            Known {
                in_table: Some(began),
                counted: None,
            },
            Known {
                in_table: None,
                counted: Some(counted),
            },
        ];
        let shown = shown(&[(key(0, [0, 80, 1, 187], protocol::TCP), known)]);
        shown[0].reverse
    };
    assert_eq!(reverse_at(NOW_NS - 1_000_000_000), None);
    let reverse = reverse_at(NOW_NS - 10_000_000).expect("it is of this one");
    assert_eq!((reverse.packets, reverse.tunnel), (9, Some("long")));
}

#[test]
fn who_talks_to_itself_by_one_port_is_shown() {
    let FlowKey::V4(key) = key(0, [0, 80, 0, 80], protocol::UDP) else {
        panic!("of IPv4");
    };
    let key = FlowKey::V4(FlowKeyV4 {
        destination: key.source,
        ..key
    });
    let known = Known {
        in_table: Some(FlowEntry::default()),
        counted: None,
    };
    let nothing = Known {
        in_table: None,
        counted: None,
    };
    assert_eq!(shown(&[(key, [known, nothing])]).len(), 1);
}
