//! Compares whole handshakes with those of another implementation: `lab/vectors/handshake.py`,
//! whose output is on the book's page about datagrams.

use std::{collections::BTreeMap, path::PathBuf};

use super::*;

const FENCE: &str = "```handshake-vectors";
const INITIATOR_INDEX: u64 = 0x0102_0304_0506_0708;
const RESPONDER_INDEX: u64 = 0x1112_1314_1516_1718;
const INITIATOR_CONVERSATION: u64 = 0x2122_2324_2526_2728;
const RESPONDER_CONVERSATION: u64 = 0x3132_3334_3536_3738;
const UPTIME_US: u64 = 0x5152_5354_5556_5758;
const OLDEST_US: u64 = 0x6162_6364_6566_6768;
const NONCE: u64 = 0x4142_4344_4546_4748;
const MESSAGE: u64 = 0x7172_7374_7576_7778;
const PATH: u16 = 0x0a0b;
const SHARED: [u8; SECRET_BYTES] = [0x33; SECRET_BYTES];

#[test]
fn key_pairs_are_as_in_another_implementation() {
    let [initiator, responder] = [0x11, 0x22].map(|byte| SecretKey::new([byte; 32]));
    let peer = responder.public();
    check_handshake(
        "ik",
        (Pattern::KeyPair, 0),
        Credentials::KeyPair {
            own: &initiator,
            peer: Some(&peer),
        },
        Credentials::KeyPair {
            own: &responder,
            peer: None,
        },
        &Gate::of_public(&peer),
    );
}

#[test]
fn shared_keys_are_as_in_another_implementation() {
    let credentials = Credentials::SharedKey(&SHARED);
    let gate = Gate::of_secret(&SHARED);
    let pattern = (Pattern::SharedKey, 7);
    check_handshake("nnpsk0", pattern, credentials, credentials, &gate);
}

#[test]
fn a_retry_is_as_in_another_implementation() {
    let challenge = Challenge { token: token() };
    let sealer = Sealer::retry(INITIATOR_INDEX);
    let made = written(&sealer, (0, 0), |body| {
        challenge.write(INITIATOR_INDEX, body)
    });
    assert_eq!(made, page_vectors()["retry"]);
    let header = Header::parse(&made).unwrap();
    let body = Opener::plain()
        .open(&header, &mut made.clone())
        .unwrap()
        .to_vec();
    let body = Body::parse(header.kind, &body, INITIATOR_INDEX);
    assert_eq!(body, Ok(Body::Challenge(challenge)));
}

fn token() -> [u8; TOKEN_BYTES] {
    core::array::from_fn(|at| at as u8)
}

fn check_handshake(
    name: &str,
    (pattern, key_id): (Pattern, u8),
    initiator: Credentials<'_>,
    responder: Credentials<'_>,
    gate: &Gate,
) {
    let page = page_vectors();
    let of = |what: &str| page[&format!("{name}.{what}")].clone();
    let clear = Clear {
        pattern,
        key_id,
        index: INITIATOR_INDEX,
        token: token(),
    };
    let offer = Offer {
        early_secret: [0x66; 32],
        unix_us: 1_700_000_000_000_000,
        conversation: INITIATOR_CONVERSATION,
        oldest_us: OLDEST_US,
    };
    let mut message = vec![0; pattern.offer_bytes()];
    let begun = Initiator::offer(initiator, &clear, &offer, [0x44; 32], &mut message);
    assert_eq!(message, of("offer"));
    assert_eq!(offer.early_key().to_vec(), of("early_key"));
    let early = Sealer::sealed(INITIATOR_INDEX, &offer.early_key());
    let early = early.with_prefix(Form::Offer, write_hello(&clear, gate, &message));
    let ping = Ping { nonce: NONCE };
    let first = written(&early, (PATH, 0), |body| ping.write(body));
    assert_eq!(first, of("first"));

    // Read as it would be on arrival.
    let mut arrived = first.clone();
    let header = Header::parse(&arrived).unwrap();
    let hello = Hello::parse(&header, &arrived).unwrap();
    assert!(hello.passes(gate) && hello.clear == clear);
    let (read, offered, _) =
        Responder::read(responder, &hello.clear, [0x55; 32], hello.offer).unwrap();
    assert_eq!(offered, offer);
    let opener = Opener::sealed(&offered.early_key());
    let body = opener.open_behind(hello_bytes(pattern), &header, &mut arrived);
    let body = Body::parse(header.kind, body.unwrap(), 0);
    assert_eq!(body, Ok(Body::Ping(ping)));

    let accepted = Acceptance {
        index: RESPONDER_INDEX,
        conversation: RESPONDER_CONVERSATION,
        uptime_us: UPTIME_US,
    };
    let (acceptance, keys) = read.accept(&accepted).unwrap();
    assert_eq!(acceptance.to_vec(), of("acceptance"));
    assert_eq!(keys.to_responder.to_vec(), of("to_responder"));
    assert_eq!(keys.to_initiator.to_vec(), of("to_initiator"));
    let (learnt, same) = begun.unwrap().accepted(&acceptance).unwrap();
    assert!(learnt == accepted && same == keys);

    let answer = Sealer::sealed(INITIATOR_INDEX, &keys.to_initiator)
        .with_prefix(Form::Acceptance, acceptance.to_vec().into());
    let pong = Pong {
        nonce: NONCE,
        echo: echo(),
        datagram_bytes: first.len() as u16,
    };
    let answer = written(&answer, (PATH, 0), |body| {
        pong.write(INITIATOR_CONVERSATION, [], body)
    });
    assert_eq!(answer, of("answer"));
    let data = Sealer::sealed(RESPONDER_INDEX, &keys.to_responder);
    let data = written(&data, (PATH, 1), |body| ping.write(body));
    assert_eq!(data, of("data"));
    check_ends(&of, &keys);
}

/// The end of a message, and that of one that its sender gives up.
fn check_ends(of: &impl Fn(&str) -> Vec<u8>, keys: &TrafficKeys) {
    let stop = |outcome, needed, spread_us| Stop {
        message: MESSAGE,
        outcome,
        echo: echo(),
        needed,
        spread_us,
    };
    let report = Report {
        path: PATH,
        received: 7,
        highest: 6,
        delay_us: 0x8182_8384,
        ecn: Some(EcnCounts {
            capable: 5,
            marked: 2,
        }),
    };
    let to_initiator = Sealer::sealed(INITIATOR_INDEX, &keys.to_initiator);
    let delivered = stop(Outcome::Delivered, 3, 1_234);
    // As long as the answer to a symbol may be, which has capacity for counts of marks.
    let most = symbol_datagram_bytes(MIN_SYMBOL_BYTES, to_initiator.framing());
    let made = written_in(most, &to_initiator, (PATH, 1), |body| {
        delivered.write(INITIATOR_CONVERSATION, [report], body)
    });
    assert_eq!(made, of("stop"));
    let cancel = Cancel { message: MESSAGE };
    let to_responder = Sealer::sealed(RESPONDER_INDEX, &keys.to_responder);
    let made = written(&to_responder, (PATH, 2), |body| cancel.write(body));
    assert_eq!(made, of("cancel"));
    let cancelled = stop(Outcome::Cancelled, 0, 0);
    let made = written(&to_initiator, (PATH, 2), |body| {
        cancelled.write(INITIATOR_CONVERSATION, [], body)
    });
    assert_eq!(made, of("cancelled"));
}

fn echo() -> Echo {
    Echo {
        path: PATH,
        sent_us: 0x0c0d_0e0f,
        hold_us: 500,
    }
}

/// A datagram as long as the shortest question.
fn written(
    sealer: &Sealer,
    stamp: (u16, u64),
    body: impl FnOnce(&mut [u8]) -> Result<Written, BufferTooShort>,
) -> Vec<u8> {
    let most = question_datagram_bytes(sealer.framing());
    written_in(most, sealer, stamp, body)
}

fn written_in(
    most: usize,
    sealer: &Sealer,
    (path, sequence): (u16, u64),
    body: impl FnOnce(&mut [u8]) -> Result<Written, BufferTooShort>,
) -> Vec<u8> {
    let stamp = Stamp {
        path,
        sent_us: 0x0c0d_0e0f,
        sequence,
    };
    let mut out = vec![0; most];
    let bytes = sealer.write(stamp, &mut out, body).unwrap();
    out.truncate(bytes);
    out
}

/// A line is a name and bytes, or more bytes of the last name.
fn page_vectors() -> BTreeMap<String, Vec<u8>> {
    let page = [
        env!("CARGO_MANIFEST_DIR"),
        "../../../docs/src/reference/cloudburst-wire.md",
    ];
    let page = std::fs::read_to_string(page.iter().collect::<PathBuf>()).unwrap();
    let (_, block) = page.split_once(FENCE).expect("the page has them");
    let (block, _) = block.split_once("```").unwrap();
    let mut vectors: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut name = String::new();
    for line in block.lines().filter(|line| !line.is_empty()) {
        if !line.starts_with(' ') {
            name = line.split(' ').next().unwrap_or_default().to_owned();
        }
        let digits = line.rsplit(' ').next().unwrap_or_default();
        let bytes = (0..digits.len() / 2).map(|at| {
            let digits = &digits[2 * at..2 * at + 2];
            u8::from_str_radix(digits, 16).expect("hexadecimal")
        });
        vectors.entry(name.clone()).or_default().extend(bytes);
    }
    vectors
}
