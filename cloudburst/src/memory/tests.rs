//! The network in memory carries single datagrams here, without endpoints and without waiting.

use std::net::SocketAddr;

use cloudburst_proto::Ecn;

use super::{state::Datagram, *};

const MS: Duration = Duration::from_millis(1);
/// Bytes that wait at one of these sockets at most.
const BUFFER_BYTES: usize = 1_000;

fn ip(host: u8) -> IpAddr {
    [10, 0, 0, host].into()
}

fn address(host: u8) -> SocketAddr {
    (ip(host), 4433).into()
}

/// A network with a socket at each of these hosts.
fn network(hosts: impl IntoIterator<Item = u8>) -> MemoryNetwork {
    let network = MemoryNetwork::new(1);
    for host in hosts {
        let bound = network.state().bind(address(host), BUFFER_BYTES);
        assert_eq!(bound, Some(address(host)));
    }
    network
}

fn send(network: &MemoryNetwork, now: Instant, from: u8, to: u8, bytes: &[u8]) {
    let datagram = Datagram {
        from: address(from),
        ecn: Ecn::CongestionExperienced,
        bytes: bytes.into(),
    };
    network.state().send(now, datagram, address(to));
}

fn receive(network: &MemoryNetwork, now: Instant, host: u8) -> Option<Datagram> {
    network.state().receive(now, address(host))
}

/// Sends from one host to the other, and says when that arrives, in ms up to 100; nothing if it does not.
fn arrives_after(network: &MemoryNetwork, now: Instant, from: u8, to: u8) -> Option<u32> {
    send(network, now, from, to, b"when?");
    (0..=100).find(|ms| receive(network, now + *ms * MS, to).is_some())
}

#[test]
fn a_partition_holds_in_both_directions_and_for_nobody_else() {
    let network = network(1..=4);
    let now = Instant::now();
    network.partition([ip(1), ip(2)], [ip(3)]);
    for (from, to) in [(1, 3), (3, 1), (2, 3), (3, 2)] {
        assert_eq!(arrives_after(&network, now, from, to), None, "{from}, {to}");
    }
    for (from, to) in [(1, 2), (2, 1), (1, 4), (3, 4), (4, 3)] {
        assert_eq!(
            arrives_after(&network, now, from, to),
            Some(0),
            "{from}, {to}"
        );
    }
    assert_eq!(network.statistics().parted, 4);
}

#[test]
fn partitions_add_up_and_all_of_them_are_healed() {
    let network = network(1..=3);
    let now = Instant::now();
    network.partition([ip(1)], [ip(2)]);
    network.partition([ip(1)], [ip(3)]);
    for to in [2, 3] {
        assert_eq!(arrives_after(&network, now, 1, to), None, "{to}");
    }
    network.heal();
    for to in [2, 3] {
        assert_eq!(arrives_after(&network, now, 1, to), Some(0), "{to}");
    }
}

#[test]
fn what_is_under_way_arrives_as_it_would_have_in_the_order_in_which_it_was_sent() {
    let network = network([1, 2]);
    network.set_default_link(Link::new(50 * MS));
    let now = Instant::now();
    for number in 0..20 {
        send(&network, now, 1, 2, &[number]);
    }
    network.partition([ip(1)], [ip(2)]);
    network.set_link(ip(1), ip(2), Link::default().with_loss(1.0).unwrap());
    assert!(receive(&network, now + 49 * MS, 2).is_none(), "too early");
    for number in 0..20 {
        let datagram = receive(&network, now + 50 * MS, 2).expect("it was under way");
        assert_eq!(datagram.bytes[..], [number]);
        assert_eq!(datagram.from, address(1));
        assert_eq!(datagram.ecn, Ecn::CongestionExperienced);
    }
    network.heal();
    assert_eq!(arrives_after(&network, now, 1, 2), None, "the link is dead");
    assert_eq!(network.statistics().lost, 1);
}

#[test]
fn another_default_changes_links_in_use_but_none_that_was_stated() {
    let network = network([1, 2]);
    let now = Instant::now();
    network.set_default_link(Link::new(10 * MS));
    assert_eq!(arrives_after(&network, now, 1, 2), Some(10));
    network.set_link(ip(2), ip(1), Link::new(30 * MS));
    network.set_default_link(Link::new(20 * MS));
    assert_eq!(arrives_after(&network, now, 1, 2), Some(20));
    assert_eq!(arrives_after(&network, now, 2, 1), Some(30));
    network.set_link(ip(1), ip(2), Link::new(40 * MS));
    assert_eq!(arrives_after(&network, now, 1, 2), Some(40));
}

#[test]
fn datagrams_to_nobody_and_beyond_a_buffer_are_counted_as_such() {
    let network = network([1, 2]);
    let now = Instant::now();
    send(&network, now, 1, 3, b"to nobody");
    assert_eq!(network.statistics().nobody, 1);
    for (bytes, dropped) in [(600, 0), (401, 1), (400, 1)] {
        send(&network, now, 1, 2, &vec![0; bytes]);
        assert_eq!(network.statistics().dropped, dropped, "{bytes}");
    }
    assert_eq!(receive(&network, now, 2).unwrap().bytes.len(), 600);
    let expected = MemoryNetworkStatistics {
        sent: 4,
        delivered: 1,
        dropped: 1,
        nobody: 1,
        under_way: 1,
        ..MemoryNetworkStatistics::default()
    };
    assert_eq!(network.statistics(), expected);
    // What was read has room again, and what is there when its socket goes is nobody's.
    send(&network, now, 1, 2, &[0; 600]);
    network.state().unbind(address(2));
    let expected = MemoryNetworkStatistics {
        sent: 5,
        nobody: 3,
        under_way: 0,
        ..expected
    };
    assert_eq!(network.statistics(), expected);
}

/// So that what was under way to the last one finds nobody else.
#[test]
fn a_port_that_is_free_again_comes_after_all_others() {
    let network = network([]);
    let any = (ip(1), 0).into();
    let first = network.state().bind(any, BUFFER_BYTES).unwrap();
    network.state().unbind(first);
    let second = network.state().bind(any, BUFFER_BYTES).unwrap();
    assert_ne!(first, second);
    // All are taken then, and none is left.
    let others = std::iter::from_fn(|| network.state().bind(any, BUFFER_BYTES));
    let others: std::collections::HashSet<SocketAddr> = others.collect();
    assert_eq!(others.len(), 16_383, "of 16,384 dynamic ports");
    assert!(others.contains(&first));
}
