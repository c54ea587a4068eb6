//! Bits of the kernel's mark, and who else uses those of the splitter.

use super::{Concern, Neighbour, known};

/// A use of the kernel's mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MarkUse {
    /// The bits that are looked at or written.
    pub(super) bits: u32,
    /// What uses them, continuing "which" with its verb: "rule 5 looks at".
    pub(super) what: String,
}

/// Adds to each neighbour that uses bits of `ours` what to do about that. Bits that are free for the
/// splitter are those that nobody uses.
pub(super) fn add_overlaps(ours: u32, found: &mut [(Neighbour, Vec<MarkUse>)]) {
    let used = found.iter().fold(0, |used, (it, _)| used | it.mark_bits);
    // Whoever else is known may come later.
    let width = ours.count_ones();
    let free = free_mask(width, used | known::marks()).or_else(|| free_mask(width, used));
    let remedy = match free {
        Some(mask) => format!("set steering.mark_mask to {mask:#x}, which nobody here uses"),
        None => {
            "no other bits are left for the splitter: limit the others to bits of their own, or \
                 set steering.mode to \"dscp\""
                .to_owned()
        }
    };
    for (neighbour, uses) in found {
        let Some(overlap) = uses.iter().find(|it| it.bits & ours != 0) else {
            continue;
        };
        let problem = format!(
            "{} {:#x} of the kernel's mark, of which the splitter uses {ours:#x}",
            overlap.what, overlap.bits
        );
        neighbour.concerns.push(Concern {
            problem,
            remedy: remedy.clone(),
            is_certain: true,
        });
    }
}

/// The highest bits next to each other that are not used.
fn free_mask(width: u32, used: u32) -> Option<u32> {
    let mask = u32::MAX.checked_shr(u32::BITS - width)?;
    let places = (0..=u32::BITS - width).rev();
    places
        .map(|place| mask << place)
        .find(|mask| mask & used == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_free_bits_are_proposed() {
        assert_eq!(free_mask(6, 0), Some(0xfc00_0000));
        assert_eq!(free_mask(6, 0xffff_0000), Some(0xfc00));
        assert_eq!(free_mask(6, 0xff80_0f00), Some(0x007e_0000));
        assert_eq!(free_mask(6, 0x1111_1111), None);
        assert_eq!(free_mask(32, 0), Some(u32::MAX));
    }

    #[test]
    fn only_who_uses_bits_of_ours_is_a_concern() {
        let neighbour = |name: &str, bits| {
            let what = "a rule looks at".to_owned();
            let neighbour = Neighbour {
                mark_bits: bits,
                ..Neighbour::named(name)
            };
            (neighbour, vec![MarkUse { bits, what }])
        };
        let mut found = [neighbour("a", 0xff_0000), neighbour("b", 0xffff_0000)];
        add_overlaps(0x3f00_0000, &mut found);
        assert!(found[0].0.concerns.is_empty());
        let [concern] = &found[1].0.concerns[..] else {
            panic!("{found:?}");
        };
        assert_eq!(
            concern.to_string(),
            "a rule looks at 0xffff0000 of the kernel's mark, of which the splitter uses \
             0x3f000000; set steering.mark_mask to 0x7e, which nobody here uses"
        );
    }
}
