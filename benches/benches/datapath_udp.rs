//! Datagrams per second over loopback, from one core to another: the whole path of the library
//! (encode, pace, send, receive, decode, stop) and beside it, in the same run, a loop of sendto
//! and recv, as a program without batching has it.
//!
//! `cargo bench -p benches --bench datapath_udp [-- SECONDS]`. The goals are 1.3 million datagrams
//! a second and 5 times the plain loop; on a machine that others use look at the ratio alone.

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use cloudburst::{Config, Endpoint, Ports};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use tokio::runtime::{Builder, Runtime};

/// Bytes of each datagram, and of its part that is the message's: without a key the header has 24
/// bytes and the code's 12.
const DATAGRAM_BYTES: usize = 1_450;
const SYMBOL_BYTES: usize = DATAGRAM_BYTES - 36;
/// A message of 64 symbols, with the 17 bytes behind it.
const MESSAGE_BYTES: usize = 64 * SYMBOL_BYTES - 17;
/// Messages under way at a time.
const UNDER_WAY: usize = 16;
const ROUNDS: usize = 3;

fn main() {
    let seconds = std::env::args().filter_map(|it| it.parse().ok()).next();
    let duration = Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let cores = cores();
    println!(
        "sender on core {}, receiver on core {}, {DATAGRAM_BYTES}-byte datagrams",
        cores[0], cores[1]
    );
    let mut all = Vec::new();
    for round in 1..=ROUNDS {
        let plain = plain(cores, duration);
        let library = library(cores, duration);
        println!(
            "round {round}: sendto/recv {:.3} M/s; library {:.3} M/s, {:.1} Gbit/s of messages, {:.2} sent for each delivered; ratio {:.2}",
            plain / 1e6,
            library.datagrams_per_s / 1e6,
            library.message_bits_per_s / 1e9,
            library.sent_per_source,
            library.datagrams_per_s / plain
        );
        all.push((library.datagrams_per_s, library.datagrams_per_s / plain));
    }
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (rate, ratio) = all[ROUNDS / 2];
    println!(
        "median: {:.3} M datagrams/s (goal 1.3), {ratio:.2} times sendto/recv (goal 5)",
        rate / 1e6
    );
}

/// Two that this process may use.
fn cores() -> [usize; 2] {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("Linux tells the allowed cores");
    let mut cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
    let first = cores.next().expect("there is a core");
    [first, cores.next().unwrap_or(first)]
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core).expect("the core exists");
    sched_setaffinity(Pid::from_raw(0), &set).expect("the core is allowed");
}

/// Datagrams per second that arrive from a loop of sendto at a loop of recv.
fn plain(cores: [usize; 2], duration: Duration) -> f64 {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    let address = receiver.local_addr().expect("it is bound");
    receiver
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("the time is not 0");
    let stop = Arc::new(AtomicBool::new(false));
    let sender = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            pin(cores[0]);
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
            let datagram = [7; DATAGRAM_BYTES];
            while !stop.load(Ordering::Relaxed) {
                // What does not fit is lost, as on a link.
                let _ = socket.send_to(&datagram, address);
            }
        }
    });
    let counted = thread::spawn(move || {
        pin(cores[1]);
        let (mut buffer, mut count) = ([0; 2_048], 0_u64);
        let start = Instant::now();
        while start.elapsed() < duration {
            count += u64::from(receiver.recv(&mut buffer).is_ok());
        }
        count as f64 / start.elapsed().as_secs_f64()
    });
    let rate = counted.join().expect("the receiver ends");
    stop.store(true, Ordering::Relaxed);
    sender.join().expect("the sender ends");
    rate
}

struct Measured {
    datagrams_per_s: f64,
    message_bits_per_s: f64,
    sent_per_source: f64,
}

/// The same through the library: datagrams of the code that arrive, of messages that are delivered.
fn library(cores: [usize; 2], duration: Duration) -> Measured {
    let stop = Arc::new(AtomicBool::new(false));
    let (bound, address) = mpsc::channel();
    let receiver = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            pin(cores[1]);
            runtime().block_on(async {
                let endpoint = Endpoint::bind(config()).await.expect("loopback is there");
                bound
                    .send(endpoint.local_addrs()[0])
                    .expect("it is waited for");
                while !stop.load(Ordering::Relaxed) {
                    let _ = tokio::time::timeout(Duration::from_millis(50), endpoint.recv()).await;
                }
            });
        }
    });
    let address = address.recv().expect("the receiver starts");
    let sender = thread::spawn(move || {
        pin(cores[0]);
        runtime().block_on(async {
            let endpoint = Endpoint::bind(config()).await.expect("loopback is there");
            let peer = endpoint.connect([address]).await.expect("there is a route");
            let start = Instant::now();
            let mut senders = tokio::task::JoinSet::new();
            for _ in 0..UNDER_WAY {
                let endpoint = endpoint.clone();
                senders.spawn(async move {
                    while start.elapsed() < duration {
                        let message = vec![7; MESSAGE_BYTES];
                        endpoint.send(peer, message).await.expect("it is delivered");
                    }
                });
            }
            while senders.join_next().await.is_some() {}
            let seconds = start.elapsed().as_secs_f64();
            let statistics = endpoint.statistics().await.expect("it runs").protocol;
            Measured {
                datagrams_per_s: statistics.symbols_needed as f64 / seconds,
                message_bits_per_s: (statistics.messages_delivered as usize * MESSAGE_BYTES * 8)
                    as f64
                    / seconds,
                sent_per_source: statistics.symbols_sent as f64
                    / statistics.symbols_delivered as f64,
            }
        })
    });
    let measured = sender.join().expect("the sender ends");
    stop.store(true, Ordering::Relaxed);
    receiver.join().expect("the receiver ends");
    measured
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system has what a runtime needs")
}

fn config() -> Config {
    let mut config = Config::client()
        .with_local([Ipv4Addr::LOCALHOST.into()])
        .with_ports(Ports::Any(1));
    config.protocol.link_bits_per_s = 100_000_000_000;
    config.protocol.datagrams.initial = DATAGRAM_BYTES;
    config.protocol.datagrams.most = DATAGRAM_BYTES;
    config
}
