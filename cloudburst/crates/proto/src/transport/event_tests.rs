//! What hosts hear of peers and paths.

use core::time::Duration;

use super::{super::*, tests::Pair};
use crate::packet::Header;

const SECOND: Duration = Duration::from_secs(1);

/// Events but those of messages.
fn changes(pair: &mut Pair, end: usize) -> Vec<Event> {
    let events = core::iter::from_fn(|| pair.ends[end].poll_event());
    let is_change = |event: &Event| {
        matches!(
            event,
            Event::PeerKnown { .. } | Event::PeerGone { .. } | Event::PathHealth { .. }
        )
    };
    events.filter(is_change).collect()
}

fn healths(pair: &mut Pair) -> Vec<(u16, Health)> {
    let health = |event| match event {
        Event::PathHealth {
            four_tuple, health, ..
        } => Some((four_tuple.socket.0, health)),
        _ => None,
    };
    changes(pair, 0).into_iter().filter_map(health).collect()
}

#[test]
fn who_comes_by_itself_is_announced_and_why_it_is_gone() {
    let (mut pair, peer) = Pair::new(&TransportConfig::unprotected(), 2);
    pair.send(peer, 5_000);
    pair.run(SECOND, |_, _| false);
    let client = pair.ends[1].peers().next().unwrap();
    let events = changes(&mut pair, 1);
    assert!(matches!(events[..], [Event::PeerKnown { peer }, ..] if peer == client));
    assert!(
        !matches!(changes(&mut pair, 0)[..], [Event::PeerKnown { .. }, ..]),
        "it was connected to"
    );

    pair.run(130 * SECOND, |_, _| false);
    let events = changes(&mut pair, 1);
    let is_silent = |event: &Event| matches!(event, Event::PeerGone { peer, reason: GoneReason::Silent } if *peer == client);
    assert!(events.iter().any(is_silent), "{events:?}");
    let now = pair.now;
    pair.ends[0].forget(now, peer);
    let events = changes(&mut pair, 0);
    assert!(
        matches!(events[..], [Event::PeerGone { peer: gone, reason: GoneReason::Forgotten }] if gone == peer),
        "{events:?}"
    );
}

#[test]
fn a_path_is_announced_when_its_health_changes_and_only_then() {
    let mut config = TransportConfig::unprotected();
    config.rotate_ports = false;
    let (mut pair, peer) = Pair::new(&config, 2);
    let talk = |pair: &mut Pair, is_lost: bool| {
        for _ in 0..40 {
            pair.send(peer, 5_000);
            pair.run(SECOND / 10, |from, datagram| {
                let header = Header::parse(datagram);
                is_lost && from == 0 && header.is_ok_and(|it| it.path == 1)
            });
        }
    };
    talk(&mut pair, false);
    let mut good = healths(&mut pair);
    good.sort_by_key(|(socket, _)| *socket);
    assert_eq!(good, [(0, Health::Good), (1, Health::Good)]);
    talk(&mut pair, true);
    assert_eq!(healths(&mut pair), [(0, Health::Dead)]);
    talk(&mut pair, false);
    assert_eq!(healths(&mut pair), [(0, Health::Good)]);
    talk(&mut pair, false);
    assert_eq!(healths(&mut pair), []);
}
