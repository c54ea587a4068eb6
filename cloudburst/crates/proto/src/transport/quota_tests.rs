//! A receiver that has as many peers as its quota allows, and somebody else who comes.

use core::time::Duration;

use super::{
    super::*,
    sealed_tests::{completion, key_pairs, pair_of, received, shared_key},
};

/// It is answered under keys of its own, hears why its message waits, and goes on as soon as there is
/// capacity; nothing is kept of it meanwhile, and no answer is longer than what it answers.
#[test]
fn who_is_one_too_many_hears_it_in_two_round_trips_and_is_served_when_another_goes() {
    for mut configs in [key_pairs(), [shared_key(3), shared_key(3)]] {
        configs[1].quotas.peers = 1;
        for leaves in [false, true] {
            configs[0].budget.lifetime = Duration::from_secs(2);
            let (mut pair, peer) = pair_of(&configs);
            pair.send(peer, 5_000);
            pair.run(Duration::from_millis(100), |_, _| false);
            completion(&mut pair);
            assert_eq!(received(&mut pair, 1), 1);
            // Another process with the same credentials.
            let next = Transport::deterministic(configs[0].clone(), [77; 32], pair.now).unwrap();
            pair.ends[0] = next;
            let paths: Vec<_> = (0..4)
                .map(|socket| FourTuple::new(SocketId(socket), super::tests::address(1, 0)))
                .collect();
            let key = match &configs[1].security {
                Security::KeyPair(identity) => Some(identity.secret.public()),
                _ => None,
            };
            let now = pair.now;
            let peer = pair.ends[0].connect(now, &paths, key).unwrap();
            pair.send(peer, 5_000);
            let (mut asked, mut answered) = (0, 0);
            pair.run(Duration::from_millis(300), |from, datagram| {
                *[&mut asked, &mut answered][from] += datagram.len();
                false
            });
            assert!(answered <= asked, "{answered} bytes for {asked}");
            let busy = pair.ends[1].statistics().refused.too_many_peers;
            assert!((1..100).contains(&busy), "{busy} times in 300 ms");
            let [heard, said] = [0, 1].map(|end| {
                let statistics = pair.ends[end].statistics();
                (statistics.busy_received, statistics.busy_sent)
            });
            assert!((1..=busy).contains(&said.1.peers), "{said:?} of {busy}");
            assert!((1..=said.1.peers).contains(&heard.0.peers), "{heard:?}");
            assert_eq!(
                (heard.0.total(), said.1.total()),
                (heard.0.peers, said.1.peers)
            );
            assert_eq!(pair.ends[1].statistics().peers_now, 1);
            if leaves {
                let known = pair.ends[1].peers().next().unwrap();
                let now = pair.now;
                pair.ends[1].forget(now, known);
            }
            pair.run(Duration::from_secs(3), |_, _| false);
            let events = pair.events(0);
            let ending = events.iter().find_map(|event| match event {
                Event::Delivered { .. } => Some(Ok(())),
                Event::Undelivered { failure, .. } => Some(Err(failure.reason)),
                _ => None,
            });
            let expected = if leaves { Ok(()) } else { Err(Reason::Busy) };
            assert_eq!(ending, Some(expected));
        }
    }
}
