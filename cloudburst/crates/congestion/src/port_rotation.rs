//! Port rotation: how often ports are abandoned for others. A link that stays dead must not lead to
//! ports without end.

use core::time::Duration;
use std::collections::BTreeMap;

use cloudburst_wire::Time;

/// Budget of rotations: so many at once, and one more after each pause.
#[derive(Clone, Copy, Debug)]
pub struct RotationBudget {
    left: u32,
    since: Time,
}

impl RotationBudget {
    /// So many at once, and one more after each pause. Of the 65,535 numbers that the paths of a
    /// session can have, a trouble that never ends takes a week at least.
    pub const MOST: u32 = 64;
    /// The pause after which there is one more.
    pub const PAUSE: Duration = Duration::from_secs(60);

    /// Starts with a full budget.
    pub const fn new(now: Time) -> Self {
        Self {
            left: Self::MOST,
            since: now,
        }
    }

    /// Takes one, if there is one.
    pub fn take(&mut self, now: Time) -> bool {
        let earned = now.since(self.since).as_secs();
        let earned = earned.checked_div(Self::PAUSE.as_secs()).unwrap_or(0);
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        if earned > 0 {
            self.since = now;
            self.left = self.left.saturating_add(earned).min(Self::MOST);
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

/// Port rotation: when which socket's port may be abandoned. `S` names a socket.
#[derive(Debug)]
pub struct PortRotation<S> {
    allowance: RotationBudget,
    sockets: BTreeMap<S, SocketRotation>,
}

#[derive(Clone, Copy, Debug)]
struct SocketRotation {
    /// How often in a row its port was of no use.
    tries: u32,
    last: Time,
    next: Time,
}

/// The pause after each of the first tries, which doubles after that, up to the last.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(600)];
const FIRST_TRIES: u32 = 3;
/// A port that has been good for so long beyond the pause was a good one.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// When it is looked at again if somebody else needs a port.
const NEEDED_FOR: Duration = Duration::from_secs(10);

impl<S: Copy + Ord> PortRotation<S> {
    /// One that has abandoned none.
    pub fn new(now: Time) -> Self {
        Self {
            allowance: RotationBudget::new(now),
            sockets: BTreeMap::new(),
        }
    }

    /// Tells whether a socket's turn has come.
    pub fn is_due(&self, now: Time, socket: S) -> bool {
        self.sockets
            .get(&socket)
            .is_none_or(|rotation| now >= rotation.next)
    }

    /// Somebody needs the socket's port as it is.
    pub fn postpone(&mut self, now: Time, socket: S) {
        self.rotation(now, socket).next = now + NEEDED_FOR;
    }

    /// The socket's port is abandoned, unless too many have been of late.
    pub fn begin(&mut self, now: Time, socket: S) -> bool {
        let is_allowed = self.allowance.take(now);
        let rotation = self.rotation(now, socket);
        if !is_allowed {
            rotation.next = now + NEEDED_FOR;
            return false;
        }
        let good = pause(rotation.tries).saturating_mul(2);
        if now.since(rotation.last) > good.saturating_add(GOOD_FOR) {
            rotation.tries = 0;
        }
        rotation.tries = rotation.tries.saturating_add(1);
        rotation.last = now;
        rotation.next = now + pause(rotation.tries);
        true
    }

    /// The socket is gone.
    pub fn forget(&mut self, socket: S) {
        self.sockets.remove(&socket);
    }

    fn rotation(&mut self, now: Time, socket: S) -> &mut SocketRotation {
        self.sockets.entry(socket).or_insert(SocketRotation {
            tries: 0,
            last: now,
            next: now,
        })
    }
}

fn pause(tries: u32) -> Duration {
    let doublings = tries.saturating_sub(FIRST_TRIES).min(16);
    PAUSES[0].saturating_mul(1 << doublings).min(PAUSES[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET: u16 = 3;

    /// How often a port is abandoned within so long if none is ever good.
    fn port_rotation(sockets: u16, within: Duration) -> u32 {
        let mut port_rotation = PortRotation::new(Time::ZERO);
        let mut count = 0;
        for tenth in 0..within.as_secs() * 10 {
            let now = Time::ZERO + Duration::from_millis(tenth * 100);
            for socket in 0..sockets {
                if port_rotation.is_due(now, socket) {
                    count += u32::from(port_rotation.begin(now, socket));
                }
            }
        }
        count
    }

    #[test]
    fn a_port_that_is_never_good_is_given_up_ever_more_seldom() {
        assert_eq!(port_rotation(1, Duration::from_secs(3)), 3);
        let in_an_hour = port_rotation(1, Duration::from_secs(3_600));
        assert!((12..=20).contains(&in_an_hour), "{in_an_hour}");
    }

    #[test]
    fn all_together_have_a_cap() {
        let most = RotationBudget::MOST + 3_600 / RotationBudget::PAUSE.as_secs() as u32;
        let in_an_hour = port_rotation(256, Duration::from_secs(3_600));
        assert!(
            (RotationBudget::MOST..=most).contains(&in_an_hour),
            "{in_an_hour}"
        );
    }

    #[test]
    fn after_a_good_one_all_begins_anew() {
        let mut port_rotation = PortRotation::new(Time::ZERO);
        let mut now = Time::ZERO;
        for _ in 0..6 {
            assert!(port_rotation.begin(now, SOCKET));
            now = port_rotation.sockets[&SOCKET].next;
        }
        assert!(port_rotation.sockets[&SOCKET].tries == 6);
        now = now + GOOD_FOR * 3;
        assert!(port_rotation.begin(now, SOCKET));
        assert_eq!(port_rotation.sockets[&SOCKET].tries, 1);
        port_rotation.forget(SOCKET);
        assert!(port_rotation.sockets.is_empty());
    }
}
