//! The marks, and whether rules and queues can tell them apart.

use super::super::document::Section;
use super::super::leaf::{integer, word};
use super::super::{Dscp, DscpMatch, InvalidValue, Marks, TunnelPolicy};

/// Reads the section; `policy` says which of the marks are used.
pub(super) fn marks(section: &Section<'_, '_>, policy: TunnelPolicy) -> Marks {
    let mark = |key, default: Dscp| {
        let hint = format!("(the default is {default})");
        section
            .optional(key, |value| {
                let number = integer(value, 0..=63, &hint)?;
                Dscp::try_from(u8::try_from(number).unwrap_or(u8::MAX))
            })
            .unwrap_or(default)
    };
    let marks = Marks {
        short: mark("short", Dscp::SHORT),
        long: mark("long", Dscp::LONG),
        short_on_long: mark("short_on_long", Dscp::SHORT_ON_LONG),
        long_on_short: mark("long_on_short", Dscp::LONG_ON_SHORT),
        matching: section
            .optional("match", |value| word(DscpMatch::WORDS, value))
            .unwrap_or_default(),
    };
    if marks.long.get() == 0 {
        section.contradiction(
            "long",
            "packets without a mark have DSCP 0, and would be routed as long".to_owned(),
            "give a number from 1 to 63 (the default is 2)",
        );
    } else if marks.short == marks.long {
        section.contradiction(
            "long",
            format!("short flows have the mark {}, too", marks.short),
            "give the two classes different marks (the defaults are 4 and 2)",
        );
    } else if marks.matching == DscpMatch::Tos
        && let Err(wrong) = marks.check_legacy(policy)
    {
        section.contradiction("match", wrong.problem, &wrong.remedy);
    } else if policy == TunnelPolicy::Share {
        all_differ(section, marks);
    }
    marks
}

impl Marks {
    /// Whether `tos` rules, which see three bits only, can tell what they send into the long tunnel
    /// from all else.
    ///
    /// # Errors
    /// When they cannot.
    pub fn check_legacy(&self, policy: TunnelPolicy) -> Result<(), InvalidValue> {
        let remedy = "give marks that differ in their low three bits, long's not all zero (the \
                      defaults are 4 and 2), or match = \"dscp\" on Linux 6.13 and later";
        let is_shared = policy == TunnelPolicy::Share;
        let selected = [("long", self.long), ("short_on_long", self.short_on_long)];
        let others = [("short", self.short), ("long_on_short", self.long_on_short)];
        let used = if is_shared { 2 } else { 1 };
        for (name, mark) in selected.into_iter().take(used) {
            if mark.legacy_tos() == 0 {
                let problem = format!(
                    "a tos rule sees the low three bits of a DSCP only, and those of {mark} ({name}) are zero, which matches every packet"
                );
                return Err(InvalidValue::new(problem, remedy));
            }
            let mut others = others.into_iter().take(used);
            let same = others.find(|(_, other)| other.legacy_tos() == mark.legacy_tos());
            if let Some((other_name, other)) = same {
                let problem = format!(
                    "a tos rule sees the low three bits of a DSCP only, and those of {other} ({other_name}) and {mark} ({name}) are the same"
                );
                return Err(InvalidValue::new(problem, remedy));
            }
        }
        Ok(())
    }
}

/// Where tunnels are shared, the marks tell four kinds of packets from each other and from all
/// that is not split.
fn all_differ(section: &Section<'_, '_>, marks: Marks) {
    const REMEDY: &str = "give each of the four a number of its own from 1 to 63 (the defaults \
                          are 4, 2, 5 and 3)";
    let named = [
        ("short", marks.short),
        ("long", marks.long),
        ("short_on_long", marks.short_on_long),
        ("long_on_short", marks.long_on_short),
    ];
    for (index, (key, mark)) in named.into_iter().enumerate() {
        let earlier = named[..index].iter().find(|(_, other)| *other == mark);
        let problem = if let Some((other, _)) = earlier {
            format!(
                "with policy = \"share\" it must differ from marks.{other}, which is {mark}, too"
            )
        } else if mark.get() == 0 {
            "with policy = \"share\" 0 is for packets that are not split".to_owned()
        } else {
            continue;
        };
        return section.contradiction(key, problem, REMEDY);
    }
}
