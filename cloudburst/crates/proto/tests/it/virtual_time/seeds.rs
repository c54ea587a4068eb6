//! Worlds by their seeds, on all processors: none knows of another.

use std::{
    ops::Range,
    panic::{RefUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

/// Runs a world for each seed, and fails with what the first ones said that failed: a few tell more than one, and
/// hundreds no more than so many.
pub(super) fn each(seeds: Range<u64>, most: usize, run: impl Fn(u64) + Sync + RefUnwindSafe) {
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            let so_far = failed.lock().unwrap_or_else(PoisonError::into_inner).len();
            if seed >= seeds.end || so_far >= most {
                break;
            }
            if let Err(panic) = catch_unwind(|| run(seed)) {
                let literal = || panic.downcast_ref::<&str>().copied();
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(literal).unwrap_or("?").to_owned();
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.push((seed, text));
            }
        }
    };
    thread::scope(|scope| {
        let others = thread::available_parallelism().map_or(1, usize::from);
        for _ in 1..others {
            scope.spawn(work);
        }
        work();
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort();
    let said: Vec<_> = failed
        .iter()
        .map(|(seed, text)| format!("{seed}: {text}"))
        .collect();
    assert!(said.is_empty(), "{}", said.join("\n"));
}

#[test]
fn every_seed_is_run_once_and_those_that_fail_are_named() {
    let ran = Mutex::new(Vec::new());
    each(3..40, 1, |seed| ran.lock().unwrap().push(seed));
    let mut ran = ran.into_inner().unwrap();
    ran.sort_unstable();
    assert!(ran.into_iter().eq(3..40));
    let failing = || each(0..40, 40, |seed| assert!(seed % 20 != 7, "it is {seed}"));
    let said = catch_unwind(failing).unwrap_err();
    assert_eq!(
        said.downcast_ref::<String>().unwrap(),
        "7: it is 7\n27: it is 27"
    );
    let ran = AtomicU64::new(0);
    let all_fail = || {
        each(0..1_000, 5, |_| {
            ran.fetch_add(1, Relaxed);
            panic!("always");
        });
    };
    assert!(catch_unwind(all_fail).is_err());
    let ran = ran.into_inner();
    assert!((5..100).contains(&ran), "{ran} went on");
}
