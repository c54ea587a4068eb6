//! How connections begin: TCP's handshake, and the answer that waits for its request.

use std::io::Read;

use super::super::connection::{SYN_TIMEOUT_NS, Transfer};
use super::super::event::{Event, Handle, Packet, PacketKind, Side, Step};
use super::World;

/// Options that a SYN has beside those of later packets (see `FlowRecord::payload_out`).
const SYN_OPTION_BYTES: u32 = 8;
/// The timer of a handshake is not doubled more often.
const MOST_DOUBLINGS: u32 = 6;

impl<R: Read> World<R> {
    /// A connection starts now: with a handshake, or with what there is.
    pub(super) fn begin(&mut self, handle: Handle) {
        let Some(connection) = self.connections.get(handle) else {
            return;
        };
        if connection.has_handshake {
            self.send_handshake(handle, Step::Syn);
            self.await_handshake(handle, 0);
            return;
        }
        self.open(handle, Side::Site);
        self.open_remote(handle);
    }

    pub(super) fn on_handshake(&mut self, handle: Handle, step: Step) {
        match step {
            Step::Syn => self.send_handshake(handle, Step::SynAck),
            Step::SynAck => {
                self.send_handshake(handle, Step::Ack);
                self.open(handle, Side::Site);
            }
            Step::Ack => self.open_remote(handle),
        }
    }

    /// What is lost of a handshake is sent again. The remote side sends its part again as well, so that the
    /// site's last step comes again; that takes half a round trip less here.
    pub(super) fn on_handshake_timer(&mut self, handle: Handle) {
        let Some(connection) = self.connections.get(handle) else {
            return;
        };
        let [site, remote] = connection.is_open;
        let waits_for_request = connection.answers && site;
        if (site && remote) || waits_for_request {
            // A request that is sent again opens the other side too.
            return;
        }
        connection.attempts += 1;
        let attempts = connection.attempts;
        self.count.timeouts += 1;
        let step = if site { Step::Ack } else { Step::Syn };
        self.send_handshake(handle, step);
        self.await_handshake(handle, attempts);
    }

    /// The remote side has heard from the site: it may send, unless it answers a request that is not whole.
    pub(super) fn open_remote(&mut self, handle: Handle) {
        let Some(connection) = self.connections.get(handle) else {
            return;
        };
        let request = connection.transfers[Side::Site as usize].as_ref();
        let is_asked = request.is_none_or(Transfer::has_arrived);
        if is_asked || !connection.answers {
            self.open(handle, Side::Remote);
        }
    }

    fn open(&mut self, handle: Handle, side: Side) {
        let Some(connection) = self.connections.get(handle) else {
            return;
        };
        if std::mem::replace(&mut connection.is_open[side as usize], true) {
            return;
        }
        self.await_pace(handle, side);
        self.transmit(handle, side);
        self.restart_timer(handle, side);
    }

    fn await_handshake(&mut self, handle: Handle, attempts: u32) {
        let timeout_ns = SYN_TIMEOUT_NS << attempts.min(MOST_DOUBLINGS);
        let at_ns = self.events.now_ns() + timeout_ns;
        self.events.push(at_ns, Event::Handshake(handle));
    }

    fn send_handshake(&mut self, handle: Handle, step: Step) {
        let stamp_ns = self.events.now_ns();
        let Some(connection) = self.connections.get(handle) else {
            return;
        };
        let (from, options) = match step {
            Step::Syn => (Side::Site, SYN_OPTION_BYTES),
            Step::SynAck => (Side::Remote, SYN_OPTION_BYTES),
            Step::Ack => (Side::Site, 0),
        };
        let packet = Packet {
            connection: handle,
            from,
            sender: from,
            kind: PacketKind::Handshake(step),
            bytes: connection.header_bytes + options,
            stamp_ns,
        };
        self.forward(packet, 0);
    }
}
