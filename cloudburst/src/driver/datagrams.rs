//! Datagrams, between the sockets and the state machine.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    task::{Context, Poll},
    time::Duration,
};

use super::{
    super::{
        runtime::{DatagramSocket as _, Datagrams, ReceiveBuffers, Runtime},
        socket::TRAIN_BYTES,
    },
    Driver,
};
use cloudburst_proto::{Ecn, FourTuple, IcmpKind, MAX_DATAGRAM_BYTES, SocketId, Time};

/// Memory and time of the sockets.
#[derive(Debug)]
pub(in super::super) struct Io<T> {
    pub(super) timer: T,
    receive: ReceiveBuffers,
    transmit: Vec<u8>,
    /// Datagrams in `transmit` that are being sent.
    train: Option<(SocketId, Train)>,
    /// The next, which goes another way.
    next: Option<(SocketId, Train)>,
    /// Since when they have waited for their socket.
    blocked_since: Option<Time>,
}

/// Datagrams to one address, of which those before `offset` have been sent.
#[derive(Clone, Copy, Debug)]
struct Train {
    /// The address of ours that they leave from; nothing leaves it to the system.
    local: Option<IpAddr>,
    remote: SocketAddr,
    ecn: Ecn,
    segment_bytes: usize,
    offset: usize,
    end: usize,
}

impl Train {
    fn remaining<'d>(&self, buffer: &'d [u8]) -> Datagrams<'d> {
        Datagrams {
            remote: self.remote,
            local: self.local,
            ecn: self.ecn,
            segment_bytes: self.segment_bytes,
            contents: &buffer[self.offset..self.end],
        }
    }
}

/// Trains that are sent until datagrams are received again: a stop that is not read in time costs
/// symbols that nobody needs.
const TRAINS_A_ROUND: usize = 2;
/// How long a full socket is waited for before its datagrams are dropped.
const BLOCKED_AT_MOST: Duration = Duration::from_millis(5);
/// When a full socket is tried again: the least buffer that Linux gives by default (425 kB, socket(7)) runs out in a longer
/// time at 10 Gbit/s.
const BLOCKED_RETRY: Duration = Duration::from_micros(250);

impl<T> Io<T> {
    pub(in super::super) fn new(timer: T) -> Self {
        Self {
            timer,
            receive: ReceiveBuffers::new(),
            // Behind a train that is full there is capacity for the next.
            transmit: vec![0; 2 * TRAIN_BYTES],
            train: None,
            next: None,
            blocked_since: None,
        }
    }

    /// When a full socket is tried again; nothing if none is waited for.
    pub(super) fn retry_at(&self, now: Time) -> Option<Time> {
        self.blocked_since.map(|_| now + BLOCKED_RETRY)
    }
}

impl<R: Runtime> Driver<R> {
    pub(super) fn take_notices(&mut self, context: &mut Context<'_>) -> bool {
        let mut is_busy = false;
        while let Poll::Ready(Some(notice)) = self.notices.poll_recv(context) {
            is_busy = true;
            let now = self.now();
            match notice.kind {
                IcmpKind::Unreachable => self.statistics.sockets.unreachable += 1,
                IcmpKind::TooBig { .. } => self.statistics.sockets.too_big += 1,
                _ => {}
            }
            self.machine
                .handle_icmp(now, notice.four_tuple, notice.kind, notice.quoted());
        }
        is_busy
    }

    /// One call for each socket that has something.
    pub(super) fn receive(&mut self, context: &mut Context<'_>) -> bool {
        let mut is_busy = false;
        let sockets = (0..).map(SocketId).zip(&mut self.sockets);
        let retired = self.port_rotation.retired.iter_mut();
        for (id, socket) in sockets.chain(retired.map(|it| (it.id, &mut it.socket))) {
            self.io.receive.clear();
            match socket.poll_receive(context, &mut self.io.receive) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => {
                    is_busy = true;
                    self.statistics.sockets.receive_calls += 1;
                    let elapsed = self.runtime.now().saturating_duration_since(self.start);
                    let now = Time::ZERO + elapsed;
                    for (from, datagram) in self.io.receive.datagrams() {
                        let local = from.local.and_then(|asked| socket.reply_address(asked));
                        let four_tuple = FourTuple::new(id, from.remote).with_local(local);
                        self.machine
                            .handle_datagram(now, four_tuple, from.ecn, datagram);
                    }
                }
                // A notice that its task has read, or will.
                Poll::Ready(Err(_)) => {
                    is_busy = true;
                    self.statistics.sockets.receive_errors += 1;
                }
            }
        }
        is_busy
    }

    pub(super) fn transmit(&mut self, context: &mut Context<'_>) -> bool {
        for sent in 0..TRAINS_A_ROUND {
            let now = self.now();
            if !self.couple(now) || !self.send_train(context, now) {
                return sent > 0;
            }
        }
        true
    }

    /// Makes a train ready, of all that goes the same way next: a call of the system for many
    /// datagrams costs little more than one for few. False if there is nothing to send.
    fn couple(&mut self, now: Time) -> bool {
        if self.io.train.is_some() {
            return true;
        }
        let next = self.io.next.take();
        let Some((id, mut train)) = next.or_else(|| self.next_train(now, 0)) else {
            return false;
        };
        let is_whole =
            |train: &Train| (train.end - train.offset).is_multiple_of(train.segment_bytes);
        while is_whole(&train)
            && train.end - train.offset + train.segment_bytes <= TRAIN_BYTES
            && train.end + MAX_DATAGRAM_BYTES <= self.io.transmit.len()
            && let Some((other, more)) = self.next_train(now, train.end)
        {
            let is_alike = (other, more.local, more.remote, more.segment_bytes, more.ecn)
                == (
                    id,
                    train.local,
                    train.remote,
                    train.segment_bytes,
                    train.ecn,
                );
            if !is_alike || more.end - train.offset > TRAIN_BYTES {
                self.io.next = Some((other, more));
                break;
            }
            train.end = more.end;
        }
        self.io.train = Some((id, train));
        true
    }

    /// What the protocol wants to be sent next, written at `start` of the buffer.
    fn next_train(&mut self, now: Time, start: usize) -> Option<(SocketId, Train)> {
        let room = &mut self.io.transmit[start..];
        let most = room.len().min(TRAIN_BYTES);
        let transmit = self.machine.poll_transmit(now, &mut room[..most])?;
        let train = Train {
            local: transmit.four_tuple.local,
            remote: transmit.four_tuple.remote,
            ecn: transmit.ecn,
            segment_bytes: transmit.segment_bytes.max(1),
            offset: start,
            end: start + transmit.bytes,
        };
        Some((transmit.four_tuple.socket, train))
    }

    /// Sends what waits in the buffer; false if the socket is full.
    fn send_train(&mut self, context: &mut Context<'_>, now: Time) -> bool {
        let mut retries = 0;
        while let Some((id, mut train)) = self.io.train.take() {
            let Some(socket) = self.sockets.get_mut(usize::from(id.0)) else {
                break;
            };
            let rest = train.end - train.offset;
            let datagrams = train.remaining(&self.io.transmit);
            let step = match socket.poll_send(context, &datagrams) {
                // At least one datagram, and whole ones: else a socket of somebody else's would keep the
                // driver here for ever, or have it begin in the middle of one.
                Poll::Ready(Ok(bytes)) => {
                    self.statistics.sockets.send_calls += 1;
                    retries = 0;
                    let whole = bytes.div_ceil(train.segment_bytes).max(1);
                    whole.saturating_mul(train.segment_bytes).min(rest)
                }
                Poll::Pending => {
                    if self.waits_for(now) {
                        self.io.train = Some((id, train));
                        return false;
                    }
                    let datagrams = rest.div_ceil(train.segment_bytes);
                    self.statistics.sockets.send_drops += datagrams as u64;
                    rest
                }
                Poll::Ready(Err(_)) if retries == 0 => {
                    // It may tell of an earlier datagram, of offload or of neither.
                    retries = 1;
                    0
                }
                Poll::Ready(Err(_)) if rest > train.segment_bytes && socket.stop_offload() => 0,
                Poll::Ready(Err(error)) => {
                    let four_tuple = FourTuple::new(id, train.remote).with_local(train.local);
                    self.cannot_send(now, four_tuple, rest.min(train.segment_bytes), &error);
                    rest.min(train.segment_bytes)
                }
            };
            train.offset += step;
            self.io.blocked_since = None;
            if train.offset < train.end {
                self.io.train = Some((id, train));
            }
        }
        true
    }

    /// Whether a socket that is full is worth waiting for any longer.
    fn waits_for(&mut self, now: Time) -> bool {
        let since = *self.io.blocked_since.get_or_insert_with(|| {
            self.statistics.sockets.send_waits += 1;
            now
        });
        now.since(since) < BLOCKED_AT_MOST
    }

    fn cannot_send(&mut self, now: Time, four_tuple: FourTuple, bytes: usize, error: &io::Error) {
        use io::ErrorKind::{
            AddrNotAvailable, HostUnreachable, InvalidInput, NetworkDown, NetworkUnreachable,
            PermissionDenied,
        };
        let counters = &mut self.statistics.sockets;
        match error.kind() {
            _ if quinn_udp::is_msg_size_err(error) => {
                counters.too_big += 1;
                self.machine.handle_too_big(now, four_tuple, bytes);
                if let Some(socket) = self.sockets.get_mut(usize::from(four_tuple.socket.0)) {
                    socket.retry_offload();
                }
            }
            // A packet filter refuses by EPERM.
            AddrNotAvailable | HostUnreachable | NetworkDown | NetworkUnreachable
            | PermissionDenied => {
                counters.unreachable += 1;
                self.machine.handle_unreachable(now, four_tuple);
            }
            // The address that was asked is ours no longer; trains fail by it as well.
            InvalidInput if four_tuple.local.is_some() => {
                counters.unreachable += 1;
                self.machine.handle_unreachable(now, four_tuple);
                if let Some(socket) = self.sockets.get_mut(usize::from(four_tuple.socket.0)) {
                    socket.retry_offload();
                }
            }
            _ => {
                counters.send_errors += 1;
                tracing::debug!(%error, remote = %four_tuple.remote, bytes, "cannot send");
            }
        }
    }
}
