//! Compares the test vectors of the book's page about datagrams with what is
//! written here, both ways and byte for byte.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use cloudburst_code::{Encoder, Schedule, Shape};
use cloudburst_proto::envelope::{self, Envelope};
use cloudburst_wire::{
    Body, BufferTooShort, Echo, EcnCounts, Header, KEY_BYTES, Opener, Outcome, Progress,
    ProgressState, Report, Sealer, Stamp, Stop, Symbol, TokenMint, Written, symbol_datagram_bytes,
};

/// The page has them where its code blocks are of this language.
const FENCE: &str = "```vectors";
const SESSION: u64 = 0x0102_0304_0506_0708;
const ASKER: u64 = 0x1112_1314_1516_1718;
const NUMBER: u64 = 0x2122_2324_2526_2728;
const SYMBOL_BYTES: usize = 64;

#[test]
fn the_pages_vectors_are_what_is_written() {
    let (page, written) = (page_vectors(), vectors());
    for (name, bytes) in &written {
        assert_eq!(
            page.get(name),
            Some(bytes),
            "{name} on the page is not what is written; all of them:\n{}",
            render(&written)
        );
    }
    for name in page.keys() {
        assert!(
            written.contains_key(name),
            "nothing writes the page's {name}"
        );
    }
}

/// Both directions of a session are on the page: what it says can be read.
#[test]
fn the_pages_datagrams_can_be_read() {
    let page = page_vectors();
    for (name, own) in [("symbol", 0), ("stop", ASKER), ("progress", ASKER)] {
        let openers = [
            ("plain", Opener::plain()),
            ("sealed", Opener::sealed(&key())),
        ];
        let bodies = openers.map(|(how, opener)| {
            let mut datagram = page[&format!("{name}.{how}")].clone();
            let header = Header::parse(&datagram).expect("a header");
            let opened = opener.open(&header, &mut datagram).expect("the page's key");
            Body::parse(header.kind, opened, own).expect("a body");
            opened.to_vec()
        });
        assert_eq!(bodies[0], bodies[1]);
    }
    let (envelope, message) = Envelope::open(&page["enveloped"]).expect("an envelope");
    assert_eq!((envelope, message), (self::envelope(), &b"cloudburst"[..]));
}

fn vectors() -> BTreeMap<String, Vec<u8>> {
    let mut enveloped = b"cloudburst".to_vec();
    envelope().append_to(&mut enveloped);
    let mut vectors = BTreeMap::from([
        ("key".into(), key().to_vec()),
        ("enveloped".into(), enveloped.clone()),
        ("token.secret".into(), vec![0xa5; 32]),
        ("token".into(), token().to_vec()),
    ]);
    for (how, sealer) in [
        ("plain", Sealer::plain(SESSION)),
        ("sealed", Sealer::sealed(SESSION, &key())),
    ] {
        let symbol = datagram(&sealer, 0, |room| symbol(&enveloped, room));
        let stop = datagram(&sealer, 1, |room| stop().write(ASKER, reports(), room));
        let have = datagram(&sealer, 2, |room| have().write(ASKER, reports(), room));
        vectors.insert(format!("symbol.{how}"), symbol);
        vectors.insert(format!("stop.{how}"), stop);
        vectors.insert(format!("progress.{how}"), have);
    }
    vectors
}

fn key() -> [u8; KEY_BYTES] {
    std::array::from_fn(|at| at as u8)
}

const fn envelope() -> Envelope {
    Envelope {
        kind: envelope::EnvelopeKind::Request,
        correlation: 0x3132_3334_3536_3738,
    }
}

fn token() -> [u8; 40] {
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    TokenMint::new([0xa5; 32], 0).mint(1_000, address, SESSION, Duration::from_secs(60))
}

/// The datagram as long as the shortest that would be answered with it allows.
fn datagram(
    sealer: &Sealer,
    sequence: u64,
    body: impl FnOnce(&mut [u8]) -> Result<Written, BufferTooShort>,
) -> Vec<u8> {
    let stamp = Stamp {
        path: 0x0a0b,
        sent_us: 0x0c0d_0e0f,
        sequence,
    };
    let mut out = vec![0; symbol_datagram_bytes(SYMBOL_BYTES, sealer.framing())];
    let written = match sequence {
        0 => sealer.write_symbol(stamp, &mut out, body),
        _ => sealer.write(stamp, &mut out, body),
    };
    let written = written.expect("there is room");
    out.truncate(written);
    out
}

/// The message's only source symbol.
fn symbol(message: &[u8], room: &mut [u8]) -> Result<Written, BufferTooShort> {
    let shape = Shape::new(message.len(), SYMBOL_BYTES).expect("one symbol");
    let seed = 0x4142;
    let encoder =
        Encoder::new(message, shape, Schedule::Default, NUMBER as u8, seed).expect("one block");
    Symbol::write_with(NUMBER, room, encoder.datagram_bytes(), |code| {
        encoder.write(0..1, code).expect("as long as it takes");
        Ok(())
    })
}

const fn echo() -> Echo {
    Echo {
        path: 0x5152,
        sent_us: 0x5354_5556,
        hold_us: 0x5758_595a,
    }
}

const fn stop() -> Stop {
    Stop {
        message: NUMBER,
        outcome: Outcome::Delivered,
        echo: echo(),
        needed: 0x6162,
        spread_us: 0x6364_6566,
    }
}

const fn have() -> Progress {
    Progress {
        message: NUMBER,
        echo: echo(),
        state: ProgressState::UnderWay {
            missing: 0x6768_696a,
        },
    }
}

fn reports() -> [Report; 2] {
    let marked = EcnCounts {
        capable: 0x3d3e_3f40,
        marked: 0x1234,
    };
    let none = EcnCounts::default();
    [(0x7000, marked), (0x8000, none)].map(|(path, ecn)| Report {
        path,
        received: 0x7172_7374,
        highest: 0x7576_7778,
        delay_us: 0x797a_7b7c,
        ecn: Some(ecn),
    })
}

/// A line is a name and bytes, or more bytes of the last name, or empty.
fn page_vectors() -> BTreeMap<String, Vec<u8>> {
    let page = [
        env!("CARGO_MANIFEST_DIR"),
        "../../../docs/src/reference/cloudburst-wire.md",
    ];
    let page: PathBuf = page.iter().collect();
    let page = std::fs::read_to_string(page).expect("the page is there");
    let mut vectors: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut name = String::new();
    for block in page.split(FENCE).skip(1) {
        let (block, _) = block.split_once("```").expect("blocks end");
        for line in block.lines() {
            let hex = match line.split_once(char::is_whitespace) {
                Some((first, rest)) if !first.is_empty() => {
                    first.clone_into(&mut name);
                    rest
                }
                _ => line,
            };
            if !hex.trim().is_empty() {
                vectors
                    .entry(name.clone())
                    .or_default()
                    .extend(bytes(hex.trim()));
            }
        }
    }
    vectors
}

fn bytes(hex: &str) -> impl Iterator<Item = u8> {
    let digits: Vec<u32> = hex
        .chars()
        .map(|digit| {
            digit
                .to_digit(16)
                .unwrap_or_else(|| panic!("{hex} is not hexadecimal"))
        })
        .collect();
    assert_eq!(digits.len() % 2, 0, "{hex} has half a byte");
    (0..digits.len())
        .step_by(2)
        .map(move |at| (digits[at] << 4 | digits[at + 1]) as u8)
}

fn render(vectors: &BTreeMap<String, Vec<u8>>) -> String {
    let mut text = String::new();
    for (name, bytes) in vectors {
        let mut name = name.as_str();
        for line in bytes.chunks(32) {
            let _ = write!(text, "{name:16}");
            line.iter().for_each(|byte| {
                let _ = write!(text, "{byte:02x}");
            });
            text.push('\n');
            name = "";
        }
    }
    text
}
