//! Time in which no signal reaches a thread.

use nix::sys::signal::{SigSet, SigmaskHow};

/// Signals wait, or take another thread, as long as it lives. The verifier gives up where one is pending (`EAGAIN`), however
/// much of a program it has seen.
pub(super) struct Undisturbed {
    before: Option<SigSet>,
}

impl Undisturbed {
    pub(super) fn begin() -> Self {
        // It fails for wrong arguments alone.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
        Self {
            before: before.ok(),
        }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = before.thread_set_mask();
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;

    #[test]
    fn signals_wait_meanwhile_and_are_let_in_again() {
        let is_blocked = || {
            let mask = SigSet::thread_get_mask().expect("it can be asked");
            mask.contains(Signal::SIGHUP)
        };
        assert!(!is_blocked());
        let undisturbed = Undisturbed::begin();
        assert!(is_blocked());
        drop(undisturbed);
        assert!(!is_blocked());
    }
}
