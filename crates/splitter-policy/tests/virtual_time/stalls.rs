//! What becomes of order where the processor is taken away, as a virtual router's is.
//!
//! The shaper's timer is late then, and what it did not send it may not send faster: the model of
//! its queue has run ahead. A flow that is handed over within the backlog of that time overtakes
//! itself, and nothing else does.

use crate::border::{Border, MICROSECOND, MILLISECOND, Resumption, SECOND};
use crate::traffic::{Flow, Random, run};

const SEEDS: u64 = 48;
const FLOWS: usize = 40;

/// The processor is away for so long, some fifteen times a second.
fn away(random: &mut Random, length_ns: u64) -> Vec<std::ops::Range<u64>> {
    let mut away = Vec::new();
    let mut at_ns = SECOND;
    while at_ns < 3 * SECOND {
        at_ns += 40 * MILLISECOND + random.below(40 * MILLISECOND);
        away.push(at_ns..at_ns + length_ns);
        at_ns += length_ns;
    }
    away
}

/// How many flows were handed over, and how many of them overtook themselves.
#[derive(Debug, Default)]
struct Harm {
    handed_over: usize,
    harmed: usize,
}

fn measure(resumption: Resumption, length_ns: u64) -> Harm {
    measure_with(resumption, length_ns, |border| border)
}

/// The same with other settings.
fn measure_with(resumption: Resumption, length_ns: u64, change: impl Fn(Border) -> Border) -> Harm {
    let mut harm = Harm::default();
    for seed in 0..SEEDS {
        let random = &mut Random(seed);
        let flows = Flow::mixed(random, FLOWS, 2);
        let away = away(random, length_ns);
        let border = Border::shared([100, 40], FLOWS).away(away, resumption);
        let mut border = change(border);
        let seen = run(&mut border, &flows);
        let moved: Vec<_> = (0..FLOWS).filter(|flow| border.has_moved(*flow)).collect();
        let mut harmed: Vec<_> = seen.overtaken.iter().map(|it| it.1.packet.flow).collect();
        harmed.sort_unstable();
        harmed.dedup();
        let only_moved = harmed.iter().all(|it| moved.contains(it));
        assert!(
            only_moved,
            "seed {seed}: {harmed:?} of {moved:?} changed tunnels"
        );
        harm.handed_over += moved.len();
        harm.harmed += harmed.len();
    }
    println!("away for {length_ns} ns, {resumption:?}: {harm:?}");
    harm
}

#[test]
fn pause_within_a_shapers_burst_reorders_nothing() {
    for resumption in [Resumption::TimersFirst, Resumption::PacketsFirst] {
        let harm = measure(resumption, 200 * MICROSECOND);
        assert!(harm.handed_over > 50, "{harm:?}");
        assert_eq!(harm.harmed, 0, "{harm:?}");
    }
}

#[test]
fn pause_of_a_processor_reorders_only_flows_that_are_handed_over_and_few_of_them() {
    for resumption in [Resumption::TimersFirst, Resumption::PacketsFirst] {
        for length_ms in [5, 50] {
            let harm = measure(resumption, length_ms * MILLISECOND);
            assert!(harm.handed_over > 50, "{harm:?}");
            assert!(harm.harmed * 20 <= harm.handed_over, "{harm:?}");
        }
    }
}

/// The mend of what is ours: where the queue is seen, nobody has to trust a model that ran ahead.
#[test]
fn flow_that_waits_for_the_real_queue_is_never_overtaken_by_itself() {
    for resumption in [Resumption::TimersFirst, Resumption::PacketsFirst] {
        for length_ms in [5, 10, 50] {
            let harm = measure_with(resumption, length_ms * MILLISECOND, Border::seeing_queues);
            assert!(harm.handed_over > 50, "{harm:?}");
            assert_eq!(harm.harmed, 0, "{harm:?}");
        }
    }
}

/// The remedy on a router whose host takes processors away for up to 10 ms: what is lost to the
/// shaper is lost to the margin. Fewer flows are handed over then, since fewer pause for so long.
#[test]
fn margin_as_long_as_a_processors_pause_keeps_every_flow_in_order() {
    let length_ns = 10 * MILLISECOND;
    for resumption in [Resumption::TimersFirst, Resumption::PacketsFirst] {
        let harm = measure_with(resumption, length_ns, |mut border| {
            border.config.drain_margin_ns += length_ns;
            border.config.max_wait_ns = 30 * MILLISECOND;
            border
        });
        assert!(harm.handed_over > 20, "{harm:?}");
        assert_eq!(harm.harmed, 0, "{harm:?}");
    }
}
