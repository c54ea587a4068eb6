//! The virtual queues in front of tunnels, in the memory in which the program keeps them.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::MapData;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use splitter_policy::cpu_queues::SharedWord;
use splitter_policy::paths::TunnelQueues;

use super::names::PATH_QUEUES;
use super::{Dataplane, KernelError};

/// A number that the kernel programs add to at any time.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct MappedWord(AtomicU64);

impl SharedWord for MappedWord {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        let exchanged = self
            .0
            .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
        exchanged.is_ok()
    }

    fn add(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, Ordering::Relaxed)
    }
}

/// The virtual queues in front of the tunnels that packets choose among, mapped.
#[derive(Debug)]
pub struct PathQueues(NonNull<TunnelQueues<MappedWord>>);

// SAFETY: the memory is mapped until the value is dropped, on whatever thread, and is accessed by atomic
// operations alone.
unsafe impl Send for PathQueues {}
// SAFETY: as above.
unsafe impl Sync for PathQueues {}

const LENGTH: usize = size_of::<TunnelQueues<MappedWord>>();

impl PathQueues {
    /// Maps those of a map that is pinned, by its name.
    pub(super) fn open(path: &Path, name: &'static str) -> Result<Self, KernelError> {
        let map = MapData::from_pin(path).map_err(|source| KernelError::Map { name, source })?;
        Self::map(map.fd()).map_err(|source| KernelError::Mapping { source })
    }

    fn map(map: impl AsFd) -> io::Result<Self> {
        let length = const { NonZeroUsize::new(LENGTH).unwrap() };
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, map, 0) }?;
        Ok(Self(start.cast()))
    }

    /// Returns them, as they are at any time.
    #[must_use]
    pub fn queues(&self) -> &TunnelQueues<MappedWord> {
        // SAFETY: so much is mapped, on a page's boundary, as long as `self` lives. It is made of atomic words, for
        // which any bytes are valid, and which the kernel may change at any time.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for PathQueues {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with that length; no reference outlives `self`.
        // A failure leaves the mapping to the end of the process.
        let _ = unsafe { munmap(self.0.cast(), LENGTH) };
    }
}

impl Dataplane {
    /// Maps the virtual queues of the tunnels that the program chooses among; none where it does not.
    ///
    /// # Errors
    /// When the map cannot be opened or mapped.
    pub fn path_queues(&self) -> Result<Option<PathQueues>, KernelError> {
        let path = self.pins().map(PATH_QUEUES);
        if !path.exists() {
            return Ok(None);
        }
        PathQueues::open(&path, PATH_QUEUES).map(Some)
    }
}
