//! Which inputs can be added to several outputs together.

use crate::kernel::MAX_INPUTS;

/// Outputs that are summed at once. More would read the inputs less often, but
/// find fewer of them alike.
pub(super) const GROUP: usize = 4;

/// Inputs that are added at once, at most.
pub(super) const ALIKE: usize = 4;

/// An input's class tells by its bits which outputs of a group the input is part of.
const CLASSES: usize = 1 << GROUP;

/// By class: all lanes of a vector or none, for each output.
static LANES: [[u16; GROUP]; CLASSES] = {
    let mut lanes = [[0; GROUP]; CLASSES];
    let mut at = 0;
    while at < CLASSES * GROUP {
        let (class, output) = (at / GROUP, at % GROUP);
        if class >> output & 1 == 1 {
            lanes[class][output] = !0;
        }
        at += 1;
    }
    lanes
};

/// The inputs of up to [`GROUP`] outputs, each once.
#[derive(Clone, Copy)]
pub(super) struct Grouping {
    /// By how many are alike, of which [`ALIKE`] count as none.
    lists: [List; ALIKE],
}

#[derive(Clone, Copy)]
struct List {
    /// There is capacity for all inputs, and for one entry that is then not taken.
    entries: [Alike; MAX_INPUTS / ALIKE + 1],
    len: usize,
}

/// Inputs that are part of the same outputs.
#[derive(Clone, Copy)]
pub(super) struct Alike {
    /// As many as the list says.
    pub(super) inputs: [u8; ALIKE],
    class: u8,
}

impl Grouping {
    pub(super) const NONE: Self = {
        let none = Alike {
            inputs: [0; ALIKE],
            class: 0,
        };
        let list = List {
            entries: [none; MAX_INPUTS / ALIKE + 1],
            len: 0,
        };
        Self {
            lists: [list; ALIKE],
        }
    };

    /// Takes the inputs of outputs with these masks; there are none yet.
    ///
    /// Nobody could predict how many inputs a class has, so this does without
    /// branches: what may be an entry is written, and counts if it is one.
    #[inline(always)]
    pub(super) fn fill(&mut self, masks: [u64; GROUP]) {
        let [a, b, c, d] = masks;
        let lower = [!a & !b, a & !b, !a & b, a & b];
        let upper = [!c & !d, c & !d, !c & d, c & d];
        // What is left of each class once its sets of less than four are taken.
        let mut fours = [(0, 0); CLASSES];
        let mut classes = 0;
        for class in 1..CLASSES {
            let of_class = lower[class % 4] & upper[class / 4];
            let few = of_class.count_ones() as usize % ALIKE;
            let (inputs, rests) = lowest(of_class);
            self.lists[few].put(inputs, class, few != 0);
            fours[classes] = (rests[few], class);
            classes += usize::from(rests[few] != 0);
        }
        let mut at = 0;
        let mut rest = fours[0].0;
        while at < classes {
            let (inputs, rests) = lowest(rest);
            self.lists[0].put(inputs, fours[at].1, true);
            at += usize::from(rests[ALIKE] == 0);
            rest = rests[ALIKE];
            if rest == 0 {
                rest = fours[at].0;
            }
        }
    }

    /// Inputs in sets of `INPUTS`, up to [`ALIKE`].
    #[inline]
    pub(super) fn alike<const INPUTS: usize>(&self) -> &[Alike] {
        let list = &self.lists[INPUTS % ALIKE];
        &list.entries[..list.len]
    }
}

impl List {
    #[inline(always)]
    fn put(&mut self, inputs: [u8; ALIKE], class: usize, counts: bool) {
        let class = class as u8;
        self.entries[self.len] = Alike { inputs, class };
        self.len += usize::from(counts);
    }
}

/// The lowest inputs of a set, and the set without the lowest 0, 1, ... of them.
#[inline(always)]
fn lowest(set: u64) -> ([u8; ALIKE], [u64; ALIKE + 1]) {
    let mut inputs = [0; ALIKE];
    let mut rests = [set; ALIKE + 1];
    for (taken, input) in inputs.iter_mut().enumerate() {
        let rest = rests[taken];
        *input = rest.trailing_zeros() as u8;
        rests[taken + 1] = rest & rest.wrapping_sub(1);
    }
    (inputs, rests)
}

impl Alike {
    /// The lanes of each output that the inputs are added to: all or none.
    #[inline(always)]
    pub(super) fn lanes(&self) -> &'static [u16; GROUP] {
        &LANES[usize::from(self.class) % CLASSES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_input_is_in_one_set_of_its_class(
            some in prop::array::uniform4(any::<u64>()),
            most in prop::array::uniform4(any::<u64>()),
        ) {
            let masks = [0, 1, 2, 3].map(|output| some[output] & most[(output + 1) % 4]);
            let mut grouping = Grouping::NONE;
            grouping.fill(masks);
            let lists = [
                grouping.alike::<1>(),
                grouping.alike::<2>(),
                grouping.alike::<3>(),
                grouping.alike::<4>(),
            ];
            let mut found = [0; GROUP];
            for (inputs, list) in (1..).zip(lists) {
                for alike in list {
                    for (lanes, found) in alike.lanes().iter().zip(&mut found) {
                        for input in &alike.inputs[..inputs] {
                            *found ^= u64::from(lanes & 1) << input;
                        }
                    }
                }
            }
            prop_assert_eq!(found, masks);
            let entries: usize = (1..).zip(lists).map(|(inputs, list)| inputs * list.len()).sum();
            let used = masks.iter().fold(0, |used, mask| used | mask);
            prop_assert_eq!(entries, used.count_ones() as usize);
        }
    }
}
