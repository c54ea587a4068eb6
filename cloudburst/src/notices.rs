//! What the network says of datagrams that it could not deliver (ICMP).

use std::net::SocketAddr;

use cloudburst_proto::{FourTuple, IcmpKind, SocketId};
use tokio::sync::mpsc;

/// Notices that wait for the driver at most; others are dropped.
const NOTICES: usize = 64;

/// A notice about a datagram of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) four_tuple: FourTuple,
    pub(super) kind: IcmpKind,
    quoted: [u8; QUOTED_BYTES],
    quoted_bytes: usize,
}

/// As much of what a notice quotes as is kept: more than the header of a datagram of ours.
pub(super) const QUOTED_BYTES: usize = 64;

impl Notice {
    /// The beginning of the datagram that it is about, as far as it quotes it.
    pub(super) fn quoted(&self) -> &[u8] {
        &self.quoted[..self.quoted_bytes]
    }
}

/// Takes what the network says of a socket's datagrams, for the driver of its endpoint.
#[derive(Clone, Debug)]
pub struct NoticeSender {
    socket: SocketId,
    notices: mpsc::Sender<Notice>,
}

/// Makes the channel of an endpoint's sockets.
pub(super) fn channel() -> (mpsc::Sender<Notice>, mpsc::Receiver<Notice>) {
    mpsc::channel(NOTICES)
}

impl NoticeSender {
    pub(super) const fn new(socket: SocketId, notices: mpsc::Sender<Notice>) -> Self {
        Self { socket, notices }
    }

    /// Reports a notice about a datagram that was sent to `remote`, of whose payload it quotes the beginning.
    ///
    /// Anybody can forge one: it is a hint that has paths probed. Where many come, some are dropped.
    pub fn report(&self, remote: SocketAddr, kind: IcmpKind, quoted: &[u8]) {
        let quoted = &quoted[..quoted.len().min(QUOTED_BYTES)];
        let mut notice = Notice {
            four_tuple: FourTuple::new(self.socket, remote),
            kind,
            quoted: [0; QUOTED_BYTES],
            quoted_bytes: quoted.len(),
        };
        notice.quoted[..quoted.len()].copy_from_slice(quoted);
        // A flood of notices (they are easy to forge) must not displace what we do.
        let _ = self.notices.try_send(notice);
    }
}
