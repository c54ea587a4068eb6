//! Connections: flows of the table with their reverse directions.
//!
//! A flow of the table comes from the site. Its reverse direction goes to the site: it is in the table
//! as well where it, too, comes in by an interface of the site, and else counted where it
//! [leaves for the site](crate::Dataplane::attach_reverse). Where neither knows it, nobody guesses.

use std::cmp::Reverse as Descending;

use serde::Serialize;
use splitter_config::{Balancers, Config};
use splitter_netlink::Interfaces;
use splitter_policy::flow::{Class, FlowEntry, FlowKey, TunnelRole};
use splitter_policy::reverse::{ReverseEntry, reversed};

use crate::clock::monotonic_ns;
use crate::flows::{FlowRow, FlowTotals, seconds_between};
use crate::{Dataplane, KernelError};

/// A flow of the table and its reverse direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Connection {
    /// The direction that is in the table; where both are, the one that began first.
    #[serde(flatten)]
    pub flow: FlowRow,
    /// The other direction; `None` where nothing of it was seen here.
    pub reverse: Option<Reverse>,
    /// The direction that has carried more bytes so far; `None` where one alone was seen.
    pub fills: Option<Direction>,
}

/// The direction of a connection that goes to the site.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reverse {
    /// Packets so far, since they are counted.
    pub packets: u64,
    /// Bytes so far, Ethernet headers included.
    pub bytes: u64,
    /// Seconds since the last packet.
    pub idle_s: f64,
    /// "short" or "long": the tunnel that the last packet came by, or [`ANY_TUNNEL`]; `None` where that was none of
    /// ours.
    pub tunnel: Option<&'static str>,
}

/// A direction of a connection, as the site sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the site.
    Out,
    /// To the site.
    In,
}

impl Direction {
    /// Returns the direction that carries more; `None` where neither does, or one is not known.
    pub fn of_more<T: PartialOrd>(out: Option<T>, back: Option<T>) -> Option<Self> {
        let (out, back) = (out?, back?);
        if out > back {
            Some(Self::Out)
        } else if back > out {
            Some(Self::In)
        } else {
            None
        }
    }
}

impl Connection {
    /// Packets so far, both ways.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.flow.packets + self.reverse.map_or(0, |it| it.packets)
    }

    /// Bytes so far, both ways.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.flow.bytes + self.reverse.map_or(0, |it| it.bytes)
    }

    /// Puts a flow together with what is known of its reverse direction: its entry in the table, else
    /// its counts. `None` where the other entry stands for both.
    fn new(
        (key, entry): (&FlowKey, &FlowEntry),
        other: impl Fn(&FlowKey) -> Option<FlowEntry>,
        counted: impl FnOnce(&FlowKey) -> Option<ReverseEntry>,
        devices: &TunnelDevices,
        now_ns: u64,
    ) -> Option<Self> {
        // Who talks to itself by one port has one direction.
        let other_key = reversed(key).filter(|it| it != key);
        let other = other_key.and_then(|key| Some((key, other(&key)?)));
        let reverse = match other {
            Some((other_key, other)) if order(&other_key, &other) < order(key, entry) => {
                return None;
            }
            Some((_, other)) => Some(Reverse {
                packets: other.packets,
                bytes: other.bytes,
                idle_s: seconds_between(other.last_seen_ns, now_ns),
                tunnel: Some(devices.tunnel_of(other.class(), other.tunnel())),
            }),
            None => counted(key)
                .filter(|it| it.last_ns + CLOCKS_APART_NS >= entry.first_seen_ns)
                .map(|it| Reverse {
                    packets: it.packets,
                    bytes: it.bytes,
                    idle_s: seconds_between(it.last_ns, now_ns),
                    tunnel: devices.arrived_by(it.device),
                }),
        };
        let flow = FlowRow {
            tunnel: devices.tunnel_of(entry.class(), entry.tunnel()),
            ..FlowRow::new(key, entry, now_ns)
        };
        Some(Self {
            flow,
            reverse,
            fills: Direction::of_more(Some(flow.bytes), reverse.map(|it| it.bytes)),
        })
    }
}

/// Times of the table and of the counts are a tick apart, or two. What came back longer before a flow
/// began belongs to an earlier one with the same ports.
const CLOCKS_APART_NS: u64 = 20_000_000;

/// Orders the directions of a connection: the first of them stands for both.
fn order(key: &FlowKey, entry: &FlowEntry) -> impl Ord {
    (entry.first_seen_ns, key.addresses(), key.ports())
}

/// The tunnel of a flow where each of its packets chooses one of several, of whichever class.
pub const ANY_TUNNEL: &str = "any";

/// The tunnels' devices by their numbers, and how packets choose among them.
#[derive(Clone, Debug, Default)]
pub struct TunnelDevices {
    roles: Vec<(u32, TunnelRole)>,
    balancers: Option<Balancers>,
}

impl TunnelDevices {
    /// Takes those of a configuration that are there.
    #[must_use]
    pub fn new(config: &Config, interfaces: &Interfaces) -> Self {
        let there = config.tunnels().filter_map(|(role, tunnel)| {
            let interface = interfaces.named(&tunnel.device).ok()?;
            Some((interface.index, role))
        });
        Self {
            roles: there.collect(),
            balancers: config.balancers(),
        }
    }

    /// Names the tunnel of a flow, whose entry has it in this one.
    fn tunnel_of(&self, class: Class, tunnel: TunnelRole) -> &'static str {
        match self.balancers {
            Some(balancers) if balancers.roam(class) => ANY_TUNNEL,
            _ => tunnel.name(),
        }
    }

    /// Names the tunnel that a packet came by; which one is the other border's choice.
    fn arrived_by(&self, device: u32) -> Option<&'static str> {
        let (_, role) = self.roles.iter().find(|(index, _)| *index == device)?;
        Some(match self.balancers {
            Some(_) => ANY_TUNNEL,
            None => role.name(),
        })
    }
}

/// A page of the flow table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listing {
    /// How many there are in all, each direction in the table being one.
    pub totals: FlowTotals,
    /// Connections with the most packets first.
    pub flows: Vec<Connection>,
}

/// The `limit` connections with the most packets, and the totals of all flows.
///
/// # Errors
/// When table or counts cannot be read.
pub fn list(
    dataplane: &Dataplane,
    devices: &TunnelDevices,
    limit: usize,
) -> Result<Listing, KernelError> {
    let mut flows = Vec::new();
    let totals = each(dataplane, devices, |connection| {
        flows.push(connection);
        // Twice the page is kept, so that sorting costs little and memory is bounded.
        if flows.len() >= limit.saturating_mul(2).max(1_024) {
            keep_largest(&mut flows, limit);
        }
    })?;
    keep_largest(&mut flows, limit);
    Ok(Listing { totals, flows })
}

fn keep_largest(connections: &mut Vec<Connection>, limit: usize) {
    connections.sort_by_key(|it| Descending(it.packets()));
    connections.truncate(limit);
}

/// Walks over all connections, in no order, and counts their flows.
///
/// # Errors
/// When table or counts cannot be read.
pub fn each(
    dataplane: &Dataplane,
    devices: &TunnelDevices,
    mut visit: impl FnMut(Connection),
) -> Result<FlowTotals, KernelError> {
    let now_ns = monotonic_ns();
    let idle_timeout_ns = dataplane.policy()?.idle_timeout_ns;
    let mut counts = Ok(dataplane.reverse_reader());
    let tables = dataplane.tables()?;
    let mut totals = FlowTotals::default();
    let other = |key: &FlowKey| tables.flow(key, now_ns);
    tables.for_each(now_ns, |found| {
        totals.count(found, now_ns, idle_timeout_ns);
        let flow = (&found.key, &found.entry);
        let counted = |key: &FlowKey| match counts.as_mut().ok()?.of(key) {
            Ok(counted) => counted,
            // What has failed is not tried again for each flow.
            Err(error) => {
                counts = Err(error);
                None
            }
        };
        if let Some(it) = Connection::new(flow, other, counted, devices, now_ns) {
            visit(it);
        }
    });
    counts.map(|_| totals)
}

/// Walks over all entries of the table as they are at `now_ns`, in no order, each a flow of its own.
/// What came back of a flow is looked up where `visit` asks for it, which takes a call of the kernel;
/// it is `None` where nothing was seen of that, or it is in the table itself.
///
/// # Errors
/// When table or counts cannot be read.
pub fn each_entry(
    dataplane: &Dataplane,
    now_ns: u64,
    mut visit: impl FnMut(&FlowKey, &FlowEntry, &mut dyn FnMut() -> Option<ReverseEntry>),
) -> Result<(), KernelError> {
    let mut counts = Ok(dataplane.reverse_reader());
    let tables = dataplane.tables()?;
    tables.for_each(now_ns, |found| {
        let (key, entry) = (&found.key, &found.entry);
        let mut back = || {
            let is_in_table = reversed(key).is_some_and(|it| tables.flow(&it, now_ns).is_some());
            let reader = counts.as_mut().ok().filter(|_| !is_in_table)?;
            match reader.of(key) {
                Ok(counted) => {
                    counted.filter(|it| it.last_ns + CLOCKS_APART_NS >= entry.first_seen_ns)
                }
                // What has failed is not tried again for each flow.
                Err(error) => {
                    counts = Err(error);
                    None
                }
            }
        };
        visit(key, entry, &mut back);
    });
    counts.map(|_| ())
}

#[cfg(test)]
mod tests;
