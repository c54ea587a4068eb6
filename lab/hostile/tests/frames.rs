//! As many hostile frames as a test has time for.

use hostile::{Frames, push};

#[test]
fn hostile_frames_neither_panic_nor_are_lost_count_of() {
    const FRAMES: u64 = 300_000;
    let outcomes = push(FRAMES, 1);
    assert_eq!(outcomes.frames(), FRAMES);
    // Not vacuous: many are split, and many are not.
    assert!(outcomes.split > FRAMES / 10, "{outcomes:?}");
    assert!(outcomes.passed > FRAMES / 10, "{outcomes:?}");
}

#[test]
fn frames_of_a_seed_are_the_same_and_of_another_differ() {
    let first = |seed| {
        let mut frames = Frames::new(seed);
        (0..100).map(|_| frames.next().to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
}
