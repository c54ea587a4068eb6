//! Counts packets that arrive in another order than they were sent in (RFC 4737).
//!
//! A sender of Linux numbers the IPv4 packets of a connection one by one, those that it sends again too. So a
//! packet with a lower number than one before it was overtaken on its way, and one that fills the hole of a lost
//! one was not, which the receiver's own count of segments out of order cannot tell apart.

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use etherparse::{Ipv4HeaderSlice, TcpHeaderSlice};
use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket,
            sockopt,
        },
        time::TimeVal,
    },
};

use crate::namespace::{Namespace, NamespaceError};

/// Longer than the headers of IPv4 and TCP can be.
const HEADERS_BYTES: usize = 128;
/// Enough for half a second at 120 Mbit/s, as the kernel counts packets.
const BUFFER_BYTES: usize = 16 << 20;
/// How soon a capture sees that it is to end.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Packets with data of one port's connections, as they arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// All packets with data.
    pub packets: u64,
    /// Packets that one sent after them had overtaken.
    pub out_of_order: u64,
    /// The longest time while they counted in which none arrived.
    pub longest_stall: Duration,
}

impl std::ops::Add for Arrivals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            out_of_order: self.out_of_order + other.out_of_order,
            longest_stall: self.longest_stall.max(other.longest_stall),
        }
    }
}

impl Arrivals {
    /// The part of the packets that had been overtaken, from 0 to 1; 0 without any.
    pub fn late_part(&self) -> f64 {
        self.out_of_order as f64 / self.packets.max(1) as f64
    }
}

/// The connection that a packet belongs to, in its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Connection {
    addresses: [Ipv4Addr; 2],
    ports: [u16; 2],
}

/// What has arrived of each connection.
#[derive(Debug, Default)]
struct Tracker {
    latest: HashMap<Connection, u16>,
    arrivals: Arrivals,
    /// When the last one arrived that counted, or they began to count.
    last: Option<Instant>,
}

/// Looks at what arrives at a host, on a thread of its own. Dropping it ends that.
#[derive(Debug)]
pub struct Capture {
    counts: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<nix::Result<Arrivals>, NamespaceError>>>,
}

impl Capture {
    /// Starts looking at what arrives in a namespace for or from a TCP port; nothing counts yet.
    ///
    /// # Errors
    /// [`NamespaceError::Enter`] when there is no thread to be had.
    pub fn start(host: &Namespace, port: u16) -> Result<Self, NamespaceError> {
        let counts = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        let (counting, stopped) = (Arc::clone(&counts), Arc::clone(&stop));
        let thread = host.spawn(move || watch(port, &counting, &stopped))?;
        Ok(Self {
            counts,
            stop,
            thread: Some(thread),
        })
    }

    /// Says whether packets count from now on.
    pub fn count(&self, counts: bool) {
        self.counts.store(counts, Ordering::Relaxed);
    }

    /// Ends the capture and returns what has counted.
    ///
    /// # Errors
    /// When its thread could not be put into the namespace; inside, what the kernel said of its socket.
    pub fn end(mut self) -> Result<nix::Result<Arrivals>, NamespaceError> {
        self.join().unwrap_or(Ok(Ok(Arrivals::default())))
    }

    fn join(&mut self) -> Option<Result<nix::Result<Arrivals>, NamespaceError>> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take()?.join();
        Some(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed; there is no more to do about it here.
            let _ = thread.join();
        }
    }
}

fn watch(port: u16, counts: &AtomicBool, stop: &AtomicBool) -> nix::Result<Arrivals> {
    let socket = open()?;
    let mut tracker = Tracker::default();
    let mut packet = [0; HEADERS_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let received = recv(socket.as_raw_fd(), &mut packet, MsgFlags::empty());
        let (counts, now) = (counts.load(Ordering::Relaxed), Instant::now());
        tracker.wait(now, counts);
        match received {
            Ok(bytes) => tracker.packet(&packet[..bytes], port, now, counts),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(tracker.arrivals)
}

/// A socket that sees the IPv4 packets that are received, from their IP header on.
fn open() -> nix::Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Packet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::EthIp,
    )?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
    let pause = TimeVal::new(0, STOP_CHECK.as_micros() as _);
    setsockopt(&socket, sockopt::ReceiveTimeout, &pause)?;
    Ok(socket)
}

impl Tracker {
    /// Notes that nothing has arrived since the last one.
    fn wait(&mut self, now: Instant, counts: bool) {
        if !counts {
            self.last = None;
            return;
        }
        let stall = now.saturating_duration_since(*self.last.get_or_insert(now));
        self.arrivals.longest_stall = self.arrivals.longest_stall.max(stall);
    }

    /// Looks at a packet, of which the headers are enough.
    fn packet(&mut self, packet: &[u8], port: u16, now: Instant, counts: bool) {
        let Some((connection, number)) = data_packet(packet, port) else {
            return;
        };
        let latest = self.latest.entry(connection).or_insert(number);
        // Numbers go round.
        let is_late = (number.wrapping_sub(*latest) as i16) < 0;
        if !is_late {
            *latest = number;
        }
        if counts {
            self.arrivals.packets += 1;
            self.arrivals.out_of_order += u64::from(is_late);
            self.last = Some(now);
        }
    }
}

/// The connection and number of a TCP packet with data that comes from or goes to `port`.
fn data_packet(packet: &[u8], port: u16) -> Option<(Connection, u16)> {
    const TCP: u8 = 6;
    let ip = Ipv4HeaderSlice::from_slice(packet).ok()?;
    if ip.protocol().0 != TCP {
        return None;
    }
    let tcp = TcpHeaderSlice::from_slice(packet.get(ip.slice().len()..)?).ok()?;
    let headers = ip.slice().len() + tcp.slice().len();
    let ports = [tcp.source_port(), tcp.destination_port()];
    let carries_data = usize::from(ip.total_len()) > headers;
    (carries_data && ports.contains(&port)).then_some((
        Connection {
            addresses: [ip.source_addr(), ip.destination_addr()],
            ports,
        },
        ip.identification(),
    ))
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    const PORT: u16 = 5201;

    /// The headers of a packet from `port`, with a number and so much data.
    fn packet(port: u16, number: u16, data: usize) -> Vec<u8> {
        let builder =
            PacketBuilder::ipv4([10, 1, 2, 2], [10, 2, 2, 2], 64).tcp(port, PORT, 1, 1000);
        let mut packet = Vec::new();
        builder.write(&mut packet, &vec![0; data]).expect("it fits");
        packet[4..6].copy_from_slice(&number.to_be_bytes());
        packet.truncate(64);
        packet
    }

    fn arrivals(packets: &[(u16, u16)]) -> (u64, u64) {
        let mut tracker = Tracker::default();
        for &(port, number) in packets {
            tracker.packet(&packet(port, number, 1448), PORT, Instant::now(), true);
        }
        (tracker.arrivals.packets, tracker.arrivals.out_of_order)
    }

    #[test]
    fn packet_that_was_overtaken_is_out_of_order() {
        assert_eq!(arrivals(&[(1, 5), (1, 6), (1, 7)]), (3, 0));
        // 6 and 7 came after 8, which was sent after them.
        assert_eq!(arrivals(&[(1, 5), (1, 8), (1, 6), (1, 7), (1, 9)]), (5, 2));
    }

    #[test]
    fn lost_packet_sent_again_is_not_out_of_order() {
        // 6 was lost; 9 carries its data.
        assert_eq!(arrivals(&[(1, 5), (1, 7), (1, 8), (1, 9)]), (4, 0));
    }

    #[test]
    fn connections_are_apart_and_numbers_go_round() {
        assert_eq!(arrivals(&[(1, 900), (2, 3), (1, 901), (2, 4)]), (4, 0));
        assert_eq!(arrivals(&[(1, 65_535), (1, 0), (1, 65_534)]), (3, 1));
    }

    #[test]
    fn acknowledgements_other_ports_and_what_came_before_do_not_count() {
        let (mut tracker, now) = (Tracker::default(), Instant::now());
        tracker.packet(&packet(1, 1, 0), PORT, now, true);
        tracker.packet(&packet(1, 2, 1448), PORT + 1, now, true);
        tracker.packet(&[0x45, 0], PORT, now, true);
        tracker.packet(&packet(1, 9, 1448), PORT, now, false);
        assert_eq!(tracker.arrivals, Arrivals::default());
        // But they are known.
        tracker.packet(&packet(1, 8, 1448), PORT, now, true);
        assert_eq!(tracker.arrivals.out_of_order, 1);
    }

    #[test]
    fn stall_is_the_longest_time_without_a_packet_while_they_count() {
        let (mut tracker, begin) = (Tracker::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        let packet = packet(1, 1, 1448);
        tracker.wait(at(0), false);
        tracker.packet(&packet, PORT, at(0), false);
        // It begins to count, late.
        tracker.wait(at(700), true);
        for ms in [720, 750, 960] {
            tracker.wait(at(ms), true);
            tracker.packet(&packet, PORT, at(ms), true);
        }
        assert_eq!(tracker.arrivals.longest_stall, Duration::from_millis(210));
        // Nothing any more, up to the end.
        tracker.wait(at(1_010), true);
        tracker.wait(at(1_460), true);
        tracker.wait(at(9_000), false);
        assert_eq!(tracker.arrivals.longest_stall, Duration::from_millis(500));
    }
}
