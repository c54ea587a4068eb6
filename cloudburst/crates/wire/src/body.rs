//! What a datagram is about: reading any body, and writing those that are no
//! answers.

use super::{
    answer::{Busy, Challenge, Pong, Progress, Stop},
    field::{BufferTooShort, Reader, Writer, Written},
    header::{Malformed, PacketKind},
    report::Reports,
    size::{MIN_QUESTION_BYTES, MIN_SYMBOL_BYTES, SYMBOL_OVERHEAD},
    token::TOKEN_BYTES,
};

/// A body that is well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'d> {
    /// Part of a message.
    Symbol(Symbol<'d>),
    /// No more of a message, please.
    Stop(Stop, Reports<'d>),
    /// A query what has arrived of a message.
    Query(Query),
    /// The answer to a query: the progress of a message.
    Progress(Progress, Reports<'d>),
    /// There is no capacity for a message now.
    Busy(Busy, Reports<'d>),
    /// A ping, which asks for an answer.
    Ping(Ping),
    /// The answer to a ping.
    Pong(Pong, Reports<'d>),
    /// Show that you receive at your address.
    Challenge(Challenge),
    /// The token that a challenge brought.
    Token(TokenBody),
    /// A message was given up.
    Cancel(Cancel),
    /// The sender ends.
    Goodbye(Goodbye),
}

/// Part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'d> {
    /// The message's number, counted by its sender in its session.
    pub message: u64,
    /// The code's header and the symbol, as
    /// [`Decoder::receive`](cloudburst_code::Decoder::receive) takes them.
    pub code: &'d [u8],
}

/// Asks what has arrived of a message. The answer is [`Progress`] or [`Stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The number of the message.
    pub message: u64,
}

/// Asks to forget a message that its sender has given up, and to end what works on it. The answer is
/// [`Stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The number of the message.
    pub message: u64,
}

/// Says that its sender ends: nothing more comes from it, and nothing that is sent to it arrives. It is
/// not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goodbye;

/// Asks for a [`Pong`]: whether a path works, and for datagrams of which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// A number that comes back in the answer.
    pub nonce: u64,
}

/// Brings back the token of a [`Challenge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBody {
    /// The token as it was given.
    pub token: [u8; TOKEN_BYTES],
    /// The lowest number of a message that is still under way: a receiver that
    /// has just started must take nothing older, for it may be replayed.
    pub oldest: u64,
}

impl<'d> Body<'d> {
    /// Returns what an answer says of the paths: of the datagram that it answers, and of others.
    pub const fn acknowledgement(&self) -> Option<(&super::Echo, Reports<'d>)> {
        match self {
            Self::Stop(Stop { echo, .. }, reports)
            | Self::Progress(Progress { echo, .. }, reports)
            | Self::Busy(Busy { echo, .. }, reports)
            | Self::Pong(Pong { echo, .. }, reports) => Some((echo, *reports)),
            _ => None,
        }
    }

    /// Reads an opened body of this kind. `own` is the session of the reader:
    /// answers must be to it.
    ///
    /// # Errors
    ///
    /// See [`Malformed`].
    pub fn parse(kind: PacketKind, body: &'d [u8], own: u64) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(kind, body);
        if kind.is_answer() {
            let asker = reader.u64()?;
            if asker != own {
                return Err(Malformed::OtherSession(asker));
            }
        }
        Ok(match kind {
            PacketKind::Symbol => Self::Symbol(Symbol::read(reader)?),
            PacketKind::Stop => Self::Stop(Stop::read(reader)?, reader.reports()?),
            PacketKind::Query => Self::Query(Query::read(reader)?),
            PacketKind::Progress => Self::Progress(Progress::read(reader)?, reader.reports()?),
            PacketKind::Busy => Self::Busy(Busy::read(reader)?, reader.reports()?),
            PacketKind::Ping => Self::Ping(Ping::read(reader)?),
            PacketKind::Pong => Self::Pong(Pong::read(reader)?, reader.reports()?),
            PacketKind::Challenge => Self::Challenge(Challenge::read(reader)?),
            PacketKind::Token => Self::Token(TokenBody::read(reader)?),
            PacketKind::Cancel => Self::Cancel(Cancel::read(reader)?),
            PacketKind::Goodbye => Self::Goodbye(Goodbye::read(reader)?),
        })
    }
}

impl<'d> Symbol<'d> {
    /// Writes the body around what `code` writes: header and symbol of the
    /// [`Encoder`](cloudburst_code::Encoder), to all of the `code_bytes` that it is
    /// given. This way nothing is copied. Symbols below
    /// [`MIN_SYMBOL_BYTES`] are refused where they arrive.
    ///
    /// # Errors
    ///
    /// If there is no capacity, or what `code` returns.
    pub fn write_with<E: From<BufferTooShort>>(
        message: u64,
        out: &mut [u8],
        code_bytes: usize,
        code: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Written, E> {
        let mut writer = Writer::new(PacketKind::Symbol, out, code_bytes.saturating_add(8))?;
        writer.put(&message.to_be_bytes());
        code(writer.take(code_bytes))?;
        Ok(writer.finish())
    }

    /// Writes the body of the datagram.
    ///
    /// # Errors
    ///
    /// If there is no capacity.
    pub fn write(&self, out: &mut [u8]) -> Result<Written, BufferTooShort> {
        Self::write_with(self.message, out, self.code.len(), |available| {
            available.copy_from_slice(self.code);
            Ok(())
        })
    }

    fn read(reader: &mut Reader<'d>) -> Result<Self, Malformed> {
        reader.at_least(SYMBOL_OVERHEAD + MIN_SYMBOL_BYTES)?;
        let (message, code) = (reader.u64()?, reader.rest());
        Ok(Self { message, code })
    }
}

impl Query {
    /// Writes the body and zeros to the end of `out`: the answer will not be
    /// longer than what it answers.
    ///
    /// # Errors
    ///
    /// If `out` is shorter than [`MIN_QUESTION_BYTES`].
    pub fn write(&self, out: &mut [u8]) -> Result<Written, BufferTooShort> {
        write_padded(PacketKind::Query, self.message, out)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.at_least(MIN_QUESTION_BYTES)?;
        let message = reader.u64()?;
        Ok(Self { message })
    }
}

impl Cancel {
    /// Writes the body and zeros to the end of `out`: the answer will not be
    /// longer than what it answers.
    ///
    /// # Errors
    ///
    /// If `out` is shorter than [`MIN_QUESTION_BYTES`].
    pub fn write(&self, out: &mut [u8]) -> Result<Written, BufferTooShort> {
        write_padded(PacketKind::Cancel, self.message, out)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.at_least(MIN_QUESTION_BYTES)?;
        let message = reader.u64()?;
        Ok(Self { message })
    }
}

impl Goodbye {
    /// Writes the body, which has no bytes.
    ///
    /// # Errors
    ///
    /// Never: it is as for others.
    pub fn write(&self, out: &mut [u8]) -> Result<Written, BufferTooShort> {
        Ok(Writer::new(PacketKind::Goodbye, out, 0)?.finish())
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.end()?;
        Ok(Self)
    }
}

impl Ping {
    /// Writes the body and zeros to the end of `out`, whose length is what is
    /// tried out.
    ///
    /// # Errors
    ///
    /// If `out` is shorter than [`MIN_QUESTION_BYTES`].
    pub fn write(&self, out: &mut [u8]) -> Result<Written, BufferTooShort> {
        write_padded(PacketKind::Ping, self.nonce, out)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.at_least(MIN_QUESTION_BYTES)?;
        let nonce = reader.u64()?;
        Ok(Self { nonce })
    }
}

fn write_padded(kind: PacketKind, number: u64, out: &mut [u8]) -> Result<Written, BufferTooShort> {
    let mut writer = Writer::new(kind, out, MIN_QUESTION_BYTES)?;
    writer.put(&number.to_be_bytes());
    writer.fill();
    Ok(writer.finish())
}

impl TokenBody {
    /// Writes the body: [`MIN_QUESTION_BYTES`].
    ///
    /// # Errors
    ///
    /// If there is no capacity.
    pub fn write(&self, out: &mut [u8]) -> Result<Written, BufferTooShort> {
        let mut writer = Writer::new(PacketKind::Token, out, MIN_QUESTION_BYTES)?;
        writer.put(&self.token);
        writer.put(&self.oldest.to_be_bytes());
        Ok(writer.finish())
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let body = Self {
            token: reader.array()?,
            oldest: reader.u64()?,
        };
        reader.end()?;
        Ok(body)
    }
}
