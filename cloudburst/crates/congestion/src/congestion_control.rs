//! Settings of congestion control.

/// Congestion control: how fast peers are sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum CongestionControl {
    /// Finds what the paths to each peer give, and keeps to a fair share of it beside others. Needs
    /// nothing stated, and may be used on the Internet.
    #[default]
    Adaptive,
    /// Sends a share of a stated link, as the paper does (§III-B): for networks that give this
    /// traffic a queue of its own, and for nothing else. Others on the same queue would suffer.
    Reserved(Reservation),
}

/// Share of a link that is reserved for messages.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reservation {
    /// Rate of the host's link, in bits per second: at least 8,000.
    pub link_bits_per_s: u64,
    /// The share of the link that may be used, above 0 and at most 1 (§III-B's *r*). Default 1.
    pub share: f64,
    /// Loss that ends it: when more than this share of a peer's datagrams is lost for three seconds, the
    /// circuit breaker (RFC 8084) abandons all messages to the peer, and takes no more until it is
    /// forgotten and connected again. Above 0 and at most 1, which is never. Default 0.2.
    pub most_loss: f64,
}

impl Reservation {
    /// Reserves all of a link.
    pub const fn new(link_bits_per_s: u64) -> Self {
        Self {
            link_bits_per_s,
            share: 1.0,
            most_loss: 0.2,
        }
    }

    /// Returns what may be sent, in bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.link_bits_per_s as f64 / 8.0 * self.share
    }

    /// Returns the same reservation with another share of the link.
    #[must_use]
    pub const fn with_share(self, share: f64) -> Self {
        Self { share, ..self }
    }

    /// Returns the same reservation with another loss that ends it.
    #[must_use]
    pub const fn with_most_loss(self, most_loss: f64) -> Self {
        Self { most_loss, ..self }
    }
}

impl CongestionControl {
    /// Reserves all of a link of such a rate; see [`Reservation`] for a share of it.
    pub const fn reserved(link_bits_per_s: u64) -> Self {
        Self::Reserved(Reservation::new(link_bits_per_s))
    }

    /// Returns what may be sent, in bytes per second, if that is stated.
    pub fn bytes_per_s(&self) -> Option<f64> {
        match self {
            Self::Adaptive => None,
            Self::Reserved(it) => Some(it.bytes_per_s()),
        }
    }
}
