//! Conversations with the kernel that block the caller for the microseconds that they take.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NetlinkMessage,
};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// A message that the kernel answered with.
pub(crate) struct Answer {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

/// One question to the kernel, which answers before `send` returns: nothing here waits.
pub(crate) fn exchange(question: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<Answer>> {
    let mut message = NetlinkMessage::from(question);
    message.header.flags = NLM_F_REQUEST | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    exchange_bytes(&bytes)
}

/// One question of a kind that the message library does not know.
pub(crate) fn exchange_raw(kind: u16, body: &[u8], flags: u16) -> io::Result<Vec<Answer>> {
    exchange_bytes(&raw(kind, body, flags))
}

/// Asks for a list of which no more than one message is kept at a time. `see` gets the kind of each and
/// its body, and may end it with an error.
///
/// # Errors
/// The kernel's, those of `see`, and [`io::ErrorKind::Interrupted`] where the list changed meanwhile.
pub(crate) fn dump(
    kind: u16,
    body: &[u8],
    mut see: impl FnMut(u16, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    converse(&raw(kind, body, NLM_F_DUMP), |message| {
        if message.flags() & NLM_F_DUMP_INTR != 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        see(message.message_type(), message.payload())
    })
}

fn raw(kind: u16, body: &[u8], flags: u16) -> Vec<u8> {
    const HEADER_BYTES: usize = 16;
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.extend(body);
    let mut header = NetlinkBuffer::new(&mut bytes);
    header.set_length(u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX));
    header.set_message_type(kind);
    header.set_flags(NLM_F_REQUEST | flags);
    bytes
}

fn exchange_bytes(question: &[u8]) -> io::Result<Vec<Answer>> {
    let mut answers = Vec::new();
    converse(question, |message| {
        answers.push(Answer {
            kind: message.message_type(),
            payload: message.payload().to_vec(),
        });
        Ok(())
    })?;
    Ok(answers)
}

/// Hands over the messages of an answer, up to its end.
fn converse(
    question: &[u8],
    mut see: impl FnMut(&NetlinkBuffer<&[u8]>) -> io::Result<()>,
) -> io::Result<()> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(question, 0)?;
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
            let message = NetlinkBuffer::new_checked(rest).map_err(invalid)?;
            match message.message_type() {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => return outcome(message.payload()),
                _ => see(&message)?,
            }
            // Messages are aligned to 4 bytes.
            let length = (message.length() as usize).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

/// An error message begins with the negative error number; 0 acknowledges.
fn outcome(payload: &[u8]) -> io::Result<()> {
    let code = payload.first_chunk().copied().map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
