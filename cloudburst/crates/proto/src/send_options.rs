//! Options of a message that is sent.

/// Says how a message is to be treated, besides to whom it goes.
///
/// ```
/// # use cloudburst_proto::SendOptions;
/// let options = SendOptions::new().idempotent(true);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendOptions {
    /// Says that to take it twice does no harm. If the receiver is restarted while the message is under
    /// way, it is sent again, though the receiver may have handed it over before; one that is not
    /// idempotent ends as [`Reason::Unknown`](super::Reason::Unknown) then. Default false.
    pub idempotent: bool,
}

impl SendOptions {
    /// Returns options that are all at their defaults.
    pub const fn new() -> Self {
        Self { idempotent: false }
    }

    /// Sets if the message may be taken twice; see [`Self::idempotent`].
    #[must_use]
    pub const fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = idempotent;
        self
    }
}
