//! Processor time for a datagram: by its length, whatever it declares and whoever sends it.

use std::{
    hint::black_box,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use cloudburst_code::{Encoder, Schedule, Shape};
use cloudburst_proto::{Ecn, FourTuple, SocketId, Time, Transport, TransportConfig};
use cloudburst_wire::{Body, Header, Opener, PacketKind, Ping, Sealer, Stamp, Symbol, TokenBody};

const SYMBOL_BYTES: usize = 1_000;
const SESSION: u64 = 77;
/// How many times as long a hostile datagram may take as an ordinary one of its length. Before
/// this was held, it was two hundred times.
const CEILING: u32 = 12;

fn from(host: u32) -> FourTuple {
    FourTuple::new(
        SocketId(0),
        (Ipv4Addr::from_bits(100 << 24 | host), 9).into(),
    )
}

fn endpoint() -> Transport {
    let config = TransportConfig::unprotected();
    Transport::deterministic(config, [1; 32], Time::ZERO).expect("it is a valid one")
}

/// A symbol of a message of so many bytes, as it was segmented for the `generation`th time.
fn symbol(message_bytes: usize, generation: u8) -> Vec<u8> {
    let message = vec![9; message_bytes];
    let shape = Shape::fitting(message_bytes, SYMBOL_BYTES).expect("it has some");
    let encoder = Encoder::new(&message, shape, Schedule::Mds, generation, 1).expect("it fits");
    let mut code = vec![0; encoder.datagram_bytes()];
    encoder.write(0..1, &mut code).expect("it fits");
    code
}

fn datagram(sequence: u64, message: u64, code: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; code.len() + 60];
    let stamp = Stamp {
        path: 1,
        sent_us: 0,
        sequence,
    };
    let written = Sealer::plain(SESSION)
        .write(stamp, &mut datagram, |body| {
            Symbol { message, code }.write(body)
        })
        .expect("it fits");
    datagram.truncate(written);
    datagram
}

/// The shortest time that some datagrams took, of several tries: a busy machine adds to it.
fn least_time(tries: usize, mut run: impl FnMut(usize) -> Duration) -> Duration {
    (0..tries).map(&mut run).min().expect("some tries")
}

fn take(endpoint: &mut Transport, datagrams: Vec<Vec<u8>>) -> Duration {
    let mut datagrams = black_box(datagrams);
    let start = Instant::now();
    for datagram in &mut datagrams {
        endpoint.handle_datagram(Time::ZERO, from(1), Ecn::NotCapable, datagram);
    }
    let took = start.elapsed();
    let mut out = vec![0; 65_535];
    while endpoint.poll_transmit(Time::ZERO, &mut out).is_some() {}
    took
}

#[test]
fn a_symbol_costs_by_its_length_and_not_by_what_it_declares() {
    const COUNT: u64 = 256;
    const TRIES: usize = 9;
    let mut sequence = 0;
    // Of two lengths in turn, as often segmented again as a byte can tell.
    let mut series = |large: usize| {
        let codes: Vec<_> = (0..COUNT)
            .map(|number| symbol([large, 3_000][number as usize % 2], number as u8))
            .collect();
        let mut endpoint = endpoint();
        least_time(TRIES, |_| {
            let datagrams = codes.iter().map(|code| {
                sequence += 1;
                datagram(sequence, 5, code)
            });
            take(&mut endpoint, datagrams.collect())
        })
    };
    let (ordinary, hostile) = (series(3_000), series(3_000_000));
    assert!(
        hostile < ordinary * CEILING,
        "{hostile:?} for {COUNT} symbols of large messages, {ordinary:?} of small ones"
    );
}

#[test]
fn a_datagram_costs_as_much_however_many_addresses_are_valid() {
    const COUNT: u32 = 512;
    let ping = {
        let mut datagram = vec![0; 100];
        let stamp = Stamp {
            path: 1,
            sent_us: 0,
            sequence: 0,
        };
        let written = Sealer::plain(SESSION)
            .write(stamp, &mut datagram, |body| Ping { nonce: 1 }.write(body))
            .expect("it fits");
        datagram.truncate(written);
        datagram
    };
    // One that is none, and one of a stranger, of which an address is kept.
    for datagram in [vec![0], ping] {
        let mut endpoints = [0, 3_000].map(|valid| {
            let mut endpoint = endpoint();
            validate(&mut endpoint, valid);
            endpoint
        });
        let mut next = 0;
        let times = endpoints.each_mut().map(|endpoint| {
            least_time(9, |_| {
                let start = Instant::now();
                for _ in 0..COUNT {
                    next += 1;
                    let mut datagram = datagram.clone();
                    endpoint.handle_datagram(
                        LATER,
                        from(1 << 20 | next),
                        Ecn::NotCapable,
                        &mut datagram,
                    );
                }
                start.elapsed()
            })
        });
        let [few, many] = times;
        let bytes = datagram.len();
        assert!(
            many < few * CEILING,
            "{many:?} instead of {few:?} for {COUNT} datagrams of {bytes} bytes"
        );
    }
}

/// When all addresses are valid.
const LATER: Time = Time::from_nanos(4_000_000_000);

/// Has so many addresses show tokens: each sends a symbol, is challenged, and answers. One after the other,
/// for answers have a share of the link, and of those that come at once most are not challenged.
fn validate(endpoint: &mut Transport, addresses: u32) {
    let code = symbol(3_000, 0);
    let mut out = vec![0; 65_535];
    let mut challenged = 0;
    for host in 0..addresses {
        let now = Time::from_nanos(u64::from(host) * 1_000_000);
        let sealer = Sealer::plain(1_000 + u64::from(host));
        let stamp = |sequence| Stamp {
            path: 1,
            sent_us: 0,
            sequence,
        };
        let mut first = vec![0; 1_200];
        let written = sealer
            .write(stamp(0), &mut first, |body| {
                Symbol {
                    message: 1,
                    code: &code,
                }
                .write(body)
            })
            .expect("it fits");
        endpoint.handle_datagram(now, from(host), Ecn::NotCapable, &mut first[..written]);
        while let Some(transmit) = endpoint.poll_transmit(now, &mut out) {
            let answer = &mut out[..transmit.bytes];
            let header = Header::parse(answer).expect("it is written by it");
            if header.kind != PacketKind::Challenge {
                continue;
            }
            let body = Opener::plain().open(&header, answer);
            let body = body.expect("as it was written");
            let Ok(Body::Challenge(challenge)) = Body::parse(header.kind, body, sealer.session())
            else {
                panic!("{header:?}");
            };
            let token = TokenBody {
                token: challenge.token,
                oldest: 0,
            };
            let mut datagram = vec![0; 200];
            let written = sealer
                .write(stamp(1), &mut datagram, |body| token.write(body))
                .expect("it fits");
            datagram.truncate(written);
            endpoint.handle_datagram(now, from(host), Ecn::NotCapable, &mut datagram);
            challenged += 1;
        }
    }
    assert_eq!(challenged, addresses);
    let refused = endpoint.statistics().refused;
    assert_eq!(refused.bad_token, 0, "{refused:?}");
}
