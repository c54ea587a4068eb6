//! Waits for what is to happen, within bounds.
//!
//! A test waits on what it needs: an answer, a file, a count. It sleeps only where time itself is
//! tested.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How often to look.
const POLL: Duration = Duration::from_millis(20);

/// Asks until there is an answer, and panics when there is none within `bound`.
#[track_caller]
pub fn within<T>(bound: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let answer = poll(bound, &mut ask);
    answer.unwrap_or_else(|| panic!("waited {bound:?} for {what}"))
}

/// Asks until there is an answer; `None` when there is none within `bound`.
pub fn poll<T>(bound: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + bound;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() >= deadline {
            return answer;
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_that_comes_late_ends_the_wait() {
        let mut looks = 0;
        let answer = poll(Duration::from_secs(60), || {
            looks += 1;
            (looks == 3).then_some("there")
        });
        assert_eq!((answer, looks), (Some("there"), 3));
    }

    #[test]
    fn wait_looks_once_at_least_and_ends_at_its_bound() {
        let mut looks = 0;
        let none: Option<()> = poll(Duration::ZERO, || {
            looks += 1;
            None
        });
        assert_eq!((none, looks), (None, 1));
    }
}
