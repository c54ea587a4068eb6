//! What a datagram of Cloudburst's costs besides its symbol: sealing, opening,
//! and what is done once for a session or an address.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cloudburst_wire::{
    Body, BufferTooShort, Header, Key, Keyring, PacketKind, ReplayWindow, Stamp, Symbol, TokenMint,
    symbol_bytes,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const DATAGRAM_BYTES: usize = 1_450;
const SESSION: u64 = 7;

fn datagrams(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("datagram");
    group.throughput(Throughput::Bytes(DATAGRAM_BYTES as u64));
    for (how, keys) in [("plain", Keyring::default()), ("sealed", keys())] {
        let sealer = keys.sealer(SESSION);
        let room = symbol_bytes(DATAGRAM_BYTES, sealer.is_sealing()).expect("long enough");
        let code = vec![0; 12 + room];
        let mut out = vec![0; DATAGRAM_BYTES];
        let mut sequence = 0;
        group.bench_function(format!("write/{how}"), |bencher| {
            bencher.iter(|| {
                sequence += 1;
                let stamp = Stamp {
                    path: 1,
                    sent_us: 2,
                    sequence,
                };
                let symbol = Symbol {
                    message: 0,
                    code: &code,
                };
                sealer.write_symbol::<BufferTooShort>(stamp, black_box(&mut out), |body| {
                    symbol.write(body)
                })
            });
        });
        let mut window = ReplayWindow::default();
        let opener = keys.opener(sealer.key_id(), SESSION).expect("our key");
        let mut arrived = vec![0; DATAGRAM_BYTES];
        group.bench_function(format!("copy, open and parse/{how}"), |bencher| {
            bencher.iter(|| {
                arrived.copy_from_slice(black_box(&out));
                let header = Header::parse(&arrived).expect("a header");
                let _ = black_box(window.check(header.sequence));
                let body = opener.open(&header, &mut arrived).expect("sealed above");
                let _ = black_box(window.accept(header.sequence));
                let body = Body::parse(PacketKind::Symbol, body, 0);
                assert!(black_box(body).is_ok());
            });
        });
    }
}

fn once(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("once");
    let keys = keys();
    group.bench_function("opener of a session", |bencher| {
        bencher.iter(|| keys.opener(1, black_box(SESSION)));
    });
    let mut mint = TokenMint::new([1; 32], 0);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let lifetime = Duration::from_secs(60);
    let token = mint.mint(0, address, SESSION, lifetime);
    group.bench_function("mint a token", |bencher| {
        bencher.iter(|| mint.mint(0, black_box(address), SESSION, lifetime));
    });
    group.bench_function("verify a token", |bencher| {
        bencher.iter(|| mint.verify(0, black_box(address), SESSION, &token));
    });
}

fn keys() -> Keyring {
    let id = 1.try_into().expect("not 0");
    Keyring::new([Key::new(id, [1; 32])]).expect("one key")
}

criterion_group!(benches, datagrams, once);
criterion_main!(benches);
