//! Signs of overload, and what is none.

use super::*;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn cpu(cpu: u32, processed: u32, dropped: u32, waiting: u32) -> CpuBacklog {
    CpuBacklog {
        cpu,
        processed,
        dropped,
        waiting,
    }
}

/// What is seen of one CPU that goes from one state to another within so long.
fn between(before: CpuBacklog, after: CpuBacklog, time: Duration) -> Option<Overload> {
    let mut detector = OverloadDetector::default();
    detector.backlogs(vec![before], ms(1_000));
    detector.backlogs(vec![after], ms(1_000) + time);
    detector.current(ms(1_000) + time)
}

#[test]
fn cpu_that_drops_a_tenth_of_what_arrives_is_overloaded() {
    let calm = cpu(1, 1_000, 50, 0);
    assert_eq!(between(calm, cpu(1, 91_000, 50, 0), ms(100)), None);
    assert_eq!(between(calm, cpu(1, 91_000, 10_049, 0), ms(100)), None);
    let found = between(calm, cpu(1, 91_000, 10_050, 0), ms(100)).expect("a sign");
    assert_eq!(found.reason(), OverloadReason::BacklogDropped);
    assert_eq!(
        found.to_string(),
        "CPU 1 dropped 10000 of 100000 packets that had arrived"
    );
}

#[test]
fn totals_may_wrap_around() {
    let (before, after) = (cpu(0, u32::MAX - 9, u32::MAX, 0), cpu(0, 10, 19, 0));
    let expected = Overload::BacklogDropped {
        cpu: 0,
        dropped: 20,
        processed: 20,
    };
    assert_eq!(between(before, after, ms(100)), Some(expected));
}

#[test]
fn queue_that_nobody_empties_is_stuck_and_one_that_is_only_full_is_not() {
    let before = cpu(3, 70, 0, 5);
    let found = between(before, cpu(3, 70, 0, 9), ms(100)).expect("a sign");
    assert_eq!(
        found.to_string(),
        "9 packets wait at CPU 3, which took none for 100 ms"
    );
    assert_eq!(between(before, cpu(3, 71, 0, 900), ms(100)), None);
    assert_eq!(between(before, cpu(3, 70, 0, 0), ms(100)), None);
    assert_eq!(between(cpu(3, 70, 0, 0), cpu(3, 70, 0, 9), ms(100)), None);
    // Too short a time to tell.
    assert_eq!(between(before, cpu(3, 70, 0, 9), ms(49)), None);
}

#[test]
fn first_look_and_cpus_that_come_later_are_no_sign() {
    let mut detector = OverloadDetector::default();
    assert!(detector.wants_backlogs(ms(0)));
    detector.backlogs(vec![cpu(0, 10, 5_000, 7)], ms(0));
    assert!(!detector.wants_backlogs(ms(99)) && detector.wants_backlogs(ms(100)));
    detector.backlogs(vec![cpu(0, 11, 5_000, 7), cpu(1, 0, 9_000, 9)], ms(100));
    assert_eq!(detector.current(ms(100)), None);
    // Nor is that the kernel does not say any more.
    detector.backlogs(Vec::new(), ms(200));
    assert_eq!(detector.current(ms(200)), None);
    assert_eq!(detector.counts(), OverloadCounts::default());
}

#[test]
fn lateness_counts_only_where_it_could_make_a_suspect() {
    let mut detector = OverloadDetector::default();
    detector.late(ms(249), ms(250), ms(500));
    assert_eq!(detector.current(ms(500)), None);
    detector.late(ms(250), ms(250), ms(800));
    assert_eq!(
        detector.current(ms(1_000)),
        Some(Overload::AgentLate(ms(250)))
    );
    // It is not seen again, so it is over.
    assert_eq!(detector.current(ms(1_050)), None);
    detector.socket_dropped(0, ms(2_000));
    assert_eq!(detector.current(ms(2_000)), None);
    detector.socket_dropped(3, ms(2_000));
    assert_eq!(
        detector.current(ms(2_000)),
        Some(Overload::SocketDropped(3))
    );
    assert_eq!(detector.counts(), OverloadCounts([1, 0, 0, 1]));
}

#[test]
fn lines_of_each_kernel_are_read() {
    // Linux 6.18, and 4.19, which has neither the CPU's number nor its queue.
    let new = "00000014 00000003 00000002 00000000 00000000 00000000 00000000 00000000 00000000 \
               00000000 00000000 0000001f 00000005 0000000f 00000010\n";
    let old = "000071a3 0000000a 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
               00000000 00000000\n";
    assert_eq!(CpuBacklog::parse_all(new), [cpu(5, 0x14, 3, 0x1f)]);
    assert_eq!(CpuBacklog::parse_all(old), [cpu(0, 0x71a3, 10, 0)]);
    assert_eq!(CpuBacklog::parse_all("what\n\n00000001\n"), []);
}
