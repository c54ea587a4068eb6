//! Handshakes without datagrams around them.

use super::*;

const TOKEN: [u8; TOKEN_BYTES] = [0; TOKEN_BYTES];

fn pair(number: u8) -> SecretKey {
    SecretKey::new([number; 32])
}

fn clear(pattern: Pattern) -> Clear {
    Clear {
        pattern,
        key_id: 0,
        index: 7,
        token: TOKEN,
    }
}

fn offer() -> Offer {
    Offer {
        early_secret: [3; 32],
        unix_us: 1_700_000_000_000_000,
        conversation: 8,
        oldest_us: 24,
    }
}

/// Both ends' credentials by pattern, with what a third one would have.
fn with_credentials(
    pattern: Pattern,
    run: impl FnOnce(Credentials<'_>, Credentials<'_>, Credentials<'_>),
) {
    let (client, server, other) = (pair(1), pair(2), pair(9));
    match pattern {
        Pattern::KeyPair => run(
            Credentials::KeyPair {
                own: &client,
                peer: Some(&server.public()),
            },
            Credentials::KeyPair {
                own: &server,
                peer: None,
            },
            Credentials::KeyPair {
                own: &other,
                peer: None,
            },
        ),
        Pattern::SharedKey => run(
            Credentials::SharedKey(&[4; 32]),
            Credentials::SharedKey(&[4; 32]),
            Credentials::SharedKey(&[5; 32]),
        ),
    }
}

const PATTERNS: [Pattern; 2] = [Pattern::KeyPair, Pattern::SharedKey];

#[test]
fn both_ends_come_to_the_same_keys_and_know_each_other() {
    for pattern in PATTERNS {
        with_credentials(pattern, |client, server, _| {
            let mut message = vec![0; pattern.offer_bytes()];
            let mut initiator =
                Initiator::offer(client, &clear(pattern), &offer(), [11; 32], &mut message)
                    .unwrap();
            let (responder, offered, who) =
                Responder::read(server, &clear(pattern), [12; 32], &message).unwrap();
            assert_eq!(offered, offer());
            assert_eq!(offered.early_key(), offer().early_key());
            let expected = (pattern == Pattern::KeyPair).then(|| pair(1).public());
            assert_eq!(who, expected);
            let acceptance = Acceptance {
                index: 21,
                conversation: 22,
                uptime_us: 23,
            };
            let (message, keys) = responder.accept(&acceptance).unwrap();
            let (accepted, same) = initiator.accepted(&message).unwrap();
            assert_eq!(accepted, acceptance);
            assert!(same == keys && keys.to_initiator != keys.to_responder);
        });
    }
}

/// Version, pattern and key id, index and token are all in the prologue.
#[test]
fn nothing_of_an_offer_can_be_changed() {
    for pattern in PATTERNS {
        with_credentials(pattern, |client, server, other| {
            let mut message = vec![0; pattern.offer_bytes()];
            let sent = clear(pattern);
            Initiator::offer(client, &sent, &offer(), [11; 32], &mut message).unwrap();
            let read = |credentials, clear: &Clear, message: &[u8]| {
                Responder::read(credentials, clear, [12; 32], message).is_ok()
            };
            assert!(read(server, &sent, &message));
            assert!(!read(other, &sent, &message));
            let mut token = TOKEN;
            token[5] = 1;
            assert!(!read(server, &Clear { token, ..sent }, &message));
            assert!(!read(server, &Clear { index: 6, ..sent }, &message));
            assert!(!read(server, &Clear { key_id: 1, ..sent }, &message));
            for at in 0..message.len() {
                let mut changed = message.clone();
                changed[at] ^= 1;
                assert!(!read(server, &sent, &changed), "byte {at}");
            }
            assert!(!read(server, &sent, &message[1..]));
        });
    }
}

#[test]
fn a_forged_acceptance_changes_nothing() {
    for pattern in PATTERNS {
        with_credentials(pattern, |client, server, _| {
            let mut message = vec![0; pattern.offer_bytes()];
            let sent = clear(pattern);
            let mut initiator =
                Initiator::offer(client, &sent, &offer(), [11; 32], &mut message).unwrap();
            let (responder, ..) = Responder::read(server, &sent, [12; 32], &message).unwrap();
            let acceptance = Acceptance {
                index: 1,
                conversation: 2,
                uptime_us: 23,
            };
            let (message, _) = responder.accept(&acceptance).unwrap();
            for at in 0..message.len() {
                let mut changed = message;
                changed[at] ^= 0x40;
                assert!(initiator.accepted(&changed).is_err(), "byte {at}");
            }
            assert!(initiator.accepted(&message).is_ok());
        });
    }
}

/// Two handshakes of the same ends have nothing in common: each draws its own ephemeral keys.
#[test]
fn each_handshake_has_keys_of_its_own() {
    with_credentials(Pattern::KeyPair, |client, server, _| {
        let run = |ephemeral: [[u8; 32]; 2]| {
            let sent = clear(Pattern::KeyPair);
            let mut message = vec![0; sent.pattern.offer_bytes()];
            Initiator::offer(client, &sent, &offer(), ephemeral[0], &mut message).unwrap();
            let read = Responder::read(server, &sent, ephemeral[1], &message);
            let acceptance = Acceptance {
                index: 1,
                conversation: 2,
                uptime_us: 23,
            };
            read.unwrap().0.accept(&acceptance).unwrap().1
        };
        let first = run([[1; 32], [2; 32]]);
        assert!(first == run([[1; 32], [2; 32]]), "tests are repeatable");
        assert!(first != run([[3; 32], [2; 32]]) && first != run([[1; 32], [3; 32]]));
    });
}

/// What the pages say of the cost: `cargo test -p cloudburst-proto --lib cost_of_an_offer --
/// --ignored --nocapture`.
#[test]
#[ignore = "measures instead of testing"]
fn cost_of_an_offer() {
    for pattern in PATTERNS {
        with_credentials(pattern, |client, server, _| {
            let mut message = vec![0; pattern.offer_bytes()];
            let sent = clear(pattern);
            let start = std::time::Instant::now();
            for _ in 0..1_000 {
                Initiator::offer(client, &sent, &offer(), [11; 32], &mut message).unwrap();
            }
            let made = start.elapsed() / 1_000;
            let start = std::time::Instant::now();
            for _ in 0..1_000 {
                Responder::read(server, &sent, [12; 32], &message).unwrap();
            }
            let read = start.elapsed() / 1_000;
            let acceptance = Acceptance {
                index: 1,
                conversation: 2,
                uptime_us: 23,
            };
            let start = std::time::Instant::now();
            for _ in 0..1_000 {
                let (responder, ..) = Responder::read(server, &sent, [12; 32], &message).unwrap();
                responder.accept(&acceptance).unwrap();
            }
            let accepted = start.elapsed() / 1_000;
            println!("{pattern:?}: made {made:?}, read {read:?}, accepted {accepted:?} in all");
        });
    }
}
