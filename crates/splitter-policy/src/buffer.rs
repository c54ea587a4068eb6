//! Bounds-checked access to the bytes of a frame.
//!
//! The parser is generic over [`Buffer`]. On the host that is a slice; in the
//! kernel it is a pair of packet pointers whose comparison the verifier
//! follows.

/// Bytes of a frame that may be read, and that may be fewer than it says.
pub trait Buffer {
    /// The `N` bytes at `offset`, or `None` when the frame ends before them.
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// The first `N` bytes where they lie, or `None` when the frame ends before them: what is looked at
    /// once more later is read once more, which is less than to keep it meanwhile.
    fn head<const N: usize>(&self) -> Option<&[u8; N]>;

    /// How many bytes are at hand.
    fn available(&self) -> usize;

    /// How many bytes the whole frame has, those that are not at hand included.
    /// May cost a call; it is asked only when the headers announce more bytes
    /// than [`Buffer::available`].
    fn length(&self) -> usize {
        self.available()
    }
}

/// Bytes of a frame that may be rewritten in place.
pub trait BufferMut: Buffer {
    /// Replaces the `N` bytes at `offset`; `None`, and nothing written, when
    /// the frame ends before them.
    fn write<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) -> Option<()>;
}

impl Buffer for [u8] {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let end = offset.checked_add(N)?;
        self.get(offset..end)?.try_into().ok()
    }

    fn head<const N: usize>(&self) -> Option<&[u8; N]> {
        self.first_chunk()
    }

    fn available(&self) -> usize {
        self.len()
    }
}

impl BufferMut for [u8] {
    fn write<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) -> Option<()> {
        let end = offset.checked_add(N)?;
        self.get_mut(offset..end)?.copy_from_slice(&bytes);
        Some(())
    }
}

/// A frame between two packet pointers, as XDP and TC programs get it.
#[derive(Debug)]
pub struct RawBuffer {
    start: usize,
    end: usize,
}

impl RawBuffer {
    /// Offsets from here on are refused. The verifier gives up on packet
    /// pointers with an unbounded offset (`MAX_PACKET_OFF` is 0xffff); headers
    /// never start so late.
    const MAX_OFFSET: usize = 0x7ff;

    /// Wraps the bytes from `start` up to, and without, `end`.
    ///
    /// # Safety
    /// Until the value is dropped, all bytes in `start..end` must be valid for
    /// reads and writes and must not be borrowed elsewhere.
    #[inline(always)]
    pub unsafe fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// The address of `N` bytes at `offset` when all of them are in the frame.
    ///
    /// Written as `start + offset + N > end`, the one form of bounds check that
    /// the verifier understands.
    #[inline(always)]
    fn locate<const N: usize>(&self, offset: usize) -> Option<usize> {
        if offset > Self::MAX_OFFSET {
            return None;
        }
        let at = self.start + offset;
        if at + N > self.end {
            return None;
        }
        Some(at)
    }
}

impl Buffer for RawBuffer {
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let at = self.locate::<N>(offset)?;
        // SAFETY: `locate` checked that the N bytes lie in the frame, which
        // `new`'s caller vouched for; arrays of bytes have no alignment.
        Some(unsafe { (at as *const [u8; N]).read_unaligned() })
    }

    #[inline(always)]
    fn head<const N: usize>(&self) -> Option<&[u8; N]> {
        let at = self.locate::<N>(0)?;
        // SAFETY: as in `read`; who writes has the buffer for himself, and no reference is left then.
        // Nothing lies at address 0, which a compiler that does not know that asks for each packet.
        unsafe {
            core::hint::assert_unchecked(at != 0);
            Some(&*(at as *const [u8; N]))
        }
    }

    #[inline(always)]
    fn available(&self) -> usize {
        self.end - self.start
    }
}

impl BufferMut for RawBuffer {
    #[inline(always)]
    fn write<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) -> Option<()> {
        let at = self.locate::<N>(offset)?;
        // SAFETY: as in `read`, and `&mut self` makes the access exclusive.
        unsafe { (at as *mut [u8; N]).write_unaligned(bytes) };
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn raw_buffer_agrees_with_the_slice(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), offset in 0usize..80) {
            let start = bytes.as_mut_ptr() as usize;
            // SAFETY: the vector outlives the buffer and is not touched meanwhile.
            let raw = unsafe { RawBuffer::new(start, start + bytes.len()) };
            let seen = raw.read::<4>(offset);
            prop_assert_eq!(seen, bytes.as_slice().read::<4>(offset));
            prop_assert_eq!(raw.head::<20>(), bytes.as_slice().head::<20>());
        }

        #[test]
        fn a_write_changes_its_bytes_and_no_others(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), offset in 0usize..80, new: [u8; 2]) {
            let mut expected: Vec<u8> = bytes.clone();
            let on_slice = expected.as_mut_slice().write(offset, new);
            let start = bytes.as_mut_ptr() as usize;
            // SAFETY: as above.
            let mut raw = unsafe { RawBuffer::new(start, start + bytes.len()) };
            prop_assert_eq!(raw.write(offset, new), on_slice);
            prop_assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn an_offset_that_overflows_is_refused() {
        assert_eq!([0u8; 8].as_slice().read::<4>(usize::MAX), None);
    }
}
