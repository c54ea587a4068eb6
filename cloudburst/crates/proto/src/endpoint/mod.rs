//! The endpoint: what the host calls.

#[cfg(test)]
mod paper_tests;
#[cfg(test)]
mod tests;

use super::{
    config::{Config, ConfigError, Mode},
    event::{
        ConnectError, Ecn, Event, Kind, PathReport, PeerId, Route, SendError, SendId, SocketId,
        Transmit,
    },
    native::Native,
    packet::Keyring,
    paper::Paper,
    statistics::Statistics,
    time::Time,
};

/// Sends and receives messages; see the [module](super).
///
/// Memory: some 3 KiB for a peer, 1 KiB for each of its paths and 36 bytes for each route beyond
/// 64; for an outgoing message its bytes and 200; for an incoming one twice its bytes and
/// 1.3 KiB for each 64 symbols. With [`Mode::Paper`] a peer that is sent to
/// takes 12 KiB.
#[derive(Debug)]
pub struct Endpoint {
    machine: Machine,
}

/// What speaks the configured format.
#[derive(Debug)]
enum Machine {
    Native(Box<Native>),
    Paper(Box<Paper>),
}

/// The same call to whichever machine there is.
macro_rules! call {
    ($endpoint:expr, $machine:ident => $call:expr) => {
        match &mut $endpoint.machine {
            Machine::Native($machine) => $call,
            Machine::Paper($machine) => $call,
        }
    };
    (ref $endpoint:expr, $machine:ident => $call:expr) => {
        match &$endpoint.machine {
            Machine::Native($machine) => $call,
            Machine::Paper($machine) => $call,
        }
    };
}

impl Endpoint {
    /// `seed` decides all that is random: sessions, message ids, tokens' secret.
    /// Never use one twice with the same keys.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn new(config: Config, seed: [u8; 32], now: Time) -> Result<Self, ConfigError> {
        config.validate()?;
        let machine = match config.mode {
            Mode::Native => Machine::Native(Box::new(Native::new(config, seed, now))),
            Mode::Paper => Machine::Paper(Box::new(Paper::new(config, seed, now))),
        };
        Ok(Self { machine })
    }

    /// A peer to send to, by these routes: the pool of ways that is chosen from. Of more than 64
    /// the others take the place of those that turn out not to deliver.
    /// Of a peer that is known already by one of the addresses the others become
    /// routes too, and its id is returned. With [`Mode::Paper`] a peer is known
    /// by its IP address whatever the port.
    ///
    /// # Errors
    ///
    /// If there is no route, or no room for another peer.
    pub fn connect(&mut self, now: Time, routes: &[Route]) -> Result<PeerId, ConnectError> {
        call!(self, machine => machine.connect(now, routes))
    }

    /// Another route to a peer. Whether it is new, and there is room for it; if there is none, it
    /// is kept for when others do not deliver.
    pub fn add_route(&mut self, now: Time, peer: PeerId, route: Route) -> bool {
        call!(self, machine => machine.add_route(now, peer, route))
    }

    /// A socket is gone: its routes are not used any more.
    pub fn remove_socket(&mut self, now: Time, socket: SocketId) {
        call!(self, machine => machine.remove_socket(now, socket));
    }

    /// A socket has another port, as [`Event::ReplacePort`] asks for: its routes begin anew, as
    /// paths with other numbers, and get symbols once something has been heard of them. What
    /// still arrives at the port before is to be handed over as from this socket.
    pub fn port_replaced(&mut self, now: Time, socket: SocketId) {
        if let Machine::Native(machine) = &mut self.machine {
            machine.port_replaced(now, socket);
        }
    }

    /// Takes a message, of which it keeps a copy until it is delivered or given
    /// up; [`Event::Delivered`] or [`Event::Undelivered`] follows.
    ///
    /// With [`Mode::Paper`] up to 256 messages to a peer are under way; more
    /// wait for an id to be free, and their time runs.
    ///
    /// # Errors
    ///
    /// See [`SendError`]; nothing is sent then.
    pub fn send(
        &mut self,
        now: Time,
        peer: PeerId,
        kind: Kind,
        message: &[u8],
    ) -> Result<SendId, SendError> {
        call!(self, machine => machine.send(now, peer, kind, message))
    }

    /// Tells how many more messages the host has room for. If that many are
    /// arriving already, those who came by themselves are told to try again
    /// later (with [`Mode::Paper`], nothing); a peer that we are connected to may
    /// still send, for it may be a reply that is waited for.
    pub fn set_host_room(&mut self, messages: usize) {
        call!(self, machine => machine.set_host_room(messages));
    }

    /// Gives a message up, if it is not delivered: [`Event::Undelivered`] follows.
    pub fn cancel(&mut self, now: Time, id: SendId) {
        call!(self, machine => machine.cancel(now, id));
    }

    /// Forgets a peer: its messages are given up ([`Event::Undelivered`] for those of ours),
    /// its memory is freed, and [`Event::PeerGone`] follows. What of it is still under way comes
    /// as from a new peer, and may be handed over once more; with [`Mode::Paper`] also ids that
    /// rest are forgotten.
    pub fn forget(&mut self, now: Time, peer: PeerId) {
        call!(self, machine => machine.forget_peer(now, peer));
    }

    /// Takes one datagram, which is decrypted in place. Of a train that the
    /// kernel has put together (GRO) each has to be handed over by itself.
    pub fn handle_datagram(&mut self, now: Time, route: Route, ecn: Ecn, datagram: &mut [u8]) {
        call!(self, machine => machine.handle_datagram(now, route, ecn, datagram));
    }

    /// The network says that nobody is there (ICMP), or the socket cannot send.
    pub fn handle_unreachable(&mut self, now: Time, route: Route) {
        call!(self, machine => machine.handle_unreachable(now, route));
    }

    /// A datagram of this length was too long for the socket or the way
    /// (EMSGSIZE). With [`Mode::Paper`] it is a loss like any other: datagrams
    /// have the one length that is configured.
    pub fn handle_too_big(&mut self, now: Time, route: Route, bytes: usize) {
        if let Machine::Native(machine) = &mut self.machine {
            machine.handle_too_big(now, route, bytes);
        }
    }

    /// Does what is due. To be called when [`next_deadline`](Self::next_deadline)
    /// has come; a call too many does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        call!(self, machine => machine.handle_timeout(now));
    }

    /// Writes the next datagrams to the beginning of `out`: several for the same
    /// way if there are many to be sent, all of the same length but perhaps the
    /// last. Nothing, if nothing is to be sent now.
    ///
    /// `out` has to hold the longest datagram that is configured; 64 KiB are
    /// best.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        call!(self, machine => machine.poll_transmit(now, out))
    }

    /// What happened next, if anything did.
    pub fn poll_event(&mut self) -> Option<Event> {
        call!(self, machine => machine.poll_event())
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called at the
    /// latest. A moment that is over means: now.
    pub fn next_deadline(&self) -> Option<Time> {
        call!(ref self, machine => machine.next_deadline())
    }

    /// What was counted so far.
    pub fn statistics(&self) -> Statistics {
        call!(ref self, machine => machine.statistics())
    }

    /// Everyone known.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        let (native, paper) = self.machines();
        let native = native.into_iter().flat_map(Native::peers);
        native.chain(paper.into_iter().flat_map(Paper::peers))
    }

    /// What is known of the ways to a peer, at this time; none if it is not known.
    pub fn paths(&self, now: Time, peer: PeerId) -> impl Iterator<Item = PathReport> + '_ {
        let (native, paper) = self.machines();
        let native = native.into_iter();
        native
            .flat_map(move |native| native.paths(now, peer))
            .chain(paper.into_iter().flat_map(move |paper| paper.paths(peer)))
    }

    /// Uses other keys from now on: the first for sending, each for receiving.
    /// Sessions go on. To change a key without a gap, give all endpoints a ring
    /// with both, the old one in front; then one with the new one in front; then
    /// one without the old. With [`Mode::Paper`], which has no keys, nothing
    /// changes.
    pub fn set_keys(&mut self, keys: Keyring) {
        if let Machine::Native(machine) = &mut self.machine {
            machine.set_keys(keys);
        }
    }

    /// One of both, whichever there is.
    fn machines(&self) -> (Option<&Native>, Option<&Paper>) {
        match &self.machine {
            Machine::Native(native) => (Some(native), None),
            Machine::Paper(paper) => (None, Some(paper)),
        }
    }
}
