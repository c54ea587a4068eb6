//! Checks that the rig's routers hash flows as switches do.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    thread,
    time::Duration,
};

use flow_testbed::namespace::{Namespace, NamespaceError};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Direction, PATHS, Rig, addresses};

/// Packets sent with one 5-tuple, and 5-tuples with one packet each.
const PACKETS: u16 = 64;
/// Connections opened one after the other from the same port.
const CONNECTIONS: u16 = 16;
/// No two checks use the same ports.
const FIRST_PORT: u16 = 20_000;
/// The discard port, on which no server listens.
const CLOSED_PORT: u16 = 9;
/// Time in which even a busy machine brings a packet across the rig, without the delay line.
const CROSSING: Duration = Duration::from_millis(20);

/// How many packets each path has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread(pub [u64; PATHS]);

/// Why the rig cannot be trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathCheckError {
    /// A counter could not be read or a namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A packet could not be sent.
    #[error("cannot send a packet over the rig: {0}")]
    Send(#[from] io::Error),
    /// One 5-tuple was spread.
    #[error("packets of one {protocol} 5-tuple took several paths ({spread:?}) {direction:?}")]
    Torn {
        /// Name of the protocol, TCP or UDP.
        protocol: &'static str,
        /// Direction of the packets.
        direction: Direction,
        /// How many packets each path has carried.
        spread: Spread,
    },
    /// Many 5-tuples left a path unused, or took it all.
    #[error("packets of {PACKETS} 5-tuples did not take all paths ({spread:?}) {direction:?}")]
    Uneven {
        /// Direction of the packets.
        direction: Direction,
        /// How many packets each path has carried.
        spread: Spread,
    },
}

impl Rig {
    /// Verifies in both directions that the packets of one 5-tuple take one path, also when each
    /// comes from a socket of its own, and that many 5-tuples take all paths. Nothing else may be
    /// on the rig meanwhile.
    ///
    /// # Errors
    /// What is not so.
    pub fn check_paths(&self) -> Result<(), PathCheckError> {
        let [server, ..] = addresses::servers();
        let ends = [
            (Direction::ToServer, &self.client, addresses::CLIENT, server),
            (Direction::ToClient, &self.server, server, addresses::CLIENT),
        ];
        for (direction, from, own, to) in ends {
            let one = self.spread_of(direction, || send_from(from, own, to, &[FIRST_PORT; 64]))?;
            one.check_one("UDP", direction)?;
            let again = self.spread_of(direction, || reconnect(from, own, to))?;
            again.check_one("TCP", direction)?;
            let ports: Vec<u16> = (FIRST_PORT..FIRST_PORT + PACKETS).collect();
            let many = self.spread_of(direction, || send_from(from, own, to, &ports))?;
            many.check_many(direction)?;
        }
        Ok(())
    }

    /// How the packets that `work` sends spread.
    fn spread_of(
        &self,
        direction: Direction,
        work: impl FnOnce() -> Result<(), PathCheckError>,
    ) -> Result<Spread, PathCheckError> {
        let before = self.carried(direction)?;
        work()?;
        // Also what comes back must be over before the next look.
        thread::sleep(CROSSING + self.options.rtt);
        let after = self.carried(direction)?;
        let mut spread = Spread::default();
        for (path, packets) in spread.0.iter_mut().enumerate() {
            *packets = after[path].packets - before[path].packets;
        }
        Ok(spread)
    }
}

impl Spread {
    fn used(&self) -> usize {
        self.0.iter().filter(|packets| **packets > 0).count()
    }

    fn check_one(self, protocol: &'static str, direction: Direction) -> Result<(), PathCheckError> {
        if self.used() == 1 {
            return Ok(());
        }
        Err(PathCheckError::Torn {
            protocol,
            direction,
            spread: self,
        })
    }

    /// 16 of 64 are expected on each path; four standard deviations are 14.
    fn check_many(self, direction: Direction) -> Result<(), PathCheckError> {
        if self.0.iter().all(|packets| (3..=30).contains(packets)) {
            return Ok(());
        }
        Err(PathCheckError::Uneven {
            direction,
            spread: self,
        })
    }
}

/// Sends a datagram from each port.
fn send_from(
    namespace: &Namespace,
    own: Ipv4Addr,
    to: Ipv4Addr,
    ports: &[u16],
) -> Result<(), PathCheckError> {
    namespace.enter(|| {
        for port in ports {
            let socket = UdpSocket::bind((own, *port))?;
            // Not connected, so that the other end's refusal is no error here.
            socket.send_to(b"which way", (to, CLOSED_PORT))?;
        }
        Ok::<_, io::Error>(())
    })??;
    Ok(())
}

/// Tries to connect from one port many times, each time with a new socket: the kernel gives each
/// one a hash of its own, which must not matter.
fn reconnect(namespace: &Namespace, own: Ipv4Addr, to: Ipv4Addr) -> Result<(), PathCheckError> {
    namespace.enter(|| {
        for _ in 0..CONNECTIONS {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            socket.bind(&SocketAddr::from((own, FIRST_PORT)).into())?;
            match socket.connect(&SocketAddr::from((to, CLOSED_PORT)).into()) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
                Ok(()) => return Err(io::Error::other("a server listens on the discard port")),
            }
        }
        Ok(())
    })??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_judged() {
        let one = Spread([0, 64, 0, 0]);
        let torn = Spread([1, 63, 0, 0]);
        let even = Spread([16, 20, 12, 16]);
        let here = Direction::ToServer;
        assert!(one.check_one("UDP", here).is_ok() && one.check_many(here).is_err());
        assert!(torn.check_one("UDP", here).is_err() && torn.check_many(here).is_err());
        assert!(even.check_one("UDP", here).is_err() && even.check_many(here).is_ok());
        assert!(Spread::default().check_one("UDP", here).is_err());
    }
}
