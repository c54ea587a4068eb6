//! Notices of the network, forged ones and true ones.

use core::time::Duration;

use super::{super::super::*, ONE_WAY, Pair, address, message, path, with_and_without_keys};

#[test]
fn forged_notices_on_every_path_end_nothing() {
    let cases = with_and_without_keys().into_iter();
    for (config, is_known) in cases.flat_map(|it| [(it.clone(), false), (it, true)]) {
        let (mut pair, peer) = Pair::new(&config, 4);
        if is_known {
            pair.send(peer, 5_000);
            pair.run(Duration::from_millis(50), |_, _| false);
            pair.events(0);
        }
        pair.send(peer, 300_000);
        let mut seen = Vec::new();
        pair.run(ONE_WAY / 2, |from, datagram| {
            if from == 0 {
                seen.push(datagram.to_vec());
            }
            false
        });
        for socket in 0..4 {
            pair.ends[0].handle_unreachable(pair.now, path(socket));
            // From somebody who has seen nothing, and from somebody who has.
            for quoted in [&[][..], &[0x21; 64]]
                .into_iter()
                .chain(seen.iter().map(Vec::as_slice))
            {
                pair.ends[0].handle_icmp(pair.now, path(socket), IcmpKind::Unreachable, quoted);
            }
        }
        pair.run(Duration::from_secs(1), |_, _| false);
        let events = pair.events(0);
        assert!(
            matches!(events[..], [Event::Delivered { .. }]),
            "{events:?}"
        );
        let refused = pair.ends[0].statistics().refused;
        assert!(refused.unexpected >= 4, "{refused:?}");
    }
}

#[test]
fn one_notice_ends_what_is_sent_to_a_closed_port_in_100_ms_at_any_number_of_paths() {
    let cases = with_and_without_keys().into_iter();
    for (config, paths) in cases.flat_map(|it| [1, 4, 64].map(|paths| (it.clone(), paths))) {
        let (mut pair, peer) = Pair::new(&config, paths);
        pair.send(peer, 300_000);
        let mut first = None;
        pair.run(ONE_WAY * 2, |_, datagram| {
            first.get_or_insert_with(|| datagram.to_vec());
            true
        });
        // Of so many datagrams one is answered, as hosts limit what they say: by the other paths it
        // was not sent.
        let quoted = first.expect("it is sent");
        let start = pair.now;
        for socket in 0..paths {
            let kind = IcmpKind::Unreachable;
            pair.ends[0].handle_icmp(pair.now, path(socket), kind, &quoted[..24]);
        }
        pair.run(Duration::from_millis(100), |_, _| true);
        let events = pair.events(0);
        let [Event::Undelivered { failure, .. }] = &events[..] else {
            panic!("{paths} paths: {events:?}");
        };
        assert_eq!(failure.reason, Reason::Unreachable);
        assert!(pair.now.since(start) <= Duration::from_millis(100));
    }
}

/// The quoted datagram says whose it was, also of somebody who came to us.
#[test]
fn one_notice_ends_a_reply_to_a_client_that_is_gone() {
    for config in with_and_without_keys() {
        let (mut pair, peer) = Pair::new(&config, 1);
        pair.send(peer, 5_000);
        pair.run(Duration::from_millis(50), |_, _| false);
        let back = pair.ends[1].peers().next().expect("it was heard of");
        pair.events(1);
        let reply = message(300_000);
        let sent = pair.ends[1].send(pair.now, back, MessageKind::Message, &reply);
        sent.expect("there is capacity");
        let mut first = None;
        pair.run(ONE_WAY * 2, |from, datagram| {
            if from == 1 {
                first.get_or_insert_with(|| datagram.to_vec());
            }
            true
        });
        let quoted = first.expect("it is sent");
        let path = FourTuple::new(SocketId(0), address(0, 0));
        pair.ends[1].handle_icmp(pair.now, path, IcmpKind::Unreachable, &quoted[..24]);
        pair.run(Duration::from_millis(100), |_, _| true);
        let events = pair.events(1);
        let [Event::Undelivered { failure, .. }] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(failure.reason, Reason::Unreachable);
    }
}
