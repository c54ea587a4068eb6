//! Makes a liar's bodies, of any kind and form, out of an input.

use cloudburst_code::{Encoder, Schedule, Shape};
use cloudburst_wire::{
    Busy, BusyReason, Cancel, Challenge, Echo, EcnCounts, Goodbye, Outcome, Ping, Pong, Progress,
    ProgressState, Query, Report, Stop, Symbol, TOKEN_BYTES, TokenBody, Written,
};

/// The bytes of a fuzzer's input that have not been taken yet.
pub(crate) struct Input<'i>(pub(crate) &'i [u8]);

impl Input<'_> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn word(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// Numbers at which something may happen, and any others.
    pub(super) fn number(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            0 => 0,
            1 => 1,
            2 => u64::from(u16::MAX),
            3 => u64::from(u32::MAX),
            4 => u64::MAX,
            5 => u64::MAX >> 1,
            6 => 1 << 31,
            small @ 7..=128 => u64::from(small),
            _ => u64::from(self.word()?) << (self.byte()? % 64),
        })
    }
}

/// Writes a body of any kind, and changes some of its bytes.
pub(super) fn body_of(
    input: &mut Input<'_>,
    (asker, message): (u64, u64),
    out: &mut [u8],
) -> Option<Written> {
    let kind = input.byte()?;
    let asker = if kind & 128 == 0 {
        asker
    } else {
        input.number()?
    };
    let echo = Echo {
        path: input.word()?,
        sent_us: input.number()? as u32,
        hold_us: input.number()? as u32,
    };
    let mut reports = Vec::new();
    if kind & 64 != 0 {
        reports.push(Report {
            path: input.word()?,
            received: input.number()? as u32,
            highest: input.number()? as u32,
            delay_us: input.number()? as _,
            ecn: Some(EcnCounts {
                capable: input.number()? as u32,
                marked: input.number()? as u32,
            }),
        });
    }
    let reports = reports.into_iter();
    let written = match kind & 15 {
        0 | 1 => symbol(input, message, out),
        2 => Stop {
            message,
            outcome: [Outcome::Delivered, Outcome::Stale, Outcome::Refused]
                [usize::from(input.byte()? % 3)],
            echo,
            needed: input.word()?,
            spread_us: input.number()? as u32,
        }
        .write(asker, reports, out)
        .ok(),
        3 => Query { message }.write(out).ok(),
        4 | 5 => Progress {
            message,
            echo,
            state: match input.byte()? {
                0 => ProgressState::Unknown,
                _ => ProgressState::UnderWay {
                    missing: input.number()? as u32,
                },
            },
        }
        .write(asker, reports, out)
        .ok(),
        6 => Busy {
            message,
            echo,
            retry_after_ms: input.word()?,
            reason: [BusyReason::Memory, BusyReason::Messages, BusyReason::Peers]
                [usize::from(input.byte()? % 3)],
        }
        .write(asker, reports, out)
        .ok(),
        7 | 8 => Ping {
            nonce: input.number()?,
        }
        .write(out)
        .ok(),
        9 | 10 => Pong {
            nonce: input.number()?,
            echo,
            datagram_bytes: input.word()?,
        }
        .write(asker, reports, out)
        .ok(),
        11 => Challenge {
            token: [input.byte()?; TOKEN_BYTES],
        }
        .write(asker, out)
        .ok(),
        12 => Cancel { message }.write(out).ok(),
        13 => Goodbye.write(out).ok(),
        _ => TokenBody {
            token: [input.byte()?; TOKEN_BYTES],
            oldest: input.number()?,
        }
        .write(out)
        .ok(),
    };
    for _ in 0..input.byte()? % 4 {
        let (at, flip) = (usize::from(input.word()?) % 64, input.byte()?);
        if let Some(byte) = out.get_mut(at) {
            *byte ^= flip;
        }
    }
    written
}

/// A symbol of a message of any length, with a header that may declare anything.
fn symbol(input: &mut Input<'_>, message: u64, out: &mut [u8]) -> Option<Written> {
    let bytes = 1 + usize::from(input.word()?) % 20_000;
    let content = vec![input.byte()?; bytes];
    let shape = Shape::fitting(bytes, 900).ok()?;
    let (generation, seed) = (input.byte()?, input.word()?);
    let encoder = Encoder::new(&content, shape, Schedule::Mds, generation, seed).ok()?;
    let mut code = vec![0; encoder.datagram_bytes()];
    let sequence = input.number()? as u32 % (1 << 20);
    encoder.write(sequence..sequence + 1, &mut code).ok()?;
    for _ in 0..input.byte()? % 4 {
        let at = usize::from(input.byte()?) % code.len();
        code[at] ^= input.byte()?;
    }
    let code = &code;
    Symbol { message, code }.write(out).ok()
}
