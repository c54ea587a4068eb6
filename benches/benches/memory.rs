//! Time that memory alone takes of look-ups among 2^20 flows, each of which waits for the one before.
//!
//! A look-up reads a word of a flow's line of 64 bytes, and writes it. Nothing else is done here: a multiplication finds the
//! line, and the next look-up begins when that has been read, as it does where a packet's program has to end before the
//! next one begins. Two slots of 32 bytes in a line are the flow table's over IPv4, one of 64 bytes is that over IPv6; the rows of three and
//! four, and of pages of 2 MiB, say what smaller slots and larger pages would bring. The kernel has no such pages for maps of this size.
//!
//! | row | flows |
//! |---|---|
//! | `uniform` | each as likely as the other |
//! | `zipf` | by Zipf's law (1.0) |

use std::{hint::black_box, num::NonZeroUsize, ptr::NonNull, slice, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use rand_distr::{Distribution as _, Zipf};

const FLOWS: u32 = 1 << 20;
/// One stays free for each flow.
const SLOTS: usize = 1 << 21;
const LINE_BYTES: usize = 64;
const LOOK_UPS: usize = 1 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory in pages of one size, which it gives back.
struct Memory {
    start: NonNull<std::ffi::c_void>,
    bytes: NonZeroUsize,
}

impl Memory {
    /// At least so many bytes, which have been written once. Pages of 2 MiB are asked for: the kernel may have none.
    fn new(bytes: usize, are_pages_huge: bool) -> Self {
        let bytes = NonZeroUsize::new(bytes.next_multiple_of(HUGE_PAGE)).expect("it is some");
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: no address is asked for, so that nothing is replaced.
        let start = unsafe { mmap_anonymous(None, bytes, protection, MapFlags::MAP_PRIVATE) };
        let start = start.expect("there is memory");
        let pages = match are_pages_huge {
            true => MmapAdvise::MADV_HUGEPAGE,
            false => MmapAdvise::MADV_NOHUGEPAGE,
        };
        // SAFETY: this advice changes no byte.
        unsafe { madvise(start, bytes.get(), pages) }.expect("the kernel knows both");
        let mut memory = Self { start, bytes };
        memory.bytes().fill(0);
        memory
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: it is mapped until it is dropped, zeroed, and borrowed as long as these bytes are.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes.get()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing borrows it any more.
        unsafe { munmap(self.start, self.bytes.get()) }.expect("it is mapped");
    }
}

/// Looks up all flows in turn, each once the one before was found.
fn look_up(flows: &[u32], table: &mut [u8], lines: usize) -> u64 {
    let mut before = 0;
    for &flow in flows {
        let hash = (u64::from(flow) + before).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let line = (((hash >> 32) * lines as u64) >> 32) as usize;
        let word = &mut table[line * LINE_BYTES..][..8];
        // Always 0, which the compiler cannot know.
        before = u64::from_ne_bytes(word.try_into().expect("it is of 8 bytes"));
        word.copy_from_slice(&before.to_ne_bytes());
    }
    before
}

fn memory(criterion: &mut Criterion) {
    let mut random = SmallRng::seed_from_u64(5);
    let zipf = Zipf::new(f64::from(FLOWS), 1.0).expect("more than one");
    let zipf: Vec<u32> = (0..LOOK_UPS)
        .map(|_| zipf.sample(&mut random) as u32 - 1)
        .collect();
    let uniform: Vec<u32> = (0..LOOK_UPS)
        .map(|_| random.random_range(0..FLOWS))
        .collect();
    let mut rows = criterion.benchmark_group("memory");
    rows.throughput(Throughput::Elements(LOOK_UPS as u64));
    for (traffic, flows) in [("uniform", &uniform), ("zipf", &zipf)] {
        for slots in [1, 2, 3, 4] {
            for (pages, are_huge) in [("4 KiB", false), ("2 MiB", true)] {
                let lines = SLOTS / slots;
                let mut table = Memory::new(lines * LINE_BYTES, are_huge);
                let row = BenchmarkId::new(traffic, format!("{slots} in a line, pages of {pages}"));
                rows.bench_function(row, |bencher| {
                    let table = black_box(table.bytes());
                    bencher.iter(|| look_up(flows, table, lines));
                });
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3));
    targets = memory
}
criterion_main!(benches);
