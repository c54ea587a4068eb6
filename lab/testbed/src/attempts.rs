//! Claims about real time, on machines that may stand still.

use std::{thread, time::Duration};

use crate::cpu;

/// How often a claim is tried at most.
const ATTEMPTS: u32 = 3;
/// Between two attempts, so that one disturbance does not spoil both.
const PAUSE: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 5 });

/// Tries a claim about time until it holds, at most three times.
///
/// Others on the same hardware take a virtual machine's processors away, at times for hundreds of
/// milliseconds, and TCP answers with timeouts that nothing in the experiment caused. What is wrong
/// with a program fails every attempt; each one that failed is printed, with the time that the
/// machine was robbed of meanwhile.
///
/// # Panics
/// When no attempt held, with the reasons of all.
pub fn hold(claim: &str, mut attempt: impl FnMut() -> Result<(), String>) {
    let mut reasons = Vec::new();
    for number in 1..=ATTEMPTS {
        if number > 1 {
            thread::sleep(PAUSE);
        }
        let stolen = cpu::stolen().unwrap_or_default();
        let Err(reason) = attempt() else { return };
        let stolen = cpu::stolen().unwrap_or_default().saturating_sub(stolen);
        let reason = format!(
            "attempt {number} of {ATTEMPTS}: {reason} ({:.2} s of processor time were stolen)",
            stolen.as_secs_f64()
        );
        eprintln!("{claim}: {reason}");
        reasons.push(reason);
    }
    panic!("{claim}: not once\n{}", reasons.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim;

    #[test]
    fn one_attempt_that_holds_is_enough() {
        let mut attempts = 0;
        hold("the second is right", || {
            attempts += 1;
            claim!(attempts == 2, "it was number {attempts}");
            Ok(())
        });
        assert_eq!(attempts, 2);
    }

    #[test]
    #[should_panic(expected = "attempt 3 of 3: never so")]
    fn what_never_holds_fails() {
        hold("a wrong claim", || Err("never so".to_owned()));
    }
}
