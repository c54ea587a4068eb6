//! How much memory coding takes: as much as is documented, and none that is
//! asked for while messages come and go.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::support::{SCHEDULES, draw, message};
use cloudburst_code::{Block, Decoder, Encoder, Memory, Received, Schedule, Shape};

/// Counts what each thread asks for; tests run in one thread each.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // A thread that ends may free and allocate after its locals are gone.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    let _ = BYTES.try_with(|sum| sum.set(sum.get() + bytes));
}

// SAFETY: all is left to the system's allocator; what counts allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `run` returns, how often it allocated, and how many bytes in all.
fn counted<T>(run: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = (ALLOCATIONS.get(), BYTES.get());
    let result = run();
    let after = (ALLOCATIONS.get(), BYTES.get());
    (result, after.0 - before.0, after.1 - before.1)
}

/// Sends a message of which `lost_percent` of the datagrams are lost, first as
/// many at once as the buffer holds and then one by one, and tells whether it
/// came back.
fn exchange(
    message: &[u8],
    shape: Shape,
    schedule: Schedule,
    (id, lost_percent): (u8, u32),
    decoder: &mut Decoder<Vec<u8>, Vec<Block>>,
    buffer: &mut [u8],
) -> bool {
    decoder.reset();
    let encoder = Encoder::new(message, shape, schedule, id, id.into()).unwrap();
    let size = encoder.datagram_bytes();
    let at_once = (buffer.len() / size) as u32;
    let mut sequence = 0;
    while sequence < 10_000 {
        let count = if sequence == 0 { at_once } else { 1 };
        let written = encoder.write(sequence..sequence + count, buffer).unwrap();
        for (datagram, sequence) in buffer[..written].chunks(size).zip(sequence..) {
            let is_lost = draw(sequence) < lost_percent;
            if !is_lost && decoder.receive(datagram) == Ok(Received::Complete) {
                return decoder.message() == Some(message);
            }
        }
        sequence += count;
    }
    false
}

#[test]
fn messages_come_and_go_without_allocation() {
    for n in [1, 4, 15, 64, 300] {
        let message = message(n * 100 - 7);
        let shape = Shape::new(message.len(), 100).unwrap();
        assert_eq!(shape.symbols(), n);
        for schedule in SCHEDULES {
            if Encoder::new(&message, shape, schedule, 0, 0).is_err() {
                assert!(n > 64, "{schedule:?} with {n} symbols");
                continue;
            }
            let mut decoder = Decoder::for_shape(&shape);
            let mut buffer = vec![0; (n + 10) * (100 + 12)];
            for id in 0..6 {
                let loss = (id, 10 * u32::from(id));
                let (came_back, allocations, _) = counted(|| {
                    exchange(&message, shape, schedule, loss, &mut decoder, &mut buffer)
                });
                assert!(came_back, "{schedule:?} with {n} symbols, {loss:?}");
                assert_eq!(allocations, 0, "{schedule:?} with {n} symbols, {loss:?}");
            }
        }
    }
}

/// The message, 64 symbols that are not source symbols, and the bookkeeping.
#[test]
fn a_decoder_takes_as_much_memory_as_is_documented() {
    for symbol_bytes in [1, 16, 100, 1_440, 8_960] {
        for n in 1..=64 {
            for message_bytes in [(n - 1) * symbol_bytes + 1, n * symbol_bytes] {
                let shape = Shape::new(message_bytes, symbol_bytes).unwrap();
                assert_eq!(shape.symbols(), n);
                let most = message_bytes + 64 * symbol_bytes + 4_096;
                let memory = Memory::of(&shape);
                let (decoder, _, allocated) = counted(|| Decoder::for_shape(&shape));
                assert_eq!(
                    allocated,
                    memory.bytes + memory.blocks * size_of::<Block>(),
                    "{shape:?}"
                );
                let total = allocated + size_of_val(&decoder);
                assert!(total <= most, "{total} bytes for {shape:?}");
            }
        }
    }
}
