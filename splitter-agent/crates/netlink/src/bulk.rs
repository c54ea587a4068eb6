//! Many changes at once: the kernel takes a row of requests in one system call and answers each of
//! them before the call returns.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{Netlink, NetlinkError, explanation, refused};

/// Requests in one system call. Their answers wait in the socket's buffer together, and an answer takes
/// up to a kilobyte of the 200 that it has by default.
const AT_A_TIME: usize = 64;

/// A change that the kernel is asked for.
#[derive(Debug, Clone)]
pub struct Change {
    /// What is asked.
    pub message: RouteNetlinkMessage,
    /// How, such as `NLM_F_CREATE`.
    pub flags: u16,
}

/// A socket for nothing but changes, so that no other answer comes between theirs.
#[derive(Debug)]
pub(crate) struct Bulk {
    socket: Mutex<Exchange>,
    port: u32,
}

#[derive(Debug)]
struct Exchange {
    socket: Socket,
    /// The number of the last request.
    sequence: u32,
}

impl Netlink {
    /// Asks for changes in order, and returns for each whether the kernel has made it; one that is
    /// refused does not keep it from those after it. `describe` says of the change at a place in the
    /// list what was asked, continuing "cannot".
    pub async fn change_all(
        &self,
        changes: Vec<Change>,
        describe: impl Fn(usize) -> String,
    ) -> Vec<Result<(), NetlinkError>> {
        let mut results = Vec::with_capacity(changes.len());
        let mut changes = changes.into_iter();
        loop {
            let several: Vec<_> = changes.by_ref().take(AT_A_TIME).collect();
            if several.is_empty() {
                return results;
            }
            let begin = results.len();
            let (bulk, count) = (Arc::clone(&self.bulk), several.len());
            let answers = self.speaker.run(move || bulk.exchange(several)).await;
            let lost = || (0..count).map(|_| Err(Failure::Unanswered)).collect();
            let answers = answers.unwrap_or_else(lost);
            let named = answers.into_iter().enumerate().map(|(index, answer)| {
                answer.map_err(|failure| failure.named(describe(begin + index)))
            });
            results.extend(named);
        }
    }

    /// Returns the numbers by which the kernel names the sender of what was changed through this
    /// conversation, in notifications.
    #[must_use]
    pub fn ports(&self) -> [u32; 2] {
        [self.port, self.bulk.port]
    }
}

/// Why a change was not made, or is not known to be.
#[derive(Debug)]
enum Failure {
    Refused {
        code: i32,
        explanation: Option<String>,
    },
    /// It may have been made.
    Unanswered,
    NotSent(io::Error),
}

impl Failure {
    fn named(self, request: String) -> NetlinkError {
        match self {
            Self::Refused { code, explanation } => refused(&request, code, explanation),
            Self::Unanswered => NetlinkError::Unanswered { request },
            Self::NotSent(source) => NetlinkError::Refused {
                request,
                source,
                explanation: None,
            },
        }
    }
}

impl Bulk {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        let socket = Mutex::new(Exchange {
            socket,
            sequence: 0,
        });
        Ok(Self { socket, port })
    }

    fn exchange(&self, changes: Vec<Change>) -> Vec<Result<(), Failure>> {
        // A panic elsewhere leaves answers behind, which their numbers tell from new ones.
        let mut exchange = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        exchange.run(changes)
    }
}

impl Exchange {
    fn run(&mut self, changes: Vec<Change>) -> Vec<Result<(), Failure>> {
        let first = self.sequence.wrapping_add(1);
        let count = changes.len();
        let mut request = Vec::new();
        for change in changes {
            self.sequence = self.sequence.wrapping_add(1);
            append(&mut request, change, self.sequence);
        }
        if let Err(error) = self.socket.send(&request, 0) {
            let failure = |_| Err(Failure::NotSent(copy_of(&error)));
            return (0..count).map(failure).collect();
        }
        let unanswered = |_| Err(Failure::Unanswered);
        let mut results: Vec<_> = (0..count).map(unanswered).collect();
        let mut missing = count;
        let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
        while missing > 0 {
            datagram.clear();
            match self.socket.recv(&mut datagram, 0) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => continue,
                Err(_) => break,
            }
            let Some((sequence, result)) = answer(&datagram) else {
                continue;
            };
            let place = sequence.wrapping_sub(first) as usize;
            if let Some(known) = results.get_mut(place) {
                *known = result;
                missing -= 1;
            }
        }
        results
    }
}

fn append(request: &mut Vec<u8>, change: Change, sequence: u32) {
    let mut message = NetlinkMessage::from(change.message);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | change.flags;
    message.header.sequence_number = sequence;
    message.finalize();
    let begin = request.len();
    let length = message.buffer_len();
    // Each begins at a multiple of 4 bytes.
    request.resize(begin + length.next_multiple_of(4), 0);
    message.serialize(&mut request[begin..begin + length]);
}

/// The number of the request that is answered, and how it went.
fn answer(datagram: &[u8]) -> Option<(u32, Result<(), Failure>)> {
    let message = NetlinkMessage::<Answer>::deserialize(datagram).ok()?;
    let NetlinkPayload::Error(error) = message.payload else {
        return None;
    };
    let result = match error.code {
        None => Ok(()),
        Some(_) => Err(Failure::Refused {
            code: error.raw_code(),
            explanation: explanation(message.header.flags, &error.header),
        }),
    };
    Some((message.header.sequence_number, result))
}

/// What answers carry besides how it went: nothing that is looked at.
#[derive(Debug)]
struct Answer;

impl NetlinkDeserializable for Answer {
    type Error = std::convert::Infallible;

    fn deserialize(_: &NetlinkHeader, _: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self)
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

/// An answer has a header, a code, the header of the request and some words.
const DATAGRAM_BYTES: usize = 4_096;
