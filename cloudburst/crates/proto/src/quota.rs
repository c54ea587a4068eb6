//! Quotas: whether there is capacity for what others send (back-pressure).

use super::{
    config::Quotas,
    statistics::{Refusals, tally},
};

/// Usage of the quotas by incomplete messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaUsage {
    pub(super) messages: usize,
    pub(super) peer_messages: usize,
    pub(super) bytes: usize,
    pub(super) peer_bytes: usize,
    /// Of all peers whose address is not validated, if this is one of them.
    pub(super) unvalidated_bytes: Option<usize>,
    /// Events that the host has not seen.
    pub(super) unseen: usize,
    /// Messages that the host has capacity for, if it is to be asked about this peer.
    pub(super) host_capacity: Option<usize>,
}

/// Why there is no capacity for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverQuota {
    Messages,
    Bytes,
    /// Capacity that is for peers alone that have shown a token.
    NotValidated,
}

impl QuotaUsage {
    /// Whether a message that takes up `bytes` may come in addition; counted if not.
    pub(super) fn check_quota(
        &self,
        quotas: &Quotas,
        bytes: usize,
        refused: &mut Refusals,
    ) -> Result<(), OverQuota> {
        let arriving = self.messages.saturating_add(self.unseen);
        if self.host_capacity.is_some_and(|room| arriving >= room) {
            tally(&mut refused.not_accepting, 1);
            return Err(OverQuota::Messages);
        }
        if self.messages >= quotas.messages || self.peer_messages >= quotas.peer_messages {
            tally(&mut refused.too_many_messages, 1);
            return Err(OverQuota::Messages);
        }
        let is_beyond = |held: usize, most| held.saturating_add(bytes) > most;
        if is_beyond(self.bytes, quotas.bytes) || is_beyond(self.peer_bytes, quotas.peer_bytes) {
            tally(&mut refused.too_many_bytes, 1);
            return Err(OverQuota::Bytes);
        }
        let unvalidated = self.unvalidated_bytes;
        if unvalidated.is_some_and(|held| is_beyond(held, quotas.unvalidated_bytes)) {
            tally(&mut refused.not_validated, 1);
            return Err(OverQuota::NotValidated);
        }
        Ok(())
    }
}
