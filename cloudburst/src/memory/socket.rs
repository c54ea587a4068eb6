//! A socket of a network in memory.

use std::{
    future::Future as _,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::{MemoryNetwork, state::Datagram};
use crate::runtime::{Arrival, DatagramSocket, Datagrams, ReceiveBuffers};

/// A bound socket of a [`MemoryNetwork`]; its port is free again when it is dropped.
#[derive(Debug)]
pub struct MemorySocket {
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

    fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<()> {
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

impl DatagramSocket for MemorySocket {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends all.
    fn poll_send(
        &mut self,
        _: &mut Context<'_>,
        datagrams: &Datagrams<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.network.state();
        let now = Instant::now();
        for bytes in datagrams.iter() {
            let datagram = Datagram {
                from: self.local,
                ecn: datagrams.ecn,
                bytes: bytes.into(),
            };
            state.send(now, datagram, datagrams.remote);
        }
        Poll::Ready(Ok(datagrams.contents.len()))
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut ReceiveBuffers,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_arrival(context));
        let (mut state, now) = (self.network.state(), Instant::now());
        while !buffers.is_full()
            && let Some(datagram) = state.receive(now, self.local)
        {
            let arrival = Arrival::new(datagram.from).with_ecn(datagram.ecn);
            // What is longer than any datagram has no room, and is lost.
            buffers.push(arrival, &datagram.bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for MemorySocket {
    fn drop(&mut self) {
        self.network.state().unbind(self.local);
    }
}
