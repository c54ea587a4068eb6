//! What becomes of flows when programs of another build take the place of those that know them.
//!
//! Tables of the same version and size serve on as they are: no packet is missed. Of another size, or of
//! an older version, what they know is copied before the new programs are attached, and once more what was
//! counted meanwhile: a flow that both tables count has the larger of the two counts, so that none is
//! forgotten and none that was long is short again. What this build cannot read is forgotten.

use std::fmt;
use std::path::{Path, PathBuf};

use aya::maps::{Array, Map, MapData, MapInfo, MapType};
use serde::{Deserialize, Serialize};
use splitter_policy::flow::Seeds;
use splitter_policy::table::{
    GroupV4, GroupV6, Layout, TABLE_VERSION, UNSTATED_TABLE_VERSION, upgraded,
};

use super::clock::monotonic_ns;
use super::error::{map_error, typed};
use super::load::KeptMaps;
use super::names::{CARRIED, FLOW_TABLES, FLOWS_V4, FLOWS_V6, TAGS};
use super::table_note::TableNote;
use super::{FlowTables, KernelError, LoadOptions, Pins, TableSizes};

/// The outcome of replacing programs for the flows that they knew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum InheritedFlows {
    /// The tables serve on as they are.
    Kept {
        /// Flows in them.
        flows: u64,
    },
    /// They were copied into tables of another version or size.
    Copied {
        /// Flows that are known on.
        flows: u64,
        /// Flows for which there was no room.
        left_out: u64,
        /// The version of the tables that they came from.
        version: u32,
    },
    /// All start again as short.
    Forgotten {
        /// Why they could not be kept.
        reason: String,
    },
}

/// As the end of a sentence on the programs.
impl fmt::Display for InheritedFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept { flows } => write!(f, "the flow table stays, with all {flows} flows"),
            Self::Copied {
                flows,
                left_out,
                version,
            } => {
                write!(
                    f,
                    "{flows} flows were copied from a flow table of version {version}"
                )?;
                match left_out {
                    0 => Ok(()),
                    _ => write!(f, "; {left_out} had no room and start again as short"),
                }
            }
            Self::Forgotten { reason } => write!(f, "all flows start again as short: {reason}"),
        }
    }
}

/// The expected outcome of replacing the pinned programs for the flows that they know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum FlowsOutlook {
    /// The tables will serve on as they are.
    Kept,
    /// They will be copied into new tables.
    Copied,
    /// All will start again as short.
    Forgotten {
        /// Why they cannot be kept.
        reason: String,
    },
}

impl FlowsOutlook {
    /// Looks at what is pinned, for programs with such tables.
    pub fn of(pins: &Pins, tables: TableSizes, numa_node: Option<u32>) -> Self {
        match FoundTables::look(pins, tables, numa_node) {
            FoundTables::Same(_) => Self::Kept,
            FoundTables::Readable { .. } => Self::Copied,
            FoundTables::Unknown(reason) => Self::Forgotten { reason },
        }
    }
}

/// As a part of a plan.
impl fmt::Display for FlowsOutlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => write!(f, "flows and their table stay"),
            Self::Copied => write!(f, "flows are copied into a new table"),
            Self::Forgotten { reason } => write!(f, "flows start again as short: {reason}"),
        }
    }
}

/// Tables that are pinned, as far as this build understands them.
pub(super) enum FoundTables {
    /// The new programs can work on them.
    Same(Layout),
    /// What is in them can be copied: their version, and how many groups they have.
    Readable {
        version: u32,
        groups_v4: u32,
        groups_v6: u32,
    },
    /// They cannot be read, and why.
    Unknown(String),
}

impl FoundTables {
    /// Looks at the pinned tables that programs with such tables are to go on with.
    pub(super) fn look(pins: &Pins, tables: TableSizes, numa_node: Option<u32>) -> Self {
        let Some((groups_v4, groups_v6)) = pinned_groups(pins) else {
            return Self::Unknown("the table before is none that this build knows".to_owned());
        };
        let note = TableNote::of(pins);
        let version = note.map_or(UNSTATED_TABLE_VERSION, |note| note.version);
        if upgraded(version, [0; 3]).is_none() {
            let reason =
                format!("the table before is of version {version}, this build has {TABLE_VERSION}");
            return Self::Unknown(reason);
        }
        let wanted = tables.layout(Seeds::default());
        let is_same = version == TABLE_VERSION
            && (groups_v4, groups_v6) == (wanted.groups_v4, wanted.groups_v6)
            && note.and_then(|note| note.numa_node) == numa_node;
        let layout = note.map(|note| note.layout);
        match layout.filter(|it| (it.groups_v4, it.groups_v6) == (groups_v4, groups_v6)) {
            Some(layout) if is_same && pins.map(TAGS).exists() => Self::Same(layout),
            _ => Self::Readable {
                version,
                groups_v4,
                groups_v6,
            },
        }
    }

    /// Puts the tables that stay where the new programs' maps are to lie.
    pub(super) fn keep(&self, pins: &Pins, staged: &Pins) -> Result<KeptMaps, KernelError> {
        let Self::Same(layout) = self else {
            return Ok(KeptMaps::default());
        };
        for name in FLOW_TABLES {
            link(&pins.map(name), staged.map(name))?;
        }
        Ok(KeptMaps {
            names: FLOW_TABLES.into(),
            layout: Some(*layout),
            counts_egress: false,
        })
    }

    /// Has the tables of the loaded programs know what these know. They are not in use yet.
    ///
    /// A failure is no reason to do without the new programs: then the flows are forgotten.
    pub(super) fn hand_on(
        &self,
        pins: &Pins,
        staged: &Pins,
        options: &LoadOptions,
    ) -> InheritedFlows {
        let handed_on = match self {
            Self::Unknown(reason) => {
                let reason = reason.clone();
                return InheritedFlows::Forgotten { reason };
            }
            Self::Same(layout) => {
                count(staged, *layout).map(|flows| InheritedFlows::Kept { flows })
            }
            Self::Readable {
                version,
                groups_v4,
                groups_v6,
            } => {
                let layout = walked(*groups_v4, *groups_v6);
                copy((pins, layout, *version), staged, options)
            }
        };
        handed_on.unwrap_or_else(|error| InheritedFlows::Forgotten {
            reason: error.to_string(),
        })
    }

    /// Makes up for what the programs before have counted in these tables while they were copied and the new
    /// programs were attached. Those have their place now.
    pub(super) fn catch_up(&self, pins: &Pins, staged: &Pins, options: &LoadOptions) {
        let Self::Readable {
            version,
            groups_v4,
            groups_v6,
        } = self
        else {
            return;
        };
        let old = (pins, walked(*groups_v4, *groups_v6), *version);
        if let Err(error) = make_up(old, staged, options.policy.idle_timeout_ns) {
            tracing::warn!(event = "flows_not_caught_up", %error, "what was counted while the flow table was copied is not made up for");
        }
    }
}

fn make_up(
    (from, layout, version): (&Pins, Layout, u32),
    to: &Pins,
    idle_timeout_ns: u64,
) -> Result<(), KernelError> {
    let old = map_tables(from, layout)?;
    let new = map_tables(to, noted(to)?.layout)?;
    let mut map = open_tags(to)?;
    // A packet of the flow at the same time may undo it, which is as rare as to be seen to.
    for _ in 0..CATCH_UP_PASSES {
        let tags = new.catch_up(&old, version, monotonic_ns(), idle_timeout_ns);
        for tag in &tags {
            let present = map.get(&tag.index, 0).map_err(map_error(TAGS))?;
            map.set(tag.index, tag.within(present), 0)
                .map_err(map_error(TAGS))?;
        }
        if tags.is_empty() {
            break;
        }
    }
    Ok(())
}

/// With the last one nothing is left to make up for, as a rule.
const CATCH_UP_PASSES: u32 = 3;

/// The layout of tables that are walked through and not looked up in.
fn walked(groups_v4: u32, groups_v6: u32) -> Layout {
    Layout {
        seeds: Seeds::default(),
        groups_v4,
        groups_v6,
    }
}

/// Puts all that programs of this very build go on with where the maps of those are to lie which have
/// tables of another size: so nothing that was counted begins again.
pub(super) fn carry(pins: &Pins, staged: &Pins) -> Result<KeptMaps, KernelError> {
    let names = CARRIED.into_iter();
    let names: Vec<_> = names.filter(|name| pins.map(name).exists()).collect();
    for name in &names {
        link(&pins.map(name), staged.map(name))?;
    }
    let counts_egress = pins.count_egress().exists();
    if counts_egress {
        link(&pins.count_egress(), staged.count_egress())?;
    }
    Ok(KeptMaps {
        names,
        layout: None,
        counts_egress,
    })
}

fn link(from: &Path, to: PathBuf) -> Result<(), KernelError> {
    std::fs::hard_link(from, &to).map_err(|source| KernelError::Pin { path: to, source })
}

/// The sizes of the pinned tables, of whichever build; none where they are none that this one knows.
pub(super) fn pinned_sizes(pins: &Pins) -> Option<TableSizes> {
    let (groups_v4, groups_v6) = pinned_groups(pins)?;
    Some(TableSizes::of_layout(&walked(groups_v4, groups_v6)))
}

fn pinned_groups(pins: &Pins) -> Option<(u32, u32)> {
    let v4 = groups_of(&pins.map(FLOWS_V4), size_of::<GroupV4>())?;
    Some((v4, groups_of(&pins.map(FLOWS_V6), size_of::<GroupV6>())?))
}

/// How many groups of that size a pinned map has; none if it is none of groups that can be mapped.
fn groups_of(path: &Path, group_bytes: usize) -> Option<u32> {
    const MAPPABLE: u32 = 1 << 10;
    let info = MapInfo::from_pin(path).ok()?;
    let is_array = matches!(info.map_type(), Ok(MapType::Array));
    let is_of_groups = info.value_size() as usize == group_bytes;
    let is_mappable = info.map_flags() & MAPPABLE != 0;
    (is_array && is_of_groups && is_mappable).then_some(info.max_entries())
}

fn count(pins: &Pins, layout: Layout) -> Result<u64, KernelError> {
    let mut flows = 0;
    map_tables(pins, layout)?.for_each(monotonic_ns(), |_| flows += 1);
    Ok(flows)
}

fn copy(
    (from, layout, version): (&Pins, Layout, u32),
    to: &Pins,
    options: &LoadOptions,
) -> Result<InheritedFlows, KernelError> {
    let old = map_tables(from, layout)?;
    let new = map_tables(to, noted(to)?.layout)?;
    let (now_ns, idle_timeout_ns) = (monotonic_ns(), options.policy.idle_timeout_ns);
    let (found, tags) = new.inherit(&old, version, now_ns, idle_timeout_ns);
    let mut map = open_tags(to)?;
    for (index, tags) in (0..).zip(&tags) {
        if tags.bits() != 0 {
            map.set(index, tags.bits(), 0).map_err(map_error(TAGS))?;
        }
    }
    let mut flows = 0;
    new.for_each(now_ns, |_| flows += 1);
    Ok(InheritedFlows::Copied {
        flows,
        left_out: found.saturating_sub(flows),
        version,
    })
}

fn noted(pins: &Pins) -> Result<TableNote, KernelError> {
    TableNote::of(pins).ok_or(KernelError::Missing {
        kind: "note on the map",
        name: FLOWS_V4,
    })
}

fn open_tags(pins: &Pins) -> Result<Array<MapData, u64>, KernelError> {
    typed(TAGS, Array::try_from(Map::Array(open(pins, TAGS)?)))
}

fn map_tables(pins: &Pins, layout: Layout) -> Result<FlowTables, KernelError> {
    let (v4, v6) = (open(pins, FLOWS_V4)?, open(pins, FLOWS_V6)?);
    FlowTables::map(v4.fd(), v6.fd(), layout).map_err(|source| KernelError::Mapping { source })
}

fn open(pins: &Pins, name: &'static str) -> Result<MapData, KernelError> {
    MapData::from_pin(pins.map(name)).map_err(|source| KernelError::Map { name, source })
}
