//! Ports that are abandoned for others.

use std::{
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::sync::mpsc;

use super::super::{
    notices::{Notice, NoticeSender},
    runtime::{DatagramSocket, Runtime, SocketOptions},
};
use super::Driver;
use cloudburst_proto::{FourTuple, SocketId, Time};

/// How long a socket is read from after its port was abandoned: what was sent to it before the
/// peer knew of the other may be under way for so long.
const GRACE: Duration = Duration::from_secs(3);

/// How sockets are bound, and those whose port was abandoned of late.
#[derive(Debug)]
pub(in super::super) struct PortRotation<S> {
    pub(in super::super) dscp: u8,
    pub(in super::super) buffer_bytes: usize,
    /// What handles tell, by the sockets' numbers.
    pub(in super::super) addresses: Arc<LocalAddresses>,
    /// Where sockets report what the network says of their datagrams.
    notices: mpsc::Sender<Notice>,
    /// The oldest first. Few at a time: the protocol bounds how many ports it abandons.
    pub(super) retired: Vec<Retired<S>>,
}

/// A socket whose port was abandoned.
#[derive(Debug)]
pub(super) struct Retired<S> {
    /// The number of the one that has taken its place.
    pub(super) id: SocketId,
    pub(super) socket: S,
    until: Time,
}

impl<S: DatagramSocket> PortRotation<S> {
    pub(in super::super) fn new(
        (dscp, buffer_bytes): (u8, usize),
        addresses: Arc<LocalAddresses>,
        notices: mpsc::Sender<Notice>,
    ) -> Self {
        Self {
            dscp,
            buffer_bytes,
            addresses,
            notices,
            retired: Vec::new(),
        }
    }

    /// When the next socket is closed.
    pub(super) fn next_close(&self) -> Option<Time> {
        self.retired.first().map(|retired| retired.until)
    }
}

impl<R: Runtime> Driver<R> {
    /// Binds another port in place of a socket's, as the protocol asks.
    pub(super) fn rotate_port(&mut self, id: SocketId) {
        let now = self.now();
        let index = usize::from(id.0);
        let Some(old) = self.sockets.get_mut(index) else {
            return;
        };
        let before = old.local_addr();
        let port_rotation = &mut self.port_rotation;
        let any_port = SocketOptions {
            dscp: port_rotation.dscp,
            buffer_bytes: port_rotation.buffer_bytes,
            ..SocketOptions::new(SocketAddr::new(before.ip(), 0))
        };
        let mut new = match self.runtime.bind(&any_port) {
            Ok(new) => new,
            Err(error) => {
                self.statistics.sockets.replace_errors += 1;
                tracing::debug!(port = before.port(), %error, "a port that delivers nothing stays");
                return;
            }
        };
        tracing::debug!(
            address = %before.ip(),
            from = before.port(),
            to = new.local_addr().port(),
            "replacing a port that delivers nothing"
        );
        port_rotation.addresses.set(index, new.local_addr());
        // What the network says of the port before is not about this one.
        old.set_notices(None);
        new.set_notices(Some(NoticeSender::new(id, port_rotation.notices.clone())));
        let retired = Retired {
            id,
            socket: std::mem::replace(old, new),
            until: now + GRACE,
        };
        port_rotation.retired.push(retired);
        self.machine.port_rotated(now, id);
    }

    pub(super) fn log_path_replaced(&self, from: FourTuple, to: FourTuple) {
        let port = |four_tuple: FourTuple| {
            let socket = self.sockets.get(usize::from(four_tuple.socket.0));
            socket.map_or(0, |socket| socket.local_addr().port())
        };
        tracing::debug!(
            from = port(from),
            from_remote = %from.remote,
            to = port(to),
            to_remote = %to.remote,
            "replacing a route that delivers nothing"
        );
    }

    /// Closes sockets whose port was abandoned long enough ago.
    pub(super) fn close_retired(&mut self, now: Time) {
        self.port_rotation
            .retired
            .retain(|retired| retired.until > now);
    }
}

/// Addresses of the sockets, which change with their ports.
#[derive(Debug)]
pub(in super::super) struct LocalAddresses(RwLock<Vec<SocketAddr>>);

impl LocalAddresses {
    pub(in super::super) fn of(sockets: &[impl DatagramSocket]) -> Self {
        Self(RwLock::new(
            sockets.iter().map(DatagramSocket::local_addr).collect(),
        ))
    }

    /// An address is whole whoever has panicked.
    pub(in super::super) fn all(&self) -> Vec<SocketAddr> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }

    fn set(&self, index: usize, address: SocketAddr) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get_mut(index) {
            *known = address;
        }
    }
}
