//! How large the flow tables are: by what was stated, by memory, and by how full they are.

use serde::Serialize;
use splitter_config::{Flows, TableSize};
use splitter_netlink::Family;
use splitter_policy::flow::Seeds;
use splitter_policy::table::{GROUP_FLOWS, GroupV4, GroupV6, Layout, Tags};

use super::UsableMemory;

/// Flows that each family's table is made for. It has twice as many slots, so that less than one flow
/// in a hundred finds none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TableSizes {
    /// Flows of IPv4.
    pub ipv4: u32,
    /// Flows of IPv6.
    pub ipv6: u32,
}

impl TableSizes {
    /// Tables for at least so many flows, which the kernel sets aside in groups of four.
    #[must_use]
    pub const fn new(ipv4: u32, ipv6: u32) -> Self {
        Self {
            ipv4: ipv4.next_multiple_of(GROUP_FLOWS),
            ipv6: ipv6.next_multiple_of(GROUP_FLOWS),
        }
    }

    /// Tables that lie like this.
    #[must_use]
    pub const fn of_layout(layout: &Layout) -> Self {
        Self {
            ipv4: layout.groups_v4 * GROUP_FLOWS,
            ipv6: layout.groups_v6 * GROUP_FLOWS,
        }
    }

    /// The layout of such tables.
    #[must_use]
    pub const fn layout(self, seeds: Seeds) -> Layout {
        Layout {
            seeds,
            groups_v4: Layout::groups_for(self.ipv4),
            groups_v6: Layout::groups_for(self.ipv6),
        }
    }

    /// Flows of a family.
    #[must_use]
    pub const fn of(self, family: Family) -> u32 {
        match family {
            Family::V4 => self.ipv4,
            Family::V6 => self.ipv6,
        }
    }

    /// Memory that the kernel sets aside for both, with their tags.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        let [v4, v6] = GROUP_BYTES;
        Layout::groups_for(self.ipv4) as u64 * v4 + Layout::groups_for(self.ipv6) as u64 * v6
    }

    fn with(self, family: Family, flows: u64) -> Self {
        // Rounded down: what memory allows is no more.
        let flows = flows / u64::from(GROUP_FLOWS) * u64::from(GROUP_FLOWS);
        let flows = u32::try_from(flows).unwrap_or(MOST_FLOWS).min(MOST_FLOWS);
        match family {
            Family::V4 => Self {
                ipv4: flows,
                ..self
            },
            Family::V6 => Self {
                ipv6: flows,
                ..self
            },
        }
    }
}

/// Of a group of IPv4 flows and one of IPv6 flows.
const GROUP_BYTES: [u64; 2] = [
    (size_of::<GroupV4>() + size_of::<Tags>()) as u64,
    (size_of::<GroupV6>() + size_of::<Tags>()) as u64,
];

const fn flow_bytes(family: Family) -> u64 {
    GROUP_BYTES[family as usize] / GROUP_FLOWS as u64
}

/// What the tables take by themselves, in parts of the memory: a hundredth.
const INITIAL_PART: u64 = 100;
/// The most flows of IPv4 that a table is made for unless more are stated or come.
const INITIAL_FLOWS: u64 = 1 << 20;
/// IPv6's table has room for one flow where IPv4's has it for four, and takes half as much memory as that: flows
/// of a dual-stack site are mostly of one family, and the other table grows when they are not.
const IPV4_PER_IPV6: u64 = 4;
/// However little memory there is: 100 KB.
const LEAST_FLOWS: u64 = 1_024;
/// As the configuration has it.
const MOST_FLOWS: u32 = 1 << 24;
/// Where the kernel does not say how much there is: that of a small router.
const UNKNOWN_MEMORY_BYTES: u64 = 128 << 20;
/// A table grows when it has three quarters of the flows that it is made for.
const FULL_QUARTERS: u64 = 3;

/// Decides on the sizes of the tables of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSizing {
    stated: [TableSize; 2],
    memory_bytes: u64,
    growth_percent: u32,
}

impl TableSizing {
    /// Sizes tables as configured, with as much memory as this process may use.
    #[must_use]
    pub fn new(flows: &Flows, memory: Option<UsableMemory>) -> Self {
        // One number that is stated is for both families, as it was before there were two.
        let ipv6 = match flows.table_size_ipv6 {
            TableSize::Auto => flows.table_size,
            stated => stated,
        };
        Self {
            stated: [flows.table_size, ipv6],
            memory_bytes: memory.map_or(UNKNOWN_MEMORY_BYTES, UsableMemory::bytes),
            growth_percent: flows.table_growth_percent,
        }
    }

    /// The sizes to have, where these are loaded: tables that follow the memory stay as they are while
    /// they take no more than they may grow to. So neither another limit, nor a restart, nor a look from
    /// outside the agent's container changes them.
    #[must_use]
    pub fn wanted(&self, loaded: Option<TableSizes>) -> TableSizes {
        let kept = loaded.map(|loaded| self.filled_in(loaded));
        kept.filter(|kept| kept.bytes() <= self.most_bytes())
            .unwrap_or_else(|| self.initial())
    }

    /// The larger sizes to have where a table is as good as full and may grow; of each family, how many
    /// entries its table has.
    #[must_use]
    pub fn grown(&self, loaded: TableSizes, entries: impl Fn(Family) -> u64) -> Option<TableSizes> {
        let mut sizes = loaded;
        for family in FAMILIES {
            let flows = u64::from(loaded.of(family));
            let is_full = entries(family) * 4 >= flows * FULL_QUARTERS;
            let may_grow = self.growth_percent > 0 && self.of(family) == TableSize::Auto;
            if !is_full || !may_grow {
                continue;
            }
            let free = self.most_bytes().saturating_sub(sizes.bytes());
            let more = flows.min(free / flow_bytes(family));
            // Copying all for a few more would be done again soon.
            if more * 4 >= flows {
                sizes = sizes.with(family, flows + more);
            }
        }
        (sizes != loaded).then_some(sizes)
    }

    /// A table of the family grows by itself when it is full, unless it takes what it may.
    #[must_use]
    pub fn may_grow(&self, loaded: TableSizes, family: Family) -> bool {
        let full = |it| {
            if it == family {
                u64::from(loaded.of(it))
            } else {
                0
            }
        };
        self.grown(loaded, full).is_some()
    }

    /// Memory that tables which grow may take.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        let grown = self.memory_bytes / 100 * u64::from(self.growth_percent);
        grown.max(self.initial().bytes())
    }

    fn initial(&self) -> TableSizes {
        // One flow of IPv6, and those of IPv4 that go with it.
        let bytes = IPV4_PER_IPV6 * flow_bytes(Family::V4) + flow_bytes(Family::V6);
        let flows = self.memory_bytes / INITIAL_PART * IPV4_PER_IPV6 / bytes;
        let flows = flows.clamp(LEAST_FLOWS, INITIAL_FLOWS);
        let sizes = TableSizes::new(0, 0);
        let sizes = sizes.with(Family::V4, flows);
        self.filled_in(sizes.with(Family::V6, flows / IPV4_PER_IPV6))
    }

    /// The stated sizes, and these where none is.
    fn filled_in(&self, sizes: TableSizes) -> TableSizes {
        let of = |family| match self.of(family) {
            TableSize::Fixed(flows) => flows.get(),
            TableSize::Auto => sizes.of(family),
        };
        TableSizes::new(of(Family::V4), of(Family::V6))
    }

    const fn of(&self, family: Family) -> TableSize {
        self.stated[family as usize]
    }
}

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

#[cfg(test)]
mod tests;
