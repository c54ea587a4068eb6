//! What the program that ships takes to count what a device is handed.

use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use splitter_policy::egress_counts::Marked;

use super::case::{FEWEST_RUNS, thread_time};
use super::loaded::Loaded;
use super::{SHIPPED, full_segment, ordinary};

/// The flow table is not looked at.
const SMALL_TABLE: u32 = 4_096;

/// A row, what the agent does before it, and how many packets it counts of one.
type Step = (&'static str, fn(&mut Loaded), u64);

/// A device that is counted nowhere, one of the site, by flow, and a tunnel's, by mark.
pub(super) fn measure(group: &mut BenchmarkGroup<'_, WallTime>) {
    let mut counting = Loaded::new(SHIPPED, SMALL_TABLE);
    counting.load_classifier("count_egress");
    counting.set(ordinary());
    let steps: [Step; 3] = [
        ("count_elsewhere", |_| {}, 0),
        ("count_at_site", Loaded::count_at_site, 1),
        ("count_at_tunnel", Loaded::count_at_tunnel, 1),
    ];
    let frame = full_segment().bytes();
    for (name, prepare, counted_each) in steps {
        prepare(&mut counting);
        let before = counted(&counting);
        counting.run_counting(&frame, 1_000);
        assert_eq!(counted(&counting) - before, 1_000 * counted_each, "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let runs =
                    u32::try_from(iterations.max(FEWEST_RUNS)).expect("no sample is so long");
                let started = thread_time();
                counting.run_counting(&frame, runs);
                (thread_time() - started).mul_f64(iterations as f64 / f64::from(runs))
            });
        });
    }
}

fn counted(counting: &Loaded) -> u64 {
    let came_back = counting.came_back().into_values();
    let left = |it| counting.left().map_or(0, |left| left.packets(it, false));
    came_back.map(|it| it.packets).sum::<u64>() + Marked::ALL.map(left).iter().sum::<u64>()
}
