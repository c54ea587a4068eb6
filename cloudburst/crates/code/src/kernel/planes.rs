//! Symbols as bit planes: plane b has bit b of all their bytes.
//!
//! A product in GF(256) is linear in the bits, so that each plane of it is an exclusive or of planes, and no
//! processor needs a table for it.

/// A plane of so many words of 8 bytes, which compilers put into vectors where there are any.
pub(super) type Plane<const WORDS: usize> = [u64; WORDS];

/// The planes of a stretch of `64 * WORDS` bytes.
pub(super) type Planes<const WORDS: usize> = [Plane<WORDS>; 8];

/// Adds the planes of one stretch to those of another, or the bytes.
#[cfg(target_pointer_width = "64")]
#[inline(always)]
pub(super) fn add<const WORDS: usize>(sum: &mut Planes<WORDS>, other: &Planes<WORDS>) {
    for (sum, other) in sum.iter_mut().zip(other) {
        for (sum, other) in sum.iter_mut().zip(other) {
            *sum ^= other;
        }
    }
}

/// The first `len` bytes of a symbol, up to a stretch, and zeros.
///
/// # Safety
///
/// They are readable.
#[inline(always)]
pub(super) unsafe fn load<const WORDS: usize>(from: *const u8, len: usize) -> Planes<WORDS> {
    debug_assert!(len <= size_of::<Planes<WORDS>>());
    // SAFETY: the caller vouches for what is read; the rows have as many bytes, of any value.
    unsafe {
        if len == size_of::<Planes<WORDS>>() {
            return from.cast::<Planes<WORDS>>().read_unaligned();
        }
        let mut rows = [[0; WORDS]; 8];
        from.copy_to_nonoverlapping(rows.as_mut_ptr().cast(), len);
        rows
    }
}

/// Writes the first `len` bytes, up to a stretch.
///
/// # Safety
///
/// They are writable.
#[inline(always)]
pub(super) unsafe fn store<const WORDS: usize>(rows: &Planes<WORDS>, to: *mut u8, len: usize) {
    debug_assert!(len <= size_of_val(rows));
    // SAFETY: the caller vouches for what is written.
    unsafe {
        if len == size_of_val(rows) {
            to.cast::<Planes<WORDS>>().write_unaligned(*rows);
        } else {
            to.copy_from_nonoverlapping(rows.as_ptr().cast(), len);
        }
    }
}

/// Words that are worked on at once: in registers of 128 bits, of which many processors have 16.
pub(super) const AT_ONCE: usize = 2;

/// Turns bytes into planes, and planes into bytes: what was bit b of the bytes of row r becomes bit r of those of
/// row b.
#[inline(always)]
pub(super) fn transpose<const WORDS: usize>(rows: &mut Planes<WORDS>) {
    const { assert!(WORDS.is_multiple_of(AT_ONCE)) };
    for at in (0..WORDS).step_by(AT_ONCE) {
        let mut columns = [[0; AT_ONCE]; 8];
        for (column, row) in columns.iter_mut().zip(&*rows) {
            column.copy_from_slice(&row[at..at + AT_ONCE]);
        }
        swap::<4>(&mut columns, 0x0f0f_0f0f_0f0f_0f0f);
        swap::<2>(&mut columns, 0x3333_3333_3333_3333);
        swap::<1>(&mut columns, 0x5555_5555_5555_5555);
        for (column, row) in columns.iter().zip(&mut *rows) {
            row[at..at + AT_ONCE].copy_from_slice(column);
        }
    }
}

/// Swaps the upper bits of rows with the lower bits of those that are `DISTANCE` further on.
#[inline(always)]
fn swap<const DISTANCE: usize>(rows: &mut [[u64; AT_ONCE]; 8], mask: u64) {
    for row in 0..8 {
        if row & DISTANCE != 0 {
            continue;
        }
        let (lower, upper) = rows.split_at_mut(row + DISTANCE);
        for (one, other) in lower[row].iter_mut().zip(&mut upper[0]) {
            let swapped = (*one >> DISTANCE ^ *other) & mask;
            *other ^= swapped;
            *one ^= swapped << DISTANCE;
        }
    }
}
