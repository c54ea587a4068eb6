//! How connections begin: TCP's handshake, and the answer that waits for its request.

use std::io::Read;

use super::super::connection::{SYN_TIMEOUT_NS, Transfer};
use super::super::event::{Event, Handle, Packet, PacketKind, Side, Step};
use super::World;

/// Options that a SYN has beside those of later packets (see `FlowRecord::payload_out`).
const SYN_OPTION_BYTES: u32 = 8;
/// The timer of a handshake is not doubled more often.
const MOST_DOUBLINGS: u32 = 6;

impl<R: Read> World<'_, R> {
    /// A connection starts now: with a handshake, or with what there is.
    pub(super) fn begin(&mut self, handle: Handle) {
        let Some(connection) = self.connections.get(handle) else {
            return;
        };
        let opener = connection.opener;
        if connection.has_handshake {
            self.send_handshake(handle, Step::Syn);
            self.await_handshake(handle, 0);
            return;
        }
        self.open(handle, opener);
        self.heard(handle, opener.other());
    }

    pub(super) fn on_handshake(&mut self, packet: &Packet, step: Step) {
        let handle = packet.connection;
        match step {
            Step::Syn => self.send_handshake(handle, Step::SynAck),
            Step::SynAck => {
                self.send_handshake(handle, Step::Ack);
                self.open(handle, packet.from.other());
            }
            Step::Ack => self.heard(handle, packet.from.other()),
        }
    }

    /// What is lost of a handshake is sent again. The side that was asked sends its part again as well, so that
    /// the opener's last step comes again; that takes half a round trip less here.
    pub(super) fn on_handshake_timer(&mut self, handle: Handle) {
        let Some(connection) = self.connections.get(handle) else {
            return;
        };
        let opener = connection.opener;
        let [has_opened, is_heard] =
            [opener, opener.other()].map(|it| connection.is_open[it as usize]);
        // A request that is sent again is heard, too.
        if has_opened && (is_heard || connection.answers) {
            return;
        }
        connection.attempts += 1;
        let attempts = connection.attempts;
        self.count.timeouts += 1;
        let step = if has_opened { Step::Ack } else { Step::Syn };
        self.send_handshake(handle, step);
        self.await_handshake(handle, attempts);
    }

    /// A side has heard from the one that opened: it may send, unless it answers a request that is not whole.
    pub(super) fn heard(&mut self, handle: Handle, side: Side) {
        let Some(connection) = self.connections.get(handle) else {
            return;
        };
        let request = connection.transfers[side.other() as usize].as_ref();
        let is_whole = request.is_none_or(Transfer::has_arrived);
        if side != connection.opener && (is_whole || !connection.answers) {
            self.open(handle, side);
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
        let opener = connection.opener;
        let (from, options) = match step {
            Step::Syn => (opener, SYN_OPTION_BYTES),
            Step::SynAck => (opener.other(), SYN_OPTION_BYTES),
            Step::Ack => (opener, 0),
        };
        let packet = Packet {
            connection: handle,
            from,
            sender: from,
            kind: PacketKind::Handshake(step),
            bytes: connection.header_bytes + options,
            stamp_ns,
            at_border_ns: stamp_ns,
        };
        self.send(packet, 0);
    }
}
