//! What came back to the site, as the program at the egress of its interfaces counts it.

use std::collections::HashMap;

use aya::maps::{HashMap as BpfHashMap, Map, MapData, MapError};
use splitter_policy::flow::{FlowKey, FlowKeyV6};
use splitter_policy::reverse::{ReverseEntry, reversed};

use super::error::{map_error, typed};
use super::names::REVERSE;
use super::shapes::Shape;
use super::{Dataplane, KernelError, Pins, TableSizes};

/// Each takes some 150 bytes of the kernel's memory.
const MOST: u32 = 65_536;
/// The kernel hands the places of such a table to its CPUs by the hundred.
const LEAST: u32 = 4_096;

/// How many flows' reverse directions are counted where so many flows are tracked.
pub(super) fn capacity(tables: TableSizes) -> u32 {
    tables.ipv4.max(tables.ipv6).clamp(LEAST, MOST)
}

/// The counts by flow.
pub(super) struct ReverseMap(BpfHashMap<MapData, Shape<FlowKeyV6>, Shape<ReverseEntry>>);

impl ReverseMap {
    /// Opens what is pinned; none where programs of an earlier build are, which do not count it.
    pub(super) fn open(pins: &Pins) -> Result<Option<Self>, KernelError> {
        let path = pins.map(REVERSE);
        if !path.exists() {
            return Ok(None);
        }
        let counts = MapData::from_pin(path).map_err(map_error(REVERSE))?;
        let counts = BpfHashMap::try_from(Map::LruHashMap(counts));
        Ok(Some(Self(typed(REVERSE, counts)?)))
    }
}

/// The source of the counts: the kernel's map, as a rule.
trait Source {
    /// Looks up what was counted of one direction.
    fn look_up(&self, key: &FlowKeyV6) -> Result<Option<ReverseEntry>, KernelError>;

    /// Reads what was counted of all directions.
    fn read_all(&self) -> Result<HashMap<FlowKeyV6, ReverseEntry>, KernelError>;
}

impl Source for ReverseMap {
    fn look_up(&self, key: &FlowKeyV6) -> Result<Option<ReverseEntry>, KernelError> {
        match self.0.get(&Shape(*key), 0) {
            Err(MapError::KeyNotFound) => Ok(None),
            found => Ok(Some(found.map_err(map_error(REVERSE))?.0)),
        }
    }

    fn read_all(&self) -> Result<HashMap<FlowKeyV6, ReverseEntry>, KernelError> {
        // A walk that begins again because a key was forgotten meanwhile would not end on its own.
        let walk = self.0.iter().take(2 * MOST as usize);
        let read = walk.map(|item| item.map(|(key, entry)| (key.0, entry.0)));
        read.collect::<Result<_, _>>().map_err(map_error(REVERSE))
    }
}

/// Reads the reverse directions of one flow after the other. Each costs a call of the kernel, until
/// there were so many that to read all of them costs less.
pub(super) struct ReverseReader<'s> {
    source: Option<&'s dyn Source>,
    looked_up: u32,
    all: Option<HashMap<FlowKeyV6, ReverseEntry>>,
}

impl ReverseReader<'_> {
    /// Returns what came back of a flow; `None` where nothing was seen of that, or the flow has no ports
    /// by which it would be known.
    pub(super) fn of(&mut self, flow: &FlowKey) -> Result<Option<ReverseEntry>, KernelError> {
        let (Some(source), Some(key)) = (self.source, reversed(flow)) else {
            return Ok(None);
        };
        let key = key.as_v6();
        if let Some(all) = &self.all {
            return Ok(all.get(&key).copied());
        }
        if self.looked_up < MOST {
            self.looked_up += 1;
            return source.look_up(&key);
        }
        let all = self.all.insert(source.read_all()?);
        Ok(all.get(&key).copied())
    }
}

impl Dataplane {
    /// Reads the reverse directions of flows; of none where programs of an earlier build are in place.
    pub(super) fn reverse_reader(&self) -> ReverseReader<'_> {
        ReverseReader {
            source: self.reverse.as_ref().map(|it| it as &dyn Source),
            looked_up: 0,
            all: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use splitter_policy::flow::FlowKeyV4;
    use splitter_policy::packet::protocol;

    use super::*;

    /// Has counted something of the flows of even numbers.
    #[derive(Default)]
    struct Counted {
        looked_up: Cell<u32>,
        read: Cell<u32>,
    }

    impl Source for Counted {
        fn look_up(&self, key: &FlowKeyV6) -> Result<Option<ReverseEntry>, KernelError> {
            self.looked_up.set(self.looked_up.get() + 1);
            Ok(self.all(|it| it == key).into_values().next())
        }

        fn read_all(&self) -> Result<HashMap<FlowKeyV6, ReverseEntry>, KernelError> {
            self.read.set(self.read.get() + 1);
            Ok(self.all(|_| true))
        }
    }

    impl Counted {
        fn all(&self, of: impl Fn(&FlowKeyV6) -> bool) -> HashMap<FlowKeyV6, ReverseEntry> {
            let even = (0..10).step_by(2).map(|number| {
                let key = reversed(&flow(number)).expect("it has ports");
                let packets = number.into();
                let entry = ReverseEntry {
                    packets,
                    ..ReverseEntry::default()
                };
                (key.as_v6(), entry)
            });
            even.filter(|(key, _)| of(key)).collect()
        }
    }

    fn flow(number: u32) -> FlowKey {
        FlowKey::V4(FlowKeyV4 {
            source: number,
            destination: 2,
            ports: u32::from_ne_bytes([0, 80, 1, 187]),
            protocol: protocol::TCP.into(),
        })
    }

    #[test]
    fn flows_are_looked_up_until_to_read_all_costs_less() {
        let source = Counted::default();
        let mut reader = ReverseReader {
            source: Some(&source),
            looked_up: 0,
            all: None,
        };
        for number in (0..10).cycle().take(MOST as usize + 1_000) {
            let found = reader.of(&flow(number)).unwrap().map(|it| it.packets);
            let expected = (number % 2 == 0).then_some(number.into());
            assert_eq!(found, expected);
        }
        assert_eq!((source.looked_up.get(), source.read.get()), (MOST, 1));
    }

    #[test]
    fn nothing_is_looked_up_of_flows_without_ports() {
        let source = Counted::default();
        let mut reader = ReverseReader {
            source: Some(&source),
            looked_up: 0,
            all: None,
        };
        let FlowKey::V4(esp) = flow(2) else {
            panic!("of IPv4");
        };
        let esp = FlowKey::V4(FlowKeyV4 {
            protocol: protocol::ESP.into(),
            ..esp
        });
        assert_eq!(reader.of(&esp).unwrap(), None);
        assert_eq!(source.looked_up.get(), 0);
    }

    #[test]
    fn room_follows_the_flow_table_within_bounds() {
        let capacity = |(ipv4, ipv6)| capacity(TableSizes::new(ipv4, ipv6));
        let sizes = [(0, 0), (10_000, 4), (4, 10_000), (1 << 20, 1 << 18)];
        assert_eq!(sizes.map(capacity), [LEAST, 10_000, 10_000, MOST]);
    }
}
