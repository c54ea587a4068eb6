//! What the manager promises without the rest of the machine.

use super::{
    notices::{FIRST_SILENCE, RETURN_WITHIN},
    *,
};
use crate::packet::{Echo, Form, PacketKind, Pong, Reports};

const PEER: PeerId = PeerId::new(0, 0);

fn four_tuple(socket: u16, host: u8) -> FourTuple {
    FourTuple::new(SocketId(socket), ([192, 0, 2, host], 7).into())
}

fn manager(sockets: u16, is_ours: bool) -> PathManager {
    let mut manager = PathManager::new(&TransportConfig::unprotected(), Time::ZERO);
    manager.add_peer(Time::ZERO, PEER, is_ours);
    for socket in 0..sockets {
        assert!(manager.add_path(Time::ZERO, PEER, four_tuple(socket, 1)));
    }
    manager
}

/// Nobody tells of it as long as the path is dead: it would fill the window.
#[test]
fn nothing_that_went_by_a_dead_path_is_in_flight_while_another_delivers() {
    let mut manager = manager(2, true);
    let [dead, good] = [four_tuple(0, 1), four_tuple(1, 1)];
    for index in 0..2 {
        let paths = &mut manager.peers.get_mut(PEER).unwrap().paths;
        paths.get_mut(index).die();
    }
    // Each path is tried with a symbol, and one is back.
    let mut now = Time::ZERO;
    for _ in 0..2 {
        let path = manager.choose(now, PEER, 1_000, 1, None).unwrap();
        manager.stamp(now, PEER, &path, 1_000).unwrap();
    }
    assert_eq!(manager.in_flight(PEER), (2_000, true));
    deliver(&mut manager, now, good);
    assert_eq!(manager.in_flight(PEER), (0, false));
    for _ in 0..1_000 {
        now = now + Duration::from_secs(1);
        manager.stamp_by(now, PEER, dead, 100).unwrap();
        deliver(&mut manager, now, good);
    }
    assert_eq!(manager.in_flight(PEER), (0, false));
    let paths = &manager.peers.get(PEER).unwrap().paths;
    assert_eq!(paths.get(0).in_flight(), 1_000, "probes are not kept");
}

#[test]
fn an_answer_leaves_a_path_that_is_dead_for_what_we_send() {
    let mut manager = manager(2, true);
    let [dead, good] = [four_tuple(0, 1), four_tuple(1, 1)];
    manager.stamp_by(Time::ZERO, PEER, good, 100).unwrap();
    let echo = Echo {
        path: 2,
        sent_us: 0,
        hold_us: 0,
    };
    manager.acknowledged(Time::ZERO, PEER, &echo, Reports::default());
    assert_eq!(manager.return_path(Some(PEER), dead, 1), dead);
    manager.peers.get_mut(PEER).unwrap().paths.get_mut(0).die();
    assert_eq!(manager.return_path(Some(PEER), dead, 1), good);
    assert_eq!(manager.return_path(None, dead, 1), dead, "a stranger's");
}

/// Round trips may be longer than the one that is assumed, and what is in flight is not lost yet then.
#[test]
fn a_path_to_who_was_never_heard_of_is_not_dead_within_a_second() {
    let mut manager = manager(1, true);
    let first = four_tuple(0, 1);
    let (mut now, mut died) = (Time::ZERO, 0);
    for ms in [0, 5, 10, 100, 400, 990, 1_001] {
        now = Time::ZERO + Duration::from_millis(ms);
        manager.probe(now, PEER, &mut died);
        assert_eq!(died, u64::from(ms > 1_000), "after {ms} ms");
        manager.stamp_by(now, PEER, first, 100).unwrap();
    }
    let echo = Echo {
        path: 1,
        sent_us: now.as_wire_micros(),
        hold_us: 0,
    };
    manager.acknowledged(now, PEER, &echo, Reports::default());
    for _ in 0..3 {
        manager.stamp_by(now, PEER, first, 100).unwrap();
    }
    manager.probe(now + Duration::from_millis(260), PEER, &mut died);
    assert_eq!(died, 2, "a round trip is known");
}

/// Neither before its paths are dead nor after that: a queue of a second may be all that is wrong (RFC 9002 §6.2.1).
#[test]
fn who_never_answers_is_probed_ever_more_seldom() {
    let mut manager = manager(1, true);
    let mut probed = vec![Time::ZERO];
    manager
        .stamp_by(Time::ZERO, PEER, four_tuple(0, 1), 100)
        .unwrap();
    for ms in 0..8_000 {
        let now = Time::ZERO + Duration::from_millis(ms);
        for ping in manager.probe(now, PEER, &mut 0).into_iter().flatten() {
            manager.stamp_by(now, PEER, ping.four_tuple, 100).unwrap();
            probed.push(now);
        }
    }
    let pauses: Vec<_> = probed.windows(2).map(|it| it[1].since(it[0])).collect();
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert!((8..=16).contains(&pauses.len()), "{pauses:?}");
}

#[test]
fn a_peer_is_unreachable_when_a_notice_is_confirmed_by_the_silence_of_all_its_paths() {
    for (suspects, is_answered, expected) in [
        (Suspects::Address, false, true),
        (Suspects::Address, true, false),
        (Suspects::Path, false, false),
    ] {
        let mut manager = manager(2, true);
        manager.suspect(Time::ZERO, PEER, four_tuple(0, 1), suspects);
        assert!(!manager.take_unreachable(PEER), "it is a hint");
        let (mut now, mut died) = (Time::ZERO, 0);
        let mut probes = [0; 2];
        while now < Time::ZERO + FIRST_SILENCE {
            for ping in manager.probe(now, PEER, &mut died).into_iter().flatten() {
                probes[usize::from(ping.four_tuple.socket.0)] += 1;
                let stamp = manager.stamp_by(now, PEER, ping.four_tuple, 100).unwrap();
                let echo = Echo {
                    path: stamp.path,
                    ..Echo::default()
                };
                if is_answered && stamp.path == 2 {
                    manager.acknowledged(now, PEER, &echo, Reports::default());
                }
            }
            assert!(!manager.take_unreachable(PEER), "answers may be under way");
            now = manager.next_care(now, PEER);
        }
        manager.probe(now, PEER, &mut died);
        assert_eq!(manager.take_unreachable(PEER), expected, "{suspects:?}");
        assert!(probes[0] >= 2, "{probes:?}");
        assert!(!manager.take_unreachable(PEER), "it is announced once");
    }
}

/// What a restart takes is no reason to abandon messages; what takes longer is said at once.
#[test]
fn who_was_heard_of_has_time_to_return() {
    let mut manager = manager(2, true);
    let stamp = manager.stamp_by(Time::ZERO, PEER, four_tuple(0, 1), 100);
    let echo = Echo {
        path: stamp.unwrap().path,
        ..Echo::default()
    };
    manager.acknowledged(Time::ZERO, PEER, &echo, Reports::default());
    let (mut now, mut died) = (Time::ZERO + Duration::from_millis(10), 0);
    let begin = now;
    manager.suspect(now, PEER, four_tuple(0, 1), Suspects::Address);
    while !manager.take_unreachable(PEER) {
        now = manager.next_care(now, PEER);
        manager.probe(now, PEER, &mut died);
        assert!(now < begin + RETURN_WITHIN * 2, "it is never said");
    }
    let took = now.since(begin);
    assert!(
        took >= RETURN_WITHIN && took < RETURN_WITHIN + FIRST_SILENCE * 2,
        "{took:?}"
    );

    // Without another notice, which hosts and routers send few of.
    now = now + Duration::from_millis(500);
    let begin = now;
    manager.try_again(now, PEER);
    while !manager.take_unreachable(PEER) {
        manager.probe(now, PEER, &mut died);
        now = manager.next_care(now, PEER);
        assert!(now < begin + FIRST_SILENCE * 2, "it is not said again");
    }
    manager.acknowledged(now, PEER, &echo, Reports::default());
    manager.probe(now, PEER, &mut died);
    manager.try_again(now, PEER);
    let due = manager.peers.get(PEER).unwrap().absence_due();
    assert_eq!(due, None, "it is there again");
}

/// Sends a datagram by a path, of which the peer reports that it has arrived.
fn deliver(manager: &mut PathManager, now: Time, four_tuple: FourTuple) -> Stamp {
    let stamp = manager.stamp_by(now, PEER, four_tuple, 100).unwrap();
    let report = Report {
        path: stamp.path,
        received: stamp.sequence as u32 + 1,
        highest: stamp.sequence as u32,
        delay_us: 0,
        ..Report::default()
    };
    let paths = &mut manager.peers.get_mut(PEER).unwrap().paths;
    assert!(paths.hear(now, &report).is_some());
    stamp
}

fn header_of_pong() -> Header {
    Header {
        kind: PacketKind::Pong,
        form: Form::Plain,
        path: 1,
        sent_us: 0,
        session: 1,
        sequence: 0,
    }
}

/// Bytes of probes in 100 s of 16 paths, while this is the rate and messages go by the first alone.
fn refreshed(bytes_per_s: f64, is_answered: bool) -> f64 {
    let mut manager = manager(16, true);
    let (mut now, mut died, mut probes) = (Time::ZERO, 0, 0);
    while now < Time::ZERO + Duration::from_secs(100) {
        manager.budget_probes(now, PEER, bytes_per_s);
        let pings = manager.probe(now, PEER, &mut died).into_iter().flatten();
        let pings: Vec<_> = pings.filter(|ping| ping.datagram_bytes == 0).collect();
        probes += pings.len();
        let probed = pings.iter().map(|ping| ping.four_tuple);
        for four_tuple in probed.chain([four_tuple(0, 1)]) {
            let stamp = manager.stamp_by(now, PEER, four_tuple, 100).unwrap();
            let report = Report {
                path: stamp.path,
                received: stamp.sequence as u32 + 1,
                highest: stamp.sequence as u32,
                delay_us: 0,
                ..Report::default()
            };
            if is_answered {
                let paths = &mut manager.peers.get_mut(PEER).unwrap().paths;
                assert!(paths.hear(now, &report).is_some());
                paths.by_id(stamp.path).unwrap().echoed(now);
            }
        }
        now = manager.next_care(now, PEER);
    }
    probes as f64 * 136.0
}

#[test]
fn probes_of_many_paths_take_a_small_share_of_a_slow_rate() {
    for bytes_per_s in [125_000.0, 200_000.0, 400_000.0] {
        let share = refreshed(bytes_per_s, true) / (100.0 * bytes_per_s);
        assert!(share < 0.02, "{share} of {bytes_per_s} bytes/s");
    }
    let often = 15.0 * 136.0 * 5.0 * 100.0;
    let fast = refreshed(1e8, true) / often;
    assert!((0.9..1.1).contains(&fast), "{fast} of five a second");
    let (slow, fast) = (refreshed(125_000.0, false), refreshed(1e8, false));
    assert!(slow == fast, "{slow} bytes to who is silent, and {fast}");
}

/// When the path MTU was probed in ten seconds of 16 paths that deliver, while this is the rate, and when the
/// last of them was found to carry longer datagrams.
fn mtu_probes(bytes_per_s: f64, is_answered: bool) -> (Vec<Time>, Option<Time>) {
    let mut manager = manager(16, true);
    let (mut now, mut died) = (Time::ZERO, 0);
    let (mut probes, mut found) = (Vec::new(), None);
    for socket in 0..16 {
        deliver(&mut manager, now, four_tuple(socket, 1));
    }
    while now < Time::ZERO + Duration::from_secs(10) {
        manager.budget_probes(now, PEER, bytes_per_s);
        let pings = manager.probe(now, PEER, &mut died);
        for ping in pings.into_iter().flatten() {
            let stamp = deliver(&mut manager, now, ping.four_tuple);
            let is_probe = ping.datagram_bytes > 0;
            probes.extend(is_probe.then_some(now));
            let pong = Pong {
                nonce: ping.nonce,
                echo: Echo {
                    path: stamp.path,
                    ..Echo::default()
                },
                datagram_bytes: ping.datagram_bytes as u16,
            };
            if is_answered {
                manager.pong(PEER, &header_of_pong(), &pong);
            }
        }
        let paths = &manager.peers.get(PEER).unwrap().paths;
        if found.is_none() && paths.datagram_bytes() == Some(manager.datagrams.most) {
            found = Some(now);
        }
        now = manager.next_care(now, PEER);
    }
    (probes, found)
}

#[test]
fn probes_of_the_path_mtu_follow_each_other_as_a_small_share_of_the_rate_allows() {
    for (bytes_per_s, pause_ms) in [(125_000.0, 240), (1_250_000.0, 24), (12_500_000.0, 5)] {
        let pause = Duration::from_millis(pause_ms);
        for is_answered in [false, true] {
            let (probes, found) = mtu_probes(bytes_per_s, is_answered);
            for pair in probes.windows(2) {
                assert!(pair[1].since(pair[0]) >= pause, "{bytes_per_s}: {pair:?}");
            }
            let is_soon = found.map(|found| found <= Time::ZERO + pause * 18);
            assert_eq!(
                is_soon,
                is_answered.then_some(true),
                "{bytes_per_s}: {found:?}"
            );
            assert!(probes.len() >= 16, "{bytes_per_s}: {}", probes.len());
        }
    }
}

#[test]
fn round_trips_and_losses_come_from_acknowledgements() {
    let mut manager = manager(1, true);
    for _ in 0..4 {
        manager
            .stamp_by(Time::ZERO, PEER, four_tuple(0, 1), 1_200)
            .unwrap();
    }
    let later = Time::ZERO + Duration::from_millis(8);
    let echo = Echo {
        path: 1,
        sent_us: 0,
        hold_us: 3_000,
    };
    manager.acknowledged(later, PEER, &echo, Reports::default());
    let statistics = manager.statistics(PEER).unwrap();
    assert_eq!(
        statistics.round_trip.smoothed(),
        Some(Duration::from_millis(5)),
        "without the time at the peer"
    );
}

#[test]
fn a_port_by_which_nothing_arrives_is_rotated_while_others_deliver() {
    let mut manager = manager(4, true);
    let mut now = Time::ZERO;
    let mut events = VecDeque::new();
    let mut arrived = [0; 4];
    for _ in 0..400 {
        now = now + Duration::from_millis(10);
        let mut died = 0;
        for ping in manager.probe(now, PEER, &mut died).into_iter().flatten() {
            let stamp = manager
                .stamp_by(now, PEER, ping.four_tuple, 100)
                .expect("it has such a path");
            let socket = usize::from(ping.four_tuple.socket.0);
            if socket != 2 {
                arrived[socket] += 1;
                let peer = manager.peers.get_mut(PEER).unwrap();
                let report = Report {
                    path: stamp.path,
                    received: arrived[socket],
                    highest: stamp.sequence as u32,
                    delay_us: 9,
                    ..Report::default()
                };
                peer.paths.hear(now, &report);
            }
        }
        assert_eq!(manager.replace_failed(now, PEER, &mut events), 0);
    }
    let first = events.pop_front();
    assert!(
        matches!(
            first,
            Some(Event::RotatePort {
                socket: SocketId(2)
            })
        ),
        "{first:?}"
    );
    assert_eq!(manager.port_rotated(now, SocketId(2)), [PEER]);
}

#[test]
fn only_the_answer_to_a_probe_of_ours_proves_a_length_and_no_more_than_was_probed() {
    let mut manager = manager(1, true);
    let mut now = Time::ZERO;
    let datagrams = Datagrams::default();
    let stamp = manager.stamp_by(now, PEER, four_tuple(0, 1), 100).unwrap();
    let header = header_of_pong();
    let pong = |nonce, datagram_bytes| Pong {
        nonce,
        echo: Echo {
            path: stamp.path,
            ..Echo::default()
        },
        datagram_bytes,
    };
    let longest = |manager: &PathManager| manager.widest(PEER).unwrap();
    for nonce in [0, 1, now.as_nanos(), u64::MAX] {
        manager.pong(PEER, &header, &pong(nonce, 60_000));
        assert_eq!(longest(&manager), datagrams.initial, "nobody asked");
    }
    let report = Report {
        path: stamp.path,
        received: 1,
        highest: 0,
        delay_us: 9,
        ..Report::default()
    };
    manager
        .peers
        .get_mut(PEER)
        .unwrap()
        .paths
        .hear(now, &report);
    let mut died = 0;
    let mut pings = (0..100).filter_map(|_| {
        now = now + Duration::from_millis(5);
        manager.probe(now, PEER, &mut died)[0]
    });
    let probe = pings
        .find(|ping| ping.datagram_bytes > 0)
        .expect("it is tried");
    assert_eq!(probe.datagram_bytes, datagrams.most);
    manager.pong(PEER, &header, &pong(probe.nonce ^ 1, u16::MAX));
    assert_eq!(longest(&manager), datagrams.initial, "another nonce");
    manager.pong(PEER, &header, &pong(probe.nonce, datagrams.most as u16 - 1));
    assert_eq!(
        longest(&manager),
        datagrams.initial,
        "it was cut on the way"
    );
    manager.pong(PEER, &header, &pong(probe.nonce, u16::MAX));
    assert_eq!(longest(&manager), datagrams.most, "no more than was probed");
}

/// A host that is busy lets a process wait, and all that goes to it with it.
#[test]
fn paths_to_a_peer_that_stands_still_live_and_one_that_is_silent_alone_dies() {
    const PATHS: u16 = 8;
    let mut manager = manager(PATHS, true);
    let mut now = Time::ZERO;
    let mut arrived = [0; PATHS as usize];
    // For so many milliseconds each path gets two datagrams in each, which arrive or not.
    let mut run = |now: &mut Time, milliseconds, arrives: &dyn Fn(u16) -> bool| {
        let mut died = 0;
        for _ in 0..milliseconds {
            for (socket, arrived) in (0..PATHS).zip(&mut arrived) {
                for _ in 0..2 {
                    let path = four_tuple(socket, 1);
                    let stamp = manager.stamp_by(*now, PEER, path, 1_200).unwrap();
                    if !arrives(socket) {
                        continue;
                    }
                    *arrived += 1;
                    let echo = Echo {
                        path: stamp.path,
                        sent_us: stamp.sent_us,
                        hold_us: 0,
                    };
                    let later = *now + Duration::from_micros(100);
                    manager.acknowledged(later, PEER, &echo, Reports::default());
                    let report = Report {
                        path: stamp.path,
                        received: *arrived,
                        highest: stamp.sequence as u32,
                        delay_us: 9,
                        ..Report::default()
                    };
                    let peer = manager.peers.get_mut(PEER).unwrap();
                    peer.paths.hear(later, &report);
                }
            }
            *now = *now + Duration::from_millis(1);
            manager.probe(*now, PEER, &mut died);
        }
        died
    };
    assert_eq!(run(&mut now, 100, &|_| true), 0);
    assert_eq!(run(&mut now, 160, &|_| false), 0, "the peer stands still");
    assert_eq!(run(&mut now, 100, &|_| true), 0);
    assert_eq!(run(&mut now, 30, &|socket| socket != 3), 1, "that one");
    assert_eq!(run(&mut now, 100, &|_| true), 0);
    assert_eq!(run(&mut now, 300, &|_| false), u64::from(PATHS), "a cut");
}
