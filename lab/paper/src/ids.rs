//! The 256 ids of messages to a peer.

use std::collections::VecDeque;

use cloudburst_proto::Time;

/// Which ids are in use, and which rest.
///
/// A message's id is the lowest 8 bits of its number, so that each id is used
/// after all others were. A message whose id is in use or rests waits for it.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// One for each id; none before the first message.
    slots: Vec<Slot>,
}

#[derive(Clone, Debug)]
struct Slot {
    /// The number of the message that has the id.
    user: Option<u64>,
    /// Until then it rests.
    free_at: Time,
    /// Numbers of messages, the oldest in front.
    waiting: VecDeque<u64>,
}

impl Ids {
    /// Whether the message has its id now; if not, it waits.
    pub(crate) fn take_or_wait(&mut self, now: Time, message: u64) -> bool {
        if self.slots.is_empty() {
            let slot = Slot {
                user: None,
                free_at: now,
                waiting: VecDeque::new(),
            };
            self.slots.resize(256, slot);
        }
        let slot = &mut self.slots[usize::from(message as u8)];
        if slot.user.is_none() && slot.waiting.is_empty() && slot.free_at <= now {
            slot.user = Some(message);
            return true;
        }
        slot.waiting.push_back(message);
        false
    }

    /// The message with this id has ended. Whether another one waits for it.
    pub(crate) fn release(&mut self, id: u8, free_at: Time) -> bool {
        let Some(slot) = self.slots.get_mut(usize::from(id)) else {
            return false;
        };
        slot.user = None;
        slot.free_at = free_at;
        !slot.waiting.is_empty()
    }

    /// Gives an id to the first that waits for it and `is_alive`, if it is free.
    pub(crate) fn pass_on(
        &mut self,
        now: Time,
        id: u8,
        is_alive: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let slot = self.slots.get_mut(usize::from(id))?;
        if slot.user.is_some() || slot.free_at > now {
            return None;
        }
        while let Some(message) = slot.waiting.pop_front() {
            if is_alive(message) {
                slot.user = Some(message);
                return slot.user;
            }
        }
        None
    }

    /// Until when an id rests or has rested, if it is not in use.
    pub(crate) fn free_at(&self, id: u8) -> Option<Time> {
        let slot = self.slots.get(usize::from(id))?;
        slot.user.is_none().then_some(slot.free_at)
    }

    /// The number of the message that has this id.
    pub(crate) fn user(&self, id: u8) -> Option<u64> {
        self.slots.get(usize::from(id))?.user
    }

    /// Whether a message with this id ended not long ago.
    pub(crate) fn rests(&self, now: Time, id: u8) -> bool {
        self.free_at(id).is_some_and(|free_at| free_at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn ids_rest_and_those_who_wait_get_them_in_order() {
        let free_at = Time::ZERO + Duration::from_millis(20);
        let mut ids = Ids::default();
        for message in 1_000..1_256 {
            assert!(ids.take_or_wait(Time::ZERO, message));
        }
        assert!(!ids.take_or_wait(Time::ZERO, 1_256));
        assert!(!ids.take_or_wait(Time::ZERO, 1_512));
        let id = 1_256u64 as u8;
        assert_eq!(ids.user(id), Some(1_000));
        assert!(ids.release(id, free_at));
        assert!(ids.rests(Time::ZERO, id));
        assert_eq!(ids.pass_on(Time::ZERO, id, |_| true), None);
        assert_eq!(
            ids.pass_on(free_at, id, |message| message != 1_256),
            Some(1_512)
        );
        assert_eq!(ids.pass_on(free_at, id, |_| true), None, "it is in use");
        assert!(!ids.release(id, free_at));
    }
}
