//! Rules of others: whose they are, and what they take from the splitter's.

use splitter_config::Config;
use splitter_steering::routes::OtherRule;

use super::marks::MarkUse;
use super::{Concern, Finding, known};

/// So many priorities in a row are the splitter's.
const PRIORITIES: u32 = 3;

pub(super) fn findings(config: &Config, rules: &[OtherRule]) -> Vec<Finding> {
    let ours = config.routes.rule_priority.specific();
    let finding = |rule: &OtherRule| Finding {
        name: known::of_rule(rule),
        seen: vec![rule.description.clone()],
        // What is not marked so stays so, whatever the splitter adds.
        mark: rule
            .mark
            .filter(|_| !rule.is_inverted)
            .map(|(_, bits)| MarkUse {
                bits,
                what: format!("`{}` looks at", rule.description),
            }),
        concern: taken(rule, ours).then(|| Concern {
            problem: format!("`{}` has a priority of the splitter's", rule.description),
            remedy: match free_priorities(ours, rules) {
                Some(free) => format!("set routes.rule_priority to {free}"),
                None => "set routes.rule_priority to where three numbers in a row are free".into(),
            },
            is_certain: true,
        }),
    };
    rules.iter().map(finding).collect()
}

fn taken(rule: &OtherRule, first: u32) -> bool {
    (first..first + PRIORITIES).contains(&rule.priority)
}

/// The nearest place in front, so that what comes after the splitter's rules still does.
fn free_priorities(ours: u32, rules: &[OtherRule]) -> Option<u32> {
    let is_free = |place: &u32| !rules.iter().any(|rule| taken(rule, *place));
    // Whoever else is known may come later.
    let is_nobodys = |place: &u32| !(*place..*place + PRIORITIES).any(known::takes);
    let places = || (1..ours).rev().filter(is_free);
    places().find(is_nobodys).or_else(|| places().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_free_priorities_in_front_are_proposed() {
        let rule = |priority| OtherRule {
            description: String::new(),
            priority,
            table: None,
            mark: None,
            dscp: None,
            tos: None,
            is_inverted: false,
            suppresses: false,
            is_of_vrfs: true,
        };
        assert_eq!(free_priorities(1_600, &[rule(1_600)]), Some(1_597));
        assert_eq!(
            free_priorities(1_600, &[rule(1_600), rule(1_598)]),
            Some(1_595)
        );
        // FRR's PBR comes before the kernel's VRFs.
        assert_eq!(free_priorities(1_000, &[rule(1_000)]), Some(297));
        assert_eq!(free_priorities(3, &[rule(3)]), None);
    }
}
