//! Datagrams per second over loopback, from one core to another: the whole path of the library
//! (encode, pace, send, receive, decode, stop), and in the same run, in turns, what it is made of and
//! what it is compared with:
//!
//! - a loop of sendto and recv, as a program without batching has it;
//! - `quinn-udp` alone, with which the library sends and receives;
//! - the library without keys;
//! - the library with two endpoints at one port (`SO_REUSEPORT`), as a server with two threads has them.
//!
//! `cargo bench -p benches --bench datapath_udp [-- SECONDS]`. The goals are 1.3 million datagrams
//! a second, 5 times the plain loop, 85 % of quinn-udp alone for a second of the busier core, and with two sockets
//! 0.9 of the datagrams of one for a second of the receiver's core. On a machine that others use too, look at what
//! comes of a second of a core's time: the slower of the two ends is what two cores of one's own would do.

mod library;
mod sealing;
mod sockets;

use std::{fmt, time::Duration};

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};

/// Bytes of each datagram, and of its part that is the message's: with keys 60 are the
/// header's, the code's and the tag's.
const DATAGRAM_BYTES: usize = 1_450;
const SYMBOL_BYTES: usize = DATAGRAM_BYTES - 60;
/// A message of 64 symbols, with the 17 bytes behind it.
const MESSAGE_BYTES: usize = 64 * SYMBOL_BYTES - 17;
const ROUNDS: usize = 7;

/// What is measured in each round, in this order.
const WAYS: [(&str, Way); 5] = [
    ("sendto/recv", sockets::plain),
    ("quinn-udp", sockets::quinn),
    ("library", library::with_keys),
    ("two sockets", library::two_sockets),
    ("no keys", library::without_keys),
];
type Way = fn([usize; 2], Duration) -> Measured;
const PLAIN: usize = 0;
const QUINN: usize = 1;
const LIBRARY: usize = 2;
const TWO: usize = 3;
const NO_KEYS: usize = 4;

fn main() {
    let seconds = std::env::args().filter_map(|it| it.parse().ok()).next();
    let duration = Duration::from_secs_f64(seconds.unwrap_or(0.5));
    let cores = cores();
    println!(
        "sender on core {}, receiver on core {}, {DATAGRAM_BYTES}-byte datagrams",
        cores[0], cores[1]
    );
    let rounds: Vec<[Measured; 5]> = (0..ROUNDS)
        .map(|_| WAYS.map(|(_, measure)| measure(cores, duration)))
        .collect();
    for (way, (name, _)) in WAYS.iter().enumerate() {
        for round in &rounds {
            println!("{name:>11} {}", round[way]);
        }
    }
    pin(cores[0]);
    let [sealing, opening] = sealing::ns();
    let median = |figure: &dyn Fn(&[Measured; 5]) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[ROUNDS / 2]
    };
    let of_quinn = |way: usize| median(&|it| it[way].per_core_s() / it[QUINN].per_core_s());
    println!(
        "medians: {:.2} M datagrams/s (goal 1.3), {:.1} times sendto/recv (goal 5); \
         {:.2} M/s and {:.1} times for a second of the busier core's time",
        median(&|it| it[LIBRARY].per_s) / 1e6,
        median(&|it| it[LIBRARY].per_s / it[PLAIN].per_s),
        median(&|it| it[LIBRARY].per_core_s()) / 1e6,
        median(&|it| it[LIBRARY].per_core_s() / it[PLAIN].per_core_s()),
    );
    println!(
        "for a second of the busier core's time: {:.2} of quinn-udp alone (goal 0.85), {:.2} without keys; \
         sealing takes {sealing:.0} ns a datagram and opening {opening:.0}, with which quinn-udp would have {:.2}",
        of_quinn(LIBRARY),
        of_quinn(NO_KEYS),
        median(&|it| it[QUINN].with_more([sealing, opening]) / it[QUINN].per_core_s()),
    );
    println!(
        "for a second of the receiver's core: two sockets have {:.2} of the datagrams of one (goal 0.9)",
        median(&|it| it[TWO].per_core_s[1] / it[LIBRARY].per_core_s[1]),
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
        self.with_more([0.0; 2])
    }

    /// What the busier core would do if each end took so many nanoseconds more for a datagram.
    fn with_more(&self, ns: [f64; 2]) -> f64 {
        let each = |end: usize| 1.0 / (1.0 / self.per_core_s[end] + ns[end] / 1e9);
        each(0).min(each(1))
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
