//! The flow tables' memory, shared with the kernel.
//!
//! Reading and tidying need no system call and stop no packet. See
//! [`splitter_policy::table`] for what lies there and who may change it how.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use splitter_policy::flow::{FlowEntry, FlowKey};
use splitter_policy::table::{
    GROUP_SLOTS, Group, GroupV4, GroupV6, InheritedFlow, Layout, Memory, Slot, SlotV4, SlotV6,
    StoredFlow, Table, Tags, Word, is_expired,
};

/// Both families' tables, mapped.
#[derive(Debug)]
pub struct FlowTables {
    v4: Mapped<SlotV4>,
    v6: Mapped<SlotV6>,
    layout: Layout,
}

impl FlowTables {
    /// Maps the tables of a loaded program, which spreads flows by `layout`.
    ///
    /// # Errors
    /// When the kernel refuses, or a map is smaller than `layout` says.
    pub fn map(v4: impl AsFd, v6: impl AsFd, layout: Layout) -> io::Result<Self> {
        Ok(Self {
            v4: Mapped::new(v4, layout.groups_v4)?,
            v6: Mapped::new(v6, layout.groups_v6)?,
            layout,
        })
    }

    /// Walks over all flows. Flows that come or go meanwhile may be missed.
    pub fn for_each(&self, now_ns: u64, mut visit: impl FnMut(&StoredFlow)) {
        self.v4.for_each(now_ns, |_, _, found| visit(found));
        self.v6.for_each(now_ns, |_, _, found| visit(found));
    }

    /// Looks up what is known of a flow.
    pub fn flow(&self, key: &FlowKey, now_ns: u64) -> Option<FlowEntry> {
        let (group, _) = self.layout.place(key);
        match key {
            FlowKey::V4(_) => self.v4.find(group, key, now_ns),
            FlowKey::V6(_) => self.v6.find(group, key, now_ns),
        }
    }

    /// Has these tables, which nobody uses yet, know the flows of others of that version. Returns how many
    /// those are, and the tags of these tables.
    pub(super) fn inherit(
        &self,
        from: &Self,
        version: u32,
        now_ns: u64,
        idle_timeout_ns: u64,
    ) -> (u64, Vec<Tags>) {
        let memory = self.memory();
        let table = Table {
            memory: &memory,
            layout: &self.layout,
        };
        let mut found = 0;
        let mut take = |flow: &InheritedFlow| {
            found += 1;
            table.inherit(flow, now_ns, idle_timeout_ns);
        };
        from.v4.for_each_inherited(version, &mut take);
        from.v6.for_each_inherited(version, &mut take);
        (found, memory.tags)
    }

    /// Makes up for what programs have counted in other tables of that version since these inherited from
    /// them. Programs use these by now. Returns the tags of the flows' slots, without which a flood would
    /// take them for unknown.
    pub(super) fn catch_up(
        &self,
        from: &Self,
        version: u32,
        now_ns: u64,
        idle_timeout_ns: u64,
    ) -> Vec<SlotTag> {
        let memory = self.memory();
        let table = Table {
            memory: &memory,
            layout: &self.layout,
        };
        let mut tags = Vec::new();
        let mut take = |flow: &InheritedFlow| {
            if table.catch_up(flow, now_ns, idle_timeout_ns) {
                tags.extend(self.slot_tag(&flow.key, now_ns));
            }
        };
        from.v4.for_each_inherited(version, &mut take);
        from.v6.for_each_inherited(version, &mut take);
        tags
    }

    fn slot_tag(&self, key: &FlowKey, now_ns: u64) -> Option<SlotTag> {
        let (group, _) = self.layout.place(key);
        let slot = match key {
            FlowKey::V4(_) => self.v4.slot_of(group, key, now_ns),
            FlowKey::V6(_) => self.v6.slot_of(group, key, now_ns),
        };
        let (index, tag) = self.layout.tag(key);
        Some(SlotTag {
            index,
            slot: slot?,
            tag,
        })
    }

    fn memory(&self) -> MappedMemory<'_> {
        let groups = (self.layout.groups_v4 + self.layout.groups_v6) as usize;
        MappedMemory {
            v4: self.v4.groups(),
            v6: self.v6.groups(),
            tags: (0..groups).map(|_| Tags::default()).collect(),
        }
    }

    /// Frees the slots of flows that are over, and shows each flow to `visit`, with
    /// whether its slot was freed.
    pub fn sweep(
        &self,
        now_ns: u64,
        idle_timeout_ns: u64,
        mut visit: impl FnMut(&StoredFlow, bool),
    ) {
        let may_free = |found: &StoredFlow| is_expired(&found.entry, now_ns, idle_timeout_ns);
        self.v4.sweep(&self.layout, now_ns, may_free, &mut visit);
        self.v6.sweep(&self.layout, now_ns, may_free, &mut visit);
    }
}

/// The tag of a flow's slot, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotTag {
    /// The index of the tags of the slot's group.
    pub(super) index: u32,
    slot: usize,
    tag: u8,
}

impl SlotTag {
    /// The tags of the group with this one.
    pub(super) const fn within(self, tags: u64) -> u64 {
        let shift = self.slot % GROUP_SLOTS * 8;
        tags & !(0xff << shift) | (self.tag as u64) << shift
    }
}

/// Both families' memory, as a table works on it, with tags that are only here.
struct MappedMemory<'m> {
    v4: &'m [GroupV4],
    v6: &'m [GroupV6],
    tags: Vec<Tags>,
}

impl Memory for MappedMemory<'_> {
    fn group_v4(&self, index: u32) -> Option<&GroupV4> {
        self.v4.get(index as usize)
    }

    fn group_v6(&self, index: u32) -> Option<&GroupV6> {
        self.v6.get(index as usize)
    }

    fn tags(&self, index: u32) -> Option<&Tags> {
        self.tags.get(index as usize)
    }

    fn exchange(word: &Word, old: u64, new: u64) -> bool {
        word.exchange(old, new)
    }
}

/// The memory of one array map.
#[derive(Debug)]
struct Mapped<S> {
    start: NonNull<Group<S>>,
    groups: usize,
}

// SAFETY: the memory is mapped until the value is dropped, on whatever thread,
// and is accessed by atomic operations alone.
unsafe impl<S: Sync> Send for Mapped<S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for Mapped<S> {}

impl<S: Slot> Mapped<S> {
    fn new(map: impl AsFd, groups: u32) -> io::Result<Self> {
        let groups = groups as usize;
        let length = NonZeroUsize::new(groups * size_of::<Group<S>>())
            .ok_or_else(|| io::Error::other("the flow table has no groups"))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, map, 0) }?;
        Ok(Self {
            start: start.cast(),
            groups,
        })
    }

    fn groups(&self) -> &[Group<S>] {
        // SAFETY: so many groups are mapped, on a page's boundary, as long as
        // `self` lives. They are made of atomic words, for which any bytes are
        // valid, and which the kernel may change at any time.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.groups) }
    }

    fn for_each_inherited(&self, version: u32, mut visit: impl FnMut(&InheritedFlow)) {
        for group in self.groups() {
            let slots = 0..GROUP_SLOTS;
            let flows = slots.filter_map(|index| group.inherited(index, version));
            flows.for_each(|flow| visit(&flow));
        }
    }

    fn for_each(&self, now_ns: u64, mut visit: impl FnMut(&Group<S>, usize, &StoredFlow)) {
        for group in self.groups() {
            for index in 0..GROUP_SLOTS {
                if let Some(found) = group.read(index, now_ns) {
                    visit(group, index, &found);
                }
            }
        }
    }

    fn slot_of(&self, group: u32, key: &FlowKey, now_ns: u64) -> Option<usize> {
        let group = self.groups().get(group as usize)?;
        let is_it = |found: StoredFlow| found.key == *key;
        (0..GROUP_SLOTS).find(|index| group.read(*index, now_ns).is_some_and(is_it))
    }

    fn find(&self, group: u32, key: &FlowKey, now_ns: u64) -> Option<FlowEntry> {
        let group = self.groups().get(group as usize)?;
        let found = (0..GROUP_SLOTS)
            .filter_map(|index| group.read(index, now_ns))
            .find(|found| found.key == *key)?;
        Some(found.entry)
    }

    fn sweep(
        &self,
        layout: &Layout,
        now_ns: u64,
        may_free: impl Fn(&StoredFlow) -> bool,
        mut visit: impl FnMut(&StoredFlow, bool),
    ) {
        self.for_each(now_ns, |group, index, found| {
            let is_freed = may_free(found) && group.remove(index, found);
            visit(found, is_freed);
        });
        for group in self.groups() {
            group.clear_overflow(layout);
        }
    }
}

impl<S> Drop for Mapped<S> {
    fn drop(&mut self) {
        let length = self.groups * size_of::<Group<S>>();
        // SAFETY: mapped by `new` with that length; no reference outlives `self`.
        // A failure leaves the mapping to the end of the process.
        let _ = unsafe { munmap(self.start.cast(), length) };
    }
}
