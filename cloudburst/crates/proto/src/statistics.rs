//! What an endpoint has counted since it started.

use super::packet::BusyAnswers;
pub(super) use super::packet::{release, tally, untally};

/// Counters of an endpoint. All only ever grow but those that say *now*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportStatistics {
    /// Messages that [`send`](super::Transport::send) took.
    pub messages_accepted: u64,
    /// Messages that the receiver has.
    pub messages_delivered: u64,
    /// Messages that were abandoned, whatever the reason.
    pub messages_undelivered: u64,
    /// Messages that were handed over to the host.
    pub messages_received: u64,
    /// Messages of others that were given up by their senders before they were complete.
    pub messages_cancelled: u64,
    /// Source symbols of the messages delivered.
    pub symbols_delivered: u64,
    /// Symbols sent, until the stop, for the messages delivered.
    pub symbols_sent: u64,
    /// Symbols that receivers needed for the messages delivered.
    pub symbols_needed: u64,
    /// Symbols that arrived here.
    pub symbols_received: u64,
    /// Symbols that arrived after their message was complete or told nothing new.
    pub symbols_wasted: u64,
    /// Stops that were sent.
    pub stops_sent: u64,
    /// Stops that ended a message of ours.
    pub stops_received: u64,
    /// Answers sent that there is no capacity for a message now, by what was used up.
    pub busy_sent: BusyAnswers,
    /// Those that arrived: a message of ours waits for capacity at its receiver.
    pub busy_received: BusyAnswers,
    /// Asks sent: what have you got?
    pub queries_sent: u64,
    /// Datagrams sent, of any kind.
    pub datagrams_sent: u64,
    /// Bytes of these datagrams.
    pub bytes_sent: u64,
    /// Datagrams that arrived, of any kind.
    pub datagrams_received: u64,
    /// Bytes of these datagrams.
    pub bytes_received: u64,
    /// Datagrams that arrived with a mark of congestion (ECN).
    pub congestion_marks: u64,
    /// Datagrams of ours that arrived with one, as peers report.
    pub datagrams_marked: u64,
    /// Paths that were found dead.
    pub paths_died: u64,
    /// Ports of ours that did not deliver and were abandoned for others.
    pub ports_rotated: u64,
    /// Pairs of ports that did not deliver and were abandoned for others of the same ports.
    pub paths_replaced: u64,
    /// Datagrams and messages that were not taken.
    pub refused: Refusals,
    /// Peers that are known now.
    pub peers_now: u64,
    /// Messages that are incomplete now.
    pub incoming_now: u64,
    /// Their memory now, in bytes.
    pub incoming_bytes_now: u64,
    /// Messages of ours that wait now.
    pub outgoing_now: u64,
    /// Bytes of these messages now.
    pub outgoing_bytes_now: u64,
}

macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// Counts what was not taken, by reason.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Refusals {
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        impl Refusals {
            /// Each reason's name and count.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

refusals! {
    /// No datagram of this protocol, or a damaged symbol.
    malformed,
    /// A plain datagram, other than a symbol, that was changed on the way: its check does not fit.
    damaged,
    /// Under a shared key that is not ours, by key pairs or plain where we do otherwise.
    unknown_key,
    /// Under an index that is not ours: of keys that are worn out, or of nobody.
    unknown_association,
    /// By a key pair that is not on our list.
    not_allowed,
    /// Not sealed with the keys it should be.
    not_authentic,
    /// Seen before, or too old to tell.
    replayed,
    /// An answer to something that was not asked.
    unexpected,
    /// From an address that has shown no token, where one is needed.
    not_validated,
    /// A token that is not ours, of another address or too old.
    bad_token,
    /// More peers than the quota allows.
    too_many_peers,
    /// A message of somebody who came by itself, while the host takes none.
    not_accepting,
    /// More incomplete messages than the quota allows.
    too_many_messages,
    /// More memory for incomplete messages than the quota allows.
    too_many_bytes,
    /// A message longer than is taken.
    message_too_large,
    /// A symbol that does not fit its message.
    bad_symbol,
    /// A symbol of a message so old that nothing is known of it.
    stale,
    /// A message whose integrity check failed.
    corrupt_message,
    /// A message that was not completed in its time.
    expired,
    /// More answers to an address than the quota allows.
    answers_capped,
    /// An answer beyond the share of the link that answers have.
    answers_over_budget,
    /// More bytes than three times what an address sent before it was validated.
    amplification_capped,
}
