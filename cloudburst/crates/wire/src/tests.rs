//! Laws of all kinds of datagrams together.

use proptest::prelude::*;

use super::*;

mod reports;

const SESSION: u64 = 0x0102_0304_0506_0708;
const ASKER: u64 = 0x1112_1314_1516_1718;

const KEY: [u8; KEY_BYTES] = [1; KEY_BYTES];

fn sealer(is_sealed: bool) -> Sealer {
    if is_sealed {
        Sealer::sealed(SESSION, &KEY)
    } else {
        Sealer::plain(SESSION)
    }
}

fn opener(is_sealed: bool) -> Opener {
    if is_sealed {
        Opener::sealed(&KEY)
    } else {
        Opener::plain()
    }
}

fn stamp(sequence: u64) -> Stamp {
    let (path, sent_us) = (3, 4);
    Stamp {
        path,
        sent_us,
        sequence,
    }
}

/// A body and the reports that go with it.
#[derive(Clone, Debug)]
enum Sent {
    Symbol(u64, Vec<u8>),
    Stop(Stop),
    Query(Query),
    Progress(Progress),
    Busy(Busy),
    Ping(Ping),
    Pong(Pong),
    Challenge(Challenge),
    Token(TokenBody),
    Cancel(Cancel),
    Goodbye(Goodbye),
}

impl Sent {
    fn write(&self, reports: &[Report], out: &mut [u8]) -> Result<Written, BufferTooShort> {
        let reports = reports.iter().copied();
        match self {
            Self::Symbol(message, code) => {
                let message = *message;
                Symbol { message, code }.write(out)
            }
            Self::Stop(stop) => stop.write(ASKER, reports, out),
            Self::Query(ask) => ask.write(out),
            Self::Progress(have) => have.write(ASKER, reports, out),
            Self::Busy(busy) => busy.write(ASKER, reports, out),
            Self::Ping(ping) => ping.write(out),
            Self::Pong(pong) => pong.write(ASKER, reports, out),
            Self::Challenge(challenge) => challenge.write(ASKER, out),
            Self::Token(token) => token.write(out),
            Self::Cancel(cancel) => cancel.write(out),
            Self::Goodbye(goodbye) => goodbye.write(out),
        }
    }

    /// Whether that is what was read, with the first of the reports.
    fn is(&self, body: &Body<'_>, reports: &[Report]) -> bool {
        let first =
            |read: &Reports<'_>| Iterator::eq(*read, reports.iter().copied().take(read.count()));
        match (self, body) {
            (Self::Symbol(message, code), Body::Symbol(read)) => {
                (*message, &code[..]) == (read.message, read.code)
            }
            (Self::Stop(sent), Body::Stop(read, reports)) => sent == read && first(reports),
            (Self::Query(sent), Body::Query(read)) => sent == read,
            (Self::Progress(sent), Body::Progress(read, reports)) => sent == read && first(reports),
            (Self::Busy(sent), Body::Busy(read, reports)) => sent == read && first(reports),
            (Self::Ping(sent), Body::Ping(read)) => sent == read,
            (Self::Pong(sent), Body::Pong(read, reports)) => sent == read && first(reports),
            (Self::Challenge(sent), Body::Challenge(read)) => sent == read,
            (Self::Token(sent), Body::Token(read)) => sent == read,
            (Self::Cancel(sent), Body::Cancel(read)) => sent == read,
            (Self::Goodbye(sent), Body::Goodbye(read)) => sent == read,
            _ => false,
        }
    }
}

fn echoes() -> impl Strategy<Value = Echo> {
    any::<(u16, u32, u32)>().prop_map(|(path, sent_us, hold_us)| Echo {
        path,
        sent_us,
        hold_us,
    })
}

/// Counts of any length, and none; where none is capable, none is marked.
fn ecn_counts() -> impl Strategy<Value = Option<EcnCounts>> {
    let any = (any::<(u32, u32)>(), 0..32_u32, 0..4);
    any.prop_map(|((capable, marked), fewer, kind)| match kind {
        0 => None,
        1 => Some(EcnCounts::default()),
        _ => Some(EcnCounts {
            capable: (capable >> fewer) | 1,
            marked: marked >> fewer,
        }),
    })
}

fn all_reports() -> impl Strategy<Value = Vec<Report>> {
    let report = (any::<(u16, u32, u32, u32)>(), ecn_counts()).prop_map(
        |((path, received, highest, delay_us), ecn)| Report {
            path,
            received,
            highest,
            delay_us,
            ecn,
        },
    );
    proptest::collection::vec(report, 0..8)
}

fn answers() -> impl Strategy<Value = Sent> {
    use proptest::sample::select;
    let outcome = select(vec![
        Outcome::Delivered,
        Outcome::Stale,
        Outcome::Refused,
        Outcome::Cancelled,
    ]);
    let reason = select(vec![
        BusyReason::Memory,
        BusyReason::Messages,
        BusyReason::Peers,
    ]);
    let state = proptest::option::of(any::<u32>());
    let numbers = any::<(u64, u16, u32, [u8; TOKEN_BYTES])>();
    (0..5, outcome, reason, state, echoes(), numbers).prop_map(
        |(kind, outcome, reason, missing, echo, (message, small, spread_us, token))| match kind {
            0 => Sent::Stop(Stop {
                message,
                outcome,
                echo,
                needed: small,
                spread_us,
            }),
            1 => Sent::Progress(Progress {
                message,
                echo,
                state: missing.map_or(ProgressState::Unknown, |missing| ProgressState::UnderWay {
                    missing,
                }),
            }),
            2 => Sent::Busy(Busy {
                message,
                echo,
                retry_after_ms: small,
                reason,
            }),
            3 => Sent::Pong(Pong {
                nonce: message,
                echo,
                datagram_bytes: small,
            }),
            _ => Sent::Challenge(Challenge { token }),
        },
    )
}

fn bodies() -> impl Strategy<Value = Sent> {
    let symbols = (
        any::<u64>(),
        proptest::collection::vec(any::<u8>(), 76..300),
    );
    let symbols = symbols.prop_map(|(message, mut code)| {
        code[8] = message as u8;
        Sent::Symbol(message, code)
    });
    let tokens = any::<([u8; TOKEN_BYTES], u64)>();
    prop_oneof![
        2 => symbols,
        3 => answers(),
        1 => any::<u64>().prop_map(|message| Sent::Query(Query { message })),
        1 => any::<u64>().prop_map(|nonce| Sent::Ping(Ping { nonce })),
        1 => any::<u64>().prop_map(|message| Sent::Cancel(Cancel { message })),
        1 => Just(Sent::Goodbye(Goodbye)),
        1 => tokens.prop_map(|(token, oldest)| Sent::Token(TokenBody { token, oldest })),
    ]
}

proptest! {
    #[test]
    fn datagrams_come_back(sent in bodies(), reports in all_reports(), is_sealed: bool, available in 400usize..600) {
        let mut datagram = vec![0xee; available];
        let written = sealer(is_sealed)
            .write(stamp(9), &mut datagram, |body| sent.write(&reports, body))
            .unwrap();
        datagram.truncate(written);
        let header = Header::parse(&datagram).unwrap();
        prop_assert_eq!((header.path, header.sent_us, header.sequence), (3, 4, 9));
        let body = opener(is_sealed).open(&header, &mut datagram).unwrap();
        let body = Body::parse(header.kind, body, ASKER).unwrap();
        prop_assert!(sent.is(&body, &reports), "{:?} became {:?}", sent, body);
    }

    #[test]
    fn a_changed_bit_is_refused(
        sent in bodies(), bit: proptest::sample::Index, is_sealed: bool,
    ) {
        prop_assume!(is_sealed || !matches!(sent, Sent::Symbol(..)));
        let mut datagram = [0; 400];
        let written = sealer(is_sealed)
            .write(stamp(9), &mut datagram, |body| sent.write(&[], body))
            .unwrap();
        let datagram = &mut datagram[..written];
        let bit = bit.index(8 * datagram.len());
        datagram[bit / 8] ^= 1 << (bit % 8);
        let before = datagram.to_vec();
        let Ok(header) = Header::parse(datagram) else { return Ok(()) };
        // A symbol without a key is checked with its whole message, not by itself.
        prop_assume!(is_sealed || header.kind != PacketKind::Symbol);
        prop_assert!(opener(is_sealed).open(&header, datagram).is_err());
        prop_assert_eq!(&datagram[..], &before[..]);
    }

    #[test]
    fn no_bytes_panic(kind in proptest::sample::select(&PacketKind::ALL[..]), mut bytes: Vec<u8>) {
        let _ = Body::parse(kind, &bytes, 0);
        if let Ok(header) = Header::parse(&bytes) {
            let _ = Hello::parse(&header, &bytes);
            for is_sealed in [false, true] {
                let _ = opener(is_sealed).open(&header, &mut bytes);
            }
        }
    }

    /// Bodies that are right but for a byte or their end.
    #[test]
    fn no_spoilt_body_panics(sent in bodies(), reports in all_reports(), at: proptest::sample::Index, byte: u8) {
        let mut body = [0; 400];
        let written = sent.write(&reports, &mut body).unwrap();
        prop_assume!(written.bytes() > 0);
        let _ = Body::parse(written.kind(), &body[..at.index(written.bytes())], ASKER);
        body[at.index(written.bytes())] = byte;
        let _ = Body::parse(written.kind(), &body[..written.bytes()], ASKER);
    }

    /// The 1x rule: the shortest datagram that is answered has capacity for every answer.
    #[test]
    fn no_answer_is_longer_than_its_question(
        answer in answers(), reports in all_reports(), is_sealed: bool, more in 0usize..100,
    ) {
        let sealer = sealer(is_sealed);
        let least = symbol_datagram_bytes(MIN_SYMBOL_BYTES, sealer.framing())
            .min(question_datagram_bytes(sealer.framing()));
        let mut out = [0; 1_500];
        let written = sealer
            .write(stamp(0), &mut out[..least + more], |body| answer.write(&reports, body))
            .unwrap();
        prop_assert!(written <= least + more);
    }

    #[test]
    fn where_there_is_no_room_nothing_is_written(sent in bodies(), is_sealed: bool, available in 0usize..200) {
        let sealer = sealer(is_sealed);
        let mut out = vec![0; available];
        if let Ok(written) = sealer.write(stamp(0), &mut out, |body| sent.write(&[], body)) {
            prop_assert!(written <= available);
        }
    }
}

#[test]
fn answers_to_others_are_refused() {
    let mut body = [0; 48];
    let challenge = Challenge {
        token: [0; TOKEN_BYTES],
    };
    challenge.write(ASKER, &mut body).unwrap();
    let parsed = Body::parse(PacketKind::Challenge, &body, SESSION);
    assert_eq!(parsed, Err(Malformed::OtherSession(ASKER)));
}

#[test]
fn bodies_that_are_none_are_refused() {
    let length = |kind, bytes| Err(Malformed::Length { kind, bytes });
    let zeros = [0; 100];
    for (kind, bytes) in [
        (PacketKind::Symbol, 83),
        (PacketKind::Stop, Stop::MIN_BYTES - 1),
        (PacketKind::Stop, Stop::MIN_BYTES + 1),
        (PacketKind::Query, 47),
        (PacketKind::Progress, Progress::MIN_BYTES - 1),
        (PacketKind::Busy, Busy::MIN_BYTES + 13),
        (PacketKind::Ping, 47),
        (PacketKind::Pong, 7),
        (PacketKind::Challenge, 49),
        (PacketKind::Token, 49),
        (PacketKind::Cancel, 47),
        (PacketKind::Goodbye, 1),
    ] {
        assert_eq!(Body::parse(kind, &zeros[..bytes], 0), length(kind, bytes));
    }
    for (kind, at, bytes) in [
        (PacketKind::Stop, 16, Stop::MIN_BYTES),
        (PacketKind::Progress, 26, Progress::MIN_BYTES),
        (PacketKind::Busy, 28, Busy::MIN_BYTES),
    ] {
        let mut unknown = zeros;
        unknown[at] = 4;
        let parsed = Body::parse(kind, &unknown[..bytes], 0);
        assert_eq!(parsed, Err(Malformed::Code { kind, code: 4 }));
    }
}

/// Symbols have their datagram to themselves; whatever else is written there needs its check.
#[test]
fn only_symbols_go_without_a_check() {
    let sealer = sealer(false);
    let code = [0; 76];
    let symbol = Symbol {
        message: 0,
        code: &code,
    };
    let mut datagram = [0; 24 + 8 + 76];
    let written = sealer.write_symbol(stamp(0), &mut datagram, |body| symbol.write(body));
    assert_eq!(written, Ok(datagram.len()));
    // It fills what it is given.
    let ask = Query { message: 1 };
    let written = sealer.write_symbol(stamp(0), &mut datagram, |body| ask.write(body));
    assert!(written.is_err());

    let written = sealer.write(stamp(0), &mut datagram, |body| ask.write(body));
    assert_eq!(written, Ok(datagram.len()));
    let (checked, stated) = datagram.split_last_chunk().unwrap();
    assert_eq!(check(checked), *stated);
    let header = Header::parse(&datagram).unwrap();
    let opener = opener(false);
    datagram[70] ^= 1;
    let refused = opener.open(&header, &mut datagram);
    assert_eq!(refused, Err(OpenError::Damaged));
    let refused = opener.open(&header, &mut datagram[..31]);
    assert_eq!(refused, Err(OpenError::Truncated(31)));
}

/// What stands before the body is authenticated with it, and the capacity for it is kept.
#[test]
fn a_prefix_is_part_of_the_datagram() {
    let prefix = vec![5; 64].into_boxed_slice();
    let mut sealer = sealer(true).with_prefix(Form::Acceptance, prefix);
    let mut datagram = vec![0; question_datagram_bytes(sealer.framing())];
    let ask = Query { message: 1 };
    let write = |sealer: &Sealer, datagram: &mut [u8]| {
        let written: Result<usize, BufferTooShort> =
            sealer.write(stamp(0), datagram, |body| ask.write(body));
        written.unwrap()
    };
    assert_eq!(write(&sealer, &mut datagram), datagram.len());
    let header = Header::parse(&datagram).unwrap();
    assert_eq!(header.form, Form::Acceptance);
    for at in [0, 30, 24 + 63, 24 + 64, datagram.len() - 1] {
        let mut changed = datagram.clone();
        changed[at] ^= 1;
        let refused = opener(true).open_behind(64, &header, &mut changed);
        assert_eq!(refused, Err(OpenError::Forged));
    }
    assert!(opener(true).open_behind(64, &header, &mut datagram).is_ok());
    sealer.drop_prefix();
    assert_eq!(sealer.framing(), Framing::SEALED);
    assert_eq!(write(&sealer, &mut datagram[..88]), 88);
    let header = Header::parse(&datagram).unwrap();
    assert_eq!(header.form, Form::Data);
    assert!(opener(true).open(&header, &mut datagram[..88]).is_ok());
}

/// What is for another association, or for the other direction, has another key.
#[test]
fn another_key_opens_nothing() {
    let mut datagram = [0; 72 + TAG_BYTES];
    let ask = Query { message: 1 };
    sealer(true)
        .write(stamp(0), &mut datagram, |body| ask.write(body))
        .unwrap();
    let header = Header::parse(&datagram).unwrap();
    let refused = Opener::sealed(&[2; KEY_BYTES]).open(&header, &mut datagram);
    assert_eq!(refused, Err(OpenError::Forged));
    assert!(opener(true).open(&header, &mut datagram).is_ok());
}

/// The encoder writes into the datagram, and the decoder reads from it.
#[test]
fn a_message_goes_through_the_code() {
    use cloudburst_code::{Block, Decoder, Encoder, Memory, Received, Schedule, Shape};
    let message = [7; 1_000];
    let shape = Shape::new(message.len(), 64).unwrap();
    let number = 0x1_0000_00ff;
    let encoder = Encoder::new(&message, shape, Schedule::Default, number as u8, 1).unwrap();
    let memory = Memory::of(&shape);
    let mut decoder = Decoder::new(vec![0; memory.bytes], vec![Block::default(); memory.blocks]);
    let (sealer, opener) = (sealer(true), opener(true));
    let mut datagram = vec![0; symbol_datagram_bytes(64, sealer.framing())];
    let mut last = Received::More;
    for sequence in 0..16 {
        let written = sealer
            .write_symbol(stamp(sequence.into()), &mut datagram, |body| {
                Symbol::write_with(number, body, encoder.datagram_bytes(), |available| {
                    encoder
                        .write(sequence..sequence + 1, available)
                        .expect("as long as it takes");
                    Ok::<_, BufferTooShort>(())
                })
            })
            .unwrap();
        assert_eq!(written, datagram.len());
        let header = Header::parse(&datagram).unwrap();
        let body = opener.open(&header, &mut datagram).unwrap();
        let Ok(Body::Symbol(symbol)) = Body::parse(header.kind, body, 0) else {
            panic!("{header:?}");
        };
        last = decoder.receive(symbol.code).unwrap();
    }
    assert_eq!(last, Received::Complete);
    assert_eq!(decoder.message(), Some(&message[..]));
}
