//! A socket of a network in memory.

use std::{
    future::Future as _,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::{MemoryNetwork, state::Datagram};
use crate::{
    BindError,
    socket::{Buffers, Train},
};

/// A bound socket; its port is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct MemorySocket {
    network: MemoryNetwork,
    local: SocketAddr,
    /// Wakes the driver when what is under way arrives.
    arrival: Pin<Box<Sleep>>,
}

impl MemorySocket {
    pub(super) fn new(network: MemoryNetwork, local: SocketAddr) -> Self {
        Self {
            network,
            local,
            arrival: Box::pin(sleep_until(Instant::now())),
        }
    }

    pub(crate) fn bind_another(
        &self,
        address: SocketAddr,
        buffer_bytes: usize,
    ) -> Result<Self, BindError> {
        self.network.bind_socket(address, buffer_bytes)
    }

    pub(crate) const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends all that is left of a train.
    pub(crate) fn send(&self, train: &Train, bytes: &[u8]) -> usize {
        let rest = &bytes[train.offset..train.end];
        let mut state = self.network.state();
        let now = Instant::now();
        for bytes in rest.chunks(train.segment_bytes) {
            let datagram = Datagram {
                from: self.local,
                ecn: train.ecn,
                bytes: bytes.into(),
            };
            state.send(now, datagram, train.remote);
        }
        rest.len()
    }

    pub(crate) fn receive(&self, buffers: &mut Buffers) -> io::Result<usize> {
        let (mut state, now) = (self.network.state(), Instant::now());
        let filled = buffers.fill(|| {
            let datagram = state.receive(now, self.local)?;
            Some((datagram.from, datagram.ecn, datagram.bytes))
        });
        match filled {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(filled),
        }
    }

    pub(crate) fn poll_receive_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let next = self.network.state().next_arrival(self.local, context);
        match next {
            Some(at) if at <= Instant::now() => Poll::Ready(()),
            Some(at) => {
                if self.arrival.deadline() != at || self.arrival.is_elapsed() {
                    self.arrival.as_mut().reset(at);
                }
                self.arrival.as_mut().poll(context)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for MemorySocket {
    fn drop(&mut self) {
        self.network.state().unbind(self.local);
    }
}
