//! `[marks]`: the DSCP of each class, and whether rules and queues can tell them apart.

use crate::TunnelPolicy;
use crate::config::Given;
use crate::declaration::key;
use crate::declare::{Section as _, section};
use crate::key::Change::Reload;
use crate::kind::{enumeration, whole, word};
use crate::source::{Section, Source};
use crate::values::{Dscp, InvalidValue};

section! {
    /// Says which DSCP packets are given, and how the kernel's rules match it.
    #[derive(Copy)]
    pub struct Marks, GivenMarks {
        /// Short flows have this DSCP; where tunnels are shared, those in the short tunnel.
        short: Dscp = key("short", Reload, whole(0..=63))
            .default(Dscp::SHORT)
            .trade_off(
                "Written into every packet that is split and leaves by the short tunnel. The DSCP \
                 that it came with is lost.",
            );

        /// Long flows have this DSCP; where tunnels are shared, those in the long tunnel.
        long: Dscp = key(
            "long",
            Reload,
            whole(1..=63).except(
                0,
                "packets without a mark have DSCP 0, and would be routed as long",
                "give a number from 1 to 63 (the default is 2)",
            ),
        )
        .default(Dscp::LONG)
        .also("other than `short`")
        .trade_off("The rules route by it. 0 is what packets without a mark have.");

        /// Short flows in the long tunnel have this DSCP, with policy = "share" only.
        short_on_long: Dscp = key("short_on_long", Reload, whole(0..=63))
            .default(Dscp::SHORT_ON_LONG)
            .trade_off("With `share` all four marks must differ, and none be 0.");

        /// Long flows in the short tunnel have this DSCP, with policy = "share" only.
        long_on_short: Dscp = key("long_on_short", Reload, whole(0..=63))
            .default(Dscp::LONG_ON_SHORT)
            .trade_off("With `share` all four marks must differ, and none be 0.");

        /// Rules match the DSCP in one of these ways: "dscp" (exact, Linux 6.13), "tos" (any
        /// kernel, sees three bits only), "auto" (the best that this kernel has).
        matching: DscpMatch = key("match", Reload, word())
            .default(DscpMatch::Auto)
            .trade_off(
                "With `tos`, IPv4 rules [see only three \
                 bits](../explanation/classification.md#why-4-and-2), in which the marks must \
                 differ and long's must not be zero.",
            );
    }
}

enumeration! {
    /// The way in which the kernel's rules match a mark.
    DscpMatch {
        /// Matches exactly (`FRA_DSCP`, Linux 6.13).
        Dscp = "dscp",
        /// Matches the three bits that `tos` rules of any kernel see.
        Tos = "tos",
        /// Takes the best that the running kernel has.
        Auto = "auto",
    }
}

impl Marks {
    /// Tells whether `tos` rules, which see three bits only, can tell apart what they send into
    /// the long tunnel and all else.
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

/// The marks in use differ for those who go by them.
pub(super) fn are_distinct(source: &Source<'_>, given: &Given) {
    let Some(marks) = Marks::complete(&given.marks, given) else {
        return;
    };
    let section = source.section("marks");
    let policy = given.policy.unwrap_or(TunnelPolicy::Dedicated);
    if marks.short == marks.long {
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
        all_differ(&section, &marks);
    }
}

/// Where tunnels are shared, the marks tell four kinds of packets from each other and from all
/// that is not split.
fn all_differ(section: &Section<'_, '_>, marks: &Marks) {
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
