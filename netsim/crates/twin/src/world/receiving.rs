//! How hosts take segments, and when they acknowledge them.

use std::io::Read;

use super::super::connection::{QUICK_ACKS, Transfer, Unacknowledged};
use super::super::event::{Event, Handle, Packet, PacketKind, Side};
use super::{World, completed};

/// A segment waits so long for another one to be acknowledged with (RFC 9293 §3.8.6.3 allows half a second;
/// Linux takes 40 ms).
const DELAYED_ACK_NS: u64 = 40_000_000;

impl<R: Read> World<'_, R> {
    pub(super) fn on_data(&mut self, packet: &Packet, number: u32, is_retransmission: bool) {
        let now_ns = self.events.now_ns();
        let Some(connection) = self.connections.get(packet.connection) else {
            return;
        };
        let Some(transfer) = connection.transfer(packet.sender) else {
            return;
        };
        let expected = transfer.receiver.missing();
        let is_new = transfer.receiver.on_segment(number, is_retransmission);
        let is_last = is_new && transfer.has_arrived();
        let is_next = number == expected && transfer.receiver.missing() == expected + 1;
        let waits = is_next && !is_last && may_wait(transfer);
        let missing = transfer.receiver.missing();
        // The time stamp of the first of both comes back (RFC 7323 §4.3).
        let earlier = transfer.unacknowledged.take();
        let stamp_ns = earlier.map_or(packet.stamp_ns, |it| it.stamp_ns);
        if waits && earlier.is_none() {
            transfer.unacknowledged = Some(Unacknowledged { missing, stamp_ns });
            let event = Event::DelayedAck(packet.connection, packet.sender, missing);
            self.events.push(now_ns + DELAYED_ACK_NS, event);
        } else {
            if is_last {
                completed(&mut self.count, connection, now_ns, &self.uplinks);
                self.beside.completed(connection, now_ns);
            }
            self.acknowledge(
                packet.connection,
                packet.sender,
                (missing, number),
                stamp_ns,
            );
        }
        // It acknowledges the handshake as well.
        self.heard(packet.connection, packet.sender.other());
    }

    /// A segment has waited for long enough, unless it was acknowledged meanwhile.
    pub(super) fn on_delayed_ack(&mut self, handle: Handle, sender: Side, missing: u32) {
        let connection = self.connections.get(handle);
        let Some(transfer) = connection.and_then(|it| it.transfer(sender)) else {
            return;
        };
        let waits = transfer.unacknowledged.take_if(|it| it.missing == missing);
        if let Some(Unacknowledged { stamp_ns, .. }) = waits {
            self.acknowledge(handle, sender, (missing, missing - 1), stamp_ns);
        }
    }

    fn acknowledge(
        &mut self,
        handle: Handle,
        sender: Side,
        (missing, trigger): (u32, u32),
        stamp_ns: u64,
    ) {
        let Some(connection) = self.connections.get(handle) else {
            return;
        };
        let ack = Packet {
            connection: handle,
            from: sender.other(),
            sender,
            kind: PacketKind::Ack { missing, trigger },
            bytes: connection.header_bytes,
            stamp_ns,
            at_border_ns: self.events.now_ns(),
        };
        self.send(ack, 0);
    }
}

/// A segment in order may wait for the next one, if nothing is missing and the connection is not young. The
/// last one may not: a FIN comes with it.
fn may_wait(transfer: &Transfer) -> bool {
    let is_whole = transfer.receiver.count() == transfer.receiver.missing();
    is_whole && transfer.receiver.count() > QUICK_ACKS
}
