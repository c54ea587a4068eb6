//! Flows that another build's table knew.

use super::record::{NOW_NS, entries};
use super::*;
use crate::flow::FlowEntry;
use proptest::prelude::*;

const TIMEOUT_NS: u64 = 100_000 * SECOND;

fn table<'a>(layout: &'a Layout, groups: &'a Groups) -> Table<'a, Groups> {
    Table {
        memory: groups,
        layout,
    }
}

/// All flows of a table, as an agent finds them.
fn inherited(groups: &Groups, version: u32) -> Vec<InheritedFlow> {
    let slots = 0..GROUP_SLOTS;
    let of_v4 = groups.v4.iter().flat_map(|group| {
        let slots = slots.clone();
        slots.filter_map(move |index| group.inherited(index, version))
    });
    let of_v6 = groups.v6.iter().flat_map(|group| {
        let slots = slots.clone();
        slots.filter_map(move |index| group.inherited(index, version))
    });
    of_v4.chain(of_v6).collect()
}

fn known(layout: &Layout, groups: &Groups, key: &FlowKey) -> Option<FlowEntry> {
    let slot = table(layout, groups).lookup(key)?;
    Some(slot.entry(NOW_NS))
}

proptest! {
    /// Whatever the seeds and the size of either table are.
    #[test]
    fn what_was_known_of_flows_is_known_in_the_next_table(
        entries in proptest::collection::vec(entries(), 1..40),
        seed in 0u64..1_000,
        sizes in (400u32..1_000, 400u32..1_000),
    ) {
        let layouts = [(sizes.0, seed), (sizes.1, seed + 1)]
            .map(|(flows, seed)| Layout::for_flows(flows, seeds(seed)));
        let [old, new] = [0, 1].map(|index: usize| Groups::new(&layouts[index]));
        for (number, entry) in (0..).zip(&entries) {
            let key = match number % 2 {
                0 => random_v4(number),
                _ => v6(number as u32, 443),
            };
            let slot = table(&layouts[0], &old).insert(&key, NOW_NS, TIMEOUT_NS, || false);
            slot.expect("there is room").commit(entry, NOW_NS);
        }
        let flows = inherited(&old, TABLE_VERSION);
        prop_assert_eq!(flows.len(), entries.len());
        for flow in &flows {
            prop_assert!(table(&layouts[1], &new).inherit(flow, NOW_NS, TIMEOUT_NS));
        }
        for flow in &flows {
            let before = known(&layouts[0], &old, &flow.key);
            prop_assert!(before.is_some());
            prop_assert_eq!(known(&layouts[1], &new, &flow.key), before);
            // A flood does not take it for one that is not there.
            let table = table(&layouts[1], &new);
            let is_ruled_out = match &flow.key {
                FlowKey::V4(key) => table.line(key).map(|line| line.is_ruled_out()),
                FlowKey::V6(key) => table.line(key).map(|line| line.is_ruled_out()),
            };
            prop_assert_eq!(is_ruled_out, Some(false));
        }
        prop_assert!(inherited(&old, TABLE_VERSION + 1).is_empty());
    }
}

/// What was counted while a table was being copied: a flow that became long is long in the next table,
/// one that came is known there, and one that has begun again is not taken for the one before.
#[test]
fn what_was_counted_during_the_copy_is_made_up_for() {
    let layouts = [7, 8].map(|seed| Layout::for_flows(400, seeds(seed)));
    let [old, new] = [0, 1].map(|index: usize| Groups::new(&layouts[index]));
    let counted = |packets: u64, long_since_ns: u64, flags: u64, first_seen_ns: u64| FlowEntry {
        packets,
        bytes: packets * 1_000,
        first_seen_ns,
        last_seen_ns: NOW_NS,
        long_since_ns,
        flags,
        ..FlowEntry::default()
    };
    let begun_ns = NOW_NS - SECOND;
    let short = |packets| counted(packets, 0, 0, begun_ns);
    let store = |index: usize, number, entry: &FlowEntry| {
        let (key, groups) = (random_v4(number), [&old, &new][index]);
        let table = table(&layouts[index], groups);
        let slot = table.lookup(&key);
        let slot = slot.or_else(|| table.insert(&key, NOW_NS, TIMEOUT_NS, || false));
        slot.expect("there is room").commit(entry, NOW_NS);
    };
    let here = |number| known(&layouts[1], &new, &random_v4(number));
    // In the new table: as copied, gone on, begun again after its end, and, of the last, nothing.
    let finished = counted(900, NOW_NS - 1_000_000, FlowEntry::FINISHED, begun_ns);
    [short(39), short(39), finished]
        .iter()
        .zip(0..)
        .for_each(|(it, number)| store(0, number, it));
    for flow in inherited(&old, TABLE_VERSION) {
        assert!(table(&layouts[1], &new).inherit(&flow, NOW_NS, TIMEOUT_NS));
    }
    let long = counted(45, NOW_NS - 1_000_000, 0, begun_ns);
    store(0, 0, &long);
    store(1, 1, &short(60));
    store(1, 2, &counted(1, 0, 0, NOW_NS));
    store(0, 3, &short(5));
    let caught_up = |_| {
        let flows = inherited(&old, TABLE_VERSION);
        let table = table(&layouts[1], &new);
        flows
            .iter()
            .filter(|flow| table.catch_up(flow, NOW_NS, TIMEOUT_NS))
            .count()
    };
    // Nothing is made up for twice.
    assert_eq!([0, 1].map(caught_up), [2, 0]);
    let was = |number| known(&layouts[0], &old, &random_v4(number));
    assert_eq!(here(0), was(0));
    assert!(here(0).is_some_and(|it| it.class() == crate::flow::Class::Long));
    assert_eq!(here(1).map(|it| it.packets), Some(60));
    assert_eq!(here(2).map(|it| it.packets), Some(1));
    assert_eq!(here(3), was(3));
}

/// A change that this finds is another layout: raise [`TABLE_VERSION`], say in `inherit.rs` what differs and
/// how a flow of the version before is read, and only then put the new number here.
#[test]
fn tables_of_a_version_are_laid_out_alike() {
    let layout = Layout::for_flows(1_000, seeds(7));
    let groups = Groups::new(&layout);
    let table = table(&layout, &groups);
    for number in 0..200 {
        let key = match number % 2 {
            0 => random_v4(number),
            _ => v6(number as u32, 443),
        };
        let is_long = number % 3 == 0;
        let entry = FlowEntry {
            packets: 1 + mixed(number) % (1 << (number % 38)),
            bytes: 1 + mixed(number) % (1 << (number % 49)),
            first_seen_ns: NOW_NS - number * SECOND,
            last_seen_ns: NOW_NS,
            drained_ns: NOW_NS + number * 1_000_000,
            long_since_ns: if is_long {
                NOW_NS - number * 1_000_000
            } else {
                0
            },
            flags: (number % 32) | ((number % 64) << FlowEntry::THRESHOLD_SHIFT),
            changes: number % 8,
        };
        let slot = table.insert(&key, NOW_NS, TIMEOUT_NS, || false);
        slot.expect("there is room").commit(&entry, NOW_NS);
    }
    let digests = [
        digests(&layout, &groups.tags, &groups.v4),
        digests(&layout, &groups.tags, &groups.v6),
    ]
    .concat();
    assert_eq!(digests.len(), 200);
    let digest = digests.into_iter().fold(0, u64::wrapping_add);
    assert_eq!((TABLE_VERSION, digest), (2, 6_843_816_235_293_371_640));
}

/// A number for each flow of what a program of another build has to agree on: its record, the group, the home
/// line, the tag and where that is.
///
/// In which slot of its home line a flow lies, and in which one beyond a line that is marked, is no part
/// of it: a look-up looks at all of them. That it lies where look-ups look is asserted.
fn digests<S: Slot>(layout: &Layout, tags: &[Tags], groups: &[Group<S>]) -> Vec<u64> {
    let mut digests = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        for index in 0..GROUP_SLOTS {
            let Some(flow) = group.inherited(index, TABLE_VERSION) else {
                continue;
            };
            let ((place, home), (tags_at, tag)) = (layout.place(&flow.key), layout.tag(&flow.key));
            assert_eq!(place as usize, number);
            let is_marked = group.slot(home).record().owner().has_overflow();
            assert!(index ^ home < S::LINE_SLOTS || is_marked, "{flow:?}");
            let tags = tags[tags_at as usize].bits().to_le_bytes();
            assert_eq!(tags[index], tag, "{flow:?}");
            let [owner, first, second] = flow.words;
            let (owner, tag) = (owner & !Owner::OVERFLOW, tag.into());
            let words = [
                owner,
                first,
                second,
                place.into(),
                home as u64,
                tags_at.into(),
                tag,
            ];
            let digest = |so_far: u64, word| mixed(so_far.rotate_left(7) ^ word);
            digests.push(words.into_iter().fold(0, digest));
        }
    }
    digests
}
