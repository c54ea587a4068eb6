//! Maps of an object, as one CPU sees them.

use std::collections::BTreeMap;

use aya_obj::generated::bpf_map_type;

use crate::fault::Fault;
use crate::memory::{Memory, Region};

/// A map and where its values lie.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) name: String,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) entries: u32,
    /// Who else writes its values.
    pub(crate) owner: Owner,
    store: Store,
}

/// The cores that write one value of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// One: each has values of its own.
    Core,
    /// The one that has the packets of a flow.
    Flow,
    /// All of them.
    All,
}

/// The maps that hold flows.
const FLOW_TABLES: [&str; 4] = ["FLOWS_V4", "FLOWS_V6", "TAGS", "PATH_FLOWS"];

#[derive(Debug)]
enum Store {
    /// Values one after the other, each at a multiple of eight bytes.
    Array(Region),
    /// Values by their keys.
    Hash(BTreeMap<Vec<u8>, Region>),
    /// The same by prefixes.
    Trie(BTreeMap<Vec<u8>, Region>),
    /// Maps one after the other, each by the address that a program gets for it; 0 for none.
    Maps(Vec<u64>),
}

impl Map {
    /// Makes an empty map of `entries` at most.
    pub(crate) fn new(
        name: &str,
        map: &aya_obj::Map,
        entries: u32,
        memory: &mut Memory,
    ) -> Result<Self, Fault> {
        let value_bytes = map.value_size() as usize;
        let kind = map.map_type();
        let store = match kind {
            ARRAY | PER_CPU_ARRAY => {
                let bytes = stride(value_bytes) * entries as usize;
                Store::Array(memory.allocate(bytes))
            }
            HASH | PER_CPU_HASH | LRU_HASH | DEVICES | DEVICES_BY_HASH => {
                Store::Hash(BTreeMap::new())
            }
            TRIE => Store::Trie(BTreeMap::new()),
            MAPS => Store::Maps(vec![0; entries as usize]),
            _ => {
                let name = name.to_owned();
                return Err(Fault::Map { name, kind });
            }
        };
        let owner = match kind {
            PER_CPU_ARRAY | PER_CPU_HASH => Owner::Core,
            _ if FLOW_TABLES.contains(&name) => Owner::Flow,
            _ => Owner::All,
        };
        Ok(Self {
            name: name.to_owned(),
            owner,
            key_bytes: map.key_size() as usize,
            value_bytes,
            entries,
            store,
        })
    }

    /// The verifier puts the look-up of an array in the place of its call.
    pub(crate) const fn lookup_is_inlined(&self) -> bool {
        matches!(self.store, Store::Array(_) | Store::Maps(_))
    }

    /// The address of the value with a key.
    pub(crate) fn lookup(&self, key: &[u8]) -> Option<u64> {
        match &self.store {
            Store::Array(region) => {
                let index = u32::from_le_bytes(key.try_into().ok()?);
                let offset = stride(self.value_bytes) as u64 * u64::from(index);
                (index < self.entries).then(|| region.start() + offset)
            }
            Store::Hash(values) => values.get(key).map(|it| it.start()),
            Store::Trie(values) => {
                let matching = values.iter().filter(|(prefix, _)| covers(prefix, key));
                let longest = matching.max_by_key(|(prefix, _)| prefix_bits(prefix));
                longest.map(|(_, it)| it.start())
            }
            Store::Maps(maps) => {
                let index = u32::from_le_bytes(key.try_into().ok()?);
                let address = maps.get(index as usize).copied();
                address.filter(|it| *it != 0)
            }
        }
    }

    /// Puts a map into this one, by the address that a program gets for it. False where this is no map of maps.
    pub(crate) fn give(&mut self, address: u64) -> bool {
        match &mut self.store {
            Store::Maps(maps) => {
                maps.fill(address);
                true
            }
            _ => false,
        }
    }

    /// Writes a value, as the kernel does for programs and for user space; false where there is no
    /// room.
    pub(crate) fn update(
        &mut self,
        key: &[u8],
        value: &[u8],
        memory: &mut Memory,
    ) -> Result<bool, Fault> {
        if let Some(address) = self.exact(key) {
            memory
                .bytes_mut(address, value.len())?
                .copy_from_slice(value);
            return Ok(true);
        }
        let entries = self.entries as usize;
        match &mut self.store {
            Store::Hash(values) | Store::Trie(values) if values.len() < entries => {
                let region = memory.allocate(value.len());
                memory.replace(region, value);
                values.insert(key.to_vec(), region);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// All values that there are.
    pub(crate) fn values<'a>(&'a self, memory: &'a Memory) -> Vec<&'a [u8]> {
        match &self.store {
            Store::Array(region) => {
                let each = memory.region(*region).chunks(stride(self.value_bytes));
                each.map(|it| &it[..self.value_bytes]).collect()
            }
            Store::Hash(values) | Store::Trie(values) => {
                values.values().map(|it| memory.region(*it)).collect()
            }
            Store::Maps(_) => Vec::new(),
        }
    }

    /// Tells if the address is that of a value, or of a part of one.
    pub(crate) fn holds(&self, address: u64) -> bool {
        match &self.store {
            Store::Array(region) => region.contains(address),
            Store::Hash(values) | Store::Trie(values) => {
                values.values().any(|it| it.contains(address))
            }
            Store::Maps(_) => false,
        }
    }

    fn exact(&self, key: &[u8]) -> Option<u64> {
        match &self.store {
            Store::Array(_) => self.lookup(key),
            Store::Hash(values) | Store::Trie(values) => values.get(key).map(|it| it.start()),
            Store::Maps(_) => None,
        }
    }
}

const ARRAY: u32 = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
const PER_CPU_ARRAY: u32 = bpf_map_type::BPF_MAP_TYPE_PERCPU_ARRAY as u32;
const HASH: u32 = bpf_map_type::BPF_MAP_TYPE_HASH as u32;
const PER_CPU_HASH: u32 = bpf_map_type::BPF_MAP_TYPE_PERCPU_HASH as u32;
const LRU_HASH: u32 = bpf_map_type::BPF_MAP_TYPE_LRU_HASH as u32;
const TRIE: u32 = bpf_map_type::BPF_MAP_TYPE_LPM_TRIE as u32;
const MAPS: u32 = bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS as u32;
/// An array with holes, to a program.
const DEVICES: u32 = bpf_map_type::BPF_MAP_TYPE_DEVMAP as u32;
const DEVICES_BY_HASH: u32 = bpf_map_type::BPF_MAP_TYPE_DEVMAP_HASH as u32;

const fn stride(value_bytes: usize) -> usize {
    value_bytes.next_multiple_of(8)
}

/// The length of the prefix that a trie's key begins with.
fn prefix_bits(key: &[u8]) -> u32 {
    let length = key.first_chunk().expect("the kernel wants four bytes");
    u32::from_le_bytes(*length)
}

fn covers(prefix: &[u8], key: &[u8]) -> bool {
    let bits = prefix_bits(prefix);
    let bit = |of: &[u8], number: u32| of[4 + number as usize / 8] >> (7 - number % 8) & 1;
    bits <= prefix_bits(key) && (0..bits).all(|number| bit(prefix, number) == bit(key, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_prefix_that_covers_a_key_is_found() {
        let key = |bits: u32, data: [u8; 4]| [&bits.to_le_bytes()[..], &data].concat();
        let (wide, narrow) = (key(8, [10, 0, 0, 0]), key(25, [10, 1, 2, 0x80]));
        let host = |data| key(32, data);
        assert!(covers(&wide, &host([10, 1, 2, 3])));
        assert!(!covers(&wide, &host([11, 1, 2, 3])));
        assert!(covers(&narrow, &host([10, 1, 2, 0x83])));
        assert!(!covers(&narrow, &host([10, 1, 2, 0x7f])));
        assert!(!covers(&narrow, &key(24, [10, 1, 2, 0x80])));
    }
}
