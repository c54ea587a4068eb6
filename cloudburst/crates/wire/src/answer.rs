//! Answers. None is longer than the capacity that it is given, which is the length
//! of what it answers at most: nobody can use us to multiply what they send.
//!
//! Each begins with the session that it answers: a Stop that was delayed, or
//! recorded, across a restart of the asker is not taken for one about a new
//! message of the same number.

use super::{
    counter::tally,
    field::{BufferTooShort, Reader, Writer, Written},
    header::{Malformed, PacketKind},
    report::{ECHO_BYTES, Echo, Report},
    token::TOKEN_BYTES,
};

/// Ends a message: no more symbols of it, please.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The number of the message.
    pub message: u64,
    /// The outcome: why no more is wanted.
    pub outcome: Outcome,
    /// The datagram that this answers.
    pub echo: Echo,
    /// Symbols that were taken until the message was complete; 65,535: so many or more.
    pub needed: u16,
    /// From the first arrival of the message to its completion, µs.
    pub spread_us: u32,
}

/// Outcome of a message at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// It is complete, and was handed on.
    Delivered = 0,
    /// It is too old to say whether it was delivered.
    Stale = 1,
    /// It is not accepted, and will never be.
    Refused = 2,
    /// It was forgotten, as its sender has given it up.
    Cancelled = 3,
}

/// How much there is of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of the message.
    pub message: u64,
    /// The datagram that this answers.
    pub echo: Echo,
    /// How much has arrived.
    pub state: ProgressState,
}

/// Progress of a message that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgressState {
    /// Nothing has arrived, or it was forgotten.
    Unknown,
    /// Some of it has arrived.
    UnderWay {
        /// Independent symbols that are still needed.
        missing: u32,
    },
}

/// There is no capacity for a message now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The number of the message.
    pub message: u64,
    /// The datagram that this answers.
    pub echo: Echo,
    /// Time after which to try again, in ms from arrival.
    pub retry_after_ms: u16,
    /// The quota that is used up.
    pub reason: BusyReason,
}

/// The quota that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BusyReason {
    /// Memory for messages under way, of this peer or of all.
    Memory = 0,
    /// Messages under way, of this peer or of all.
    Messages = 1,
    /// The quota of peers.
    Peers = 2,
}

/// Counts answers that there is no capacity for a message now (back-pressure), by what was used up.
/// A message may be answered so again and again until there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusyAnswers {
    /// Messages that are incomplete at a time, or that the host takes.
    pub messages: u64,
    /// Memory for messages that are incomplete.
    pub memory: u64,
    /// Peers that are known at a time.
    pub peers: u64,
}

impl BusyAnswers {
    /// Returns the name and count of each reason.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("messages", self.messages),
            ("memory", self.memory),
            ("peers", self.peers),
        ]
        .into_iter()
    }

    /// Returns how many there were, for whatever reason.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// Counts one more answer.
    pub const fn count(&mut self, reason: BusyReason) {
        match reason {
            BusyReason::Messages => tally(&mut self.messages, 1),
            BusyReason::Memory => tally(&mut self.memory, 1),
            BusyReason::Peers => tally(&mut self.peers, 1),
        }
    }
}

/// Answers a [`Ping`](super::Ping) with its nonce (keepalive, path validation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// That of the ping.
    pub nonce: u64,
    /// The datagram that this answers.
    pub echo: Echo,
    /// How long the ping's datagram was when it arrived, bytes.
    pub datagram_bytes: u16,
}

/// Asks for a [`TokenBody`](super::TokenBody), which only who receives at the
/// asker's address can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// To be sent back.
    pub token: [u8; TOKEN_BYTES],
}

/// The asker's session and a number.
const START_BYTES: usize = 8 + 8;

impl Stop {
    /// Bytes without any report.
    pub const MIN_BYTES: usize = START_BYTES + 1 + ECHO_BYTES + 2 + 4;

    /// Writes the body, to session `asker`, and as many of the reports as there
    /// is capacity for: 15 bytes each or more.
    ///
    /// # Errors
    ///
    /// If `out` is shorter than [`Self::MIN_BYTES`].
    pub fn write(
        &self,
        asker: u64,
        reports: impl IntoIterator<Item = Report>,
        out: &mut [u8],
    ) -> Result<Written, BufferTooShort> {
        let mut writer = begin(PacketKind::Stop, out, Self::MIN_BYTES, asker, self.message)?;
        writer.put(&[self.outcome as u8]);
        self.echo.write(&mut writer);
        writer.put(&self.needed.to_be_bytes());
        writer.put(&self.spread_us.to_be_bytes());
        Report::write_all(reports, &mut writer);
        Ok(writer.finish())
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            message: reader.u64()?,
            outcome: match reader.u8()? {
                0 => Outcome::Delivered,
                1 => Outcome::Stale,
                2 => Outcome::Refused,
                3 => Outcome::Cancelled,
                unknown => return Err(reader.bad_code(unknown)),
            },
            echo: Echo::read(reader)?,
            needed: reader.u16()?,
            spread_us: reader.u32()?,
        })
    }
}

impl Progress {
    /// Bytes without any report.
    pub const MIN_BYTES: usize = START_BYTES + ECHO_BYTES + 1 + 4;

    /// Writes the body, to session `asker`, and as many of the reports as there
    /// is capacity for: 15 bytes each or more.
    ///
    /// # Errors
    ///
    /// If `out` is shorter than [`Self::MIN_BYTES`].
    pub fn write(
        &self,
        asker: u64,
        reports: impl IntoIterator<Item = Report>,
        out: &mut [u8],
    ) -> Result<Written, BufferTooShort> {
        let (state, missing) = match self.state {
            ProgressState::Unknown => (0, 0),
            ProgressState::UnderWay { missing } => (1, missing),
        };
        let mut writer = begin(
            PacketKind::Progress,
            out,
            Self::MIN_BYTES,
            asker,
            self.message,
        )?;
        self.echo.write(&mut writer);
        writer.put(&[state]);
        writer.put(&missing.to_be_bytes());
        Report::write_all(reports, &mut writer);
        Ok(writer.finish())
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (message, echo) = (reader.u64()?, Echo::read(reader)?);
        let state = match (reader.u8()?, reader.u32()?) {
            // Nothing is missing of what is unknown: the field is without meaning then.
            (0, _) => ProgressState::Unknown,
            (1, missing) => ProgressState::UnderWay { missing },
            (unknown, _) => return Err(reader.bad_code(unknown)),
        };
        Ok(Self {
            message,
            echo,
            state,
        })
    }
}

impl Busy {
    /// Bytes without any report.
    pub const MIN_BYTES: usize = START_BYTES + ECHO_BYTES + 2 + 1;

    /// Writes the body, to session `asker`, and as many of the reports as there
    /// is capacity for: 15 bytes each or more.
    ///
    /// # Errors
    ///
    /// If `out` is shorter than [`Self::MIN_BYTES`].
    pub fn write(
        &self,
        asker: u64,
        reports: impl IntoIterator<Item = Report>,
        out: &mut [u8],
    ) -> Result<Written, BufferTooShort> {
        let mut writer = begin(PacketKind::Busy, out, Self::MIN_BYTES, asker, self.message)?;
        self.echo.write(&mut writer);
        writer.put(&self.retry_after_ms.to_be_bytes());
        writer.put(&[self.reason as u8]);
        Report::write_all(reports, &mut writer);
        Ok(writer.finish())
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            message: reader.u64()?,
            echo: Echo::read(reader)?,
            retry_after_ms: reader.u16()?,
            reason: match reader.u8()? {
                0 => BusyReason::Memory,
                1 => BusyReason::Messages,
                2 => BusyReason::Peers,
                unknown => return Err(reader.bad_code(unknown)),
            },
        })
    }
}

impl Pong {
    /// Bytes without any report.
    pub const MIN_BYTES: usize = START_BYTES + ECHO_BYTES + 2;

    /// Writes the body, to session `asker`, and as many of the reports as there
    /// is capacity for: 15 bytes each or more.
    ///
    /// # Errors
    ///
    /// If `out` is shorter than [`Self::MIN_BYTES`].
    pub fn write(
        &self,
        asker: u64,
        reports: impl IntoIterator<Item = Report>,
        out: &mut [u8],
    ) -> Result<Written, BufferTooShort> {
        let mut writer = begin(PacketKind::Pong, out, Self::MIN_BYTES, asker, self.nonce)?;
        self.echo.write(&mut writer);
        writer.put(&self.datagram_bytes.to_be_bytes());
        Report::write_all(reports, &mut writer);
        Ok(writer.finish())
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            nonce: reader.u64()?,
            echo: Echo::read(reader)?,
            datagram_bytes: reader.u16()?,
        })
    }
}

impl Challenge {
    /// Bytes of the body.
    pub const BYTES: usize = 8 + TOKEN_BYTES;

    /// Writes the body, to session `asker`.
    ///
    /// # Errors
    ///
    /// If `out` is shorter than [`Self::BYTES`].
    pub fn write(&self, asker: u64, out: &mut [u8]) -> Result<Written, BufferTooShort> {
        let mut writer = Writer::new(PacketKind::Challenge, out, Self::BYTES)?;
        writer.put(&asker.to_be_bytes());
        writer.put(&self.token);
        Ok(writer.finish())
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let token = reader.array()?;
        reader.end()?;
        Ok(Self { token })
    }
}

fn begin(
    kind: PacketKind,
    out: &mut [u8],
    least: usize,
    asker: u64,
    number: u64,
) -> Result<Writer<'_>, BufferTooShort> {
    let mut writer = Writer::new(kind, out, least)?;
    writer.put(&asker.to_be_bytes());
    writer.put(&number.to_be_bytes());
    Ok(writer)
}
