//! Conversations with the kernel that block the caller: for microseconds, and for as long as others have its lock for all of
//! routing.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NetlinkMessage,
};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::LISTING_TRIES;

/// A message that the kernel answered with.
pub(crate) struct Answer {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

/// One question to the kernel, which answers before `send` returns: nothing here waits. A list that has
/// changed while it was made is asked for again.
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
/// The kernel's, those of `see`, and [`io::ErrorKind::Interrupted`] where the list changed meanwhile, of which
/// the last message may be the first to tell: see [`untorn`].
pub(crate) fn dump(
    kind: u16,
    body: &[u8],
    mut see: impl FnMut(u16, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    converse(&raw(kind, body, NLM_F_DUMP), |message| {
        see(message.message_type(), message.payload())
    })
}

/// Repeats what reads a list while the kernel says that the list has changed meanwhile, `tries` times in all.
///
/// # Errors
/// Those of `list`; [`io::ErrorKind::Interrupted`] where it never stood still.
pub(crate) fn untorn<T>(tries: u32, mut list: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..tries {
        match list() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
    list()
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
    untorn(LISTING_TRIES, || {
        let mut answers = Vec::new();
        converse(question, |message| {
            answers.push(Answer {
                kind: message.message_type(),
                payload: message.payload().to_vec(),
            });
            Ok(())
        })?;
        Ok(answers)
    })
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
        if read_datagram(&datagram, &mut see)? == Progress::Ended {
            return Ok(());
        }
    }
}

/// How far an answer has come.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    More,
    Ended,
}

/// Hands over the messages of a part of an answer.
fn read_datagram(
    datagram: &[u8],
    mut see: impl FnMut(&NetlinkBuffer<&[u8]>) -> io::Result<()>,
) -> io::Result<Progress> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
        let message = NetlinkBuffer::new_checked(rest).map_err(invalid)?;
        // Of a list that has changed while it was made, the last message may be the only one to say so.
        if message.flags() & NLM_F_DUMP_INTR != 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match message.message_type() {
            // Of a list that broke off, with the error; other answers may end without a number.
            NLMSG_DONE if message.payload().len() < 4 => return Ok(Progress::Ended),
            NLMSG_DONE | NLMSG_ERROR => {
                return outcome(message.payload()).map(|()| Progress::Ended);
            }
            _ => see(&message)?,
        }
        // Messages are aligned to 4 bytes.
        let length = (message.length() as usize).next_multiple_of(4);
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(Progress::More)
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

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: u16 = 24;
    const NONE: [u8; 4] = 0_i32.to_ne_bytes();

    fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = raw(kind, payload, 0);
        NetlinkBuffer::new(&mut bytes).set_flags(flags);
        bytes
    }

    /// How reading these in one datagram ends, and how many routes were seen.
    fn read(messages: &[Vec<u8>]) -> (Result<Progress, Option<i32>>, usize) {
        let mut seen = 0;
        let read = read_datagram(&messages.concat(), |message| {
            seen += usize::from(message.message_type() == ROUTE);
            Ok(())
        });
        let code = |error: io::Error| match error.kind() {
            io::ErrorKind::Interrupted => None,
            _ => error.raw_os_error(),
        };
        (read.map_err(code), seen)
    }

    #[test]
    fn list_that_its_last_message_alone_calls_torn_is_torn() {
        let route = message(ROUTE, 0, &[0; 12]);
        let torn_route = message(ROUTE, NLM_F_DUMP_INTR, &[0; 12]);
        let (done, torn) = (
            message(NLMSG_DONE, 0, &NONE),
            message(NLMSG_DONE, NLM_F_DUMP_INTR, &NONE),
        );
        assert_eq!(
            read(&[route.clone(), done.clone()]),
            (Ok(Progress::Ended), 1)
        );
        assert_eq!(read(std::slice::from_ref(&route)), (Ok(Progress::More), 1));
        assert_eq!(read(&[route.clone(), torn]), (Err(None), 1));
        assert_eq!(read(&[torn_route, done]), (Err(None), 0));
    }

    #[test]
    fn list_that_broke_off_is_not_taken_for_a_whole_one() {
        let route = message(ROUTE, 0, &[0; 12]);
        let failed = message(NLMSG_DONE, 0, &(-libc::ENOMEM).to_ne_bytes());
        assert_eq!(read(&[route.clone(), failed]), (Err(Some(libc::ENOMEM)), 1));
        // As a kernel ends an answer that is no list.
        assert_eq!(
            read(&[route, message(NLMSG_DONE, 0, &[])]),
            (Ok(Progress::Ended), 1)
        );
    }

    #[test]
    fn torn_list_is_asked_for_again_a_bounded_number_of_times() {
        let torn = || io::Error::from(io::ErrorKind::Interrupted);
        for needed in 1..=5 {
            let mut asked = 0;
            let read = untorn(3, || {
                asked += 1;
                if asked < needed {
                    Err(torn())
                } else {
                    Ok(asked)
                }
            });
            assert_eq!(read.ok(), (needed <= 3).then_some(needed));
            assert_eq!(asked, needed.min(3));
        }
        let mut asked = 0;
        let refused = untorn(3, || {
            asked += 1;
            Err::<(), _>(io::Error::from(io::ErrorKind::PermissionDenied))
        });
        assert!(refused.is_err() && asked == 1);
    }
}
