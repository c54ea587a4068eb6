//! The liar: its handshakes and keys with both ends, and what it seals with them.

use cloudburst_proto::{PublicKey, SecretKey, Time};
use cloudburst_wire::{
    self as wire, ACCEPTANCE_BYTES, Body, BufferTooShort, Challenge, Clear, Credentials, Form,
    Gate, HEADER_BYTES, Header, Initiator, Offer, Opener, Outcome, Pattern, SECRET_BYTES, Sealer,
    Stamp, Stop, Symbol, TOKEN_BYTES, TokenBody, Written,
};

use super::{
    CALENDAR,
    bodies::{Input, body_of},
};

/// The keys that the liar speaks to both ends with: the secret that all share, by its number, or a
/// key pair of its own and their public keys.
pub(crate) enum Holding {
    Secret {
        id: u8,
        secret: [u8; SECRET_BYTES],
    },
    KeyPair {
        own: SecretKey,
        holders: [PublicKey; 2],
    },
}

impl Holding {
    fn pattern(&self) -> (Pattern, u8) {
        match self {
            Self::Secret { id, .. } => (Pattern::SharedKey, *id),
            Self::KeyPair { .. } => (Pattern::KeyPair, 0),
        }
    }
}

/// Keys of the liar with an end.
struct Conversation {
    number: u64,
    index: u64,
    initiator: Option<Initiator>,
    early: Option<Sealer>,
    data: Option<(Sealer, Opener)>,
    /// For an offer of this index.
    token: Option<(u64, [u8; TOKEN_BYTES])>,
    /// It is to show that it receives where it sends from.
    challenge: Option<[u8; TOKEN_BYTES]>,
    /// What has become of messages of its own, as the end says.
    stops: Vec<(u64, Outcome)>,
    /// The end's number of the conversation, which its answers have to name.
    theirs: u64,
    /// Numbers of messages that the end has sent.
    messages: Vec<u64>,
    sequence: u64,
}

pub(crate) struct Liar {
    holding: Holding,
    pub(crate) offers: u32,
    conversations: [Conversation; 2],
    drawn: u64,
    pub(crate) datagrams: u64,
}

impl Conversation {
    fn new(number: u64) -> Self {
        Self {
            number,
            index: 0,
            initiator: None,
            early: None,
            data: None,
            token: None,
            challenge: None,
            stops: Vec::new(),
            theirs: 0,
            messages: Vec::new(),
            sequence: 0,
        }
    }

    /// Takes what an end says under their keys.
    fn hear(&mut self, header: &Header, prefix_bytes: usize, datagram: &mut [u8]) {
        let Some((_, opener)) = &self.data else {
            return;
        };
        let Ok(body) = opener.open_behind(prefix_bytes, header, datagram) else {
            return;
        };
        match Body::parse(header.kind, body, self.number) {
            Ok(Body::Symbol(Symbol { message, .. })) if self.messages.len() < 16 => {
                self.messages.push(message);
            }
            Ok(Body::Stop(
                Stop {
                    message, outcome, ..
                },
                _,
            )) => self.stops.push((message, outcome)),
            Ok(Body::Challenge(Challenge { token })) => self.challenge = Some(token),
            _ => {}
        }
    }
}

impl Liar {
    pub(crate) fn new(holding: Holding) -> Self {
        Self {
            holding,
            offers: 0,
            conversations: [1_001, 1_002].map(Conversation::new),
            drawn: 0,
            datagrams: 0,
        }
    }

    /// Whether an end has accepted an offer of it.
    pub(crate) fn has_keys(&self, end: usize) -> bool {
        self.conversations[end].data.is_some()
    }

    fn draw(&mut self) -> [u8; 32] {
        self.drawn += 1;
        *blake3_like(self.drawn)
    }

    /// Makes an offer, as any initiator, or with fields that are none.
    pub(crate) fn offer(&mut self, now: Time, end: usize, input: &mut Input<'_>) -> Option<()> {
        self.offers += 1;
        let (choice, ephemeral, early_secret) = (input.byte()?, self.draw(), self.draw());
        let conversation = &mut self.conversations[end];
        let token = conversation.token.take();
        conversation.index = match token {
            Some((index, _)) => index,
            None => u64::from_be_bytes(*early_secret.first_chunk()?),
        };
        if choice & 1 != 0 {
            conversation.number = input.number()?;
        }
        let (pattern, key_id) = self.holding.pattern();
        let clear = Clear {
            pattern,
            key_id,
            index: conversation.index,
            token: token.map_or([0; TOKEN_BYTES], |(_, token)| token),
        };
        let calendar = CALENDAR + now.since(Time::ZERO);
        let offer = Offer {
            early_secret,
            unix_us: match choice & 2 {
                0 => calendar.as_micros() as u64,
                _ => input.number()?,
            },
            conversation: conversation.number,
            oldest_us: if choice & 4 != 0 { input.number()? } else { 0 },
        };
        let mut message = vec![0; pattern.offer_bytes()];
        let (credentials, gate) = match &self.holding {
            Holding::Secret { secret, .. } => {
                (Credentials::SharedKey(secret), Gate::of_secret(secret))
            }
            Holding::KeyPair { own, holders } => {
                let peer = Some(&holders[end]);
                let gate = Gate::of_public(&holders[end]);
                (Credentials::KeyPair { own, peer }, gate)
            }
        };
        let made = Initiator::offer(credentials, &clear, &offer, ephemeral, &mut message);
        conversation.initiator = Some(made.expect("all lengths are right"));
        let hello = wire::write_hello(&clear, &gate, &message);
        let sealer = Sealer::sealed(conversation.index, &offer.early_key());
        conversation.early = Some(sealer.with_prefix(Form::Offer, hello));
        Some(())
    }

    /// Begins another conversation with an end, which has forgotten the one before.
    pub(crate) fn begin_again(&mut self, end: usize) {
        let conversation = &mut self.conversations[end];
        let number = conversation.number + 1_000;
        *conversation = Conversation::new(number);
    }

    /// A datagram as it has to be, by any path, sealed with the newest keys that there are.
    pub(crate) fn say(
        &mut self,
        end: usize,
        path: u16,
        write: impl FnOnce(&mut [u8]) -> Result<Written, BufferTooShort>,
    ) -> Option<Vec<u8>> {
        let conversation = &mut self.conversations[end];
        let data = conversation.data.as_ref().map(|(sealer, _)| sealer);
        let sealer = data.or(conversation.early.as_ref())?;
        conversation.sequence += 1;
        let stamp = Stamp {
            path,
            sent_us: 0,
            sequence: conversation.sequence,
        };
        let mut out = vec![0; 1_452];
        let bytes = sealer.write(stamp, &mut out, write).ok()?;
        out.truncate(bytes);
        self.datagrams += 1;
        Some(out)
    }

    /// Shows that it receives where it sends from, if it was asked to.
    pub(crate) fn show(&mut self, end: usize) -> Option<Vec<u8>> {
        let token = self.conversations[end].challenge.take()?;
        self.say(end, 1, |body| TokenBody { token, oldest: 0 }.write(body))
    }

    /// What has become of messages of its own since this was asked last.
    pub(crate) fn stops(&mut self, end: usize) -> Vec<(u64, Outcome)> {
        core::mem::take(&mut self.conversations[end].stops)
    }

    /// A datagram of any kind, with fields as they have to be or not, sealed.
    pub(crate) fn datagram(&mut self, end: usize, input: &mut Input<'_>) -> Option<Vec<u8>> {
        let choice = input.byte()?;
        let conversation = &mut self.conversations[end];
        let data = conversation.data.as_ref().map(|(sealer, _)| sealer);
        let sealer = match choice & 1 {
            0 => data.or(conversation.early.as_ref())?,
            _ => conversation.early.as_ref()?,
        };
        conversation.sequence += 1;
        let sequence = match choice & 2 {
            0 => conversation.sequence,
            _ => input.number()?,
        };
        let stamp = Stamp {
            path: if choice & 4 != 0 { input.word()? } else { 1 },
            sent_us: input.number()? as u32,
            sequence,
        };
        let messages = &conversation.messages;
        let message = match messages.get(usize::from(choice >> 4) % messages.len().max(1)) {
            Some(known) if choice & 8 == 0 => *known,
            _ => input.number()?,
        };
        let mut out = vec![0; 1_452];
        let theirs = conversation.theirs;
        let bytes = sealer.write(stamp, &mut out, |body| {
            body_of(input, (theirs, message), body).ok_or(BufferTooShort {
                needed: 0,
                available: 0,
            })
        });
        out.truncate(bytes.ok()?);
        self.datagrams += 1;
        Some(out)
    }

    /// Takes what an end sends.
    pub(crate) fn take(&mut self, end: usize, datagram: &mut [u8]) {
        let Ok(header) = Header::parse(datagram) else {
            return;
        };
        let conversation = &mut self.conversations[end];
        match header.form {
            Form::Retry => {
                let body = Opener::plain().open(&header, datagram);
                let body = body
                    .ok()
                    .map(|body| Body::parse(header.kind, body, header.session));
                if let Some(Ok(Body::Challenge(Challenge { token }))) = body {
                    conversation.token = Some((header.session, token));
                }
            }
            Form::Acceptance => {
                let Some(message) = datagram
                    .get(HEADER_BYTES..)
                    .and_then(|rest| rest.first_chunk::<ACCEPTANCE_BYTES>())
                else {
                    return;
                };
                if let Some(Ok((acceptance, keys))) = conversation
                    .initiator
                    .as_mut()
                    .map(|initiator| initiator.accepted(message))
                {
                    conversation.initiator = None;
                    conversation.theirs = acceptance.conversation;
                    let sealer = Sealer::sealed(acceptance.index, &keys.to_responder);
                    conversation.data = Some((sealer, Opener::sealed(&keys.to_initiator)));
                }
                conversation.hear(&header, ACCEPTANCE_BYTES, datagram);
            }
            Form::Data => conversation.hear(&header, 0, datagram),
            _ => {}
        }
    }
}

/// Bytes that differ for each number.
fn blake3_like(number: u64) -> Box<[u8; 32]> {
    let mut bytes = Box::new([0; 32]);
    let mut state = number;
    for word in bytes.chunks_mut(8) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&state.to_be_bytes());
    }
    bytes
}
