//! An event loop of one's own: the state machine `cloudburst-proto` on one socket, over `mio`, without an
//! async runtime. [`Host`] is all that it takes; port rotation, offload and DSCP are what it leaves out.
//!
//! `cargo run -p cloudburst-fec --example event_loop`; a server and a client, each in a thread, on loopback.

use std::{
    error::Error,
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU8,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cloudburst_proto::{
    Ecn, Event, FourTuple, Key, MessageKind, PeerId, Security, SocketId, Time, Transport,
    TransportConfig,
};
use mio::{Events, Interest, Poll, Token, net::UdpSocket};

/// The only socket.
const SOCKET: SocketId = SocketId(0);

/// A transport and what it needs: a socket, a clock, and memory for datagrams.
struct Host {
    transport: Transport,
    socket: UdpSocket,
    poll: Poll,
    ready: Events,
    start: Instant,
    buffer: Box<[u8]>,
}

impl Host {
    fn new(security: Security) -> Result<Self, Box<dyn Error>> {
        let mut config = TransportConfig::new(security);
        // There is one port, and it stays. The system has just chosen it: nobody answered there before.
        config.rotate_ports = false;
        config.quiet_before = Duration::MAX;
        // Peers whose clocks differ by less than ten seconds need no round trip before the first message.
        config.unix_time = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let mut socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let poll = Poll::new()?;
        poll.registry()
            .register(&mut socket, Token(0), Interest::READABLE)?;
        Ok(Self {
            transport: Transport::new(config, Time::ZERO)?,
            socket,
            poll,
            ready: Events::with_capacity(8),
            start: Instant::now(),
            buffer: vec![0; 1 << 16].into(),
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    fn connect(&mut self, remote: SocketAddr) -> Result<PeerId, Box<dyn Error>> {
        let path = FourTuple::new(SOCKET, remote);
        Ok(self.transport.connect(self.now(), &[path], None)?)
    }

    fn send(
        &mut self,
        to: PeerId,
        kind: MessageKind,
        message: &[u8],
    ) -> Result<(), Box<dyn Error>> {
        self.transport.send(self.now(), to, kind, message)?;
        Ok(())
    }

    /// Goes on until something happens; after an event it is to be called again.
    fn next_event(&mut self) -> Result<Event, Box<dyn Error>> {
        loop {
            self.transport.handle_timeout(self.now());
            self.transmit()?;
            if let Some(event) = self.transport.poll_event() {
                return Ok(event);
            }
            let now = self.now();
            let wait = self.transport.next_deadline().map(|at| at.since(now));
            match self.poll.poll(&mut self.ready, wait) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
                _ => self.receive()?,
            }
        }
    }

    /// Sends what is due. What the socket has no room for is lost, and made up for by code.
    fn transmit(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(train) = self.transport.poll_transmit(self.now(), &mut self.buffer) {
            for datagram in self.buffer[..train.bytes].chunks(train.segment_bytes) {
                match self.socket.send_to(datagram, train.four_tuple.remote) {
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                        self.transport
                            .handle_unreachable(self.now(), train.four_tuple);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Hands over what has come, until the socket is empty: `mio` announces each arrival once.
    fn receive(&mut self) -> Result<(), Box<dyn Error>> {
        loop {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((bytes, remote)) => {
                    let path = FourTuple::new(SOCKET, remote);
                    let (now, datagram) = (self.now(), &mut self.buffer[..bytes]);
                    self.transport
                        .handle_datagram(now, path, Ecn::NotCapable, datagram);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // An earlier datagram of ours reached nobody: a peer is gone, and others are not.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset
                    ) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // A real key is random, from a file: `cloudburst keygen --shared`.
    let security = Security::shared_key(Key::new(NonZeroU8::MIN, [42; 32]));
    let mut server = Host::new(security.clone())?;
    let address = server.socket.local_addr()?;
    std::thread::spawn(move || {
        let error = serve(&mut server).unwrap_err();
        eprintln!("the server ends: {error}");
    });

    let mut client = Host::new(security)?;
    let peer = client.connect(address)?;
    for question in ["burst", "splitter"] {
        client.send(peer, MessageKind::Request, question.as_bytes())?;
        let asked = Instant::now();
        let reply = loop {
            match client.next_event()? {
                Event::Received { message, .. } => break String::from_utf8(message)?,
                Event::Undelivered { failure, .. } => return Err(failure.into()),
                _ => {}
            }
        };
        println!("{question}: {reply}");
        assert!(asked.elapsed() < Duration::from_secs(10));
    }
    Ok(())
}

/// Answers each request with its letters in reverse. A peer that has gone or takes no answers ends nothing:
/// others are still there.
fn serve(host: &mut Host) -> Result<std::convert::Infallible, Box<dyn Error>> {
    loop {
        let event = host.next_event()?;
        if let Event::Received {
            peer,
            id,
            kind: MessageKind::Request,
            message,
            ..
        } = event
        {
            let reply: Vec<u8> = message.into_iter().rev().collect();
            if let Err(error) = host.send(peer, MessageKind::Reply { to: id }, &reply) {
                eprintln!("no answer: {error}");
            }
        }
    }
}
