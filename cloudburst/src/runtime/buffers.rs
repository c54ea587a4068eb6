//! Memory that datagrams are received into.

use std::net::{IpAddr, SocketAddr};

use cloudburst_proto::Ecn;
use quinn_udp::{EcnCodepoint, RecvMeta};

/// The kernel joins at most so much into one buffer (GRO).
pub(crate) const RECEIVE_BYTES: usize = 1 << 16;
/// Buffers for one call of receive: half a mebibyte stays in the second-level cache.
pub(crate) const RECEIVE_BUFFERS: usize = 8;

/// Memory that a socket receives datagrams into, the same all the time.
#[derive(Debug)]
pub struct ReceiveBuffers {
    pub(crate) memory: Vec<u8>,
    pub(crate) metas: [RecvMeta; RECEIVE_BUFFERS],
    /// Buffers that hold datagrams.
    pub(crate) filled: usize,
}

/// Describes where a datagram has come from, and how it was marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// The address of its sender.
    pub remote: SocketAddr,
    /// The address of ours that it was sent to, where the socket has several and knows.
    pub local: Option<IpAddr>,
    /// Its mark.
    pub ecn: Ecn,
}

impl Arrival {
    /// Describes a datagram without a mark.
    pub const fn new(remote: SocketAddr) -> Self {
        Self {
            remote,
            local: None,
            ecn: Ecn::NotCapable,
        }
    }

    const fn of(meta: &RecvMeta) -> Self {
        let ecn = match meta.ecn {
            Some(EcnCodepoint::Ce) => Ecn::CongestionExperienced,
            Some(EcnCodepoint::Ect0) => Ecn::Capable,
            // Nobody sends ECT(1) here.
            None | Some(EcnCodepoint::Ect1) => Ecn::NotCapable,
        };
        Self {
            remote: meta.addr,
            local: meta.dst_ip,
            ecn,
        }
    }

    /// States the address of ours that it was sent to.
    #[must_use]
    pub const fn with_local(mut self, local: IpAddr) -> Self {
        self.local = Some(local);
        self
    }

    /// States the mark that it bears.
    #[must_use]
    pub const fn with_ecn(mut self, ecn: Ecn) -> Self {
        self.ecn = ecn;
        self
    }
}

impl ReceiveBuffers {
    pub(crate) fn new() -> Self {
        Self {
            memory: vec![0; RECEIVE_BUFFERS * RECEIVE_BYTES],
            metas: [RecvMeta::default(); RECEIVE_BUFFERS],
            filled: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.filled = 0;
    }

    /// Returns true if no datagram has room any more.
    pub const fn is_full(&self) -> bool {
        self.filled == RECEIVE_BUFFERS
    }

    /// Copies a datagram in. Returns false, and takes nothing, if there is no room for it: the buffers are
    /// full, or it is longer than 64 KiB, as no datagram of UDP is.
    pub fn push(&mut self, arrival: Arrival, datagram: &[u8]) -> bool {
        let buffer = self.memory.chunks_mut(RECEIVE_BYTES).nth(self.filled);
        let buffer = buffer.and_then(|it| it.get_mut(..datagram.len()));
        let (Some(buffer), Some(meta)) = (buffer, self.metas.get_mut(self.filled)) else {
            return false;
        };
        buffer.copy_from_slice(datagram);
        *meta = RecvMeta::default();
        (meta.addr, meta.dst_ip) = (arrival.remote, arrival.local);
        (meta.len, meta.stride) = (datagram.len(), datagram.len());
        meta.ecn = code_point(arrival.ecn);
        self.filled += 1;
        true
    }

    /// Returns each datagram that was received, in the order of arrival, with where it has come from: for a
    /// socket that wraps another and counts, logs or judges what that has received. Empty datagrams are left
    /// out; what the system has joined is apart again.
    ///
    /// ```
    /// # use std::{io, task::{Context, Poll}};
    /// use cloudburst::runtime::{DatagramSocket, ReceiveBuffers, UdpSocket};
    ///
    /// /// Receives, and counts the bytes: the body of a wrapper's `poll_receive`.
    /// fn receive_and_count(
    ///     socket: &mut UdpSocket,
    ///     context: &mut Context<'_>,
    ///     buffers: &mut ReceiveBuffers,
    ///     bytes: &mut usize,
    /// ) -> Poll<io::Result<()>> {
    ///     let received = socket.poll_receive(context, buffers)?;
    ///     if received.is_ready() {
    ///         *bytes += buffers.iter().map(|(_, datagram)| datagram.len()).sum::<usize>();
    ///     }
    ///     received.map(Ok)
    /// }
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (Arrival, &[u8])> {
        let filled = self.memory.chunks(RECEIVE_BYTES).zip(&self.metas);
        filled.take(self.filled).flat_map(|(buffer, meta)| {
            let arrival = Arrival::of(meta);
            buffer[..meta.len]
                .chunks(meta.stride.max(1))
                .map(move |datagram| (arrival, datagram))
        })
    }

    /// Returns each datagram as [`Self::iter`] does, to be decrypted in place.
    pub(crate) fn datagrams(&mut self) -> impl Iterator<Item = (Arrival, &mut [u8])> {
        let filled = self.memory.chunks_mut(RECEIVE_BYTES).zip(&self.metas);
        filled.take(self.filled).flat_map(|(buffer, meta)| {
            let arrival = Arrival::of(meta);
            buffer[..meta.len]
                .chunks_mut(meta.stride.max(1))
                .map(move |datagram| (arrival, datagram))
        })
    }
}

pub(crate) const fn code_point(ecn: Ecn) -> Option<EcnCodepoint> {
    match ecn {
        Ecn::Capable => Some(EcnCodepoint::Ect0),
        Ecn::CongestionExperienced => Some(EcnCodepoint::Ce),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out_until_there_is_no_room() {
        let mut buffers = ReceiveBuffers::new();
        let remote: SocketAddr = "10.0.0.1:4433".parse().unwrap();
        assert!(!buffers.push(Arrival::new(remote), &vec![0; RECEIVE_BYTES + 1]));
        let marks = [Ecn::NotCapable, Ecn::Capable, Ecn::CongestionExperienced];
        for number in 0..RECEIVE_BUFFERS {
            let local = [127, 0, 0, number as u8].into();
            let arrival = Arrival::new(remote).with_local(local);
            let arrival = arrival.with_ecn(marks[number % 3]);
            assert!(buffers.push(arrival, &vec![number as u8; 100 * number]));
        }
        assert!(buffers.is_full() && !buffers.push(Arrival::new(remote), b"more"));
        // An empty datagram is nobody's.
        let read: Vec<_> = buffers
            .iter()
            .map(|(arrival, datagram)| (arrival, datagram.to_vec()))
            .collect();
        let all: Vec<_> = buffers.datagrams().collect();
        assert_eq!(all.len(), RECEIVE_BUFFERS - 1);
        for ((number, (arrival, datagram)), read) in (1..).zip(all).zip(read) {
            assert_eq!((arrival, &*datagram), (read.0, &read.1[..]));
            assert_eq!(arrival.remote, remote);
            assert_eq!(arrival.local, Some([127, 0, 0, number as u8].into()));
            assert_eq!(arrival.ecn, marks[number % 3]);
            assert_eq!(*datagram, vec![number as u8; 100 * number]);
        }
    }
}
