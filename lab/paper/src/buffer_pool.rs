//! Memory of outgoing messages that are done, for the next.

/// So many are kept, of so many bytes each.
const MOST: usize = 64;
const MOST_BYTES: usize = 256 << 10;

#[derive(Debug, Default)]
pub(crate) struct BufferPool(Vec<Vec<u8>>);

impl BufferPool {
    /// Not empty, perhaps.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    pub(crate) fn give(&mut self, memory: Vec<u8>) {
        if self.0.len() < MOST && memory.capacity() <= MOST_BYTES {
            self.0.push(memory);
        }
    }
}
