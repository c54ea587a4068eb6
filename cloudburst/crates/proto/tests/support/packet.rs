//! What must hold for any bytes that arrive as a datagram; the fuzz target and
//! the replay of its corpus run this.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use cloudburst_proto::envelope::{self, Envelope};
use cloudburst_proto::{Key, PublicKey};
use cloudburst_wire::{
    Body, BufferTooShort, Busy, BusyReason, Cancel, Challenge, Echo, EcnCounts, Goodbye,
    HEADER_BYTES, Header, KEY_BYTES, Opener, Outcome, Ping, Pong, Progress, ProgressState, Query,
    ReplayWindow, Report, Reports, Sealer, Stamp, Stop, Symbol, TOKEN_BYTES, TokenBody, TokenMint,
    Written, check as check_of,
};

/// The session of who reads: what an answer must be to.
const OWN: u64 = 0x1112_1314_1516_1718;
const PEER: u64 = 0x0102_0304_0506_0708;
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Reads an input in every way that bytes from the network are read.
pub(crate) fn check(input: &[u8]) {
    if let Ok((envelope, message)) = Envelope::open(input) {
        let mut again = message.to_vec();
        envelope.append_to(&mut again);
        assert_eq!(again, input);
    }
    if let Ok(text) = std::str::from_utf8(input) {
        if let Ok(key) = text.parse::<Key>() {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        if let Ok(key) = text.parse::<PublicKey>() {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
    }
    if let Some(token) = input.first_chunk::<TOKEN_BYTES>() {
        let verified = TokenMint::new([1; 32], 0).verify(0, ADDRESS, PEER, token);
        assert!(verified.is_err(), "who does not know the secret made it");
    }
    if let Ok(header) = Header::parse(input) {
        assert_eq!(header.to_bytes(), input[..HEADER_BYTES]);
        windows(header.sequence);
        forged(&header, input);
        plain(&header, input);
    }
}

fn windows(sequence: u64) {
    let mut window = ReplayWindow::default();
    assert_eq!(window.accept(sequence), Ok(()));
    assert!(window.accept(sequence).is_err());
    if let Some(old) = sequence.checked_sub(256) {
        assert!(window.accept(old).is_err());
    }
}

/// Whatever it is, it is not sealed with our keys.
fn forged(header: &Header, input: &[u8]) {
    let mut datagram = input.to_vec();
    assert!(Opener::sealed(&key(0)).open(header, &mut datagram).is_err());
    assert_eq!(datagram, input);
}

fn plain(header: &Header, input: &[u8]) {
    let mut datagram = input.to_vec();
    let opener = Opener::plain();
    if opener.open(header, &mut datagram).is_err() {
        assert!(header.kind.is_checked(), "nothing is sealed");
        // No chance finds the right check: what is wrong but for that is looked at too.
        datagram = [input, &check_of(input)].concat();
    }
    let opened = opener.open(header, &mut datagram).expect("it is whole");
    let Ok(body) = Body::parse(header.kind, opened, OWN) else {
        return;
    };
    let mut again = vec![0xee; opened.len()];
    let written = write(&body, &mut again).expect("it fitted before");
    assert_eq!(
        (written.kind(), written.bytes()),
        (header.kind, opened.len())
    );
    assert_eq!(Body::parse(header.kind, &again, OWN), Ok(body));
    sealed(header, &body, opened.len());
}

/// The same, sealed: it comes back, and not if one bit is changed.
fn sealed(header: &Header, body: &Body<'_>, body_bytes: usize) {
    let sealer = Sealer::sealed(header.session, &key(0));
    let mut datagram = vec![0xee; HEADER_BYTES + body_bytes + 16];
    let stamp = Stamp {
        path: header.path,
        sent_us: header.sent_us,
        sequence: header.sequence,
    };
    let written = sealer.write(stamp, &mut datagram, |room| write(body, room));
    assert_eq!(written, Ok(datagram.len()));
    let header = Header::parse(&datagram).expect("as it was written");
    let opener = Opener::sealed(&key(0));

    let bit = header.sequence as usize % (8 * datagram.len());
    let mut spoilt = datagram.clone();
    spoilt[bit / 8] ^= 1 << (bit % 8);
    if let Ok(header) = Header::parse(&spoilt) {
        assert!(opener.open(&header, &mut spoilt).is_err());
    }
    let opened = opener
        .open(&header, &mut datagram)
        .expect("nobody changed it");
    assert_eq!(Body::parse(header.kind, opened, OWN), Ok(*body));
}

fn write(body: &Body<'_>, out: &mut [u8]) -> Result<Written, BufferTooShort> {
    match *body {
        Body::Symbol(symbol) => symbol.write(out),
        Body::Stop(stop, reports) => stop.write(OWN, reports, out),
        Body::Query(ask) => ask.write(out),
        Body::Progress(have, reports) => have.write(OWN, reports, out),
        Body::Busy(busy, reports) => busy.write(OWN, reports, out),
        Body::Ping(ping) => ping.write(out),
        Body::Pong(pong, reports) => pong.write(OWN, reports, out),
        Body::Challenge(challenge) => challenge.write(OWN, out),
        Body::Token(token) => token.write(out),
        Body::Cancel(cancel) => cancel.write(out),
        Body::Goodbye(goodbye) => goodbye.write(out),
    }
}

/// Others have others.
fn key(whose: u8) -> [u8; KEY_BYTES] {
    [whose | 1; KEY_BYTES]
}

/// Each kind, plain and sealed, and each way of not being one.
pub(crate) fn seeds() -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::new();
    for body in bodies() {
        for (name, sealer) in [
            ("plain", Sealer::plain(PEER)),
            ("sealed", Sealer::sealed(PEER, &key(0x80))),
        ] {
            let datagram = datagram(&sealer, &body);
            let kind = Header::parse(&datagram).expect("just written").kind;
            let kind = format!("{kind:?}").to_lowercase();
            if name == "plain" {
                // Without the check, which is found to be missing.
                let checked = if kind == "symbol" { 0 } else { 8 };
                let datagram = &datagram[..datagram.len() - checked];
                let mut longer = datagram.to_vec();
                longer.push(0);
                seeds.insert(format!("{kind}_longer"), longer);
                let mut unknown = datagram.to_vec();
                unknown[HEADER_BYTES..].fill(0xff);
                if let Some(asker) = unknown.get_mut(HEADER_BYTES..HEADER_BYTES + 8) {
                    asker.copy_from_slice(&OWN.to_be_bytes());
                }
                seeds.insert(format!("{kind}_unknown"), unknown);
            }
            seeds.insert(format!("{kind}_{name}"), datagram);
        }
    }
    let mut enveloped = b"message".to_vec();
    let (kind, correlation) = (envelope::EnvelopeKind::Request, 1);
    Envelope { kind, correlation }.append_to(&mut enveloped);
    let token = TokenMint::new([1; 32], 0).mint(0, ADDRESS, OWN, std::time::Duration::MAX);
    seeds.insert("envelope".into(), enveloped);
    seeds.insert("token_alone".into(), token.to_vec());
    seeds.insert("key".into(), format!("7:{}", "0a".repeat(32)).into_bytes());
    seeds.insert("version_unknown".into(), vec![0x11; 24]);
    seeds.insert("kind_unknown".into(), vec![0x3f; 24]);
    seeds.insert("truncated".into(), vec![0x31; 23]);
    seeds
}

fn datagram(sealer: &Sealer, body: &Body<'_>) -> Vec<u8> {
    let stamp = Stamp {
        path: 3,
        sent_us: 4,
        sequence: 5,
    };
    let report = Report {
        path: 1,
        received: 2,
        highest: 3,
        delay_us: 4,
        ecn: Some(EcnCounts {
            capable: 5,
            marked: 1_000,
        }),
    };
    let reports = [report, Report::default()];
    let mut datagram = vec![0; 150];
    let written = sealer.write(stamp, &mut datagram, |room| match *body {
        Body::Stop(stop, _) => stop.write(OWN, reports, room),
        Body::Progress(have, _) => have.write(OWN, reports, room),
        Body::Busy(busy, _) => busy.write(OWN, reports, room),
        Body::Pong(pong, _) => pong.write(OWN, reports, room),
        _ => write(body, room),
    });
    datagram.truncate(written.expect("there is room"));
    datagram
}

fn bodies() -> [Body<'static>; 11] {
    let message = 0x1_0000;
    let echo = Echo {
        path: 1,
        sent_us: 2,
        hold_us: 3,
    };
    let none = Reports::default();
    let token = [9; TOKEN_BYTES];
    [
        Body::Symbol(Symbol {
            message,
            code: &[0; 76],
        }),
        Body::Stop(
            Stop {
                message,
                outcome: Outcome::Delivered,
                echo,
                needed: 4,
                spread_us: 5,
            },
            none,
        ),
        Body::Query(Query { message }),
        Body::Progress(
            Progress {
                message,
                echo,
                state: ProgressState::UnderWay { missing: 6 },
            },
            none,
        ),
        Body::Busy(
            Busy {
                message,
                echo,
                retry_after_ms: 7,
                reason: BusyReason::Peers,
            },
            none,
        ),
        Body::Ping(Ping { nonce: 8 }),
        Body::Pong(
            Pong {
                nonce: 8,
                echo,
                datagram_bytes: 100,
            },
            none,
        ),
        Body::Challenge(Challenge { token }),
        Body::Token(TokenBody {
            token,
            oldest: message,
        }),
        Body::Cancel(Cancel { message }),
        Body::Goodbye(Goodbye),
    ]
}
