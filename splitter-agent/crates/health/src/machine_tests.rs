//! The machine in virtual time: single steps, laws, and days of lossy links.

use proptest::prelude::*;

use super::*;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const TIMING: Timing = Timing {
    interval: ms(100),
    dead_after: ms(700),
    hold_down: ms(5_000),
    max_hold_down: ms(300_000),
};

/// A tunnel that has answered at 1 s.
fn up() -> Machine {
    let mut machine = Machine::new(TIMING, Duration::ZERO);
    assert_eq!(machine.answer(ms(1_000)), None);
    machine
}

/// Ticks a machine at its deadlines until `end`; what changed, and when.
fn run_silently(machine: &mut Machine, end: Duration) -> Vec<(Duration, Condition)> {
    let mut changes = Vec::new();
    while let Some(deadline) = machine.deadline().filter(|deadline| *deadline <= end) {
        let change = machine.tick(deadline).expect("something is due");
        changes.push((deadline, change.to));
    }
    changes
}

#[test]
fn silence_makes_a_suspect_and_then_a_dead_tunnel() {
    let mut machine = up();
    let changes = run_silently(&mut machine, ms(60_000));
    let expected = [
        (ms(1_250), Condition::Suspect),
        (ms(1_700), Condition::Down),
    ];
    assert_eq!(changes, expected);
    assert_eq!(machine.downs(), 1);
}

#[test]
fn answer_clears_a_suspect() {
    let mut machine = up();
    machine.tick(ms(1_300)).expect("suspect");
    assert_eq!(machine.probe_interval(ms(1_300)), ms(18));
    assert_eq!(machine.grade(ms(1_300)), Grade::Usable);
    assert_eq!(machine.answer(ms(1_310)).expect("up").to, Condition::Up);
    assert_eq!(machine.probe_interval(ms(1_310)), ms(100));
    assert_eq!(machine.downs(), 0);
}

#[test]
fn link_down_counts_at_once_and_an_answer_begins_the_return() {
    let mut machine = up();
    let change = machine.fail(Cause::LinkDown, ms(1_001)).expect("down");
    assert_eq!((change.from, change.to), (Condition::Up, Condition::Down));
    assert_eq!(machine.fail(Cause::LinkDown, ms(1_002)), None);
    assert_eq!(machine.deadline(), None);
    machine.answer(ms(2_000)).expect("returning");
    assert_eq!(machine.grade(ms(2_100)), Grade::Unusable);
    assert_eq!(machine.grade(ms(2_700)), Grade::LastResort);
}

#[test]
fn hold_down_doubles_with_each_setback_and_is_forgiven() {
    let mut machine = up();
    let mut now = ms(1_000);
    let mut holds = Vec::new();
    for _ in 0..8 {
        machine.fail(Cause::LinkDown, now).expect("down");
        let begin = now;
        while machine.condition() != Condition::Up {
            now += ms(50);
            machine.answer(now);
            machine.tick(now);
        }
        holds.push((now - begin).as_secs());
    }
    assert_eq!(holds, [5, 10, 20, 40, 80, 160, 300, 300]);
    now += TIMING.max_hold_down;
    machine.answer(now);
    machine.fail(Cause::LinkDown, now).expect("down");
    assert_eq!(machine.hold_down(), TIMING.hold_down);
}

#[test]
fn start_is_patient() {
    let mut machine = Machine::new(TIMING, ms(0));
    let changes = run_silently(&mut machine, ms(10_000));
    assert_eq!(changes.last(), Some(&(ms(1_400), Condition::Down)));
    // Until it has answered once; a stand-in for the answer does not count.
    let mut machine = Machine::new(TIMING, ms(0));
    machine.answer_meanwhile(ms(50));
    assert_eq!(machine.deadline(), Some(ms(950)));
    machine.answer(ms(100));
    let changes = run_silently(&mut machine, ms(10_000));
    assert_eq!(changes.last(), Some(&(ms(800), Condition::Down)));
    let mut adopted = Machine::new_down(TIMING, ms(0));
    assert_eq!(adopted.grade(ms(0)), Grade::Unusable);
    adopted.answer(ms(10)).expect("returning");
    assert_eq!(adopted.condition(), Condition::Returning);
}

#[test]
fn tunnel_that_was_given_up_stays_out_until_it_answers_however_short_its_hold_down() {
    let timing = Timing {
        hold_down: ms(1_000),
        ..TIMING
    };
    let mut adopted = Machine::new_down(timing, ms(0));
    // Its link is up, which counts until the peer has answered over another tunnel.
    adopted.answer_meanwhile(ms(30)).expect("returning");
    let changes = run_silently(&mut adopted, ms(10_000));
    assert_eq!(changes, [(ms(505), Condition::Down)]);
}

#[test]
fn standing_still_is_no_silence() {
    let mut machine = up();
    machine.excuse(ms(5_000));
    assert_eq!(machine.tick(ms(6_100)), None);
    assert_eq!(machine.tick(ms(6_750)).expect("dead").to, Condition::Down);
}

#[test]
fn silence_while_this_machine_is_overloaded_proves_nothing() {
    let mut machine = up();
    let mut now = ms(1_000);
    let mut changes = Vec::new();
    // Half a minute without an answer, in which overload is seen ten times a second.
    while now < ms(31_000) {
        now += ms(100);
        changes.extend(machine.overloaded(now));
        changes.extend(machine.tick(now));
    }
    let [change] = changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!(
        (change.from, change.to, change.cause),
        (Condition::Up, Condition::Unknown, Cause::Overload)
    );
    assert_eq!(machine.grade(now), Grade::Usable);
    assert_eq!(machine.downs(), 0);
    // Once it is over, a tunnel that is dead is found out as ever.
    let mut dead = machine.clone();
    let expected = [
        (ms(31_250), Condition::Suspect),
        (ms(31_700), Condition::Down),
    ];
    assert_eq!(run_silently(&mut dead, ms(60_000)), expected);
    let answer = machine.answer(ms(31_050)).expect("up");
    assert_eq!(
        (answer.from, answer.to),
        (Condition::Unknown, Condition::Up)
    );
}

#[test]
fn suspect_becomes_unknown_and_what_answers_stays_up_in_an_overload() {
    let mut machine = up();
    machine.tick(ms(1_300)).expect("suspect");
    let change = machine.overloaded(ms(1_400)).expect("unknown");
    assert_eq!(
        (change.from, change.to),
        (Condition::Suspect, Condition::Unknown)
    );
    assert_eq!(machine.overloaded(ms(1_500)), None);
    let mut machine = up();
    for now in (1_000..9_000).step_by(100).map(ms) {
        assert_eq!(machine.overloaded(now), None);
        assert_eq!(machine.tick(now), None);
        assert_eq!(machine.answer(now), None);
    }
}

#[test]
fn link_that_goes_down_counts_in_an_overload_too() {
    let mut machine = up();
    machine.overloaded(ms(1_400)).expect("unknown");
    let change = machine.fail(Cause::LinkDown, ms(1_450)).expect("down");
    assert_eq!((change.to, machine.downs()), (Condition::Down, 1));
}

#[test]
fn overload_brings_no_tunnel_back_that_does_not_answer() {
    let mut machine = up();
    machine.fail(Cause::LinkDown, ms(2_000)).expect("down");
    machine.answer(ms(3_000)).expect("returning");
    for now in (3_000..30_000).step_by(100).map(ms) {
        assert_eq!(machine.overloaded(now), None);
        assert_eq!(machine.tick(now), None);
        // Nobody would wait for a time that has passed.
        assert!(machine.deadline().is_some_and(|deadline| deadline > now));
    }
    let mut silent = machine.clone();
    let changes = run_silently(&mut silent, ms(60_000));
    assert_eq!(changes, [(ms(29_900 + 475), Condition::Down)]);
    machine.answer(ms(29_950));
    let change = machine.tick(ms(30_000)).expect("up");
    assert_eq!((change.to, change.cause), (Condition::Up, Cause::HeldDown));
}

/// A tunnel as probes see it: each is lost with a probability, answers take a round trip.
struct Link {
    seed: u64,
    /// Of the round trip, in 1/1000.
    loss: u64,
    round_trip: Duration,
    cut_at: Duration,
    mended_at: Duration,
}

impl Link {
    fn answers(&mut self, sent: Duration) -> bool {
        // SplitMix64.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let is_cut = (self.cut_at..self.mended_at).contains(&sent);
        !is_cut && (z ^ (z >> 31)) % 1000 >= self.loss
    }
}

/// Probes a link as the agent does, from 0 to `end`; every change with its time.
fn probe(link: &mut Link, timing: Timing, end: Duration) -> Vec<(Duration, Change)> {
    let mut machine = Machine::new(timing, Duration::ZERO);
    let mut in_flight = std::collections::VecDeque::new();
    let (mut now, mut next_probe) = (Duration::ZERO, Duration::ZERO);
    let mut changes = Vec::new();
    while now < end {
        while in_flight.front().is_some_and(|at| *at <= now) {
            in_flight.pop_front();
            changes.extend(machine.answer(now).map(|change| (now, change)));
        }
        changes.extend(machine.tick(now).map(|change| (now, change)));
        if next_probe <= now {
            if link.answers(now) {
                in_flight.push_back(now + link.round_trip);
            }
            next_probe = now + machine.probe_interval(now);
        }
        let earliest = [in_flight.front().copied(), machine.deadline()];
        let earliest = earliest.into_iter().flatten().filter(|at| *at > now).min();
        // A change of interval takes effect at once.
        next_probe = next_probe.min(now + machine.probe_interval(now));
        now = earliest.map_or(next_probe, |at| at.min(next_probe));
    }
    changes
}

fn downs(changes: &[(Duration, Change)]) -> usize {
    let down = |(_, change): &&(Duration, Change)| change.to == Condition::Down;
    changes.iter().filter(down).count()
}

#[test]
fn lossy_links_never_go_down() {
    let never = Duration::MAX;
    // 10, 20 and 30 % one way, and in both directions: 19, 36, 51 % of the round trip.
    for loss in [100, 190, 200, 300, 360, 510] {
        for (seed, round_trip) in [(1, ms(1)), (2, ms(20)), (3, ms(80))] {
            let mut link = Link {
                seed,
                loss,
                round_trip,
                cut_at: never,
                mended_at: never,
            };
            let changes = probe(&mut link, TIMING, Duration::from_secs(20_000));
            assert_eq!(downs(&changes), 0, "loss {loss}, seed {seed}");
        }
    }
}

#[test]
fn lossy_link_that_was_cut_comes_back_and_stays() {
    for loss in [0, 190, 360] {
        let mut link = Link {
            seed: 7,
            loss,
            round_trip: ms(20),
            cut_at: ms(10_000),
            mended_at: ms(20_000),
        };
        let changes = probe(&mut link, TIMING, ms(600_000));
        let last = changes
            .iter()
            .rev()
            .find(|(_, change)| change.cause == Cause::HeldDown);
        assert!(
            last.is_some_and(|(at, _)| *at < ms(120_000)),
            "loss {loss}: {changes:?}"
        );
    }
}

#[test]
fn hopeless_links_go_down_and_hardly_return() {
    let mut link = Link {
        seed: 5,
        loss: 970,
        round_trip: ms(20),
        cut_at: Duration::MAX,
        mended_at: Duration::MAX,
    };
    let changes = probe(&mut link, TIMING, Duration::from_secs(10_000));
    let ups = changes
        .iter()
        .filter(|(_, change)| change.cause == Cause::HeldDown);
    assert!(downs(&changes) > 0);
    assert_eq!(ups.count(), 0, "{changes:?}");
}

proptest! {
    /// Whatever happened before: once nothing answers any more, the tunnel is down in time.
    #[test]
    fn dead_tunnel_is_declared_in_time(
        seed: u64,
        loss in 0_u64..600,
        round_trip in 1_u64..150,
        cut in 2_000_u64..60_000,
        interval in 10_u64..200,
        dead_after in 300_u64..3_000,
    ) {
        prop_assume!(dead_after >= 3 * interval);
        let timing = Timing { interval: ms(interval), dead_after: ms(dead_after), ..TIMING };
        let mut link = Link {
            seed,
            loss,
            round_trip: ms(round_trip),
            cut_at: ms(cut),
            mended_at: Duration::MAX,
        };
        // The patience at the start counts as a sign of life.
        let last_sign = timing.dead_after.max(ms(cut) + link.round_trip);
        let changes = probe(&mut link, timing, last_sign + timing.dead_after + ms(1));
        let last = changes.last().map(|(_, change)| change.to);
        prop_assert_eq!(last, Some(Condition::Down));
    }

    /// No sequence of events brings a tunnel back before its hold-down has passed, nor from down
    /// to up without returning, nor to last resort without an answer.
    #[test]
    fn nothing_comes_back_before_its_hold_down(
        events in prop::collection::vec((0_u8..4, 1_u64..2_000), 1..300),
    ) {
        let mut machine = Machine::new(TIMING, Duration::ZERO);
        let (mut now, mut down_at) = (Duration::ZERO, None);
        for (event, pause) in events {
            now += ms(pause);
            let change = match event {
                0 | 1 => machine.answer(now),
                2 => machine.tick(now),
                _ => machine.fail(Cause::LinkDown, now),
            };
            let Some(change) = change else { continue };
            match (change.from, change.to) {
                (Condition::Returning, Condition::Down) => {}
                (_, Condition::Down) => down_at = Some(now),
                (Condition::Returning, Condition::Up) => {
                    let was_down = now - down_at.expect("it went down");
                    prop_assert!(was_down >= TIMING.hold_down);
                    prop_assert_eq!(change.cause, Cause::HeldDown);
                }
                (Condition::Down, to) => prop_assert_eq!(to, Condition::Returning),
                _ => {}
            }
        }
    }

    /// The deadline is when something changes, and nothing does before.
    #[test]
    fn nothing_changes_before_the_deadline(answers in prop::collection::vec(1_u64..900, 0..50)) {
        let mut machine = Machine::new(TIMING, Duration::ZERO);
        let mut now = Duration::ZERO;
        for pause in answers {
            let next = now + ms(pause);
            while let Some(deadline) = machine.deadline().filter(|deadline| *deadline <= next) {
                let before = deadline.saturating_sub(Duration::from_nanos(1)).max(now);
                if before < deadline {
                    prop_assert_eq!(machine.clone().tick(before), None);
                }
                prop_assert!(machine.tick(deadline).is_some());
            }
            now = next;
            machine.answer(now);
        }
    }
}
