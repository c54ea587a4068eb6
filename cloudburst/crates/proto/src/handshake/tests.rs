//! First contact without the rest of the machine.

use super::{validation::CHALLENGE_PAUSE, *};
use crate::packet::TokenBody;
use crate::{
    event::{Ecn, FourTuple, SocketId},
    packet::Symbol,
};

fn handshake(config: &TransportConfig) -> Handshake {
    Handshake::new(config, &Randomness::from_key([7; 32]), Time::ZERO).0
}

const SYMBOL: Body<'_> = Body::Symbol(Symbol {
    message: 1,
    code: &[],
});

fn source(port: u16, asker: u64) -> SourceDatagram {
    SourceDatagram {
        four_tuple: FourTuple::new(SocketId(0), ([192, 0, 2, 1], port).into()),
        peer: None,
        asker,
        keys: 0,
        arrived: Time::ZERO,
        path: 1,
        sent_us: 0,
        ecn: Ecn::NotCapable,
        bytes: 1_200,
    }
}

#[test]
fn strangers_need_tokens_once_the_quota_is_used_up() {
    let mut config = TransportConfig::unprotected();
    config.quotas.unvalidated_peers = 1;
    let mut handshake = handshake(&config);
    assert_eq!(
        handshake.admit(
            Time::ZERO,
            &config,
            &source(1, 5),
            &SYMBOL,
            &mut Refusals::default()
        ),
        Admission::Welcome
    );
    let (peer, _) = handshake.add_peer(Time::ZERO, Some(5), None);
    assert_eq!(
        handshake.admit(
            Time::ZERO,
            &config,
            &source(2, 6),
            &SYMBOL,
            &mut Refusals::default()
        ),
        Admission::NeedsToken
    );
    let remote = source(1, 5).four_tuple.remote;
    let token = handshake.mint(Time::ZERO, &source(1, 5), remote);
    let shown = SourceDatagram {
        peer: Some(peer),
        ..source(1, 5)
    };
    let body = TokenBody { token, oldest: 0 };
    let refused = &mut Refusals::default();
    let validated = handshake.take_token(Time::ZERO, &shown, &body, refused);
    assert_eq!(validated, Some(peer));
    assert_eq!(
        handshake.admit(
            Time::ZERO,
            &config,
            &source(2, 6),
            &SYMBOL,
            &mut Refusals::default()
        ),
        Admission::Welcome
    );
}

#[test]
fn a_peer_that_was_asked_is_known_by_its_first_datagram() {
    let config = TransportConfig::unprotected();
    let mut handshake = handshake(&config);
    let (peer, _) = handshake.add_peer(Time::ZERO, None, None);
    let first = source(1, 5);
    handshake.bind_remote(first.four_tuple.remote, peer);
    assert_eq!(
        handshake.admit(
            Time::ZERO,
            &config,
            &first,
            &SYMBOL,
            &mut Refusals::default()
        ),
        Admission::Known(peer)
    );
    assert_eq!(handshake.by_session(5), Some(peer));
    // Another session from the same address is somebody else.
    assert_eq!(
        handshake.admit(
            Time::ZERO,
            &config,
            &source(1, 6),
            &SYMBOL,
            &mut Refusals::default()
        ),
        Admission::Welcome
    );
    handshake.remove_peer(peer);
    assert_eq!(handshake.by_session(5), None);
    assert!(handshake.credit(Time::ZERO, peer, first.four_tuple.remote) == 0);
}

#[test]
fn a_token_is_good_for_who_it_was_made_for() {
    let mut handshake = handshake(&TransportConfig::unprotected());
    let asker = source(1, 5);
    let token = handshake.mint(Time::ZERO, &asker, asker.four_tuple.remote);
    let body = TokenBody { token, oldest: 0 };
    assert!(handshake.is_token_good(Time::ZERO, &asker, &body));
    assert!(!handshake.is_token_good(Time::ZERO, &source(1, 6), &body));
}

#[test]
fn peers_are_challenged_now_and_then_and_strangers_each_time() {
    let mut handshake = handshake(&TransportConfig::unprotected());
    let (peer, _) = handshake.add_peer(Time::ZERO, Some(5), None);
    let remote = source(1, 5).four_tuple.remote;
    let mut is_due = |now, peer| handshake.is_challenge_due(now, peer, remote);
    assert!(is_due(Time::ZERO, Some(peer)));
    assert!(!is_due(Time::ZERO, Some(peer)));
    assert!(is_due(Time::ZERO + CHALLENGE_PAUSE, Some(peer)));
    assert!(is_due(Time::ZERO, None));
}

#[test]
fn no_peer_ever_gets_the_id_of_another() {
    let mut handshake = handshake(&TransportConfig::unprotected());
    let (first, _) = handshake.add_peer(Time::ZERO, None, None);
    handshake.remove_peer(first);
    let (second, _) = handshake.add_peer(Time::ZERO, None, None);
    assert_eq!(first.index, second.index);
    handshake.generations[0] = u32::MAX;
    handshake.remove_peer(second);
    let (third, _) = handshake.add_peer(Time::ZERO, None, None);
    handshake.remove_peer(third);
    let (fourth, _) = handshake.add_peer(Time::ZERO, None, None);
    let again = [third, fourth].contains(&first);
    assert!(!again, "an index is left when its generations are used up");
    assert!(!handshake.contains(first) && handshake.contains(fourth));
}

#[test]
fn a_token_of_somebody_else_is_refused() {
    let mut handshake = handshake(&TransportConfig::unprotected());
    let asker = source(1, 5);
    let token = handshake.mint(Time::ZERO, &asker, asker.four_tuple.remote);
    let body = TokenBody { token, oldest: 0 };
    let refused = &mut Refusals::default();
    let shown = handshake.take_token(Time::ZERO, &source(1, 6), &body, refused);
    assert_eq!((shown, refused.bad_token), (None, 1));
}

#[test]
fn an_address_that_nothing_came_from_gets_no_answer() {
    let mut handshake = handshake(&TransportConfig::unprotected());
    let remote = source(1, 5).four_tuple.remote;
    let refused = &mut Refusals::default();
    assert!(!handshake.may_answer(Time::ZERO, (None, remote), 1, refused));
    assert_eq!(refused.amplification_capped, 1);
}

/// Finding 3: session numbers were the raw outputs of the generator that secrets came from.
#[test]
fn what_is_public_and_what_is_secret_come_from_streams_of_their_own() {
    let random = Randomness::from_key([7; 32]);
    let numbers = |purpose| {
        let mut stream = random.stream(purpose);
        core::iter::repeat_with(move || stream.next_u64())
    };
    let config = TransportConfig::unprotected();
    let (mut handshake, hash_seed) = Handshake::new(&config, &random, Time::ZERO);
    // The session without state is the first.
    let mut sessions = numbers(Purpose::Sessions).skip(1);
    let mut messages = numbers(Purpose::Messages).map(|number| number >> 1);
    for _ in 0..100 {
        let (id, first_message) = handshake.add_peer(Time::ZERO, None, None);
        let known = handshake.sessions_with(id).map(|(own, _)| own);
        assert_eq!(known, sessions.next());
        assert_eq!(Some(first_message), messages.next());
    }
    let mut handshakes = numbers(Purpose::Handshakes);
    assert_eq!(Some(handshake.secrets.number()), handshakes.next());
    assert_eq!(Some(hash_seed), numbers(Purpose::HashSeed).next());
    let number = random.stream(Purpose::Transports).next_u32();
    assert_eq!(handshake.transport(), TransportId(number));
    let mut secret = [0; 32];
    random.stream(Purpose::TokenSecret).fill_bytes(&mut secret);
    let asker = source(1, 5);
    let token = handshake.mint(Time::ZERO, &asker, asker.four_tuple.remote);
    let ip = asker.four_tuple.remote.ip();
    let mut alike = TokenMint::new(secret, 0);
    assert_eq!(alike.verify(0, ip, 5, &token), Ok(()));
}
