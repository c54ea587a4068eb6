//! Datagrams per second over loopback, from one core to another: the whole path of the library
//! (encode, pace, send, receive, decode, stop) and beside it, in the same run, a loop of sendto
//! and recv, as a program without batching has it.
//!
//! `cargo bench -p benches --bench datapath_udp [-- SECONDS]`. The goals are 1.3 million datagrams
//! a second and 5 times the plain loop. On a machine that others use too, look at what comes of a
//! second of a core's time: the slower of the two ends is what two cores of one's own would do.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use cloudburst::{
    CongestionControl, Endpoint, EndpointConfig, EndpointStatistics, Key, Ports, Security,
};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use tokio::runtime::{Builder, Runtime};

/// Bytes of each datagram, and of its part that is the message's: with keys 60 are the
/// header's, the code's and the tag's.
const DATAGRAM_BYTES: usize = 1_450;
const SYMBOL_BYTES: usize = DATAGRAM_BYTES - 60;
/// A message of 64 symbols, with the 17 bytes behind it.
const MESSAGE_BYTES: usize = 64 * SYMBOL_BYTES - 17;
/// Messages under way at a time.
const UNDER_WAY: usize = 8;
/// The rate that is stated to the library: somewhat more than is hoped for.
const LINK_BITS_PER_S: u64 = 20_000_000_000;
const ROUNDS: usize = 7;

fn main() {
    let seconds = std::env::args().filter_map(|it| it.parse().ok()).next();
    let duration = Duration::from_secs_f64(seconds.unwrap_or(0.5));
    let cores = cores();
    println!(
        "sender on core {}, receiver on core {}, {DATAGRAM_BYTES}-byte datagrams",
        cores[0], cores[1]
    );
    let rounds: Vec<[Measured; 2]> = (0..ROUNDS)
        .map(|_| [plain(cores, duration), library(cores, duration)])
        .collect();
    for [plain, library] in &rounds {
        println!("sendto/recv {plain}; library {library}");
    }
    let median = |figure: &dyn Fn(&[Measured; 2]) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[ROUNDS / 2]
    };
    println!(
        "medians: {:.2} M datagrams/s (goal 1.3), {:.1} times sendto/recv (goal 5); \
         {:.2} M/s and {:.1} times for a second of the busier core's time",
        median(&|it| it[1].per_s) / 1e6,
        median(&|it| it[1].per_s / it[0].per_s),
        median(&|it| it[1].per_core_s()) / 1e6,
        median(&|it| it[1].per_core_s() / it[0].per_core_s()),
    );
}

/// Datagrams that arrived and were of use, per second.
struct Measured {
    per_s: f64,
    /// Per second of the sender's core, and of the receiver's.
    per_core_s: [f64; 2],
    /// Datagrams sent for each that would have been enough without loss.
    sent_per_needed: f64,
    /// Datagrams for one call of the system.
    sent_per_call: f64,
}

impl Measured {
    fn per_core_s(&self) -> f64 {
        let [sender, receiver] = self.per_core_s;
        sender.min(receiver)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [sender, receiver] = self.per_core_s.map(|it| it / 1e6);
        write!(
            formatter,
            "{:.2} M/s, core time {sender:.2} and {receiver:.2} M/s, {:.2} sent for one, {:.1} a call",
            self.per_s / 1e6,
            self.sent_per_needed,
            self.sent_per_call
        )
    }
}

/// Time that this thread has had of its core.
fn core_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.expect("Linux has this clock").into()
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

/// From a loop of sendto to a loop of recv.
fn plain(cores: [usize; 2], duration: Duration) -> Measured {
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
            let (datagram, mut sent) = ([7; DATAGRAM_BYTES], 0);
            while !stop.load(Ordering::Relaxed) {
                // What does not fit is lost, as on a link.
                sent += u32::from(socket.send_to(&datagram, address).is_ok());
            }
            (f64::from(sent), core_time().as_secs_f64())
        }
    });
    let receiver = thread::spawn(move || {
        pin(cores[1]);
        let (mut buffer, mut count) = ([0; 2_048], 0);
        let start = Instant::now();
        while start.elapsed() < duration {
            count += u32::from(receiver.recv(&mut buffer).is_ok());
        }
        let seconds = start.elapsed().as_secs_f64();
        (f64::from(count), seconds, core_time().as_secs_f64())
    });
    let (count, seconds, receiving_s) = receiver.join().expect("the receiver ends");
    stop.store(true, Ordering::Relaxed);
    let (sent, sending_s) = sender.join().expect("the sender ends");
    Measured {
        per_s: count / seconds,
        // The sender does not wait for anybody: what it sent is what it can.
        per_core_s: [sent / sending_s, count / receiving_s],
        sent_per_needed: sent / count,
        sent_per_call: 1.0,
    }
}

/// Through the library: datagrams of messages that are delivered.
fn library(cores: [usize; 2], duration: Duration) -> Measured {
    let stop = Arc::new(AtomicBool::new(false));
    let (bound, address) = mpsc::channel();
    let receiver = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            pin(cores[1]);
            runtime().block_on(async {
                let endpoint = Endpoint::bind(config()).await.expect("loopback is there");
                let address = endpoint.local_addrs()[0];
                bound.send(address).expect("it is waited for");
                while !stop.load(Ordering::Relaxed) {
                    let _ = tokio::time::timeout(Duration::from_millis(50), endpoint.recv()).await;
                }
            });
            core_time().as_secs_f64()
        }
    });
    let address = address.recv().expect("the receiver starts");
    let sender = thread::spawn(move || {
        pin(cores[0]);
        let (statistics, seconds) = runtime().block_on(offer(address, duration));
        (statistics, seconds, core_time().as_secs_f64())
    });
    let (statistics, seconds, sending_s) = sender.join().expect("the sender ends");
    stop.store(true, Ordering::Relaxed);
    let receiving_s = receiver.join().expect("the receiver ends");
    let protocol = &statistics.protocol;
    let needed = protocol.symbols_needed as f64;
    Measured {
        per_s: needed / seconds,
        per_core_s: [needed / sending_s, needed / receiving_s],
        sent_per_needed: protocol.symbols_sent as f64 / needed,
        sent_per_call: protocol.datagrams_sent as f64 / statistics.sockets.send_calls as f64,
    }
}

/// Keeps some messages under way.
async fn offer(address: SocketAddr, duration: Duration) -> (EndpointStatistics, f64) {
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
    let statistics = endpoint.statistics().await.expect("it runs");
    (statistics, start.elapsed().as_secs_f64())
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system has what a runtime needs")
}

/// With keys, as users have it.
fn security() -> Security {
    Security::shared_key(Key::new(std::num::NonZeroU8::MIN, [42; 32]))
}

fn config() -> EndpointConfig {
    EndpointConfig::client(security())
        .with_local([Ipv4Addr::LOCALHOST.into()])
        .and_then(|it| it.with_ports(Ports::Any(1)))
        .and_then(|it| it.with_congestion(CongestionControl::reserved(LINK_BITS_PER_S)))
        .and_then(|it| it.with_datagram_bytes(DATAGRAM_BYTES, DATAGRAM_BYTES))
        .expect("the settings are right")
}
