//! Prober and responder against each other, and against anyone who is in between.

use proptest::prelude::*;

use super::super::prober::Prober;
use super::*;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn pair() -> (Prober, Responder) {
    let key = KeyRing::of(&[1]);
    let prober = Prober::new(key.clone(), 0, Nonce(11));
    (prober, Responder::new(key, Nonce(22)))
}

/// One probe and its answer, which take no time.
fn exchange(prober: &mut Prober, responder: &mut Responder, now: Duration) {
    let request = prober.probe(now);
    let reply = responder
        .answer(&request, PEER, now, || None)
        .expect("an answer");
    assert_eq!(prober.receive(&reply, now), Ok(()));
}

#[test]
fn probes_are_answered_and_measured() {
    let (mut prober, mut responder) = pair();
    for turn in 0..200 {
        let now = ms(100 * turn);
        let request = prober.probe(now);
        let reply = responder
            .answer(&request, PEER, now + ms(5), || None)
            .expect("an answer");
        assert_eq!(reply.len(), request.len());
        assert_eq!(prober.receive(&reply, now + ms(10)), Ok(()));
    }
    let measure = prober.measure();
    assert_eq!(measure.round_trip(), Some(ms(10)));
    assert_eq!(measure.loss(), Some(0.0));
}

/// A tunnel that is watched anew, after a change of the configuration, has the agent's nonce still.
#[test]
fn prober_that_begins_anew_is_answered() {
    let (mut prober, mut responder) = pair();
    for turn in 0..300 {
        exchange(&mut prober, &mut responder, ms(100 * turn));
    }
    let begun = ms(30_000);
    let behind = begun.as_micros() as u64;
    let mut anew = Prober::new(KeyRing::of(&[1]), 0, Nonce(11)).after(behind);
    for turn in 0..300 {
        exchange(&mut anew, &mut responder, begun + ms(100 * turn));
    }
}

#[test]
fn answer_counts_once() {
    let (mut prober, mut responder) = pair();
    let request = prober.probe(ms(0));
    let reply = responder
        .answer(&request, PEER, ms(0), || None)
        .expect("an answer");
    assert_eq!(prober.receive(&reply, ms(1)), Ok(()));
    assert_eq!(prober.receive(&reply, ms(2)), Err(Refusal::Replayed));
}

#[test]
fn recorded_requests_are_not_answered_again() {
    let (mut prober, mut responder) = pair();
    exchange(&mut prober, &mut responder, ms(0));
    let recorded: Vec<_> = (1..=300)
        .map(|turn| {
            let request = prober.probe(ms(100 * turn));
            responder
                .answer(&request, PEER, ms(100 * turn), || None)
                .expect("an answer");
            request
        })
        .collect();
    for request in &recorded {
        let again = responder.answer(request, PEER, ms(60_000), || None);
        assert_eq!(again, Err(Refusal::Replayed));
    }
}

#[test]
fn requests_out_of_order_are_answered_once_each() {
    let (mut prober, mut responder) = pair();
    exchange(&mut prober, &mut responder, ms(0));
    let requests: Vec<_> = (0..20).map(|_| prober.probe(ms(100))).collect();
    for request in requests.iter().rev() {
        assert!(responder.answer(request, PEER, ms(200), || None).is_ok());
        assert_eq!(
            responder.answer(request, PEER, ms(200), || None),
            Err(Refusal::Replayed)
        );
    }
}

#[test]
fn recordings_for_an_earlier_run_get_few_replies_and_prove_nothing() {
    let (mut prober, _) = pair();
    let mut earlier = Responder::new(KeyRing::of(&[1]), Nonce(33));
    exchange(&mut prober, &mut earlier, ms(0));
    let recorded: Vec<_> = (0..1000).map(|_| prober.probe(ms(1))).collect();
    let (_, mut responder) = pair();
    let answered = recorded
        .iter()
        .filter(|request| responder.answer(*request, PEER, ms(500), || None).is_ok())
        .count();
    assert_eq!(answered, INTRODUCTION_BURST as usize);
    // A new run of the prober's agent knows none of them.
    let mut restarted = Prober::new(KeyRing::of(&[1]), 0, Nonce(12));
    let _ = restarted.probe(ms(1_000));
    let reply = responder
        .answer(&recorded[0], PEER, ms(5_000), || None)
        .expect("an answer");
    assert_eq!(restarted.receive(&reply, ms(5_000)), Err(Refusal::Unasked));
}

#[test]
fn own_datagrams_that_come_back_are_counted_as_reflected() {
    let (mut prober, _) = pair();
    let mut own = Responder::new(KeyRing::of(&[1]), Nonce(11));
    let request = prober.probe(ms(0));
    assert_eq!(
        own.answer(&request, PEER, ms(1), || None),
        Err(Refusal::Reflected)
    );
    assert_eq!(prober.receive(&request, ms(1)), Err(Refusal::Reflected));
}

#[test]
fn answer_for_one_tunnel_does_not_count_for_the_other() {
    let (mut short, mut responder) = pair();
    let mut long = Prober::new(KeyRing::of(&[1]), 1, Nonce(11));
    let _ = long.probe(ms(0));
    let request = short.probe(ms(0));
    let reply = responder
        .answer(&request, PEER, ms(0), || None)
        .expect("an answer");
    assert_eq!(long.receive(&reply, ms(1)), Err(Refusal::Unasked));
}

#[test]
fn another_key_gets_nothing() {
    let (mut prober, _) = pair();
    let mut stranger = Responder::new(KeyRing::of(&[2]), Nonce(22));
    let request = prober.probe(ms(0));
    assert_eq!(
        stranger.answer(&request, PEER, ms(0), || None),
        Err(Refusal::Forged)
    );
}

#[test]
fn each_source_has_its_rate_and_sources_are_bounded() {
    let (mut prober, mut responder) = pair();
    exchange(&mut prober, &mut responder, ms(0));
    let mut answered = 0;
    for turn in 0..2_000_u64 {
        let now = ms(1_000) + ms(turn);
        let request = prober.probe(now);
        match responder.answer(&request, PEER, now, || None) {
            Ok(reply) => {
                answered += 1;
                assert_eq!(prober.receive(&reply, now), Ok(()));
            }
            Err(refusal) => assert_eq!(refusal, Refusal::RateLimited),
        }
    }
    let bound = 2 * REPLIES_PER_SECOND + BURST;
    assert!((bound - 5..=bound).contains(&answered), "{answered}");

    // Others do not take the peer's share, nor more memory than is theirs.
    for host in 1..=200 {
        let other = IpAddr::from([198, 51, 100, host]);
        let _ = responder.answer(&prober.probe(ms(5_000)), other, ms(5_000), || None);
    }
    assert_eq!(responder.sources.len(), MAX_SOURCES);
    exchange(&mut prober, &mut responder, ms(6_000));
    // The idle ones make room.
    let request = prober.probe(ms(30_000));
    let newcomer = IpAddr::from([203, 0, 113, 1]);
    assert!(
        responder
            .answer(&request, newcomer, ms(30_000), || None)
            .is_ok()
    );
}

#[test]
fn restarted_peers_are_distinguished_within_bounds() {
    let (_, mut responder) = pair();
    for run in 0..100 {
        let mut prober = Prober::new(KeyRing::of(&[1]), 1, Nonce(1_000 + run));
        exchange(&mut prober, &mut responder, ms(2_000 * run));
        exchange(&mut prober, &mut responder, ms(2_000 * run + 100));
    }
    assert_eq!(responder.probers.len(), MAX_PROBERS);
}

proptest! {
    /// Whatever is done to the datagrams on their way: no panic, each answer counts at most once,
    /// and nothing is answered that was changed.
    #[test]
    fn meddling_gains_nothing(
        events in prop::collection::vec((0_u8..6, any::<u16>(), 0_u64..200), 1..200),
    ) {
        let (mut prober, mut responder) = pair();
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        let (mut now, mut sent, mut counted) = (ms(0), 0_usize, 0_usize);
        for (event, pick, pause) in events {
            now += ms(pause);
            let at = |list: &Vec<[u8; DATAGRAM_BYTES]>| {
                (!list.is_empty()).then(|| list[usize::from(pick) % list.len()])
            };
            match event {
                0 | 1 => {
                    sent += 1;
                    requests.push(prober.probe(now));
                }
                2 => {
                    let reply = at(&requests).map(|request| responder.answer(&request, PEER, now, || None));
                    replies.extend(reply.and_then(Result::ok));
                }
                3 => counted += at(&replies).map_or(0, |it| prober.receive(&it, now).is_ok().into()),
                4 => {
                    let Some(mut bytes) = at(&requests) else { continue };
                    bytes[usize::from(pick) % DATAGRAM_BYTES] ^= 1 << (pick % 8);
                    prop_assert!(responder.answer(&bytes, PEER, now, || None).is_err());
                }
                _ => {
                    let Some(mut bytes) = at(&replies) else { continue };
                    bytes[usize::from(pick) % DATAGRAM_BYTES] ^= 1 << (pick % 8);
                    prop_assert!(prober.receive(&bytes, now).is_err());
                }
            }
        }
        prop_assert!(counted <= sent);
        prop_assert_eq!(prober.measure().sent_total(), sent as u64);
    }
}
