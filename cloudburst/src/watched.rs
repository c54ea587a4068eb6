//! Sockets that wake their task for what comes in alone.
//!
//! The runtime's own socket wakes it for room to send in, too: after each datagram that a queue of the host
//! has held for a while, which nobody waits for. A socket that is full is rare, and tried again by the clock.

pub(super) use imp::{
    WatchedSocket, poll_receive_ready, try_receive, try_send, wait_for_room, watch,
};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use std::{
        io,
        net::UdpSocket,
        task::{Context, Poll},
    };

    use tokio::io::{Interest, unix::AsyncFd};

    /// A socket that the runtime watches for datagrams and errors.
    pub(in super::super) type WatchedSocket = AsyncFd<UdpSocket>;

    pub(in super::super) fn watch(socket: UdpSocket) -> io::Result<WatchedSocket> {
        // SAFETY: the descriptor is open, belongs to `socket` alone, which nobody takes out or replaces,
        // and is closed only with it.
        Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
    }

    /// Whether anything may have come. If not, the task is woken when it does.
    pub(in super::super) fn poll_receive_ready(
        socket: &WatchedSocket,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        socket.poll_read_ready(context).map(drop)
    }

    /// Receives by `call`, unless nothing has come.
    pub(in super::super) fn try_receive<R>(
        socket: &WatchedSocket,
        call: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        socket.try_io(Interest::READABLE, |_| call())
    }

    /// Sends by `call`.
    pub(in super::super) fn try_send<R>(
        _: &WatchedSocket,
        call: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        call()
    }

    /// Nobody is woken when there is room again: the caller has to try again by the clock.
    pub(in super::super) fn wait_for_room(_: &WatchedSocket, _: &mut Context<'_>) {}
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use std::{
        io,
        task::{Context, Poll},
    };

    use tokio::{io::Interest, net::UdpSocket};

    /// A socket that the runtime watches for datagrams, errors and room.
    pub(in super::super) type WatchedSocket = UdpSocket;

    pub(in super::super) fn watch(socket: std::net::UdpSocket) -> io::Result<WatchedSocket> {
        UdpSocket::from_std(socket)
    }

    /// Whether anything may have come. If not, the task is woken when it does.
    pub(in super::super) fn poll_receive_ready(
        socket: &WatchedSocket,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        socket.poll_recv_ready(context).map(drop)
    }

    /// Receives by `call`, unless nothing has come.
    pub(in super::super) fn try_receive<R>(
        socket: &WatchedSocket,
        call: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        socket.try_io(Interest::READABLE, call)
    }

    /// Sends by `call`, unless there is no room.
    pub(in super::super) fn try_send<R>(
        socket: &WatchedSocket,
        call: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        socket.try_io(Interest::WRITABLE, call)
    }

    /// The task is woken when there is room again, or has to try again by the clock.
    pub(in super::super) fn wait_for_room(socket: &WatchedSocket, context: &mut Context<'_>) {
        let _ = socket.poll_send_ready(context);
    }
}
