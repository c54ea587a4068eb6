//! What must hold for any bytes whatever; the fuzz target and the replay of its
//! corpus run this.

use cloudburst_code::wire::{Code, HEADER_BYTES, Header, Row};
use cloudburst_code::{Block, Decoder, Encoder, Memory, Received, Refused, Schedule, Shape, Simd};

use super::{SCHEDULES, message, model::Model};

/// Datagrams that one input may have delivered, so that none takes long.
const MOST_DELIVERIES: usize = 1_000;
const MOST_MESSAGE_BYTES: usize = 1 << 14;
const MOST_SYMBOL_BYTES: usize = 1 << 8;

/// Lets a decoder have what an input says: options, then
/// operations: see [`Options`] and [`Operation`].
pub(crate) fn decoder(input: &[u8]) {
    let mut input = Input(input);
    let Some(options) = Options::read(&mut input) else {
        return;
    };
    let message = message(options.shape.message_bytes());
    let Ok(encoder) = Encoder::new(
        &message,
        options.shape,
        options.schedule,
        options.id,
        options.seed,
    ) else {
        // The paper's schedule has one block.
        assert!(options.shape.blocks() > 1);
        return;
    };
    let mut subject = Subject::new(&options, &message, encoder);
    while let Some(operation) = Operation::read(&mut input) {
        if subject.deliveries == MOST_DELIVERIES {
            return;
        }
        subject.run(operation);
    }
}

/// What is sent, and to which decoder.
struct Options {
    schedule: Schedule,
    shape: Shape,
    simd: Simd,
    memory: Memory,
    id: u8,
    seed: u16,
}

impl Options {
    /// A byte of choices (bits 0 and 1 the schedule, 2 and 3 the kernel, 4 more
    /// memory than needed), two each of the message's length and the seed, one
    /// each of the symbols' length and the id.
    fn read(input: &mut Input<'_>) -> Option<Self> {
        let choices = input.byte()?;
        let message_bytes = 1 + usize::from(input.word()?) % MOST_MESSAGE_BYTES;
        let seed = input.word()?;
        let symbol_bytes = 1 + usize::from(input.byte()?) % MOST_SYMBOL_BYTES;
        let id = input.byte()?;
        let simd = Simd::ALL[usize::from(choices >> 2 & 3)];
        let shape = Shape::new(message_bytes, symbol_bytes).expect("it has up to 256 full blocks");
        let mut memory = Memory::of(&shape);
        if choices & 16 != 0 {
            memory.bytes += 1_000;
            memory.blocks += 2;
        }
        Some(Self {
            schedule: SCHEDULES[usize::from(choices & 3)],
            shape,
            simd: if simd.is_available() {
                simd
            } else {
                Simd::detect()
            },
            memory,
            id,
            seed,
        })
    }
}

/// One step; the byte that it begins with modulo 8 says which.
enum Operation<'i> {
    /// 0 and 1: so many datagrams from where the last such step ended.
    Next { count: u8 },
    /// 2: lose so many.
    Skip { count: u8 },
    /// 3: one out of order, or once more.
    One { sequence: u16 },
    /// 4: one whose header has bits flipped.
    Spoiled { sequence: u16, at: u8, flip: u8 },
    /// 5: one whose symbol has another length.
    Resized { sequence: u16, bytes: u8 },
    /// 6: any bytes.
    Bytes(&'i [u8]),
    /// 7: forget the message.
    Reset,
}

impl<'i> Operation<'i> {
    fn read(input: &mut Input<'i>) -> Option<Self> {
        Some(match input.byte()? % 8 {
            0 | 1 => Self::Next {
                count: input.byte()?,
            },
            2 => Self::Skip {
                count: input.byte()?,
            },
            3 => Self::One {
                sequence: input.word()?,
            },
            4 => Self::Spoiled {
                sequence: input.word()?,
                at: input.byte()? % HEADER_BYTES as u8,
                flip: input.byte()?,
            },
            5 => Self::Resized {
                sequence: input.word()?,
                bytes: input.byte()?,
            },
            6 => {
                let count = input.byte()?;
                Self::Bytes(input.bytes(count.into())?)
            }
            _ => Self::Reset,
        })
    }
}

/// A decoder, and what is known of it from outside.
struct Subject<'m> {
    message: &'m [u8],
    encoder: Encoder<'m>,
    memory: Memory,
    decoder: Decoder<Vec<u8>, Vec<Block>>,
    /// Gets what the other took and nothing that it refused.
    shadow: Decoder<Vec<u8>, Vec<Block>>,
    underway: Option<Underway>,
    next: u32,
    deliveries: usize,
}

/// The message that the first datagram began.
struct Underway {
    model: Model,
    first: Header,
    /// Whether all that was taken is what the encoder wrote.
    is_own: bool,
}

impl Underway {
    fn new(first: Header, model: Model) -> Self {
        Self {
            model,
            first,
            is_own: true,
        }
    }
}

/// What a row is of: a set of bits, or a code with names.
fn code(row: Row) -> Option<Code> {
    match row {
        Row::Bits(_) => None,
        Row::Named { code, .. } => Some(code),
    }
}

impl<'m> Subject<'m> {
    fn new(options: &Options, message: &'m [u8], encoder: Encoder<'m>) -> Self {
        // Memory need not be cleared.
        let memory = |filler| {
            let blocks = vec![Block::default(); options.memory.blocks];
            Decoder::new(vec![filler; options.memory.bytes], blocks)
        };
        let available = "it was asked for";
        Self {
            message,
            memory: options.memory,
            encoder: encoder.with_simd(options.simd).expect(available),
            decoder: memory(0xee).with_simd(options.simd).expect(available),
            shadow: memory(0x11).with_simd(Simd::Portable).expect(available),
            underway: None,
            next: 0,
            deliveries: 0,
        }
    }

    fn run(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Next { count } => {
                for _ in 0..count {
                    let datagram = self.datagram(self.next);
                    self.next = self.next.wrapping_add(1);
                    self.deliver(&datagram, true);
                }
            }
            Operation::Skip { count } => self.next = self.next.wrapping_add(count.into()),
            Operation::One { sequence } => self.deliver(&self.datagram(sequence.into()), true),
            Operation::Spoiled { sequence, at, flip } => {
                let mut datagram = self.datagram(sequence.into());
                datagram[usize::from(at)] ^= flip;
                self.deliver(&datagram, flip == 0);
            }
            Operation::Resized { sequence, bytes } => {
                let mut datagram = self.datagram(sequence.into());
                let honest_bytes = datagram.len();
                datagram.resize(HEADER_BYTES + usize::from(bytes), 0);
                self.deliver(&datagram, datagram.len() == honest_bytes);
            }
            Operation::Bytes(bytes) => self.deliver(bytes, false),
            Operation::Reset => {
                self.decoder.reset();
                self.shadow.reset();
                self.underway = None;
                self.check_message();
            }
        }
    }

    fn datagram(&self, sequence: u32) -> Vec<u8> {
        let mut datagram = vec![0; self.encoder.datagram_bytes()];
        let written = self.encoder.write(sequence..sequence + 1, &mut datagram);
        assert_eq!(written, Ok(datagram.len()));
        datagram
    }

    /// `is_own`: it is what the encoder wrote.
    fn deliver(&mut self, datagram: &[u8], is_own: bool) {
        if self.deliveries == MOST_DELIVERIES {
            return;
        }
        self.deliveries += 1;
        // A box ends where its bytes end, so that a sanitizer sees a read
        // beyond them.
        let copy: Box<[u8]> = datagram.into();
        let before = self.decoder.shape().copied();
        let received = self.decoder.receive(&copy);
        if let Some((header, began)) = self.admitted(datagram) {
            if began.is_some() {
                self.underway = began;
            }
            let underway = self.underway.as_mut().expect("it began now or before");
            let expected = match (underway.model.take(&header), underway.model.is_complete()) {
                (false, _) => Err(Refused::Redundant),
                (true, false) => Ok(Received::More),
                (true, true) => Ok(Received::Complete),
            };
            assert_eq!(received, expected);
            underway.is_own &= is_own || received.is_err();
        } else {
            assert!(!matches!(received, Ok(_) | Err(Refused::Redundant)));
            // To a message of the encoder's own, so is its datagram.
            let is_own_underway = self.underway.as_ref().is_none_or(|it| it.is_own);
            assert!(!(is_own && is_own_underway), "{received:?}");
        }
        if received.is_ok() {
            assert_eq!(self.shadow.receive(datagram), received);
        } else {
            assert_eq!(self.decoder.shape().copied(), before);
        }
        self.check_message();
    }

    /// The header of a datagram that the decoder has to understand, and the
    /// message that it begins if there is none.
    fn admitted(&self, datagram: &[u8]) -> Option<(Header, Option<Underway>)> {
        let (header, symbol) = Header::parse(datagram).ok()?;
        if let Some(Underway { model, first, .. }) = &self.underway {
            let is_alike = header.id == first.id && code(header.row) == code(first.row);
            let is_admitted = is_alike && model.admits(&header, symbol.len());
            return is_admitted.then_some((header, None));
        }
        let shape = Shape::new(header.message_bytes as usize, symbol.len()).ok()?;
        let (needed, given) = (Memory::of(&shape), self.memory);
        let fits = needed.bytes <= given.bytes && needed.blocks <= given.blocks;
        let model = Model::new(&shape);
        (fits && model.admits(&header, symbol.len()))
            .then(|| (header, Some(Underway::new(header, model))))
    }

    /// There is a message from when it is complete until the next begins.
    fn check_message(&self) {
        let found = self.decoder.message();
        assert_eq!(found, self.shadow.message());
        let complete = self.underway.as_ref().filter(|it| it.model.is_complete());
        assert_eq!(found.is_some(), complete.is_some());
        if complete.is_some_and(|it| it.is_own) {
            assert_eq!(found, Some(self.message));
        }
    }
}

/// What is left of the input, read from its beginning.
struct Input<'i>(&'i [u8]);

impl<'i> Input<'i> {
    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn word(&mut self) -> Option<u16> {
        let bytes = self.bytes(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn bytes(&mut self, count: usize) -> Option<&'i [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }
}
