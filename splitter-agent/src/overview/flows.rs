//! Which flows are shown, in which order, and how fast they and their reverse directions are. Memory
//! is bounded, whatever the table holds.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::IpAddr;

use clap::ValueEnum;
use serde::Serialize;
use splitter_datapath::connections::{Connection, Direction, Reverse};
use splitter_datapath::flows::FlowRow;

/// Flows whose counts are remembered from one look to the next: those that were active last.
const REMEMBERED: usize = 32_768;

/// A flow and how fast it is, with its reverse direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// What the table has.
    #[serde(flatten)]
    pub row: FlowRow,
    /// Packets a second since the last look; `None` where what it had then is not known.
    pub packets_per_s: Option<f64>,
    /// Bits a second since the last look.
    pub bits_per_s: Option<f64>,
    /// The other direction, that to the site; `None` where nothing of it was seen here.
    pub reverse: Option<ReverseFlow>,
    /// The direction that has carried more since the last look; `None` where it is not known, or one
    /// direction alone was seen.
    pub fills: Option<Direction>,
}

/// The reverse direction of a flow and how fast it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReverseFlow {
    /// What was counted of it.
    #[serde(flatten)]
    pub row: Reverse,
    /// Packets a second since the last look; `None` where what it had then is not known.
    pub packets_per_s: Option<f64>,
    /// Bits a second since the last look.
    pub bits_per_s: Option<f64>,
}

impl Flow {
    /// Packets so far, both ways.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.row.packets + self.reverse.map_or(0, |it| it.row.packets)
    }

    /// Bytes so far, both ways.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.row.bytes + self.reverse.map_or(0, |it| it.row.bytes)
    }

    /// Bits a second since the last look, both ways as far as they are known.
    #[must_use]
    pub fn both_bits_per_s(&self) -> Option<f64> {
        let back = self.reverse.and_then(|it| it.bits_per_s);
        match (self.bits_per_s, back) {
            (None, back) => back,
            (Some(out), back) => Some(out + back.unwrap_or(0.0)),
        }
    }
}

/// Which flows, in which order, and how many at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// What they are ordered by.
    pub sort: SortBy,
    /// Whether the order is the other way round.
    pub reversed: bool,
    /// Those left out.
    pub filter: Filter,
    /// So many at most.
    pub limit: usize,
}

/// Names what flows are ordered by, after those that live have been put in front of those that have
/// ended; numbers from the largest, words from the first. Numbers are those of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// Bits a second.
    #[default]
    Rate,
    /// Packets so far.
    Packets,
    /// Bytes so far.
    Bytes,
    /// Time since the first packet.
    Age,
    /// Time since the last packet.
    Idle,
    /// Long before short.
    Class,
    /// Long tunnel before short tunnel.
    Tunnel,
    /// Addresses and ports.
    Flow,
}

impl SortBy {
    /// All of them, in the order in which a key goes through them.
    pub const ALL: [Self; 8] = [
        Self::Rate,
        Self::Packets,
        Self::Bytes,
        Self::Age,
        Self::Idle,
        Self::Class,
        Self::Tunnel,
        Self::Flow,
    ];

    /// The one so many steps further, round and round.
    #[must_use]
    pub fn step(self, steps: isize) -> Self {
        let index = Self::ALL.iter().position(|it| *it == self).unwrap_or(0);
        let next = (index as isize + steps).rem_euclid(Self::ALL.len() as isize);
        Self::ALL[next as usize]
    }
}

/// Words that all have to occur in what a flow is called: `SOURCE:PORT -> DESTINATION:PORT
/// class=short tunnel=short`. Upper and lower case are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(Vec<String>);

impl Filter {
    /// The words of a text; of an empty one all flows pass.
    pub fn new(text: &str) -> Self {
        Self(text.split_whitespace().map(str::to_lowercase).collect())
    }

    /// Returns true where all flows pass.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true where that flow passes.
    pub fn passes(&self, flow: &FlowRow) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let name = format!("{flow} class={} tunnel={}", flow.class, flow.tunnel);
        self.0.iter().all(|word| name.contains(word.as_str()))
    }
}

impl Selection {
    /// Orders flows and leaves out those beyond the limit or filtered.
    pub fn apply(&self, flows: &mut Vec<Flow>) {
        flows.retain(|flow| self.filter.passes(&flow.row));
        flows.sort_unstable_by(|one, other| self.compare(one, other));
        flows.truncate(self.limit);
    }

    fn compare(&self, one: &Flow, other: &Flow) -> Ordering {
        let (a, b) = (&one.row, &other.row);
        let order = match self.sort {
            SortBy::Rate => descending(
                one.both_bits_per_s().unwrap_or(-1.0),
                other.both_bits_per_s().unwrap_or(-1.0),
            ),
            SortBy::Packets => other.packets().cmp(&one.packets()),
            SortBy::Bytes => other.bytes().cmp(&one.bytes()),
            SortBy::Age => descending(a.age_s, b.age_s),
            SortBy::Idle => descending(a.idle_s, b.idle_s),
            SortBy::Class => a.class.cmp(b.class),
            SortBy::Tunnel => a.tunnel.cmp(b.tunnel),
            SortBy::Flow => Key::of(a).cmp(&Key::of(b)),
        };
        let order = if self.reversed {
            order.reverse()
        } else {
            order
        };
        // What has ended uses no tunnel any more, in whatever order. Equal ones must not change places
        // from one look to the next.
        a.finished
            .cmp(&b.finished)
            .then(order)
            .then(other.packets().cmp(&one.packets()))
            .then_with(|| Key::of(a).cmp(&Key::of(b)))
    }
}

fn descending(a: f64, b: f64) -> Ordering {
    b.total_cmp(&a)
}

/// What distinguishes a flow from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    source: (IpAddr, Option<u16>),
    destination: (IpAddr, Option<u16>),
    protocol: &'static str,
    identifier: Option<u32>,
}

impl Key {
    fn of(row: &FlowRow) -> Self {
        Self {
            source: (row.source, row.source_port),
            destination: (row.destination, row.destination_port),
            protocol: row.protocol,
            identifier: row.identifier,
        }
    }
}

/// What flows had counted at the last look.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    at_ns: u64,
    counts: HashMap<Key, Counts>,
}

/// What a flow and its reverse had counted by then.
#[derive(Clone, Copy, Debug)]
struct Counts {
    own: Counted,
    reverse: Option<Counted>,
}

/// What a direction had counted by then.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    packets: u64,
    bytes: u64,
}

/// Takes the flows of one look as they come.
#[derive(Debug)]
pub(super) struct Collector {
    selection: Selection,
    earlier: Earlier,
    at_ns: u64,
    kept: Vec<Flow>,
    active: Vec<(f64, Key, Counts)>,
    matching: u64,
}

impl Collector {
    pub(super) fn new(selection: Selection, earlier: Earlier, at_ns: u64) -> Self {
        Self {
            selection,
            earlier,
            at_ns,
            kept: Vec::new(),
            active: Vec::new(),
            matching: 0,
        }
    }

    pub(super) fn take(&mut self, connection: Connection) {
        let Connection {
            flow: row, reverse, ..
        } = connection;
        self.remember(&connection);
        if !self.selection.filter.passes(&row) {
            return;
        }
        self.matching += 1;
        self.kept.push(self.with_rates(row, reverse));
        // Twice the page is kept, so that sorting costs little and memory is bounded.
        if self.kept.len() >= self.selection.limit.saturating_mul(2).max(1_024) {
            self.selection.apply(&mut self.kept);
        }
    }

    /// The flows selected, how many passed the filter, and what to know at the next look.
    pub(super) fn finish(mut self) -> (Vec<Flow>, u64, Earlier) {
        self.selection.apply(&mut self.kept);
        self.forget_inactive();
        let counts = self
            .active
            .into_iter()
            .map(|(_, key, counts)| (key, counts));
        let earlier = Earlier {
            at_ns: self.at_ns,
            counts: counts.collect(),
        };
        (self.kept, self.matching, earlier)
    }

    fn with_rates(&self, row: FlowRow, reverse: Option<Reverse>) -> Flow {
        let before = self.earlier.counts.get(&Key::of(&row));
        let own = Counted {
            packets: row.packets,
            bytes: row.bytes,
        };
        let known = before.map(|it| it.own);
        let (packets_per_s, bits_per_s) = self.rates(own, known, row.idle_s, row.age_s);
        let reverse = reverse.map(|it| {
            let counted = Counted {
                packets: it.packets,
                bytes: it.bytes,
            };
            // What was not seen before has counted nothing before.
            let known = before.map(|it| it.reverse.unwrap_or_default());
            let (packets_per_s, bits_per_s) = self.rates(counted, known, it.idle_s, row.age_s);
            ReverseFlow {
                row: it,
                packets_per_s,
                bits_per_s,
            }
        });
        Flow {
            row,
            packets_per_s,
            bits_per_s,
            reverse,
            fills: Direction::of_more(bits_per_s, reverse.and_then(|it| it.bits_per_s)),
        }
    }

    /// Packets and bits a second of a direction that had counted `before` at the last look.
    fn rates(
        &self,
        now: Counted,
        before: Option<Counted>,
        idle_s: f64,
        age_s: f64,
    ) -> (Option<f64>, Option<f64>) {
        let seconds = self.at_ns.saturating_sub(self.earlier.at_ns) as f64 / 1e9;
        if self.earlier.at_ns == 0 || seconds <= 0.0 {
            return (None, None);
        }
        let per_second = |count: u64| Some(count as f64 / seconds);
        let before = match before {
            // A flow that started again counts from zero.
            Some(before) if before.packets <= now.packets && before.bytes <= now.bytes => before,
            Some(_) => Counted::default(),
            None if idle_s > seconds => return (Some(0.0), Some(0.0)),
            None if age_s <= seconds => Counted::default(),
            None => return (None, None),
        };
        let (packets, bytes) = (now.packets - before.packets, now.bytes - before.bytes);
        (per_second(packets), per_second(bytes).map(|it| it * 8.0))
    }

    fn remember(&mut self, connection: &Connection) {
        let Connection { flow, reverse, .. } = connection;
        let counts = Counts {
            own: Counted {
                packets: flow.packets,
                bytes: flow.bytes,
            },
            reverse: reverse.map(|it| Counted {
                packets: it.packets,
                bytes: it.bytes,
            }),
        };
        // Active is who is so in either direction.
        let idle_s = reverse.map_or(flow.idle_s, |it| flow.idle_s.min(it.idle_s));
        self.active.push((idle_s, Key::of(flow), counts));
        if self.active.len() >= 2 * REMEMBERED {
            self.forget_inactive();
        }
    }

    fn forget_inactive(&mut self) {
        if self.active.len() > REMEMBERED {
            self.active
                .select_nth_unstable_by(REMEMBERED, |one, other| one.0.total_cmp(&other.0));
            self.active.truncate(REMEMBERED);
        }
    }
}

#[cfg(test)]
mod tests;
