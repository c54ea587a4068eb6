//! Memory of messages under way.

use std::collections::{HashMap, hash_map::Entry};

use foldhash::fast::FixedState;

use super::Content;
use crate::outgoing::Outgoing;

/// Messages that several peers are sent, by their address, and for how many peers each has not ended:
/// their bytes count once.
#[derive(Debug)]
pub(super) struct Memory(HashMap<usize, usize, FixedState>);

impl Memory {
    pub(super) fn new(hash_seed: u64) -> Self {
        Self(HashMap::with_hasher(FixedState::with_seed(hash_seed)))
    }

    /// Bytes that a message would take.
    pub(super) fn needed(&self, content: Content<'_>) -> usize {
        match content {
            Content::Shared(message) if self.0.contains_key(&message.address()) => 0,
            _ => content.bytes(),
        }
    }

    /// Bytes that a message takes, with its envelope.
    pub(super) fn hold(&mut self, outgoing: &Outgoing) -> usize {
        let Some(message) = outgoing.shared_message() else {
            return outgoing.bytes();
        };
        let holders = self.0.entry(message.address()).or_default();
        *holders = holders.saturating_add(1);
        if *holders == 1 { outgoing.bytes() } else { 0 }
    }

    /// Bytes that are free with a message that has ended.
    pub(super) fn free(&mut self, outgoing: &Outgoing) -> usize {
        let Some(message) = outgoing.shared_message() else {
            return outgoing.bytes();
        };
        let Entry::Occupied(mut holders) = self.0.entry(message.address()) else {
            return 0;
        };
        let left = holders.get().saturating_sub(1);
        *holders.get_mut() = left;
        if left > 0 {
            return 0;
        }
        holders.remove();
        outgoing.bytes()
    }
}
