//! A note beside the pinned flow tables of how flows lie in them, for agents of other builds.

use std::io;

use splitter_policy::flow::Seeds;
use splitter_policy::table::{Layout, TABLE_VERSION};

use super::{KernelError, Pins};

/// How flows lie in pinned tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableNote {
    /// The version of the tables' layout.
    pub(super) version: u32,
    /// The sizes and seeds by which flows are spread.
    pub(super) layout: Layout,
    /// The NUMA node that was asked for, which the kernel does not report of a map.
    pub(super) numa_node: Option<u32>,
}

impl TableNote {
    /// Notes on tables of this build.
    pub(super) const fn new(layout: Layout, numa_node: Option<u32>) -> Self {
        Self {
            version: TABLE_VERSION,
            layout,
            numa_node,
        }
    }

    /// Reads the note on pinned tables; none where a build that made none has filled them, or where
    /// another one has made something else of it.
    pub(super) fn of(pins: &Pins) -> Option<Self> {
        let note = std::fs::read_link(pins.table_note()).ok()?;
        Self::parse(note.to_str()?)
    }

    /// Writes it next to the tables: a symbolic link, since a BPF file system takes no files. It leads
    /// nowhere: what it says is where it would lead.
    pub(super) fn write(&self, pins: &Pins) -> Result<(), KernelError> {
        let path = pins.table_note();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => std::os::unix::fs::symlink(self.text(), &path),
        }
        .map_err(|source| KernelError::Pin { path, source })
    }

    /// Version and groups come first and in this form whatever the version, seeds behind them, and then
    /// what builds that do not know it pass over.
    fn text(&self) -> String {
        let Self {
            version,
            layout,
            numa_node,
        } = self;
        let node = numa_node.map_or(String::new(), |node| format!(":node={node}"));
        let seeds = layout.seeds.map(|seed| format!("{seed:016x}")).join(",");
        format!(
            "version:{version}:{}:{}:{seeds}{node}",
            layout.groups_v4, layout.groups_v6
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("version:")?.split(':');
        let mut number = || parts.next()?.parse().ok();
        let (version, groups_v4, groups_v6) = (number()?, number()?, number()?);
        let mut seeds = Seeds::default();
        let mut given = parts.next()?.split(',');
        for seed in &mut seeds {
            *seed = u64::from_str_radix(given.next()?, 16).ok()?;
        }
        let layout = Layout {
            seeds,
            groups_v4,
            groups_v6,
        };
        let node = parts.next().and_then(|it| it.strip_prefix("node="));
        given.next().is_none().then_some(Self {
            version,
            layout,
            numa_node: node.and_then(|it| it.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let pins = Pins::new(directory.path(), directory.path());
        std::fs::create_dir(directory.path().join("maps")).unwrap();
        assert_eq!(TableNote::of(&pins), None);
        for seed in [0, u64::MAX] {
            let seeds = core::array::from_fn(|index| seed ^ index as u64);
            for node in [None, Some(1)] {
                let note = TableNote::new(Layout::for_flows(1_000, seeds), node);
                note.write(&pins).unwrap();
                assert_eq!(TableNote::of(&pins), Some(note));
            }
        }
    }

    #[test]
    fn text_that_is_no_note_is_none() {
        let note = TableNote::new(Layout::for_flows(1_000, Seeds::default()), None).text();
        for text in [
            "",
            "version:",
            "version:1:2",
            &note[1..],
            &note[..note.len() - 20],
        ] {
            assert_eq!(TableNote::parse(text), None, "{text}");
        }
        assert_eq!(TableNote::parse(&(note + ",0")), None);
    }
}
