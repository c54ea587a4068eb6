//! UDP sockets of the system, on the runtime of tokio at hand.

use std::{future::Future, io, time::Instant};

use super::{Runtime, SocketOptions};
use crate::{BindError, socket::UdpSocket, timer::SystemTimer};

/// Binds UDP sockets of the system and runs the driver on the runtime of tokio that it is used in.
///
/// Its sockets have offload, ECN and DSCP where the system does. It lives by the clock of the system, which
/// goes on under `start_paused`, and by a timer of the kernel where that is finer than tokio's.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioRuntime;

impl Runtime for TokioRuntime {
    type Socket = UdpSocket;
    type Timer = SystemTimer;

    fn bind(&self, options: &SocketOptions) -> Result<UdpSocket, BindError> {
        UdpSocket::bind(options)
    }

    fn timer(&self) -> io::Result<SystemTimer> {
        SystemTimer::new()
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn spawn(&self, driver: impl Future<Output = ()> + Send + 'static) {
        // The driver yields by itself, after more work than the runtime would let it do.
        tokio::spawn(tokio::task::unconstrained(driver));
    }
}
