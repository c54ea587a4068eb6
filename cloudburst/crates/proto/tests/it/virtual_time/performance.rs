//! How long messages take, as a table. For tuning:
//!
//! ```text
//! cargo test --release -p cloudburst-proto --test it performance -- --ignored --nocapture
//! ```
//!
//! `a_train_of_one_peer_in_many` tells what it takes to find whose turn it is.

use std::{net::SocketAddr, time::Instant};

use cloudburst_proto::{
    CongestionControl, FourTuple, MessageKind, SocketId, Time, Transport, TransportConfig,
};

use crate::simulation::{
    messages::Message,
    path::{Impairments, Loss, MICRO, Path, SECOND},
    random::Random,
    run::{Outcome, run},
    scenario::{Fault, Scenario, SendPlan},
    totals::HostTotals,
};

/// Messages of a run and runs: those that tell of the long term, and those that tell of the first seconds, in
/// which hardly anything is known of the paths.
const LONG: (u64, u64) = (3_000, 3);
const FIRST: (u64, u64) = (560, 24);
const MEAN_GAP_NS: f64 = 1e9 / 70.0;
const LENGTHS: [usize; 3] = [5_000, 20_000, 93_000];

#[derive(Clone, Copy, Debug)]
enum Weather {
    Idle,
    Loss(f64),
    OneDead,
    /// And answers go back by other paths than what they answer, as switches hash them.
    OneDeadBothWays,
    Bulk(usize),
}

#[test]
#[ignore = "measures, and has nothing to fail"]
fn performance() {
    print_tables(LONG);
}

#[test]
#[ignore = "measures, and has nothing to fail"]
fn performance_of_the_first_eight_seconds() {
    print_tables(FIRST);
}

/// Where nothing stands in queues, paths get long trains in turn, and not short ones at once. With these it was 12.4.
#[test]
fn messages_on_idle_paths_leave_in_few_calls() {
    let (messages, _) = FIRST;
    let outcome = run(scenario(1, 100 * MICRO, Weather::Idle, messages));
    let calls = outcome.world.hosts[0].totals.sends as f64 / messages as f64;
    assert!(calls < 11.4, "{calls} for each message");
}

fn print_tables((messages, seeds): (u64, u64)) {
    let weathers = [
        Weather::Idle,
        Weather::Loss(0.01),
        Weather::Loss(0.05),
        Weather::OneDead,
        Weather::OneDeadBothWays,
        Weather::Bulk(3),
        Weather::Bulk(4),
    ];
    for delay_ns in [100 * MICRO, 5_000 * MICRO] {
        println!(
            "\nround trip {} ms; arrival of the message and return of the stop in ms; timers of both hosts, those that they set for less than 50 us and calls that send for a message\n\
             {:<16} {:>6} | {:>7} {:>7} {:>7} {:>7} | {:>7} {:>7} | {:>6} {:>8} {:>6} {:>5} {:>6} {:>5} {:>5}",
            delay_ns as f64 / 5e5,
            "",
            "bytes",
            "mean",
            "p50",
            "p99",
            "max",
            "stop50",
            "stop99",
            "sent/n",
            "needed/n",
            "failed",
            "bulk",
            "timers",
            "short",
            "sends"
        );
        for weather in weathers {
            let outcomes: Vec<_> = (0..seeds)
                .map(|seed| run(scenario(seed, delay_ns, weather, messages)))
                .collect();
            for bytes in LENGTHS {
                line(&format!("{weather:?}"), Some(bytes), &outcomes);
            }
            line(&format!("{weather:?}"), None, &outcomes);
        }
    }
}

/// 16 paths over 4 paths of 50 Mbit/s and 100 kB, the hosts' links 1 Gbit/s.
fn scenario(seed: u64, delay_ns: u64, weather: Weather, messages: u64) -> Scenario {
    let random = &mut Random::of(seed, 9);
    let mut scenario = Scenario::plain(seed);
    scenario.paths = vec![Path::new(50_000_000, 100_000, delay_ns); 4];
    // Some messages before those that are counted: nobody knows the paths at first.
    let mut at = SECOND as f64;
    for _ in 0..messages {
        at += random.exponential() * MEAN_GAP_NS;
        scenario
            .sends
            .push(SendPlan::new(at as u64, random.pick(&LENGTHS)));
    }
    match weather {
        Weather::Idle => {}
        Weather::Loss(share) => {
            scenario = scenario.impaired(Impairments::losing(Loss::Each(share)))
        }
        Weather::OneDead => scenario.paths[0].spell(0, u64::MAX, Impairments::DEAD),
        Weather::OneDeadBothWays => {
            scenario.paths[0].spell(0, u64::MAX, Impairments::DEAD);
            scenario.symmetric = false;
            // As requests are: the receiver hears what becomes of its own datagrams.
            let requests: Vec<_> = scenario
                .sends
                .iter()
                .map(|send| SendPlan {
                    from: 1,
                    to: 0,
                    back: true,
                    ..SendPlan::new(send.at, 1_500)
                })
                .collect();
            scenario.sends.extend(requests);
            scenario.sends.sort_by_key(|send| send.at);
        }
        Weather::Bulk(paths) => {
            for path in 0..paths {
                let (direction, share) = (0, 0.5);
                let fill = Fault::Fill {
                    path,
                    direction,
                    share,
                };
                scenario.faults.push((0, fill));
            }
        }
    }
    scenario
}

/// Of messages of this length, or of all.
fn line(name: &str, bytes: Option<usize>, outcomes: &[Outcome]) {
    let all = outcomes
        .iter()
        .flat_map(|outcome| &outcome.records().messages);
    let is_one = |message: &&Message| bytes.is_none_or(|bytes| message.bytes == bytes);
    let messages: Vec<&Message> = all.filter(is_one).collect();
    let arrivals = sorted(messages.iter().filter_map(|message| {
        let arrived = message.arrived?;
        Some((arrived - message.accepted) as f64 / 1e6)
    }));
    let receipts: Vec<_> = messages
        .iter()
        .filter_map(|message| message.receipt())
        .collect();
    let stops = sorted(
        receipts
            .iter()
            .map(|receipt| receipt.completion.as_secs_f64() * 1e3),
    );
    let sum = |of: fn(&cloudburst_proto::Receipt) -> u32| -> f64 {
        receipts.iter().map(|receipt| f64::from(of(receipt))).sum()
    };
    let symbols = sum(|receipt| receipt.symbols);
    println!(
        "{name:<16} {:>6} | {:>7.2} {:>7.2} {:>7.2} {:>7.2} | {:>7.2} {:>7.2} | {:>6.3} {:>8.3} {:>6} {:>5.2} {:>6.1} {:>5.1} {:>5.1}",
        bytes.map_or("all".into(), |bytes| bytes.to_string()),
        arrivals.iter().sum::<f64>() / arrivals.len() as f64,
        percentile(&arrivals, 0.5),
        percentile(&arrivals, 0.99),
        percentile(&arrivals, 1.0),
        percentile(&stops, 0.5),
        percentile(&stops, 0.99),
        sum(|receipt| receipt.sent) / symbols,
        sum(|receipt| receipt.needed) / symbols,
        messages.len() - receipts.len(),
        bulk_share(outcomes),
        per_message(outcomes, |totals| totals.timers),
        per_message(outcomes, |totals| totals.short_timers),
        per_message(outcomes, |totals| totals.sends),
    );
}

/// A count of both hosts, for each message of any length.
fn per_message(outcomes: &[Outcome], count: fn(&HostTotals) -> u64) -> f64 {
    let hosts = outcomes.iter().flat_map(|outcome| &outcome.world.hosts);
    let sum: u64 = hosts.map(|host| count(&host.totals)).sum();
    let messages = outcomes.iter().map(|it| it.records().messages.len());
    sum as f64 / messages.sum::<usize>() as f64
}

/// Of what the paths that bulk uses carry.
fn bulk_share(outcomes: &[Outcome]) -> f64 {
    let shares = outcomes.iter().flat_map(|outcome| {
        let seconds = outcome.ended as f64 / 1e9;
        let links = outcome
            .world
            .network
            .paths
            .iter()
            .map(|path| &path.directions[0].link);
        let filled = links.filter(|link| link.bulk_bytes() > 0.0);
        filled.map(move |link| link.bulk_bytes() * 8.0 / seconds / link.bits_per_s() as f64)
    });
    let shares = sorted(shares);
    // An empty sum is a negative zero.
    (shares.iter().sum::<f64>() + 0.0) / shares.len().max(1) as f64
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Trains that are timed, and how many are sent before.
const TRAINS: u32 = 4_000;

#[test]
#[ignore = "measures, and has nothing to fail"]
fn a_train_of_one_peer_in_many() {
    for peers in [1, 100, 1_000, 10_000] {
        let (mut endpoint, mut now) = endpoint_with(peers);
        let mut out = vec![0; 65_535];
        let mut spent = std::time::Duration::ZERO;
        let mut trains = 0;
        while trains < 2 * TRAINS {
            let began = Instant::now();
            if endpoint.poll_transmit(now, &mut out).is_some() {
                trains += 1;
                spent += if trains > TRAINS {
                    began.elapsed()
                } else {
                    Default::default()
                };
            } else {
                now = now + std::time::Duration::from_micros(20);
            }
        }
        let each = spent / TRAINS;
        println!("{peers:>6} peers with something to send: {each:?} for a train");
    }
}

/// So many peers that are being sent messages, all with as much to send in all.
fn endpoint_with(peers: usize) -> (Transport, Time) {
    let mut config = TransportConfig::unprotected();
    config.congestion = CongestionControl::reserved(100_000_000_000);
    config.budget.symbols_factor = 1e6;
    config.quotas.outgoing_messages = 1 << 20;
    config.quotas.outgoing_bytes = 1 << 32;
    let now = Time::from_nanos(1);
    let mut endpoint = Transport::deterministic(config, [1; 32], now).expect("it is a valid one");
    for number in 0..peers {
        let ip = [10, 0, (number >> 8) as u8, number as u8];
        let four_tuple = FourTuple::new(SocketId(0), SocketAddr::from((ip, 7)));
        let peer = endpoint
            .connect(now, &[four_tuple], None)
            .expect("there is room");
        for _ in 0..(10_000 / peers).max(2) {
            let sent = endpoint.send(now, peer, MessageKind::Message, &[7; 1_000]);
            sent.expect("there is room");
        }
    }
    (endpoint, now)
}
