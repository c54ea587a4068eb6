//! Acknowledgements, as they come to a sender.

/// An acknowledgement that a sender receives.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// The first segment that is missing.
    pub missing: u32,
    /// The segment that made the receiver answer: the first block of RFC 2018. Later blocks, which
    /// repeat what earlier ACKs said, are not there; so an ACK that is lost takes its block along, but with RACK-TLP,
    /// which is told of all of them ([`Sender::on_reports`](crate::Sender::on_reports)).
    pub trigger: u32,
    /// That segment had come before (DSACK, RFC 2883), which nothing but RACK-TLP looks at.
    pub is_duplicate: bool,
    /// That packet had been marked.
    pub marked: bool,
    /// Time at which the acknowledgement came, by the clock of the host.
    pub now_ns: u64,
    /// Since that packet was sent; where the receiver has discarded it, since that one whose time stamp it echoes
    /// ([`Receiver::recent_ns`](crate::Receiver::recent_ns)).
    pub round_trip_ns: u64,
}
