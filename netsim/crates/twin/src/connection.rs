//! Connections of a recording: one transfer a direction, by the simulator's TCP.

use flow_recording::{Count, FlowRecord, Transport};
use flow_tcp::{CongestionControl, LossRecovery, Receiver, Sender, Settings};

use super::border::BorderFlow;
use super::event::{Handle, Side};
use super::settings::{TwinSettings, Uplink};

/// Whoever sent a SYN sends it again after so long, and after twice that the next time (RFC 6298 §2.1).
pub(super) const SYN_TIMEOUT_NS: u64 = 1_000_000_000;

/// So many segments of a transfer are acknowledged at once, so that slow start is not held up (Linux, and
/// RFC 5681 §4.2 allows it).
pub(super) const QUICK_ACKS: u32 = 16;

/// From so many packets on, a direction with little payload may have none.
const MANY_PACKETS: u64 = 100;
/// Little: one in three acknowledgements reports a gap.
const OPTIONS_PER_PACKET_BYTES: u64 = 4;

/// Payload of a full segment: an MTU of 1,500 bytes with time stamps.
pub(super) const MSS_BYTES: u64 = 1_448;
/// A flow that is this slow for this long is so by itself: it is paced as it came.
const PACED_RATE: f64 = 0.1;
const PACED_US: u64 = 10_000_000;

/// Properties of hosts that follow from the uplinks, whatever the scheme.
#[derive(Debug)]
pub(super) struct Hosts {
    transport: Settings,
    slowest_bits_per_second: u64,
    slowest_round_trip_ns: u64,
}

/// A connection that is under way.
#[derive(Debug)]
pub(super) struct Connection {
    /// By the side that sends.
    pub(super) transfers: [Option<Transfer>; 2],
    /// State that borders keep of each direction, acknowledgements of the other one's data included.
    pub(super) flows: [BorderFlow; 2],
    /// Hash of the flow, the same for all of its packets.
    pub(super) hash: u64,
    /// Number of its flow among those of the recording that were due, from 0.
    pub(super) number: u64,
    /// Headers on each packet.
    pub(super) header_bytes: u32,
    pub(super) start_ns: u64,
    /// By the side: it may send.
    pub(super) is_open: [bool; 2],
    /// It begins with a handshake.
    pub(super) has_handshake: bool,
    /// The side that opens it.
    pub(super) opener: Side,
    /// Handshakes that were begun again.
    pub(super) attempts: u32,
    /// The remote side begins when all of the site's payload has come: it answers a request.
    pub(super) answers: bool,
    /// Class that its completion time counts for; none if it does not count.
    counts_as: Option<RecordedClass>,
}

/// Payload on its way in one direction.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) bytes: u64,
    pub(super) segments: u32,
    /// Time between segments that are not there from the start.
    pub(super) pace_ns: Option<u64>,
    /// A segment that has come and waits to be acknowledged with the next one.
    pub(super) unacknowledged: Option<Unacknowledged>,
    /// Times at which the timer expires, and at which its pending event comes.
    pub(super) deadline_ns: u64,
    pub(super) pending_ns: Option<u64>,
}

/// A segment that was not acknowledged yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unacknowledged {
    /// The first segment that is missing since.
    pub(super) missing: u32,
    pub(super) stamp_ns: u64,
}

/// The class of a flow by what was recorded of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordedClass {
    Short,
    Long,
}

impl Hosts {
    /// TCP as most servers speak it: CUBIC is the default of Linux, Windows, macOS and FreeBSD.
    pub(super) fn new(settings: &TwinSettings) -> Self {
        let uplinks = || settings.uplinks.iter();
        // What fills an uplink and the queue in front of it, and as much again for a flow that takes two.
        let fills = uplinks().map(|it| {
            let seconds = it.round_trip_ns as f64 / 1e9 + settings.buffer_ms as f64 / 1e3;
            (it.bits_per_second as f64 / 8.0 * seconds / MSS_BYTES as f64) as u32
        });
        let transport = Settings {
            control: CongestionControl::Cubic,
            recovery: LossRecovery::Sack,
            rto_min_us: 200_000,
            ..Settings::default()
        };
        let fills = fills.max().unwrap_or(0).saturating_mul(2);
        Self {
            transport: Settings {
                max_window: transport.max_window.max(fills),
                ..transport
            },
            slowest_bits_per_second: uplinks().map(|it| it.bits_per_second).min().unwrap_or(0),
            slowest_round_trip_ns: uplinks().map(|it| it.round_trip_ns).max().unwrap_or(0),
        }
    }

    fn sender(&self, segments: u32) -> Sender {
        let mut sender = Sender::new(segments, &self.transport);
        // What the handshake would have measured at the worst: a first timeout that is shorter than a
        // round trip would send everything twice.
        sender.rto.measured(self.slowest_round_trip_ns);
        sender
    }
}

impl Connection {
    /// The connection of a recorded flow that starts now; `None` where it carried nothing. Both
    /// directions are long where one is: most packets of the other acknowledge it.
    pub(super) fn new(
        record: &FlowRecord,
        (number, hash): (u64, u64),
        now_ns: u64,
        hosts: &Hosts,
        is_long: impl Fn(Count) -> bool,
    ) -> Option<Self> {
        let class = if is_long(record.out) || record.back.is_some_and(is_long) {
            RecordedClass::Long
        } else {
            RecordedClass::Short
        };
        let payloads = payloads(record);
        let paces_ns = payloads.map(|bytes| pace_ns(record, bytes, hosts));
        let is_paced = paces_ns.iter().any(Option::is_some);
        let [out, back] = [0, 1].map(|it| {
            let (bytes, pace_ns) = (payloads[it], paces_ns[it]);
            let segments = segments_of(bytes);
            (bytes > 0).then(|| Transfer {
                sender: hosts.sender(if pace_ns.is_some() { 1 } else { segments }),
                receiver: Receiver::default(),
                bytes,
                segments,
                pace_ns,
                unacknowledged: None,
                deadline_ns: 0,
                pending_ns: None,
            })
        });
        // What it is about is not known of a tunnel, nor of what had begun before, or takes its time.
        let is_exchange =
            record.transport != Transport::Tunnel && !record.began_before && !is_paced;
        // How long it takes as a whole is not known of one that had begun before.
        let counts = !is_paced && !record.began_before;
        (out.is_some() || back.is_some()).then(|| Self {
            answers: is_exchange && out.is_some() && back.is_some(),
            // Who opens a connection has something to say.
            opener: if out.is_some() {
                Side::Site
            } else {
                Side::Remote
            },
            transfers: [out, back],
            flows: [BorderFlow::default(); 2],
            hash,
            number,
            header_bytes: record.header_bytes() as u32,
            start_ns: now_ns,
            is_open: [false; 2],
            has_handshake: record.transport == Transport::Tcp && !record.began_before,
            attempts: 0,
            counts_as: counts.then_some(class),
        })
    }

    /// True if one direction of it is paced as it came.
    pub(super) fn is_paced(&self) -> bool {
        let mut transfers = self.transfers.iter().flatten();
        transfers.any(|it| it.pace_ns.is_some())
    }

    /// Class that it counts for as one that has completed, if it does and has.
    pub(super) fn completed_as(&self) -> Option<RecordedClass> {
        self.counts_as.filter(|_| self.has_arrived())
    }

    /// Class that it counts for as one that has not completed, if it does and has not.
    pub(super) fn unfinished_as(&self) -> Option<RecordedClass> {
        self.counts_as.filter(|_| !self.has_arrived())
    }

    /// All of both directions has arrived.
    pub(super) fn has_arrived(&self) -> bool {
        let mut transfers = self.transfers.iter().flatten();
        transfers.all(Transfer::has_arrived)
    }

    /// Time that it takes alone on an uplink, with full windows from the start: round trips and serialisation.
    pub(super) fn alone_ns(&self, uplink: &Uplink) -> f64 {
        let bytes: u64 = self.transfers.iter().flatten().map(|it| it.bytes).sum();
        // Both ways for the handshake and for what is answered, one way for what is not.
        let trips = if self.answers { 1.0 } else { 0.5 } + f64::from(u8::from(self.has_handshake));
        let serialisation_ns = bytes as f64 * 8e9 / uplink.bits_per_second as f64;
        serialisation_ns + trips * uplink.round_trip_ns as f64
    }

    /// Everything has arrived, and the senders know.
    pub(super) fn is_done(&self) -> bool {
        self.transfers.iter().flatten().all(Transfer::is_done)
    }

    pub(super) fn transfer(&mut self, sender: Side) -> Option<&mut Transfer> {
        self.transfers[sender as usize].as_mut()
    }
}

/// Payload of both directions, without what may be options of acknowledgements. Where a direction has many
/// packets, those that report gaps (12 bytes or more, RFC 2018) weigh more than a request does, and half a round
/// trip for a request is little of what that many take.
fn payloads(record: &FlowRecord) -> [u64; 2] {
    let of = |payload: u64, count: Count| {
        let options = count.packets.saturating_mul(OPTIONS_PER_PACKET_BYTES);
        let is_options = count.packets >= MANY_PACKETS && payload <= options;
        if is_options { 0 } else { payload }
    };
    let back = record.back.unwrap_or_default();
    let (out, back) = (
        of(record.payload_out(), record.out),
        of(record.payload_back(), back),
    );
    [out, back]
}

/// Time between segments of a direction that was slow for long by itself; none for others.
fn pace_ns(record: &FlowRecord, bytes: u64, hosts: &Hosts) -> Option<u64> {
    let segments = segments_of(bytes);
    let bits_per_second = bytes as f64 * 8e6 / record.duration_us.max(1) as f64;
    let is_slow = bits_per_second < PACED_RATE * hosts.slowest_bits_per_second as f64;
    let is_paced = is_slow && record.duration_us >= PACED_US && segments > 1;
    is_paced.then(|| record.duration_us.saturating_mul(1_000) / u64::from(segments))
}

fn segments_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(MSS_BYTES)).unwrap_or(u32::MAX - 1)
}

impl Transfer {
    /// All of its segments are with the receiver.
    pub(super) fn has_arrived(&self) -> bool {
        self.receiver.missing() == self.segments
    }

    fn is_done(&self) -> bool {
        self.has_arrived() && !self.sender.awaits_ack()
    }

    /// Payload of a segment; the last one may not be full.
    pub(super) fn payload_of(&self, segment: u32) -> u64 {
        let before = u64::from(segment) * MSS_BYTES;
        self.bytes.saturating_sub(before).clamp(1, MSS_BYTES)
    }
}

/// Connections by their numbers, which are used again.
#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    live: usize,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

impl Connections {
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn insert(&mut self, connection: Connection) -> Handle {
        self.live += 1;
        let connection = Some(Box::new(connection));
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.connection = connection;
            let generation = slot.generation;
            return Handle { index, generation };
        }
        self.slots.push(Slot {
            generation: 0,
            connection,
        });
        Handle {
            index: self.slots.len() as u32 - 1,
            generation: 0,
        }
    }

    /// The connection, unless it was forgotten.
    pub(super) fn get(&mut self, handle: Handle) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        let is_it = slot.generation == handle.generation;
        slot.connection.as_deref_mut().filter(|_| is_it)
    }

    pub(super) fn remove(&mut self, handle: Handle) {
        let slot = &mut self.slots[handle.index as usize];
        slot.connection = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(handle.index);
        self.live -= 1;
    }

    /// All that are under way.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|it| it.connection.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_and_timeout_follow_the_uplinks() {
        let hosts = |uplinks: &[&str]| {
            let uplinks = uplinks.iter().map(|it| it.parse().expect("an uplink"));
            Hosts::new(&TwinSettings::new(uplinks.collect()))
        };
        let few = hosts(&["10mbit/10ms", "20mbit/5ms"]);
        assert_eq!(few.transport.max_window, 4_096);
        assert_eq!(few.slowest_bits_per_second, 10_000_000);
        assert_eq!(few.sender(1).rto.timeout_ns(), 200_000_000);
        // 125 MB/s for 450 ms, twice, in segments of 1,448 bytes.
        let many = hosts(&["10mbit/10ms", "1gbit/400ms"]);
        assert_eq!(many.transport.max_window, 77_692);
        assert_eq!(many.sender(1).rto.timeout_ns(), 1_200_000_000);
    }
}
