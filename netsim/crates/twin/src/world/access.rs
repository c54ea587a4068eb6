//! How packets come to a border: over the link of its hosts, or behind it.

use std::io::Read;

use splitter_policy::flow::Class;

use super::super::connection::Transfer;
use super::super::event::{Event, Handle, Packet, PacketKind, Side};
use super::super::port::{Discipline, Port};
use super::super::settings::TwinSettings;
use super::World;

/// Ports of hosts have the numbers from here on, one for each side.
const FIRST: usize = 2 * TwinSettings::MOST_UPLINKS;

/// The link of a side's hosts, if it is bound. Hosts hold back what it does not take: it loses nothing.
pub(super) fn port(settings: &TwinSettings) -> Option<Port> {
    let rate = settings.access_bits_per_second?.max(1);
    Some(Port::new(rate, 0, Discipline::Fifo, u64::MAX))
}

/// The side whose hosts' port has this number, if one has.
pub(super) fn side(number: usize) -> Option<Side> {
    match number.checked_sub(FIRST)? {
        0 => Some(Side::Site),
        _ => Some(Side::Remote),
    }
}

impl<R: Read> World<'_, R> {
    /// A host sends a packet to its border.
    pub(super) fn send(&mut self, packet: Packet, payload_bytes: u32) {
        let now_ns = self.events.now_ns();
        let side = packet.from as usize;
        match &mut self.access[side] {
            None => self.forward(packet, payload_bytes),
            Some(port) => {
                if let Some(free_ns) = port.take(packet, Class::Short, now_ns) {
                    self.events
                        .push(free_ns, Event::PortFree((FIRST + side) as u16));
                }
            }
        }
    }

    /// The link of a side's hosts has brought a packet to the border.
    pub(super) fn access_free(&mut self, side: Side) {
        let now_ns = self.events.now_ns();
        let number = side as usize;
        let Some(port) = &mut self.access[number] else {
            return;
        };
        let (sent, free_ns) = port.free(now_ns);
        if let Some(free_ns) = free_ns {
            self.events
                .push(free_ns, Event::PortFree((FIRST + number) as u16));
        }
        if let Some(packet) = sent {
            let payload_bytes = self.payload_of(&packet);
            self.forward(packet, payload_bytes);
        }
    }

    fn payload_of(&mut self, packet: &Packet) -> u32 {
        let PacketKind::Data { number, .. } = packet.kind else {
            return 0;
        };
        let connection = self.connections.get(packet.connection);
        let transfer: Option<&mut Transfer> = connection.and_then(|it| it.transfer(packet.sender));
        transfer.map_or(0, |it| it.payload_of(number) as u32)
    }

    /// Waits for the next datagram of other traffic.
    pub(super) fn await_cross(&mut self) {
        if let Some(at_ns) = self.beside.draw() {
            self.events.push(at_ns, Event::Cross);
        }
    }

    /// A datagram of other traffic has come to its uplink.
    pub(super) fn cross_due(&mut self) {
        let now_ns = self.events.now_ns();
        if let Some(cross) = self.beside.next.take() {
            let from = match cross.to_site {
                true => Side::Remote,
                false => Side::Site,
            };
            let packet = Packet {
                connection: Handle::NONE,
                from,
                sender: from,
                kind: PacketKind::Cross,
                bytes: cross.bytes,
                stamp_ns: now_ns,
                at_border_ns: now_ns,
            };
            let side = from as usize;
            let uplink = cross.uplink.min(self.ports[side].len() - 1);
            self.count.hops += 1;
            if let Some(free_ns) = self.ports[side][uplink].take(packet, Class::Long, now_ns) {
                self.await_port(side, uplink, free_ns);
            }
        }
        self.await_cross();
    }
}
