//! How much processor time an input has taken, as a watchdog sees it.

use std::time::Duration;

/// How often the watchdog looks, by the wall.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Sums up what the input under way has taken, look by look. A look counts no more than a tick: a machine that
/// was stopped may take the time for that of whatever it goes on with.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    input: u64,
    taken: Duration,
    last: Duration,
}

impl Watch {
    /// Looks: input number `input` is under way, and the process has used so much processor time in all.
    /// Returns what the input has taken, which is a tick less than it has or exact.
    pub(crate) fn look(&mut self, input: u64, process_time: Duration) -> Duration {
        let since = process_time.saturating_sub(self.last);
        self.last = process_time;
        if input == self.input {
            self.taken += since.min(TICK);
        } else {
            (self.input, self.taken) = (input, Duration::ZERO);
        }
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the last input has taken, by looks at the number of an input and the milliseconds used since the last.
    fn taken(looks: &[(u64, u64)]) -> Duration {
        let (mut watch, mut used) = (Watch::default(), Duration::ZERO);
        let mut taken = Duration::ZERO;
        for (input, more) in looks {
            used += Duration::from_millis(*more);
            taken = watch.look(*input, used);
        }
        taken
    }

    #[test]
    fn an_input_that_goes_on_and_on_is_seen() {
        let looks: Vec<_> = (0..12).map(|_| (7, 1_000)).collect();
        assert_eq!(taken(&looks), Duration::from_secs(11));
    }

    #[test]
    fn a_process_that_was_stopped_has_taken_nothing() {
        // By the wall each look may be minutes after the one before.
        assert_eq!(taken(&[(7, 900), (7, 0), (7, 0)]), Duration::ZERO);
        // The clock of the processor has run on while the machine stood still.
        assert_eq!(taken(&[(7, 900), (7, 60_000)]), TICK);
    }

    #[test]
    fn many_inputs_are_not_one() {
        let looks: Vec<_> = (0..60).map(|input| (input, 1_000)).collect();
        assert_eq!(taken(&looks), Duration::ZERO);
    }
}
