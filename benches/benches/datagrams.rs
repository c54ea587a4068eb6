//! What a datagram of Cloudburst's costs besides its symbol: sealing, opening,
//! and what is done once for a session or an address.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cloudburst_wire::{
    Body, BufferTooShort, Header, Opener, PacketKind, ReplayWindow, Sealer, Stamp, Symbol,
    TokenMint, symbol_bytes,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const DATAGRAM_BYTES: usize = 1_450;
const SESSION: u64 = 7;
const KEY: [u8; 32] = [1; 32];

fn datagrams(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("datagram");
    group.throughput(Throughput::Bytes(DATAGRAM_BYTES as u64));
    for (how, sealer, opener) in [
        ("plain", Sealer::plain(SESSION), Opener::plain()),
        (
            "sealed",
            Sealer::sealed(SESSION, &KEY),
            Opener::sealed(&KEY),
        ),
    ] {
        let room = symbol_bytes(DATAGRAM_BYTES, sealer.framing()).expect("long enough");
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

criterion_group!(benches, datagrams, once);
criterion_main!(benches);
