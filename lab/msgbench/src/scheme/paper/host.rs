//! The paper's machine on UDP sockets: its clock, its timer, and what goes in and out.

use std::{
    cell::RefCell,
    collections::HashSet,
    io,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use cloudburst_proto::{
    CongestionControl, Ecn, Event, FourTuple, Machine, MessageKind, PeerId, Reservation, SendId,
    SocketId, Time,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{net::UdpSocket, sync::mpsc, task::spawn_local};

use super::{SocketSpec, timer::Timer};
use crate::measurement::LIMIT;

/// What a symbol carries: a frame of Ethernet less the headers of IP and UDP and the paper's own.
#[cfg(test)]
pub(super) const SYMBOL_BYTES: usize = 1_460;
/// The longest message: 64 symbols (§III-D).
pub(super) const MAX_MESSAGE_BYTES: usize = 64 * 1_460;
/// More than any datagram here.
const BUFFER_BYTES: usize = 2_048;
/// As for QUIC: the default holds some 100 packets.
const SOCKET_BUFFER_BYTES: usize = 2 << 20;
/// Four-tuples of peers that are noted, at most; a rig has far fewer.
const MOST_FOUR_TUPLES: usize = 1_024;

/// An endpoint. What it works at are tasks of the thread's [`LocalSet`](tokio::task::LocalSet), and end with it.
pub(super) struct Host {
    machine: RefCell<Box<dyn Machine>>,
    sockets: Vec<UdpSocket>,
    /// The ways to peers that the machine has been told of.
    known: RefCell<HashSet<FourTuple>>,
    events: mpsc::UnboundedSender<Event>,
    timer: Timer,
    start: Instant,
}

impl Host {
    /// Starts an endpoint with these sockets, whose datagrams have this DSCP and whose link carries so much. Its
    /// events come by the channel.
    pub(super) fn start(
        sockets: &[SocketSpec],
        dscp: u8,
        link_bits_per_s: u64,
    ) -> Result<(Rc<Self>, mpsc::UnboundedReceiver<Event>)> {
        let sockets = sockets.iter().map(|it| {
            let (own, _) = it;
            bind(*it, dscp).with_context(|| format!("cannot bind a socket to {own}"))
        });
        let (events, received) = mpsc::unbounded_channel();
        let machine = machine(link_bits_per_s)?;
        let host = Rc::new(Self {
            machine: RefCell::new(machine),
            sockets: sockets.collect::<Result<_>>()?,
            known: RefCell::default(),
            events,
            timer: Timer::new().context("cannot make a timer")?,
            start: Instant::now(),
        });
        for socket in 0..host.sockets.len() {
            spawn_local(Rc::clone(&host).receive(socket));
        }
        spawn_local(Rc::clone(&host).keep_time());
        Ok((host, received))
    }

    /// Waits until all sockets take datagrams.
    pub(super) async fn wait_until_ready(&self) -> io::Result<()> {
        for socket in &self.sockets {
            socket.writable().await?;
        }
        Ok(())
    }

    /// Makes a peer known by a way from each socket.
    pub(super) fn connect(&self, remote: SocketAddr) -> Result<PeerId> {
        let sockets = 0..self.sockets.len() as u16;
        let ways: Vec<_> = sockets
            .map(|socket| FourTuple::new(SocketId(socket), remote))
            .collect();
        self.known.borrow_mut().extend(ways.iter().copied());
        let mut machine = self.machine.borrow_mut();
        Ok(machine.connect(self.now(), &ways, None)?)
    }

    /// Sends a message until it is stopped.
    pub(super) fn send(&self, peer: PeerId, message: &[u8]) -> Result<SendId> {
        let now = self.now();
        let sent = self
            .machine
            .borrow_mut()
            .send(now, peer, MessageKind::Message, message)?;
        self.pump();
        Ok(sent)
    }

    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// Sends what is due, hands events on, and sets the timer.
    fn pump(&self) {
        let mut machine = self.machine.borrow_mut();
        let mut datagram = [0; BUFFER_BYTES];
        machine.handle_timeout(self.now());
        while let Some(transmit) = machine.poll_transmit(self.now(), &mut datagram) {
            let FourTuple { socket, remote, .. } = transmit.four_tuple;
            if let Some(socket) = self.sockets.get(usize::from(socket.0)) {
                // What the socket has no room for is lost, and made up for by code.
                let _ = socket.try_send_to(&datagram[..transmit.bytes], remote);
            }
        }
        while let Some(event) = machine.poll_event() {
            // Nobody listens any more when the measurement is over.
            let _ = self.events.send(event);
        }
        let wait = machine.next_deadline().map(|at| at.since(self.now()));
        self.timer.set(wait);
    }

    async fn keep_time(self: Rc<Self>) {
        while self.timer.expired().await.is_ok() {
            self.pump();
        }
    }

    async fn receive(self: Rc<Self>, index: usize) {
        let socket = &self.sockets[index];
        let mut buffer = [0; BUFFER_BYTES];
        while socket.readable().await.is_ok() {
            loop {
                match socket.try_recv_from(&mut buffer) {
                    Ok((bytes, remote)) => self.take(index, remote, &mut buffer[..bytes]),
                    // An earlier datagram reached nobody.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(_) => break,
                }
            }
            self.pump();
        }
    }

    fn take(&self, index: usize, remote: SocketAddr, datagram: &mut [u8]) {
        let four_tuple = FourTuple::new(SocketId(index as u16), remote);
        let now = self.now();
        let mut machine = self.machine.borrow_mut();
        let mut known = self.known.borrow_mut();
        // Who asks is answered on every path that it asks by. The machine would send an address that it was not
        // told of no more than three times what came from there, which the paper does not know.
        if known.len() < MOST_FOUR_TUPLES && known.insert(four_tuple) {
            let _ = machine.connect(now, &[four_tuple], None);
        }
        machine.handle_datagram(now, four_tuple, Ecn::NotCapable, datagram);
    }
}

/// Algorithm 1 at *r* = 1, with no end but the stop and its timer.
fn machine(link_bits_per_s: u64) -> Result<Box<dyn Machine>> {
    let mut config = paper_machine::config();
    // Its open loop is what is measured: losses do not end it.
    let reservation = Reservation::new(link_bits_per_s)
        .with_share(1.0)
        .with_most_loss(1.0);
    config.congestion = CongestionControl::Reserved(reservation);
    config.budget.symbols_factor = f64::from(u32::MAX);
    config.budget.lifetime = LIMIT;
    let seed = rand::random();
    let machine = paper_machine::start(true, config, seed, Time::ZERO);
    machine.context("cannot start the paper's machine")
}

fn bind((own, only): SocketSpec, dscp: u8) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(own), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_tos_v4(u32::from(dscp) << 2)?;
    if let Some(only) = only {
        // Others have the same port, for other peers.
        socket.set_reuse_address(true)?;
        socket.bind(&own.into())?;
        socket.connect(&only.into())?;
    } else {
        socket.bind(&own.into())?;
    }
    UdpSocket::from_std(socket.into())
}

/// The shortest wait that a timer takes for one.
pub(super) const LEAST_WAIT: Duration = Duration::from_micros(1);
