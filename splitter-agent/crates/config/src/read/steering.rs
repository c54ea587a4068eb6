//! How packets get into the tunnel of their class.

use splitter_policy::fwmark::MarkBits;

use super::super::document::{Document, Section};
use super::super::leaf::{integer, word};
use super::super::{AttachMode, Config, InvalidValue, Steering, SteeringMode};

/// Six bits that neither Kubernetes, nor Tailscale, nor OpenWrt's multi-WAN scripts use.
const MARK_BITS: MarkBits = MarkBits::new(0x3f00_0000).unwrap();

/// Reads the section.
pub(super) fn steering(section: &Section<'_, '_>) -> Steering {
    let mode = section.optional("mode", |value| word(SteeringMode::WORDS, value));
    let mark_bits = section.optional("mark_mask", |value| {
        let mask = integer(value, 1..=u32::MAX, "(the default is 0x3f000000)")?;
        MarkBits::new(mask).ok_or_else(|| {
            InvalidValue::new(
                "its bits are not next to each other",
                "give one run of bits, such as 0x3f000000 or 0xff00",
            )
        })
    });
    Steering {
        mode: mode.unwrap_or_default(),
        mark_bits: mark_bits.unwrap_or(MARK_BITS),
    }
}

/// What a mode needs of other sections.
pub(super) fn check(document: &Document<'_>, config: &Config) {
    match config.steering.mode {
        SteeringMode::Dscp => {}
        SteeringMode::Mark => {
            marks_fit(document, config);
            attaches_nothing(document, config);
        }
        SteeringMode::Redirect if config.is_shared() => document.section("steering").contradiction(
            "mode",
            "what is redirected goes past the queues that policy = \"share\" puts in front of the \
             tunnels, and would have no priority"
                .to_owned(),
            "set mode to \"dscp\" or \"mark\", or policy = \"dedicated\"",
        ),
        SteeringMode::Redirect => {}
    }
}

fn marks_fit(document: &Document<'_>, config: &Config) {
    let (marks, bits) = (config.marks, config.steering.mark_bits);
    let mut named = vec![("short", marks.short), ("long", marks.long)];
    if config.is_shared() {
        named.extend([
            ("short_on_long", marks.short_on_long),
            ("long_on_short", marks.long_on_short),
        ]);
    }
    if let Some((name, mark)) = named.iter().find(|(_, mark)| !bits.fits(mark.policy())) {
        let width = bits.mask().count_ones();
        document.section("steering").contradiction(
            "mark_mask",
            format!("its {width} bits have no room for marks.{name}, which is {mark}"),
            "give a mask of more bits (six hold every mark), or smaller marks",
        );
    }
}

fn attaches_nothing(document: &Document<'_>, config: &Config) {
    if config.attach != AttachMode::Auto {
        document.section("attach").contradiction(
            "mode",
            "steering.mode = \"mark\" attaches no XDP program, which this is about".to_owned(),
            "leave the key out, or set steering.mode to \"dscp\" or \"redirect\"",
        );
    }
}
