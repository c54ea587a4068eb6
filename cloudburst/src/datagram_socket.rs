//! The seam between the driver and what carries its datagrams.

#[cfg(any(target_os = "linux", target_os = "android"))]
use std::sync::Arc;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    task::{Context, Poll},
};

#[cfg(any(target_os = "linux", target_os = "android"))]
use super::watched::WatchedSocket;
use super::{
    BindError,
    memory::MemorySocket,
    socket::{Buffers, Socket, Train},
    watched::{poll_receive_ready, wait_for_room},
};

/// A socket of the system, or of a network in memory.
#[derive(Debug)]
pub(super) enum DatagramSocket {
    Udp(Socket),
    Memory(MemorySocket),
}

impl DatagramSocket {
    /// Binds another of the kind of this one.
    pub(super) fn bind_another(
        &self,
        address: SocketAddr,
        dscp: u8,
        buffer_bytes: usize,
    ) -> Result<Self, BindError> {
        Ok(match self {
            Self::Udp(_) => Self::Udp(Socket::bind(address, dscp, buffer_bytes)?),
            Self::Memory(socket) => Self::Memory(socket.bind_another(address, buffer_bytes)?),
        })
    }

    pub(super) const fn local(&self) -> SocketAddr {
        match self {
            Self::Udp(socket) => socket.local(),
            Self::Memory(socket) => socket.local(),
        }
    }

    /// The system's own, if it is one.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn udp(&self) -> Option<&Arc<WatchedSocket>> {
        match self {
            Self::Udp(socket) => Some(socket.io()),
            Self::Memory(_) => None,
        }
    }

    /// See [`Socket::asked_address`]; in memory each socket has one address alone.
    pub(super) fn asked_address(&self, asked: Option<IpAddr>) -> Option<IpAddr> {
        match self {
            Self::Udp(socket) => socket.asked_address(asked),
            Self::Memory(_) => None,
        }
    }

    pub(super) fn reaches(&self, remote: SocketAddr) -> bool {
        match self {
            Self::Udp(socket) => socket.reaches(remote),
            Self::Memory(socket) => socket.local().is_ipv4() == remote.is_ipv4(),
        }
    }

    /// See [`Socket::segments`]; in memory a call sends all.
    pub(super) fn segments(&self) -> usize {
        match self {
            Self::Udp(socket) => socket.segments(),
            Self::Memory(_) => usize::MAX,
        }
    }

    pub(super) fn stop_offload(&mut self) {
        if let Self::Udp(socket) = self {
            socket.stop_offload();
        }
    }

    pub(super) fn retry_offload(&mut self) {
        if let Self::Udp(socket) = self {
            socket.retry_offload();
        }
    }

    pub(super) fn send(&mut self, train: &Train, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.send(train, bytes),
            Self::Memory(socket) => Ok(socket.send(train, bytes)),
        }
    }

    pub(super) fn receive(&mut self, buffers: &mut Buffers) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.receive(buffers),
            Self::Memory(socket) => socket.receive(buffers),
        }
    }

    pub(super) fn poll_receive_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Udp(socket) => poll_receive_ready(socket.io(), context),
            Self::Memory(socket) => socket.poll_receive_ready(context),
        }
    }

    /// Has the task woken when there is room again, or leaves that to the clock.
    pub(super) fn wait_for_room(&self, context: &mut Context<'_>) {
        if let Self::Udp(socket) = self {
            wait_for_room(socket.io(), context);
        }
    }
}
