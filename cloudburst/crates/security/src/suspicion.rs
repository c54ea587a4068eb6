//! Suspicion that nobody is at the end of a path: raised by a notice, settled by probes.

use core::time::Duration;

use cloudburst_wire::Time;

/// Probes without an answer that confirm it: one may be lost by chance.
const PROBES: u8 = 2;
/// How often a path is suspected at most: notices may come in floods, and each costs two probes.
const PAUSE: Duration = Duration::from_millis(50);

/// Suspicion against one path that nobody is at its end, if there is any.
#[derive(Debug, Default)]
pub struct Suspicion {
    raised: Option<Raised>,
    /// Until then no notice raises another.
    trusted_until: Time,
    is_confirmed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Raised {
    probes: u8,
    /// When the next probe is due, or the last one is overdue.
    next_at: Time,
    pause_us: u32,
}

impl Suspicion {
    /// Asks for a probe at once and for one more, whose answers may take so long in all.
    pub fn raise(&mut self, now: Time, wait: Duration) {
        if self.raised.is_some() || now < self.trusted_until {
            return;
        }
        self.trusted_until = now + PAUSE;
        let pause = wait.checked_div(PROBES.into()).unwrap_or(wait);
        self.raised = Some(Raised {
            probes: 0,
            next_at: now,
            pause_us: pause.as_micros().try_into().unwrap_or(u32::MAX),
        });
    }

    /// Ends a suspicion, as something was heard of the path.
    pub fn clear(&mut self) {
        self.raised = None;
        self.is_confirmed = false;
    }

    /// Returns true if no probe was answered, and this is found now.
    pub fn confirm(&mut self, now: Time) -> bool {
        let is_overdue = |it: &mut Raised| it.probes >= PROBES && now >= it.next_at;
        let is_confirmed = self.raised.take_if(is_overdue).is_some();
        self.is_confirmed |= is_confirmed;
        is_confirmed
    }

    /// Returns true if probes have confirmed that nobody is there.
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Returns true if a probe is due, which is sent now.
    pub fn take_probe(&mut self, now: Time) -> bool {
        let is_due = |it: &&mut Raised| it.probes < PROBES && now >= it.next_at;
        let Some(raised) = self.raised.as_mut().filter(is_due) else {
            return false;
        };
        raised.probes = raised.probes.saturating_add(1);
        raised.next_at = now + Duration::from_micros(raised.pause_us.into());
        true
    }

    /// Returns the time at which a probe is due, or the last one overdue.
    pub fn next_due(&self) -> Option<Time> {
        self.raised.map(|it| it.next_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(60);

    #[test]
    fn two_probes_without_an_answer_confirm_it_once() {
        let (mut suspicion, mut now) = (Suspicion::default(), Time::ZERO);
        suspicion.raise(now, WAIT);
        for _ in 0..PROBES {
            assert!(!suspicion.confirm(now));
            assert!(suspicion.take_probe(now));
            assert!(!suspicion.take_probe(now), "its time has not come");
            now = suspicion.next_due().unwrap();
        }
        assert_eq!(now.since(Time::ZERO), WAIT);
        assert!(suspicion.confirm(now) && suspicion.is_confirmed());
        assert!(!suspicion.confirm(now), "it is found once");
    }

    #[test]
    fn an_answer_ends_it_and_a_flood_of_notices_raises_no_more_than_one() {
        let (mut suspicion, now) = (Suspicion::default(), Time::ZERO);
        suspicion.raise(now, WAIT);
        assert!(suspicion.take_probe(now));
        suspicion.clear();
        for us in 0..49_999 {
            suspicion.raise(now + Duration::from_micros(us), WAIT);
        }
        assert_eq!(suspicion.next_due(), None);
        suspicion.raise(now + PAUSE, WAIT);
        assert!(suspicion.next_due().is_some());
    }
}
