//! A recorded flow and its bytes in the file.

use super::ReadError;
use super::input::Input;

/// One flow of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// Start, in microseconds since the recording began; 0 for one that had begun before.
    pub start_us: u64,
    /// Microseconds from its first packet, or the beginning of the recording, to its last.
    pub duration_us: u64,
    /// True if it counted more than the threshold.
    pub is_long: bool,
    /// Transport protocol that carried it.
    pub transport: Transport,
    /// True if its addresses were of IPv6, whose headers are longer.
    pub is_ipv6: bool,
    /// True if it had begun before the recording: its counts are then those since.
    pub began_before: bool,
    /// How it ended.
    pub end: FlowEnd,
    /// Traffic from the site; at least a packet.
    pub out: Count,
    /// Traffic back to the site, where that was seen.
    pub back: Option<Count>,
}

/// Packets and bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, Ethernet headers included.
    pub bytes: u64,
}

/// Names the protocol that carried a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP, QUIC among it.
    Udp,
    /// ESP or GRE.
    Tunnel,
}

/// Names how a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// A FIN or RST was seen.
    Finished,
    /// It was silent for the idle timeout.
    Idle,
    /// It went on when the recording ended.
    Open,
    /// It was not there any more at the next look: its size is the least that it had.
    Vanished,
}

const LONG: u8 = 1;
const TRANSPORT_SHIFT: u32 = 1;
const IPV6: u8 = 1 << 3;
const BEGAN_BEFORE: u8 = 1 << 4;
const END_SHIFT: u32 = 5;
const BACK: u8 = 1 << 7;

/// A SYN has so many bytes of options more than later packets have (RFC 9293 §3.2, RFC 7323, RFC 2018):
/// maximum segment size, window scale and that SACK is permitted, filled up.
const SYN_OPTION_BYTES: u64 = 8;

/// No flow has more packets: what the flow table counts at the most.
const MAX_PACKETS: u64 = 1 << 37;
/// No flow has more bytes: what the flow table counts at the most.
const MAX_BYTES: u64 = 1 << 48;
/// No time is longer: a year.
pub(crate) const MAX_US: u64 = 366 * 86_400 * 1_000_000;

impl FlowRecord {
    /// Bytes of payload that went from the site: what is left without headers.
    #[must_use]
    pub fn payload_out(&self) -> u64 {
        self.payload(self.out)
    }

    /// Bytes of payload that came back; 0 where nothing was seen of that.
    #[must_use]
    pub fn payload_back(&self) -> u64 {
        self.back.map_or(0, |count| self.payload(count))
    }

    /// Headers on each packet, of Ethernet, IP and transport; TCP's with time stamps.
    #[must_use]
    pub fn header_bytes(&self) -> u64 {
        let ip = if self.is_ipv6 { 40 } else { 20 };
        14 + ip
            + match self.transport {
                Transport::Tcp => 32,
                Transport::Udp => 8,
                Transport::Tunnel => 0,
            }
    }

    fn payload(&self, count: Count) -> u64 {
        let headers = count.packets.saturating_mul(self.header_bytes());
        let has_syn = self.transport == Transport::Tcp && !self.began_before;
        let options = if has_syn { SYN_OPTION_BYTES } else { 0 };
        count.bytes.saturating_sub(headers.saturating_add(options))
    }

    /// Returns the nearest flow that can be read again.
    pub(crate) fn clamped(&self) -> Self {
        let count = |it: Count| Count {
            packets: it.packets.min(MAX_PACKETS),
            bytes: it.bytes.min(MAX_BYTES),
        };
        let out = count(self.out);
        Self {
            start_us: self.start_us.min(MAX_US),
            duration_us: self.duration_us.min(MAX_US),
            out: Count {
                packets: out.packets.max(1),
                ..out
            },
            back: self.back.map(count),
            ..*self
        }
    }

    /// Appends its bytes, with its start as the time since `before_us`.
    pub(crate) fn encode(&self, before_us: u64, to: &mut Vec<u8>) {
        let transport = match self.transport {
            Transport::Tcp => 0,
            Transport::Udp => 1,
            Transport::Tunnel => 2,
        };
        let end = match self.end {
            FlowEnd::Finished => 0,
            FlowEnd::Idle => 1,
            FlowEnd::Open => 2,
            FlowEnd::Vanished => 3,
        };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        to.push(
            flag(self.is_long, LONG)
                | transport << TRANSPORT_SHIFT
                | flag(self.is_ipv6, IPV6)
                | flag(self.began_before, BEGAN_BEFORE)
                | end << END_SHIFT
                | flag(self.back.is_some(), BACK),
        );
        put(self.start_us.saturating_sub(before_us), to);
        put(self.duration_us, to);
        for count in std::iter::once(self.out).chain(self.back) {
            put(count.packets, to);
            put(count.bytes, to);
        }
    }

    /// Reads what [`FlowRecord::encode`] wrote, as flow number `flow`.
    pub(crate) fn decode(
        before_us: u64,
        flow: u64,
        from: &mut Input<impl std::io::Read>,
    ) -> Result<Self, ReadError> {
        let wrong = |problem| ReadError::Flow { flow, problem };
        let flags = from.byte(flow)?;
        let gap_us = from.number(flow)?;
        let start_us = before_us.saturating_add(gap_us);
        let duration_us = from.number(flow)?;
        if start_us > MAX_US || duration_us > MAX_US {
            return Err(wrong("a time of more than a year"));
        }
        let out = count(from, flow)?;
        if out.packets == 0 {
            return Err(wrong("no packets"));
        }
        Ok(Self {
            start_us,
            duration_us,
            is_long: flags & LONG != 0,
            transport: match flags >> TRANSPORT_SHIFT & 3 {
                0 => Transport::Tcp,
                1 => Transport::Udp,
                2 => Transport::Tunnel,
                _ => return Err(wrong("a transport that is not known")),
            },
            is_ipv6: flags & IPV6 != 0,
            began_before: flags & BEGAN_BEFORE != 0,
            end: match flags >> END_SHIFT & 3 {
                0 => FlowEnd::Finished,
                1 => FlowEnd::Idle,
                2 => FlowEnd::Open,
                _ => FlowEnd::Vanished,
            },
            out,
            back: match flags & BACK {
                0 => None,
                _ => Some(count(from, flow)?),
            },
        })
    }
}

fn count(from: &mut Input<impl std::io::Read>, flow: u64) -> Result<Count, ReadError> {
    let count = Count {
        packets: from.number(flow)?,
        bytes: from.number(flow)?,
    };
    if count.packets > MAX_PACKETS || count.bytes > MAX_BYTES {
        let problem = "more packets or bytes than a flow table counts";
        return Err(ReadError::Flow { flow, problem });
    }
    Ok(count)
}

/// Appends a number, seven bits a byte, the lowest first (LEB128).
fn put(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_alone_are_no_payload() {
        let handshake_and_two = Count {
            packets: 3,
            bytes: 3 * 66 + 8,
        };
        let flow = FlowRecord {
            start_us: 0,
            duration_us: 1,
            is_long: false,
            transport: Transport::Tcp,
            is_ipv6: false,
            began_before: false,
            end: FlowEnd::Finished,
            out: Count {
                bytes: handshake_and_two.bytes + 1_448,
                packets: 4,
            },
            back: Some(handshake_and_two),
        };
        assert_eq!((flow.payload_out(), flow.payload_back()), (1_382, 0));
        let without_syn = FlowRecord {
            began_before: true,
            ..flow
        };
        assert_eq!(without_syn.payload_back(), 8);
    }
}
