//! State by peer: each part of the machine keeps its own.

use super::{event::PeerId, statistics::release};

/// Values by [`PeerId`], in the order of peers' numbers. Ids of peers that are gone, and of peers of
/// other transports, find nothing.
#[derive(Debug)]
pub(super) struct PeerMap<T> {
    slots: Vec<Option<(PeerId, T)>>,
    len: usize,
}

impl<T> Default for PeerMap<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            len: 0,
        }
    }
}

impl<T> PeerMap<T> {
    /// Counts the peers that it has.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Puts in a value for a peer that is new.
    pub(super) fn insert(&mut self, id: PeerId, value: T) {
        let index = id.index as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index.saturating_add(1), || None);
        }
        let before = self.slots[index].replace((id, value));
        self.len = self.len.saturating_add(before.is_none().into());
    }

    /// Takes out the value of a peer that is gone.
    pub(super) fn remove(&mut self, id: PeerId) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        let (_, value) = slot.take_if(|(known, _)| *known == id)?;
        release(&mut self.len, 1);
        Some(value)
    }

    pub(super) fn get(&self, id: PeerId) -> Option<&T> {
        let slot = self.slots.get(id.index as usize)?;
        let (known, value) = slot.as_ref()?;
        (*known == id).then_some(value)
    }

    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        let (known, value) = slot.as_mut()?;
        (*known == id).then_some(value)
    }

    pub(super) fn contains(&self, id: PeerId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerId, &T)> {
        let slots = self.slots.iter().flatten();
        slots.map(|(id, value)| (*id, value))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let slots = self.slots.iter_mut().flatten();
        slots.map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::event::TransportId, *};

    #[test]
    fn ids_of_peers_that_are_gone_or_of_others_find_nothing() {
        let mut map = PeerMap::default();
        let (old, new) = (PeerId::new(3, 0), PeerId::new(3, 1));
        let foreign = PeerId::of(TransportId(7), 3, 1);
        map.insert(old, 'a');
        map.insert(PeerId::new(1, 0), 'b');
        assert_eq!((map.len(), map.get(old)), (2, Some(&'a')));
        assert_eq!(map.remove(new), None);
        assert_eq!(map.remove(old), Some('a'));
        map.insert(new, 'c');
        assert_eq!(map.get(old), None);
        assert_eq!(map.get_mut(new), Some(&mut 'c'));
        assert_eq!(map.get(foreign), None);
        assert_eq!(map.remove(foreign), None);
        let all: Vec<_> = map.iter().map(|(id, value)| (id.index, *value)).collect();
        assert_eq!(all, [(1, 'b'), (3, 'c')]);
    }
}
