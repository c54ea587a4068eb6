//! Bits of the kernel's mark, and who else uses those of the splitter.

use splitter_config::Config;

use super::{Concern, Neighbour, known};

/// A use of the kernel's mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MarkUse {
    /// The bits that are looked at or written.
    pub(super) bits: u32,
    /// What uses them, continuing "which" with its verb: "rule 5 looks at".
    pub(super) what: String,
}

/// Adds to each neighbour that uses bits of the splitter's what to do about that. Bits that are free for the
/// splitter are those that nobody uses.
pub(super) fn add_overlaps(config: &Config, found: &mut [(Neighbour, Vec<MarkUse>)]) {
    let (classes, tunnels) = (config.steering.mark_bits.mask(), config.tunnel_mask());
    // The classes are in the DSCP where they are not in the mark.
    let ours = config.mark_bits().map_or(0, |it| it.mask()) | tunnels;
    if ours == 0 {
        return;
    }
    let used = found.iter().fold(0, |used, (it, _)| used | it.mark_bits);
    let lowest = classes.trailing_zeros();
    let free = |used| free_place(ours >> lowest, used);
    // Whoever else is known may come later.
    let remedy = match free(used | known::marks()).or_else(|| free(used)) {
        Some(place) => format!(
            "set steering.mark_mask to {:#x}, {}which nobody here uses",
            classes >> lowest << place,
            match tunnels {
                0 => String::new(),
                _ => format!(
                    "with which the splitter uses {:#x}, ",
                    ours >> lowest << place
                ),
            }
        ),
        None => format!(
            "no other bits are left for the splitter: limit the others to bits of their own, or {}set \
             steering.mode to \"dscp\"",
            if tunnels == 0 {
                ""
            } else {
                "leave out `balance` and "
            }
        ),
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

/// By how much the bits have to be shifted at most so that none is used.
fn free_place(bits: u32, used: u32) -> Option<u32> {
    let mut places = (0..=bits.leading_zeros()).rev();
    places.find(|place| bits.checked_shl(*place).is_some_and(|it| it & used == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_free_place_is_proposed() {
        for (bits, used, expected) in [
            (0x3f, 0, Some(26)),
            (0x3f, 0xffff_0000, Some(10)),
            (0x3f, 0xff80_0f00, Some(17)),
            (0x3f, 0x1111_1111, None),
            (u32::MAX, 0, Some(0)),
            // The number of a tunnel is above that of a class, of which it may stand alone.
            (0x7ff, 0xffc0_0000, Some(11)),
            (0x7ff, 0xffe0_03ff, Some(10)),
            (0x7c0, 0x07ff_ffff, Some(21)),
            (0x7c0, 0xffff_f83f, Some(0)),
        ] {
            assert_eq!(
                free_place(bits, used),
                expected,
                "{bits:#x} beside {used:#x}"
            );
        }
    }

    /// What is said of somebody's bits, and that what is advised then is taken.
    fn said(top: &str, steering: &str, bits: u32) -> Option<String> {
        let text = format!(
            "lan = 'l'\n{top}\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n[steering]\n{steering}\n"
        );
        let config = Config::parse(&text, "t").expect("it is whole");
        let what = "a rule looks at".to_owned();
        let neighbour = Neighbour {
            mark_bits: bits,
            ..Neighbour::named("somebody")
        };
        let mut found = [(neighbour, vec![MarkUse { bits, what }])];
        add_overlaps(&config, &mut found);
        let concern = found[0].0.concerns.first()?;
        if let Some((_, mask)) = concern.remedy.split_once("mark_mask to ") {
            let mask = mask.split([',', ':']).next().expect("a number");
            let mode = steering.lines().next().expect("the mode comes first");
            let advised = format!("{mode}\nmark_mask = {mask}");
            assert_eq!(said(top, &advised, bits), None);
        }
        Some(concern.to_string())
    }

    #[test]
    fn only_who_uses_bits_of_ours_is_a_concern() {
        let mark = "mode = 'mark'\nmark_mask = 0x3f000000";
        assert_eq!(said("", mark, 0xff_0000), None);
        assert_eq!(said("", "mode = 'dscp'", u32::MAX), None);
        assert_eq!(
            said("", mark, 0xffff_0000).expect("some of them are"),
            "a rule looks at 0xffff0000 of the kernel's mark, of which the splitter uses \
             0x3f000000; set steering.mark_mask to 0x7e, which nobody here uses"
        );
        let all = said("", mark, u32::MAX).expect("all of them are");
        assert!(all.ends_with("or set steering.mode to \"dscp\""), "{all}");
    }

    #[test]
    fn bits_of_tunnels_count_in_either_mode() {
        let by_mark = said("balance = 'rps'", "mode = 'mark'", 0xf00).expect("they overlap");
        assert!(by_mark.contains("uses 0xffe;"), "{by_mark}");
        assert_eq!(said("balance = 'rps'", "mode = 'dscp'", 0x7e), None);
        let by_dscp = said("balance = 'rps'", "mode = 'dscp'", 0xf00).expect("they overlap");
        assert!(by_dscp.contains("uses 0xf80;"), "{by_dscp}");
        // Six bits in a row are free further up, too.
        let few = said("balance = 'rps'", "mode = 'mark'", 0x03f0_00ff).expect("they overlap");
        let advised = "to 0x7e00, with which the splitter uses 0xffe00, which nobody";
        assert!(few.contains(advised), "{few}");
        for mode in ["mode = 'mark'", "mode = 'dscp'"] {
            let none = said("balance = 'rps'", mode, 0x8421_0842 | 0xf80).expect("they overlap");
            assert!(none.contains("leave out `balance` and set"), "{none}");
        }
    }
}
