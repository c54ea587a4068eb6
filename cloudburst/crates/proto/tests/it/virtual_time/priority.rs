//! Deadlines and priorities on a path that carries less than it is given.

use std::time::Duration;

use cloudburst_proto::{Priority, Reason};

use crate::simulation::{
    messages::Message,
    network::Parcel,
    path::{MILLI, Path, SECOND},
    run::{Outcome, run},
    scenario::{Scenario, SendPlan},
    world::World,
};

const SEEDS: std::ops::Range<u64> = 0..10;
/// Kind of a datagram, in the lower half of its first byte.
const SYMBOL: u8 = 1;

/// One path of so many bit/s, whose queue holds what it carries in 50 ms.
fn slow(seed: u64, bits_per_s: u64) -> Scenario {
    let mut scenario = Scenario::plain(seed);
    let fifo = (bits_per_s / 8 / 20) as usize;
    scenario.paths = vec![Path::new(bits_per_s, fifo.max(20_000), 5 * MILLI)];
    scenario
}

fn of_priority(outcome: &Outcome, priority: Priority) -> Vec<&Message> {
    let messages = outcome.records().messages.iter();
    let of_it = messages.filter(|message| message.options.priority == priority);
    of_it.collect()
}

/// How long messages of a priority took until they were delivered, in ms, shortest first.
fn took_ms(outcome: &Outcome, priority: Priority) -> Vec<u64> {
    let messages = of_priority(outcome, priority);
    let took = messages.into_iter().map(|message| {
        assert!(message.receipt().is_some(), "not delivered: {message:?}");
        (message.ended - message.accepted) / MILLI
    });
    let mut all: Vec<u64> = took.collect();
    all.sort_unstable();
    all
}

#[test]
fn a_backlog_is_sent_by_priority() {
    use Priority::{Background, Normal, Urgent};
    for seed in SEEDS {
        // Some are on their way when the others come, all at once and in turn.
        let mut scenario = slow(seed, 10_000_000).messages(5, 20_000, MILLI);
        for number in 0..90 {
            scenario.sends.push(SendPlan {
                priority: [Background, Normal, Urgent][number % 3],
                // Length decides within a priority and not before.
                bytes: [1_000, 10_000, 20_000][number % 3],
                ..SendPlan::new(50 * MILLI, 0)
            });
        }
        let outcome = run(scenario);
        let [background, normal, urgent] =
            [Background, Normal, Urgent].map(|it| took_ms(&outcome, it));
        // An answer takes 10 ms and what the queue holds; what is lost is sent again.
        let median = |all: &[u64]| all[all.len() / 2];
        assert!(
            median(&urgent) < median(&normal) && median(&normal) < median(&background),
            "seed {seed}: {urgent:?} {normal:?} {background:?}"
        );
        let slack = 100;
        assert!(
            urgent[29] < median(&normal) + slack && normal[34] < background[0] + slack,
            "seed {seed}: {urgent:?} {normal:?} {background:?}"
        );
    }
}

/// Urgent messages without a pause, more than the path carries, for so long.
fn flood(mut scenario: Scenario, until: u64) -> Scenario {
    let gap = 25 * MILLI;
    for number in 0..until / gap {
        scenario.sends.push(SendPlan {
            priority: Priority::Urgent,
            ..SendPlan::new(number * gap, 20_000)
        });
    }
    scenario
}

#[test]
fn what_waits_for_others_is_late_and_not_lost() {
    for seed in SEEDS {
        let lifetime = Duration::from_secs(2);
        // 6.4 Mbit/s, where 5 are carried.
        let mut scenario = flood(slow(seed, 5_000_000), 6 * SECOND).lifetime(lifetime);
        for at in [100, 700, 1_500] {
            scenario.sends.push(SendPlan {
                priority: Priority::Background,
                ..SendPlan::new(at * MILLI, 3_000)
            });
        }
        scenario.sends.sort_by_key(|send| send.at);
        let took = took_ms(&run(scenario), Priority::Background);
        let lifetime = lifetime.as_millis() as u64;
        assert!(
            took[0] > lifetime,
            "seed {seed}: nothing waited, {took:?} ms"
        );
    }
}

#[test]
fn what_is_past_its_deadline_before_its_turn_is_not_sent() {
    for seed in SEEDS {
        let mut scenario = flood(slow(seed, 5_000_000), 3 * SECOND);
        for number in 0..20 {
            scenario.sends.push(SendPlan {
                priority: Priority::Background,
                deadline_ns: Some(300 * MILLI),
                is_request: number % 2 == 0,
                ..SendPlan::new(500 * MILLI + number * 50 * MILLI, 3_000)
            });
        }
        scenario.sends.sort_by_key(|send| send.at);
        let outcome = run(scenario);
        for message in of_priority(&outcome, Priority::Background) {
            let failure = message.undelivered().expect("its turn has not come");
            assert_eq!((failure.reason, failure.sent), (Reason::TimedOut, 0));
            assert_eq!(message.handed_over, 0, "nothing of it was sent");
            let took = message.ended - message.accepted;
            let is_in_time = (300 * MILLI..305 * MILLI).contains(&took);
            assert!(is_in_time, "seed {seed}: told after {took} ns");
        }
    }
}

/// What has begun ends as well, and nothing goes out after that.
#[test]
fn what_is_past_its_deadline_under_way_is_not_sent_on() {
    for seed in SEEDS {
        let mut scenario = slow(seed, 5_000_000);
        // Several pairs of ports are probed for a second yet, and compared once it is quiet.
        scenario.hosts.iter_mut().for_each(|host| host.sockets = 1);
        scenario.sends.push(SendPlan {
            deadline_ns: Some(500 * MILLI),
            ..SendPlan::new(0, 1_000_000)
        });
        let mut world = World::new(scenario);
        world.run_until(505 * MILLI);
        world.captured = Some(Vec::new());
        let outcome = world.finish();
        let failure = outcome.records().messages[0].undelivered();
        let failure = failure.expect("it takes 1.6 s");
        assert_eq!(failure.reason, Reason::TimedOut);
        assert!(failure.sent > 0, "{failure:?}");
        let later = outcome.world.captured.iter().flatten();
        let is_symbol = |parcel: &&Parcel| parcel.bytes[0] & 15 == SYMBOL;
        let symbols = later.filter(is_symbol).count();
        assert_eq!(symbols, 0, "seed {seed}: symbols that follow");
        assert_eq!(outcome.statistics(1).incoming_bytes_now, 0);
    }
}

#[test]
fn answers_wait_for_no_message_however_urgent() {
    for seed in SEEDS {
        let mut scenario = flood(slow(seed, 5_000_000), 4 * SECOND);
        for number in 0..30 {
            scenario.sends.push(SendPlan {
                from: 1,
                to: 0,
                priority: Priority::Background,
                ..SendPlan::new(SECOND + number * 100 * MILLI, 2_000)
            });
        }
        scenario.sends.sort_by_key(|send| send.at);
        let took = took_ms(&run(scenario), Priority::Background);
        // The queue of 50 ms is in the way of the answers alone.
        assert!(took[29] < 300, "seed {seed}: {took:?} ms");
    }
}
