//! All paths lead another way from some time on, as a route has changed.

use crate::simulation::{
    path::{Impairments, Link, Loss, MILLI, Path, SECOND},
    scenario::Scenario,
    world::World,
};

const RATE: u64 = 50_000_000;
const QUEUE_BYTES: usize = 100_000;
const MESSAGE_BYTES: usize = 93_000;
const CHANGED: u64 = 8 * SECOND;
/// Seconds that are counted, from the change on.
const COUNTED: [u64; 3] = [2, 12, 42];

/// As much to send as a path carries of which so much is lost, the same by all ports.
fn scenario(seed: u64, delay_ns: u64, loss: f64) -> Scenario {
    let gap_ns = MESSAGE_BYTES as u64 * 8 * SECOND / RATE;
    let count = (CHANGED + (COUNTED[2] + 2) * SECOND) / gap_ns;
    let mut scenario = Scenario::plain(seed).messages(count, MESSAGE_BYTES, gap_ns);
    scenario.paths = vec![Path::new(RATE, QUEUE_BYTES, delay_ns)];
    scenario.impaired(Impairments::losing(Loss::Each(loss)))
}

/// Megabits a second that arrive in the first ten seconds but two after the change, and in the next thirty.
fn rates(mut world: World, later_ns: Option<u64>) -> [f64; 2] {
    world.run_until(CHANGED);
    if let Some(delay_ns) = later_ns {
        for direction in &mut world.network.paths[0].directions {
            direction.link = Link::new(RATE, QUEUE_BYTES);
            direction.delay_ns = delay_ns;
        }
    }
    let mut received = |seconds: u64| {
        world.run_until(CHANGED + seconds * SECOND);
        world.hosts[1].endpoint.statistics().bytes_received as f64
    };
    let [from, middle, end] = COUNTED.map(&mut received);
    let mbit = |bytes: f64, seconds: u64| bytes * 8e-6 / seconds as f64;
    [mbit(middle - from, 10), mbit(end - middle, 30)]
}

/// A longer route of empty queues is taken for one whose queue stands as long as the least delay is remembered.
#[test]
#[ignore = "measures, and has nothing to fail"]
fn rates_after_all_paths_have_become_longer() {
    for (loss, seed) in [(0.0, 0), (0.01, 0), (0.01, 1), (0.03, 0), (0.03, 1)] {
        let changed = rates(
            World::new(scenario(seed, 5 * MILLI, loss)),
            Some(15 * MILLI),
        );
        let always = rates(World::new(scenario(seed, 15 * MILLI, loss)), None);
        println!(
            "{loss} lost: {changed:.1?} Mbit/s after the change, {always:.1?} by such a route always"
        );
    }
}
