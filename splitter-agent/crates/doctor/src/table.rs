//! The flow tables: what they take of the memory, and whether they have room for the flows there are.

use splitter_config::Config;
use splitter_datapath::flows::{self, FlowTotals};
use splitter_datapath::{Dataplane, KernelError, Pins, TableSizes, TableSizing, UsableMemory};
use splitter_netlink::Family;
use splitter_policy::counters::FlowEvent;

use super::Check;

const CHECK: &str = "flow tables";
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// What was found in the tables of an instance that is up.
struct Found {
    sizes: TableSizes,
    entries: FlowTotals,
    /// Flows since the programs were loaded.
    started: u64,
    /// Those that found no room.
    untracked: u64,
    /// Young ones that had to make room for others.
    displaced: u64,
}

pub(super) fn examine(config: &Config) -> Vec<Check> {
    let memory = UsableMemory::read();
    let sizing = TableSizing::new(&config.flows, memory);
    let pins = Pins::new(&config.bpffs, &config.pin_dir());
    let found = match pins.check_readable() {
        Ok(()) => Found::read(&pins),
        Err(error) => Err(error),
    };
    match found {
        Ok(found) => {
            let sizes = found.as_ref().map(|found| found.sizes);
            let takes = takes(sizes.unwrap_or_else(|| sizing.wanted(None)), memory);
            let full = found.map(|found| found.judge(&sizing)).unwrap_or_default();
            [takes].into_iter().chain(full).collect()
        }
        Err(error) => vec![Check::warn(
            CHECK,
            error.to_string(),
            "run this as root, or as the user who brought the instance up",
        )],
    }
}

/// What they take, and of what.
fn takes(sizes: TableSizes, memory: Option<UsableMemory>) -> Check {
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let of = match memory {
        Some(UsableMemory {
            limit_bytes: Some(limit),
            ..
        }) => format!(
            " of the {:.0} MiB that this control group may use",
            mebibytes(limit)
        ),
        Some(memory) => format!(" of {:.0} MiB of memory", mebibytes(memory.machine_bytes)),
        None => String::new(),
    };
    let TableSizes { ipv4, ipv6 } = sizes;
    let detail = format!(
        "{ipv4} flows of IPv4 and {ipv6} of IPv6 take {:.1} MiB{of}",
        mebibytes(sizes.bytes())
    );
    // An eighth is more than anybody wants to find out about under pressure.
    match memory.filter(|memory| sizes.bytes() > memory.bytes() / 8) {
        Some(_) => Check::warn(
            CHECK,
            detail,
            "splitter set table_size auto, or a smaller number: flows are kept",
        ),
        None => Check::ok(CHECK, detail),
    }
}

impl Found {
    /// Reads it; none where the instance is down.
    fn read(pins: &Pins) -> Result<Option<Self>, KernelError> {
        // Programs of another build may have other maps, and are for `plan` to tell of.
        let Ok(Some(dataplane)) = Dataplane::open(pins) else {
            return Ok(None);
        };
        let counters = dataplane.counters()?;
        Ok(Some(Self {
            sizes: dataplane.table_sizes()?,
            entries: flows::each(&dataplane, |_| ())?,
            started: counters.events(FlowEvent::Started),
            untracked: counters.events(FlowEvent::Untracked),
            displaced: counters.events(FlowEvent::Evicted),
        }))
    }

    fn judge(&self, sizing: &TableSizing) -> Vec<Check> {
        let mut checks: Vec<_> = FAMILIES.map(|family| self.room(family, sizing)).into();
        checks.extend(self.lost(sizing));
        checks
    }

    fn room(&self, family: Family, sizing: &TableSizing) -> Check {
        let check = format!("room for flows of {family}");
        let (entries, flows) = (self.entries.entries(family), self.sizes.of(family));
        let detail = format!("{entries} flows in a table for {flows}");
        if entries * 4 < u64::from(flows) * 3 {
            return Check::ok(check, detail);
        }
        match sizing.may_grow(self.sizes, family) {
            true => Check::ok(
                check,
                format!("{detail}; it grows by itself while `splitter run` is there"),
            ),
            false => Check::warn(check, detail, self.remedy(family)),
        }
    }

    /// Flows that were not known, or not for long, for want of room.
    fn lost(&self, sizing: &TableSizing) -> Option<Check> {
        const CHECK: &str = "flows without room";
        let (untracked, displaced) = (self.untracked, self.displaced);
        let all = self.started + untracked;
        let detail = format!("{untracked} found none and {displaced} were displaced, of {all}");
        // So many collide with others in a table that is as full as it is made for.
        if (untracked + displaced) * 100 <= all {
            return (all > 0).then(|| Check::ok(CHECK, detail));
        }
        let share =
            |family| self.entries.entries(family) as f64 / f64::from(self.sizes.of(family).max(1));
        let fullest = FAMILIES
            .into_iter()
            .max_by(|a, b| share(*a).total_cmp(&share(*b)))?;
        // Half of what it is made for.
        if share(fullest) < 0.5 {
            return Some(Check::warn(
                CHECK,
                format!("{detail}; now there is room, so that it was a flood or a peak"),
                format!("if it was no flood: {}", self.remedy(fullest)),
            ));
        }
        Some(match sizing.may_grow(self.sizes, fullest) {
            true => Check::ok(
                CHECK,
                format!("{detail}; the table of {fullest} grows by itself when it is full"),
            ),
            false => Check::warn(CHECK, detail, self.remedy(fullest)),
        })
    }

    /// Twice what it is, for the family alone.
    fn remedy(&self, family: Family) -> String {
        let twice = u64::from(self.sizes.of(family)) * 2;
        let keys = match family {
            // Stated alone it would be for both.
            Family::V4 => format!("table_size {twice} table_size_ipv6 {}", self.sizes.ipv6),
            Family::V6 => format!("table_size_ipv6 {twice}"),
        };
        let bytes = match family {
            Family::V4 => TableSizes::new(twice as u32, 0).bytes(),
            Family::V6 => TableSizes::new(0, twice as u32).bytes(),
        };
        format!(
            "splitter set {keys} ({:.1} MiB; flows are kept), and state it in the file, or raise \
             table_growth_percent",
            bytes as f64 / f64::from(1 << 20)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    const MIB: u64 = 1 << 20;

    fn sizing(flows: &str) -> TableSizing {
        let text = format!(
            "lan = 'eth0'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n[flows]\n{flows}\n"
        );
        let config = Config::parse(&text, "test").unwrap();
        TableSizing::new(&config.flows, Some(memory(None)))
    }

    fn memory(limit_bytes: Option<u64>) -> UsableMemory {
        UsableMemory {
            machine_bytes: 128 * MIB,
            limit_bytes,
        }
    }

    fn found(entries: (u64, u64), (started, untracked, displaced): (u64, u64, u64)) -> Found {
        let (entries_v4, entries_v6) = entries;
        Found {
            sizes: TableSizes::new(1_000, 400),
            entries: FlowTotals {
                entries_v4,
                entries_v6,
                ..FlowTotals::default()
            },
            started,
            untracked,
            displaced,
        }
    }

    fn words(found: &Found, sizing: &TableSizing) -> Vec<(Status, String)> {
        let checks = found.judge(sizing).into_iter();
        checks.map(|it| (it.status, it.to_string())).collect()
    }

    const STATED: &str = "table_size = 1000\ntable_size_ipv6 = 400";

    #[test]
    fn table_that_is_full_grows_or_is_to_be_set() {
        let full = found((100, 300), (1_000, 0, 0));
        let stated = words(&full, &sizing(STATED));
        assert_eq!(stated[0].0, Status::Ok);
        assert_eq!(stated[1].0, Status::Warn);
        assert!(
            stated[1].1.contains("300 flows in a table for 400"),
            "{stated:?}"
        );
        assert!(
            stated[1]
                .1
                .contains("splitter set table_size_ipv6 800 (0.1 MiB"),
            "{stated:?}"
        );
        let grows = words(&full, &sizing(""));
        assert_eq!(grows[1].0, Status::Ok);
        assert!(grows[1].1.contains("grows by itself"), "{grows:?}");
        let barely = words(&found((100, 299), (1_000, 0, 0)), &sizing(STATED));
        assert_eq!(barely[1].0, Status::Ok);
    }

    #[test]
    fn flows_without_room_are_told_from_a_flood_by_what_is_there_now() {
        let crowded = words(&found((700, 0), (980, 20, 0)), &sizing(STATED));
        let (status, said) = &crowded[2];
        assert_eq!(*status, Status::Warn);
        assert!(
            said.contains("20 found none and 0 were displaced, of 1000"),
            "{said}"
        );
        assert!(
            said.contains("splitter set table_size 2000 table_size_ipv6 400"),
            "{said}"
        );
        let flooded = words(&found((100, 0), (980, 0, 900)), &sizing(STATED));
        assert!(flooded[2].1.contains("a flood or a peak"), "{flooded:?}");
        let few = words(&found((700, 0), (1_000, 5, 5)), &sizing(STATED));
        assert_eq!(few[2].0, Status::Ok, "{few:?}");
        assert_eq!(words(&found((0, 0), (0, 0, 0)), &sizing(STATED)).len(), 2);
    }

    #[test]
    fn memory_is_named_with_what_limits_it_and_too_much_of_it_is_warned_of() {
        let said = |sizes, limit| {
            let check = takes(sizes, Some(memory(limit)));
            (check.status, check.to_string())
        };
        let initial = TableSizes::new(13_624, 3_404);
        let (status, words) = said(initial, None);
        assert_eq!(status, Status::Ok);
        assert!(
            words
                .contains("13624 flows of IPv4 and 3404 of IPv6 take 1.3 MiB of 128 MiB of memory")
        );
        let (_, words) = said(initial, Some(32 * MIB));
        assert!(
            words.contains("of the 32 MiB that this control group may use"),
            "{words}"
        );
        let (status, words) = said(TableSizes::new(1 << 20, 1 << 20), None);
        assert_eq!(status, Status::Warn);
        assert!(words.contains("splitter set table_size auto"), "{words}");
    }
}
