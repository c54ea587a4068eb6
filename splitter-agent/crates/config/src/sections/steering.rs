//! `[steering]`: how packets get into the tunnel of their class.

use splitter_policy::fwmark::MarkBits;

use super::AttachMode;
use crate::Config;
use crate::declaration::key;
use crate::declare::section;
use crate::key::Change::{Reload, Restart};
use crate::kind::{enumeration, mask, word};
use crate::source::Source;

/// Six bits that none of the programs that `splitter doctor` knows uses by default. The lowest bit is
/// left out, too: it is the mark that is chosen by hand most often, as for transparent proxies.
const MARK_BITS: MarkBits = MarkBits::new(0x7e).unwrap();
const OTHER_PROGRAM: &str = "another program is needed: end the agent and run `splitter down`, \
                             then start it again; flows start again as short";

section! {
    /// Says how packets get into the tunnel of their class; see docs.
    #[derive(Copy)]
    pub struct Steering, GivenSteering {
        /// Packets are steered in one of these ways: "dscp" (they are given a DSCP, and rules
        /// match it), "mark" (they stay as they came, and rules match the kernel's mark),
        /// "redirect" (as "dscp", and without the network stack where that is possible; not
        /// with policy = "share").
        mode: SteeringMode = key("mode", Restart(OTHER_PROGRAM), word())
            .default(SteeringMode::Dscp)
            .trade_off(
                "`mark` is slower. `redirect` is faster, without firewall and queues. [Which to \
                 choose](../how-to/steering.md).",
            );

        /// With "mark", these bits of the kernel's mark are used, next to each other; all others
        /// are kept. They hold the numbers under `[marks]`. With balance the five bits above them hold the
        /// number of a tunnel, with "dscp" and "redirect", too.
        mark_bits: MarkBits = key("mark_mask", Reload, mask())
            .default(MARK_BITS)
            .trade_off("Other programs that mark packets must use other bits.");
    }
}

enumeration! {
    /// The way in which packets get into the tunnel of their class.
    SteeringMode {
        /// By the DSCP that they are given, and rules for it: the paper's way.
        Dscp = "dscp",
        /// By the mark that the kernel keeps for them, and rules for it; they stay as they came.
        Mark = "mark",
        /// As `dscp`, and without the network stack where that is possible.
        Redirect = "redirect",
    }
}

/// A mode has what it needs of other sections.
pub(super) fn mode_is_possible(source: &Source<'_>, config: &Config) {
    match config.steering.mode {
        SteeringMode::Dscp if config.program_mode() == SteeringMode::Mark => {
            attaches_nothing(source, config);
        }
        SteeringMode::Dscp => {}
        SteeringMode::Mark => {
            marks_fit(source, config);
            attaches_nothing(source, config);
        }
        SteeringMode::Redirect if config.is_shared() => source.section("steering").contradiction(
            "mode",
            "what is redirected goes past the queues that policy = \"share\" puts in front of the \
             tunnels, and would have no priority"
                .to_owned(),
            "set mode to \"dscp\" or \"mark\", or policy = \"dedicated\"",
        ),
        SteeringMode::Redirect => {}
    }
}

fn marks_fit(source: &Source<'_>, config: &Config) {
    let (marks, bits) = (&config.marks, config.steering.mark_bits);
    let mut named = vec![("short", marks.short), ("long", marks.long)];
    if config.is_shared() {
        named.extend([
            ("short_on_long", marks.short_on_long),
            ("long_on_short", marks.long_on_short),
        ]);
    }
    if let Some((name, mark)) = named.iter().find(|(_, mark)| !bits.fits(mark.policy())) {
        let width = bits.mask().count_ones();
        source.section("steering").contradiction(
            "mark_mask",
            format!("its {width} bits have no room for marks.{name}, which is {mark}"),
            "give a mask of more bits (six hold every mark), or smaller marks",
        );
    }
}

fn attaches_nothing(source: &Source<'_>, config: &Config) {
    if config.attach.mode != AttachMode::Auto {
        source.section("attach").contradiction(
            "mode",
            match config.steering.mode {
                SteeringMode::Mark => "steering.mode = \"mark\" attaches no XDP program, which this is about",
                _ => "with `balance` no XDP program is attached, which this is about",
            }
            .to_owned(),
            "leave the key out, or set steering.mode to \"redirect\", or to \"dscp\" without `balance`",
        );
    }
}
