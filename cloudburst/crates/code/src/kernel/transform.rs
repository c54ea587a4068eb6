//! Cauchy sums by the additive Fourier transform: see [`crate::additive`].
//!
//! Two layers of butterflies are done at a time, on four vectors in registers; between them the
//! symbols' vectors lie in a workspace that fits the nearest cache. Of the forward transform only
//! those parts are computed that end in an output.

use core::{mem::MaybeUninit, ops::Range};

use super::vector::Vector;
use crate::additive::SCALED;

/// Repair symbols of a block, all with points of the same coset of the source symbols' subspace.
pub(crate) struct TransformTask<'a> {
    /// Two to this power are the points of the subspace: 4 to 6.
    pub(crate) log: usize,
    /// The source symbols, at least one; one that is null counts as zeros.
    pub(crate) inputs: &'a [*const u8],
    /// The first point of the coset.
    pub(crate) coset: u8,
    /// The repair symbols by their points' place in the coset.
    pub(crate) outputs: &'a [Output; MAX_POINTS],
    /// Adds to what the outputs hold, instead of replacing it.
    pub(crate) add: bool,
}

/// Where a value of the polynomial goes.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// Null where none is asked for.
    pub(crate) to: *mut u8,
    /// What it is multiplied with.
    pub(crate) factor: u8,
}

impl Output {
    pub(crate) const NONE: Self = Self {
        to: core::ptr::null_mut(),
        factor: 0,
    };
}

pub(crate) const MAX_POINTS: usize = 64;

/// Computes the bytes `range`: most of it by `W`, the rest by `N`, which is narrower.
///
/// # Safety
///
/// As of [`super::transform`]; the processor has what both vectors need.
#[inline(always)]
pub(super) unsafe fn transform<W: Vector, N: Vector>(
    task: &TransformTask<'_>,
    range: Range<usize>,
) {
    let needed = Needed::of(task);
    let mut at = range.start;
    // SAFETY: the caller vouches for the range, and every stretch lies in it.
    unsafe {
        while at + W::BYTES <= range.end {
            Stretch::<W, true>::new(task, &needed, at, W::BYTES).compute();
            at += W::BYTES;
        }
        while at + N::BYTES <= range.end {
            Stretch::<N, true>::new(task, &needed, at, N::BYTES).compute();
            at += N::BYTES;
        }
        if at < range.end {
            Stretch::<N, false>::new(task, &needed, at, range.end - at).compute();
        }
    }
}

/// Which parts of a coset have outputs: bit k is set if the kth quadruple of points has one.
struct Needed(u16);

impl Needed {
    fn of(task: &TransformTask<'_>) -> Self {
        let quadruples = task.outputs.chunks_exact(4).enumerate();
        Self(quadruples.fold(0, |needed, (number, outputs)| {
            let asked = outputs.iter().any(|output| !output.to.is_null());
            needed | u16::from(asked) << number
        }))
    }

    /// Whether one of the points `points` has an output; their bounds are multiples of 4.
    #[inline(always)]
    const fn any(&self, points: Range<usize>) -> bool {
        let (first, end) = (points.start / 4, points.end / 4);
        self.0 >> first & (!0 >> (16 - (end - first))) != 0
    }
}

/// The bytes of all symbols from `at` on; `FULL` if they fill vectors.
struct Stretch<'a, V, const FULL: bool> {
    task: &'a TransformTask<'a>,
    needed: &'a Needed,
    at: usize,
    len: usize,
    points: Points<V>,
}

#[repr(align(64))]
struct Points<V>([MaybeUninit<V>; MAX_POINTS]);

impl<'a, V: Vector, const FULL: bool> Stretch<'a, V, FULL> {
    #[inline(always)]
    fn new(task: &'a TransformTask<'a>, needed: &'a Needed, at: usize, len: usize) -> Self {
        Self {
            task,
            needed,
            at,
            len,
            points: Points([MaybeUninit::uninit(); MAX_POINTS]),
        }
    }

    /// # Safety
    ///
    /// As of [`super::transform`], for this stretch.
    #[inline(always)]
    unsafe fn compute(&mut self) {
        // SAFETY: the caller vouches for all that is read and written; the inverse transform
        // fills the points from 0 to 2^log, and the others read no more.
        unsafe {
            self.inverse();
            let sum = self.point((1 << self.task.log) - 1);
            self.forward(sum);
        }
    }

    #[inline(always)]
    unsafe fn point(&self, index: usize) -> V {
        // SAFETY: the caller vouches that it has been written, and for the index.
        unsafe { self.points.0.get_unchecked(index).assume_init() }
    }

    #[inline(always)]
    unsafe fn set(&mut self, index: usize, value: V) {
        // SAFETY: the caller vouches for the index.
        unsafe { self.points.0.get_unchecked_mut(index).write(value) };
    }

    /// Four points, `distance` apart.
    #[inline(always)]
    unsafe fn four(&self, first: usize, distance: usize) -> [V; 4] {
        // SAFETY: as of `point`.
        unsafe {
            [
                self.point(first),
                self.point(first + distance),
                self.point(first + 2 * distance),
                self.point(first + 3 * distance),
            ]
        }
    }

    #[inline(always)]
    unsafe fn set_four(&mut self, first: usize, distance: usize, values: [V; 4]) {
        for (place, value) in values.into_iter().enumerate() {
            // SAFETY: as of `set`.
            unsafe { self.set(first + place * distance, value) };
        }
    }

    /// From the source symbols to the polynomial's coefficients.
    #[inline(always)]
    unsafe fn inverse(&mut self) {
        let n = self.task.inputs.len();
        let size = 1 << self.task.log;
        // SAFETY: the caller vouches for it; every point below `size` is written by the first
        // loop before it is read.
        unsafe {
            let values = self.inputs(0);
            self.set_four(0, 1, inverse_of_first(0, values));
            for block in (4..size).step_by(4) {
                let mut values = [V::zero(); 4];
                if block < n {
                    values = inverse(0, block, self.inputs(block));
                }
                self.set_four(block, 1, values);
            }
            for column in 0..4 {
                let values = self.four(column, 4);
                self.set_four(column, 4, inverse_of_first(2, values));
            }
            for block in (16..size).step_by(16) {
                // What is beyond the source symbols is zero still.
                if block < n {
                    for first in block..block + 4 {
                        let values = self.four(first, 4);
                        self.set_four(first, 4, inverse(2, block, values));
                    }
                }
            }
            if self.task.log == 5 {
                for first in 0..16 {
                    let sum = self.point(first).xor(self.point(first + 16));
                    self.set(first + 16, sum);
                }
            } else if self.task.log == 6 {
                for first in 0..16 {
                    let values = self.four(first, 16);
                    self.set_four(first, 16, inverse_of_first(4, values));
                }
            }
        }
    }

    /// The source symbols from `first` on.
    #[inline(always)]
    unsafe fn inputs(&self, first: usize) -> [V; 4] {
        // SAFETY: the caller vouches for what is read.
        unsafe {
            let mut values = [V::zero(); 4];
            for (place, value) in values.iter_mut().enumerate() {
                let input = self.task.inputs.get(first + place);
                if let Some(&input) = input.filter(|input| !input.is_null()) {
                    *value = self.load(input);
                }
            }
            values
        }
    }

    #[inline(always)]
    unsafe fn load(&self, symbol: *const u8) -> V {
        // SAFETY: the caller vouches for what is read.
        unsafe {
            let from = symbol.add(self.at);
            if FULL {
                V::load(from)
            } else {
                V::load_part(from, self.len)
            }
        }
    }

    /// From the coefficients to the outputs; `sum` is that of all source symbols.
    #[inline(always)]
    unsafe fn forward(&mut self, sum: V) {
        let coset = usize::from(self.task.coset);
        // SAFETY: the caller vouches for it; only points below 2^log have outputs.
        unsafe {
            if self.task.log == 5 {
                for first in 0..16 {
                    let (low, high) = (self.point(first), self.point(first + 16));
                    let low = low.xor(high.times(SCALED[4][coset]));
                    self.set(first, low);
                    self.set(first + 16, low.xor(high));
                }
            } else if self.task.log == 6 {
                match [0..32, 32..64].map(|half| self.needed.any(half)) {
                    [true, false] => self.halves::<true, false>(coset),
                    [false, true] => self.halves::<false, true>(coset),
                    _ => self.halves::<true, true>(coset),
                }
            }
            for block in (0..1 << self.task.log).step_by(16) {
                match [block..block + 8, block + 8..block + 16].map(|half| self.needed.any(half)) {
                    [false, false] => continue,
                    [true, false] => self.columns::<true, false>(coset, block),
                    [false, true] => self.columns::<false, true>(coset, block),
                    [true, true] => self.columns::<true, true>(coset, block),
                }
                for first in (block..block + 16).step_by(4) {
                    if self.needed.any(first..first + 4) {
                        let values =
                            forward::<V, true, true>(0, coset + first, self.four(first, 1));
                        self.output(first, values, sum);
                    }
                }
            }
        }
    }

    /// The outer two layers of 64 points, as far as they lead to the lower or upper half.
    #[inline(always)]
    unsafe fn halves<const LOWER: bool, const UPPER: bool>(&mut self, coset: usize) {
        for first in 0..16 {
            // SAFETY: as of `forward`.
            unsafe {
                let values = forward::<V, LOWER, UPPER>(4, coset, self.four(first, 16));
                self.set_four(first, 16, values);
            }
        }
    }

    /// The two layers of a block of 16, as far as they lead to its lower or upper half.
    #[inline(always)]
    unsafe fn columns<const LOWER: bool, const UPPER: bool>(&mut self, coset: usize, block: usize) {
        for first in block..block + 4 {
            // SAFETY: as of `forward`.
            unsafe {
                let values = self.four(first, 4);
                let values = forward::<V, LOWER, UPPER>(2, coset + block, values);
                self.set_four(first, 4, values);
            }
        }
    }

    /// Writes what is asked for of four neighbours.
    #[inline(always)]
    unsafe fn output(&self, first: usize, values: [V; 4], sum: V) {
        for (place, value) in values.into_iter().enumerate() {
            // SAFETY: the caller vouches for what is written, and that there are such outputs.
            unsafe {
                let &Output { to, factor } = self.task.outputs.get_unchecked(first + place);
                if to.is_null() {
                    continue;
                }
                let mut value = value.times(factor).xor(sum);
                if self.task.add {
                    value = value.xor(self.load(to));
                }
                let to = to.add(self.at);
                if FULL {
                    value.store(to)
                } else {
                    value.store_part(to, self.len)
                }
            }
        }
    }
}

/// Layers `layer` and the next of the inverse transform of four points, of a block that begins
/// at `block`.
#[inline(always)]
unsafe fn inverse<V: Vector>(layer: usize, block: usize, values: [V; 4]) -> [V; 4] {
    let [mut a, mut b, mut c, mut d] = values;
    // SAFETY: the caller has the instructions.
    unsafe {
        b = b.xor(a);
        a = a.xor(b.times(SCALED[layer][block]));
        d = d.xor(c);
        c = c.xor(d.times(SCALED[layer][block + (2 << layer)]));
        let factor = SCALED[layer + 1][block];
        c = c.xor(a);
        a = a.xor(c.times(factor));
        d = d.xor(b);
        b = b.xor(d.times(factor));
    }
    [a, b, c, d]
}

/// As [`inverse`], of the block that begins at 0, where most factors are.
#[inline(always)]
unsafe fn inverse_of_first<V: Vector>(layer: usize, values: [V; 4]) -> [V; 4] {
    let [a, mut b, mut c, mut d] = values;
    // SAFETY: the caller has the instructions.
    unsafe {
        b = b.xor(a);
        d = d.xor(c);
        c = c.xor(d.times(SCALED[layer][2 << layer]));
        c = c.xor(a);
        d = d.xor(b);
    }
    [a, b, c, d]
}

/// Layers `layer + 1` and `layer` of the forward transform of four points, of a block that
/// begins at the point `block`: the lower two, the upper two or both.
#[inline(always)]
unsafe fn forward<V: Vector, const LOWER: bool, const UPPER: bool>(
    layer: usize,
    block: usize,
    values: [V; 4],
) -> [V; 4] {
    let [mut a, mut b, mut c, mut d] = values;
    // SAFETY: the caller has the instructions.
    unsafe {
        let factor = SCALED[layer + 1][block];
        a = a.xor(c.times(factor));
        b = b.xor(d.times(factor));
        if UPPER {
            c = c.xor(a);
            d = d.xor(b);
            c = c.xor(d.times(SCALED[layer][block + (2 << layer)]));
            d = d.xor(c);
        }
        if LOWER {
            a = a.xor(b.times(SCALED[layer][block]));
            b = b.xor(a);
        }
    }
    [a, b, c, d]
}
