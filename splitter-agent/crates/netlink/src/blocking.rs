//! Conversations with the kernel that block the caller for the microseconds that they take.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::packet_core::{
    NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkMessage,
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
    const HEADER_BYTES: usize = 16;
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.extend(body);
    let mut header = NetlinkBuffer::new(&mut bytes);
    header.set_length(u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX));
    header.set_message_type(kind);
    header.set_flags(NLM_F_REQUEST | flags);
    exchange_bytes(&bytes)
}

fn exchange_bytes(question: &[u8]) -> io::Result<Vec<Answer>> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(question, 0)?;
    let mut answers = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
            let message = NetlinkBuffer::new_checked(rest).map_err(invalid)?;
            match message.message_type() {
                NLMSG_DONE => return Ok(answers),
                NLMSG_ERROR => return outcome(message.payload()).map(|()| answers),
                kind => answers.push(Answer {
                    kind,
                    payload: message.payload().to_vec(),
                }),
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
