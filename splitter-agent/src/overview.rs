//! Observes what goes on now: what `splitter top` and the status page show.
//!
//! An [`Observer`] looks again and again. What it makes of two looks, rates and completion times
//! of late, and which flows it lists, is decided by functions without I/O.

mod completion;
mod flows;
mod health;
mod history;
mod observer;

use serde::Serialize;
use splitter_config::{Config, SiteName};
use splitter_datapath::flows::FlowTotals;
use splitter_health::LinkKind;
use splitter_netlink::{DeviceTraffic, Family, Interface};
use splitter_policy::flow::{Class, TunnelRole};
use splitter_steering::Egress;

use splitter_instance::AttachedInterface;
pub use splitter_instance::{ChosenRates, LeftRates};

pub use completion::{Completion, Period};
pub use flows::{Filter, Flow, ReverseFlow, Selection, SortBy};
pub use health::{Health, HealthSource, TunnelHealth, WrittenReport};
pub use observer::{ObserveError, Observer};
pub use splitter_datapath::connections::Direction;

use history::{History, Totals};

/// One look at a running instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    /// The instance.
    pub name: String,
    /// What the rates of classes and tunnels are averaged over; `None` at the first look.
    pub interval_s: Option<f64>,
    /// How the program is attached; interfaces that it is not attached to are left out.
    pub attached: Vec<AttachedInterface>,
    /// What each class of flows does.
    pub classes: Vec<ClassRow>,
    /// What each tunnel carries.
    pub tunnels: Vec<TunnelRow>,
    /// How long flows took, by class and period.
    pub completion: Vec<Completion>,
    /// How full the flow tables are.
    pub table: Vec<TableRow>,
    /// Flows in the table that pass the filter; those listed are the first of them.
    pub flows_matching: u64,
    /// The flows that were selected, in order.
    pub flows: Vec<Flow>,
}

/// Shows what a class of flows does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassRow {
    /// "short" or "long".
    pub class: &'static str,
    /// Where its packets go now: into its own tunnel, or elsewhere while that is dead. `None` in a
    /// shadow, which routes nothing, and where it is not known or not the same for all sites.
    pub tunnel: Option<Egress>,
    /// Flows that are neither finished nor idle.
    pub flows: u64,
    /// Packets so far.
    pub packets: u64,
    /// Bytes so far, Ethernet headers included.
    pub bytes: u64,
    /// Packets a second of late.
    pub packets_per_s: Option<f64>,
    /// Bits a second of late.
    pub bits_per_s: Option<f64>,
}

/// Shows what a tunnel carries: all of it, not only what was split.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunnelRow {
    /// "short" or "long": the class that it is for.
    pub tunnel: &'static str,
    /// The site that it leads to, where sites are listed.
    pub site: Option<SiteName>,
    /// Its device.
    pub device: String,
    /// Its share of the flows of its class, relative to the weights of the others.
    pub weight: u8,
    /// What the device says of itself.
    pub state: LinkState,
    /// What left by the device of late.
    pub sent_bits_per_s: Option<f64>,
    /// What came in by the device of late.
    pub received_bits_per_s: Option<f64>,
    /// Packets a second that left by the device; several segments may be one.
    pub sent_packets_per_s: Option<f64>,
    /// Packets a second that came in by the device.
    pub received_packets_per_s: Option<f64>,
    /// What left by the tunnel of late, by what the marks say there.
    #[serde(flatten)]
    pub left: LeftRates,
    /// How packets chose it of late, with `balance`.
    #[serde(flatten)]
    pub chosen: ChosenRates,
    /// What the tunnel carries by the configuration, if that says so.
    pub rate_mbit: Option<u32>,
    /// The share of that which was sent of late.
    pub share_used: Option<f64>,
    /// The same share of what was received, if the far end carries as much.
    pub share_received: Option<f64>,
    /// Bytes that wait in front of its device now; `None` where it has no queue.
    pub backlog_bytes: Option<u32>,
    /// What its probes say.
    #[serde(flatten)]
    pub health: TunnelHealth,
}

/// Shows what a device says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LinkState {
    /// Set up, and sees its other end.
    #[serde(rename = "up")]
    Up,
    /// Set up, and without an address in the network of its gateway.
    #[serde(rename = "no address")]
    NoAddress,
    /// Set up, and does not see its other end.
    #[serde(rename = "no carrier")]
    NoCarrier,
    /// Not set up.
    #[serde(rename = "down")]
    Down,
    /// There is no such device.
    #[serde(rename = "missing")]
    Missing,
}

impl LinkState {
    /// The state in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::NoAddress => "no address",
            Self::NoCarrier => "no carrier",
            Self::Down => "down",
            Self::Missing => "missing",
        }
    }

    /// What the device says of itself, and who watches the tunnel of its addresses.
    fn of(interface: Option<&Interface>, watched: Option<LinkKind>) -> Self {
        match interface {
            None => Self::Missing,
            Some(it) if !it.is_up => Self::Down,
            Some(it) if !it.has_carrier => Self::NoCarrier,
            Some(_) if watched == Some(LinkKind::NoAddress) => Self::NoAddress,
            Some(_) => Self::Up,
        }
    }
}

/// How full a flow table is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableRow {
    /// "IPv4" or "IPv6".
    pub family: String,
    /// Flows in it, whatever their state.
    pub entries: u64,
    /// Flows that it has room for.
    pub capacity: u32,
    /// Their share.
    pub share_used: Option<f64>,
}

/// What one look has found, apart from its history.
struct Found {
    attached: Vec<AttachedInterface>,
    totals: FlowTotals,
    capacities: [(Family, u32); 2],
    /// In the order of the configuration.
    tunnels: Vec<FoundTunnel>,
    egresses: [Option<Egress>; 2],
    flows_matching: u64,
    flows: Vec<Flow>,
}

struct FoundTunnel {
    link: LinkState,
    health: TunnelHealth,
    backlog_bytes: Option<u32>,
}

impl Overview {
    /// Puts together what was found; rates come from the latest totals that are
    /// `at_least_ns` old.
    fn new(
        config: &Config,
        found: Found,
        now: &Totals,
        history: &History,
        at_least_ns: u64,
    ) -> Self {
        let basis = history.basis(now, at_least_ns);
        let classes = Class::ALL.map(|class| class_row(class, now, basis, &found));
        Self {
            name: config.name.to_string(),
            interval_s: basis.map(|before| now.seconds_since(before)),
            attached: found.attached,
            classes: classes.into(),
            tunnels: config
                .tunnels()
                .zip(found.tunnels)
                .enumerate()
                .map(|(index, ((role, tunnel), found))| {
                    let traffic = |totals: &Totals| totals.devices.get(index).copied().flatten();
                    let seconds = basis.map(|basis| now.seconds_since(basis));
                    let counted = basis.and_then(traffic).zip(traffic(now)).zip(seconds);
                    let site = config.site_behind(&tunnel.device).cloned();
                    let left = |totals: &Totals| totals.left.get(index).copied().flatten();
                    let left = basis.and_then(left).zip(left(now)).zip(seconds);
                    let left =
                        left.map(|((before, now), seconds)| LeftRates::new(&before, &now, seconds));
                    let chosen = |totals: &Totals| totals.chosen.get(index).copied();
                    let chosen = basis.and_then(chosen).zip(chosen(now)).zip(seconds);
                    let chosen = chosen
                        .map(|((before, now), seconds)| ChosenRates::new(&before, &now, seconds));
                    TunnelRow {
                        site,
                        left: left.unwrap_or_default(),
                        chosen: chosen.unwrap_or_default(),
                        ..tunnel_row(role, tunnel, counted, found)
                    }
                })
                .collect(),
            completion: completion::rows(now, history.oldest(now)),
            table: found
                .capacities
                .map(|(family, capacity)| table_row(family, capacity, &found.totals))
                .into(),
            flows_matching: found.flows_matching,
            flows: found.flows,
        }
    }
}

fn class_row(class: Class, now: &Totals, basis: Option<&Totals>, found: &Found) -> ClassRow {
    let sum = |count: fn(&Totals, Class, TunnelRole) -> u64, totals: &Totals| {
        TunnelRole::ALL
            .map(|tunnel| count(totals, class, tunnel))
            .iter()
            .sum::<u64>()
    };
    let packets = |totals: &Totals| sum(|it, c, t| it.counters.packets(c, t), totals);
    let bytes = |totals: &Totals| sum(|it, c, t| it.counters.bytes(c, t), totals);
    let rate = |count: &dyn Fn(&Totals) -> u64| basis.and_then(|it| now.rate(it, count));
    ClassRow {
        class: class.name(),
        tunnel: found.egresses[class as usize],
        flows: match class {
            Class::Short => found.totals.short,
            Class::Long => found.totals.long,
        },
        packets: packets(now),
        bytes: bytes(now),
        packets_per_s: rate(&packets),
        bits_per_s: rate(&bytes).map(|bytes| bytes * 8.0),
    }
}

/// `counted` is what the device had counted earlier and now, and the seconds between.
fn tunnel_row(
    role: TunnelRole,
    tunnel: &splitter_config::Tunnel,
    counted: Option<((DeviceTraffic, DeviceTraffic), f64)>,
    found: FoundTunnel,
) -> TunnelRow {
    let rate = |count: fn(&DeviceTraffic) -> u64| {
        let ((earlier, later), seconds) = counted?;
        // A device that was made again counts from zero.
        let risen = count(&later).checked_sub(count(&earlier))?;
        (seconds > 0.0).then(|| risen as f64 / seconds)
    };
    let bits = |bytes_per_s: Option<f64>| bytes_per_s.map(|it| it * 8.0);
    let sent_bits_per_s = bits(rate(|it| it.sent_bytes));
    let received_bits_per_s = bits(rate(|it| it.received_bytes));
    let rate_mbit = tunnel.rate_mbit.map(u32::from);
    let share = |bits: Option<f64>| {
        bits.zip(rate_mbit)
            .map(|(bits, mbit)| bits / (f64::from(mbit) * 1e6))
    };
    TunnelRow {
        tunnel: role.name(),
        site: None,
        device: tunnel.device.to_string(),
        weight: tunnel.weight.get(),
        state: found.link,
        sent_bits_per_s,
        received_bits_per_s,
        sent_packets_per_s: rate(|it| it.sent_packets),
        received_packets_per_s: rate(|it| it.received_packets),
        left: LeftRates::default(),
        chosen: ChosenRates::default(),
        rate_mbit,
        share_used: share(sent_bits_per_s),
        share_received: share(received_bits_per_s),
        backlog_bytes: found.backlog_bytes,
        health: found.health,
    }
}

fn table_row(family: Family, capacity: u32, totals: &FlowTotals) -> TableRow {
    let entries = totals.entries(family);
    TableRow {
        family: family.to_string(),
        entries,
        capacity,
        share_used: (capacity > 0).then(|| entries as f64 / f64::from(capacity)),
    }
}

#[cfg(test)]
mod tests;
