//! The liar: its handshakes and keys with both ends, and what it seals with them.

use cloudburst_proto::{PublicKey, SecretKey, Time};
use cloudburst_wire::{
    self as wire, ACCEPTANCE_BYTES, Body, BufferTooShort, Challenge, Clear, Credentials, Form,
    Gate, HEADER_BYTES, Header, Initiator, Offer, Opener, Pattern, SECRET_BYTES, Sealer, Stamp,
    Symbol, TOKEN_BYTES,
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
    token: Option<[u8; TOKEN_BYTES]>,
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

impl Liar {
    pub(crate) fn new(holding: Holding) -> Self {
        let conversation = |number| Conversation {
            number,
            index: 0,
            initiator: None,
            early: None,
            data: None,
            token: None,
            theirs: 0,
            messages: Vec::new(),
            sequence: 0,
        };
        Self {
            holding,
            offers: 0,
            conversations: [conversation(1_001), conversation(1_002)],
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
        conversation.index = u64::from_be_bytes(*early_secret.first_chunk()?);
        if choice & 1 != 0 {
            conversation.number = input.number()?;
        }
        let (pattern, key_id) = self.holding.pattern();
        let clear = Clear {
            pattern,
            key_id,
            index: conversation.index,
            token: conversation.token.take().unwrap_or([0; TOKEN_BYTES]),
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
                    conversation.token = Some(token);
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
            }
            Form::Data => {
                let Some((_, opener)) = &conversation.data else {
                    return;
                };
                if let Ok(body) = opener.open(&header, datagram)
                    && let Ok(Body::Symbol(Symbol { message, .. })) =
                        Body::parse(header.kind, body, 0)
                    && conversation.messages.len() < 16
                {
                    conversation.messages.push(message);
                }
            }
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
