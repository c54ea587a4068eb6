//! The flow table as people and metrics see it, and the sweep that keeps it tidy.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Serialize;
use splitter_netlink::Family;
use splitter_policy::counters::FlowEvent;
use splitter_policy::flow::{Class, FlowEntry, FlowKey};
use splitter_policy::packet::protocol;
use splitter_policy::table::StoredFlow;

use crate::{Dataplane, KernelError, clock::monotonic_ns};

/// A flow in words and seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FlowRow {
    /// Source address.
    pub source: IpAddr,
    /// "tcp", "udp", "esp" or "gre".
    pub protocol: &'static str,
    /// Source port of TCP and UDP.
    pub source_port: Option<u16>,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination port of TCP and UDP.
    pub destination_port: Option<u16>,
    /// SPI of ESP; key or call of GRE, 0 without one.
    pub identifier: Option<u32>,
    /// "short" or "long".
    pub class: &'static str,
    /// The tunnel in use, "short" or "long"; a long flow changes late. [Any](crate::connections::ANY_TUNNEL) where
    /// each packet chooses.
    pub tunnel: &'static str,
    /// Packets so far.
    pub packets: u64,
    /// Bytes so far, Ethernet headers included.
    pub bytes: u64,
    /// Seconds since the first packet.
    pub age_s: f64,
    /// Seconds since the last packet.
    pub idle_s: f64,
    /// Whether a FIN or RST has passed.
    pub finished: bool,
}

impl FlowRow {
    pub(crate) fn new(key: &FlowKey, entry: &FlowEntry, now_ns: u64) -> Self {
        let (source, destination) = key.addresses();
        let (source_port, destination_port) = key.ports();
        let has_ports = matches!(key.protocol(), protocol::TCP | protocol::UDP);
        Self {
            source,
            protocol: protocol_name(key.protocol()),
            source_port: has_ports.then_some(source_port),
            destination,
            destination_port: has_ports.then_some(destination_port),
            identifier: (!has_ports)
                .then(|| u32::from(source_port) << 16 | u32::from(destination_port)),
            class: entry.class().name(),
            tunnel: entry.tunnel().name(),
            packets: entry.packets,
            bytes: entry.bytes,
            age_s: seconds_between(entry.first_seen_ns, now_ns),
            idle_s: seconds_between(entry.last_seen_ns, now_ns),
            finished: entry.is_finished(),
        }
    }
}

/// How many flows there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowTotals {
    /// Short flows that are neither finished nor idle.
    pub short: u64,
    /// Long flows that are neither finished nor idle.
    pub long: u64,
    /// Entries in the IPv4 table, whatever their state.
    pub entries_v4: u64,
    /// Entries in the IPv6 table, whatever their state.
    pub entries_v6: u64,
}

impl FlowTotals {
    /// Entries in the table of a family.
    pub const fn entries(&self, family: Family) -> u64 {
        match family {
            Family::V4 => self.entries_v4,
            Family::V6 => self.entries_v6,
        }
    }

    pub(crate) fn count(&mut self, record: &StoredFlow, now_ns: u64, idle_timeout_ns: u64) {
        match record.key {
            FlowKey::V4(_) => self.entries_v4 += 1,
            FlowKey::V6(_) => self.entries_v6 += 1,
        }
        let entry = &record.entry;
        if entry.is_finished() || entry.is_idle(now_ns, idle_timeout_ns) {
            return;
        }
        match entry.class() {
            Class::Short => self.short += 1,
            Class::Long => self.long += 1,
        }
    }
}

/// Walks over all flows, in no order, and counts them.
///
/// # Errors
/// When the table cannot be read.
pub fn each(
    dataplane: &Dataplane,
    mut visit: impl FnMut(FlowRow),
) -> Result<FlowTotals, KernelError> {
    let now_ns = monotonic_ns();
    let idle_timeout_ns = dataplane.policy()?.idle_timeout_ns;
    let mut totals = FlowTotals::default();
    dataplane.tables()?.for_each(now_ns, |found| {
        totals.count(found, now_ns, idle_timeout_ns);
        visit(FlowRow::new(&found.key, &found.entry, now_ns));
    });
    Ok(totals)
}

/// Counts what a sweep found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// When it began, by `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// What is left.
    pub totals: FlowTotals,
    /// How many slots were freed.
    pub freed: u64,
    /// Flows that started again in a slot that was theirs, so far: their earlier size is lost.
    pub restarted: u64,
}

/// Frees what flows that are idle or finished take up, and counts the others. Each flow is shown to `visit`,
/// with whether its slot was freed.
///
/// The kernel decides about idle flows on its own whenever a packet comes, and
/// takes their slots for new ones: a sweep only keeps the table short and its
/// clock from wrapping.
///
/// # Errors
/// When the table cannot be read.
pub fn sweep(
    dataplane: &Dataplane,
    mut visit: impl FnMut(&StoredFlow, bool),
) -> Result<Swept, KernelError> {
    let now_ns = monotonic_ns();
    let idle_timeout_ns = dataplane.policy()?.idle_timeout_ns;
    let mut swept = Swept {
        at_ns: now_ns,
        ..Swept::default()
    };
    dataplane
        .tables()?
        .sweep(now_ns, idle_timeout_ns, |found, is_freed| {
            if is_freed {
                swept.freed += 1;
            } else {
                swept.totals.count(found, now_ns, idle_timeout_ns);
            }
            visit(found, is_freed);
        });
    let counters = dataplane.counters()?;
    swept.restarted =
        counters.events(FlowEvent::RestartedIdle) + counters.events(FlowEvent::RestartedSyn);
    Ok(swept)
}

pub(crate) fn seconds_between(earlier_ns: u64, now_ns: u64) -> f64 {
    Duration::from_nanos(now_ns.saturating_sub(earlier_ns)).as_secs_f64()
}

/// What most flows are, so that only others say what they are.
const TCP: &str = "tcp";

fn protocol_name(number: u8) -> &'static str {
    match number {
        protocol::UDP => "udp",
        protocol::ESP => "esp",
        protocol::GRE => "gre",
        _ => TCP,
    }
}

/// `SOURCE:PORT -> DESTINATION:PORT` of TCP; others name their protocol behind that, and ESP and
/// GRE their SPI or key.
impl fmt::Display for FlowRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source, self.destination);
        match (self.source_port, self.destination_port) {
            // As `explain` takes them: with IPv6 in brackets.
            (Some(from), Some(to)) => {
                let [from, to] = [(source, from), (destination, to)].map(SocketAddr::from);
                write!(f, "{from} -> {to}")?;
            }
            _ => write!(f, "{source} -> {destination}")?,
        }
        if self.protocol != TCP {
            write!(f, " {}", self.protocol)?;
        }
        match self.identifier {
            Some(identifier) => write!(f, " {identifier:#010x}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use splitter_policy::flow::{FlowKeyV4, FlowKeyV6};

    #[test]
    fn flows_are_called_by_what_their_protocol_has() {
        let name = |protocol: u8| {
            let key = FlowKey::V4(FlowKeyV4 {
                source: u32::from_ne_bytes([10, 0, 0, 1]),
                destination: u32::from_ne_bytes([10, 0, 1, 1]),
                ports: u32::from_ne_bytes([0, 80, 1, 187]),
                protocol: protocol.into(),
            });
            FlowRow::new(&key, &FlowEntry::default(), 0).to_string()
        };
        assert_eq!(name(protocol::TCP), "10.0.0.1:80 -> 10.0.1.1:443");
        assert_eq!(name(protocol::UDP), "10.0.0.1:80 -> 10.0.1.1:443 udp");
        assert_eq!(name(protocol::ESP), "10.0.0.1 -> 10.0.1.1 esp 0x005001bb");
        assert_eq!(name(protocol::GRE), "10.0.0.1 -> 10.0.1.1 gre 0x005001bb");
    }

    #[test]
    fn ports_are_told_from_addresses_of_ipv6() {
        let halves = |last: u8| {
            let low = [0, 0, 0, 0, 0, 0, 0, last];
            [[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0], low].map(u64::from_ne_bytes)
        };
        let key = FlowKey::V6(FlowKeyV6 {
            source: halves(1),
            destination: halves(2),
            ports: u32::from_ne_bytes([0, 80, 1, 187]),
            protocol: protocol::TCP.into(),
        });
        let row = FlowRow::new(&key, &FlowEntry::default(), 0);
        assert_eq!(row.to_string(), "[2001:db8::1]:80 -> [2001:db8::2]:443");
    }
}
