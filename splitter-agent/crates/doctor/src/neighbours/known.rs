//! Programs that are known by what they put into the kernel, and what they take by default. The
//! splitter's own defaults keep clear of that.

use std::ops::RangeInclusive;

use splitter_steering::routes::OtherRule;

/// The name for rules that nobody known makes.
pub(super) const OTHER_RULES: &str = "other rules";
/// The name for firewalls that nobody known makes.
pub(super) const FIREWALL: &str = "the firewall";
/// The name for BPF programs that nobody known attaches.
pub(super) const OTHER_PROGRAMS: &str = "other BPF programs";

/// A program by what is its own: the names it gives, and the numbers it takes.
struct Known {
    name: &'static str,
    /// How the names of its chains begin.
    chains: &'static [&'static str],
    /// How the names of its nftables tables begin.
    tables: &'static [&'static str],
    /// How the names of its BPF programs begin.
    programs: &'static [&'static str],
    rule: fn(&OtherRule) -> bool,
    /// The bits of the kernel's mark that it uses by default.
    mark: u32,
    /// The priorities that its rules have by default, as far as it does not take those next to the
    /// main table's.
    priorities: &'static [RangeInclusive<u32>],
}

/// Sources: wgengine/router of Tailscale (13xx beside mwan3), wg-quick(8), mwan3's `common.sh`,
/// kube-proxy's and Felix' defaults, Cilium's pkg/datapath/linux/linux_defaults and
/// bpf/lib/common.h, Docker's libnetwork, strongSwan's `charon.routing_table`, FRR's pbrd/pbr_nht.h,
/// `l3mdev_fib_add_rule` in the kernel, and the registry of marks at github.com/fwmark/registry.
const KNOWN: [Known; 10] = [
    Known {
        name: "Tailscale",
        chains: &["ts-"],
        tables: &[],
        programs: &[],
        rule: |rule| {
            rule.table == Some(52) || matches!(rule.mark, Some((0x40000 | 0x80000, 0xff_0000)))
        },
        mark: 0xff_0000,
        priorities: &[1_310..=1_370, 5_210..=5_270],
    },
    Known {
        name: "mwan3",
        chains: &["mwan3_"],
        tables: &["mwan3"],
        programs: &[],
        rule: |rule| {
            matches!(rule.mark, Some((_, 0x3f00))) && (1_001..=3_250).contains(&rule.priority)
        },
        mark: 0x3f00,
        priorities: &[1_001..=1_063, 2_001..=2_063, 3_001..=3_063],
    },
    Known {
        name: "WireGuard (wg-quick)",
        chains: &[],
        tables: &["wg-quick-"],
        programs: &[],
        // `not fwmark 51820 table 51820`, counted up where that is taken, and the main table's
        // routes but the default one.
        rule: |rule| {
            let own = |(mark, _)| rule.table == Some(mark) && (51_820..52_820).contains(&mark);
            (rule.is_inverted && rule.mark.is_some_and(own))
                || (rule.suppresses && rule.table == Some(254) && rule.mark.is_none())
        },
        // A number, 51820, on its own packets alone, which come from no LAN.
        mark: 0,
        priorities: &[],
    },
    Known {
        name: "strongSwan",
        chains: &[],
        tables: &[],
        programs: &[],
        rule: |rule| (rule.table, rule.priority) == (Some(220), 220),
        mark: 0,
        priorities: &[220..=220],
    },
    Known {
        name: "Cilium",
        chains: &["CILIUM_"],
        tables: &[],
        programs: &["cil_"],
        rule: |rule| {
            matches!(rule.mark, Some((_, 0xf00))) && matches!(rule.table, Some(2_004 | 2_005))
        },
        // Those below number a cluster where several are one (Cluster Mesh).
        mark: 0xffff_ff80,
        priorities: &[1..=112],
    },
    Known {
        name: "Calico",
        chains: &["cali-"],
        tables: &["calico"],
        programs: &["cali_", "calico_"],
        rule: |_| false,
        mark: 0xffff_0000,
        priorities: &[99..=100],
    },
    Known {
        name: "Kubernetes (kube-proxy)",
        chains: &["KUBE-"],
        tables: &["kube-proxy"],
        programs: &[],
        rule: |_| false,
        mark: 0xc000,
        priorities: &[],
    },
    Known {
        name: "Docker",
        chains: &["DOCKER"],
        tables: &["docker-"],
        programs: &[],
        rule: |_| false,
        mark: 0,
        priorities: &[],
    },
    Known {
        name: "FRR (pbrd)",
        chains: &[],
        tables: &[],
        programs: &[],
        rule: |rule| {
            (300..=1_300).contains(&rule.priority)
                && rule.table.is_some_and(|it| (10_000..=11_000).contains(&it))
        },
        mark: 0,
        priorities: &[300..=1_300],
    },
    Known {
        name: "the kernel's VRFs",
        chains: &[],
        tables: &[],
        programs: &[],
        rule: |rule| rule.is_of_vrfs,
        mark: 0,
        priorities: &[1_000..=1_000],
    },
];

/// The bits of the kernel's mark that any of them uses by default.
pub(super) fn marks() -> u32 {
    KNOWN.iter().fold(0, |marks, it| marks | it.mark)
}

/// Whether one of them has rules of that priority by default.
pub(super) fn takes(priority: u32) -> bool {
    let mut all = KNOWN.iter().flat_map(|it| it.priorities);
    all.any(|theirs| theirs.contains(&priority))
}

pub(super) fn of_rule(rule: &OtherRule) -> &'static str {
    let known = KNOWN.iter().find(|it| (it.rule)(rule));
    known.map_or(OTHER_RULES, |it| it.name)
}

/// Who makes a chain of that name in a table of that name.
pub(super) fn of_chain(table: &str, chain: &str) -> &'static str {
    let begins = |name: &str, with: &[&str]| with.iter().any(|it| name.starts_with(it));
    let known = KNOWN
        .iter()
        .find(|it| begins(chain, it.chains) || begins(table, it.tables));
    known.map_or(FIREWALL, |it| it.name)
}

pub(super) fn of_program(name: Option<&str>) -> &'static str {
    let begins = |known: &&Known| {
        let mut with = known.programs.iter();
        name.is_some_and(|name| with.any(|it| name.starts_with(it)))
    };
    KNOWN
        .iter()
        .find(begins)
        .map_or(OTHER_PROGRAMS, |it| it.name)
}

#[cfg(test)]
mod tests {
    use splitter_config::Config;

    use super::*;

    const PAGE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/src/how-to/neighbours.md"
    );

    #[test]
    fn defaults_of_the_splitter_keep_clear_of_those_who_are_known() {
        let text = "lan = ['lan0']\nshort = { device = 'a' }\nlong = { device = 'b' }\n\
                    [steering]\nmode = 'mark'\n";
        let config = Config::parse(text, "test").unwrap();
        let bits = config.mark_bits().unwrap().mask();
        // A prefix of each length there is.
        let taken = config.routes.rule_priority.taken_by(129);
        for known in &KNOWN {
            assert_eq!(known.mark & bits, 0, "{}", known.name);
            for theirs in known.priorities {
                let is_apart = theirs.end() < taken.start() || taken.end() < theirs.start();
                assert!(is_apart, "{}: {theirs:?} and {taken:?}", known.name);
            }
        }
    }

    #[test]
    fn page_lists_what_they_take_by_default() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        for known in &KNOWN {
            let mark = match known.mark {
                0 => "-".to_owned(),
                bits => format!("`{bits:#x}`"),
            };
            let priorities = known
                .priorities
                .iter()
                .map(|it| match it.start() == it.end() {
                    true => it.start().to_string(),
                    false => format!("{} to {}", it.start(), it.end()),
                });
            let priorities = match priorities.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "-".to_owned(),
                some => some,
            };
            let row = format!("| {} | {mark} | {priorities} |", known.name);
            assert!(page.contains(&row), "no `{row}` in the page");
        }
    }

    fn rule(priority: u32, mark: Option<(u32, u32)>, table: u32) -> OtherRule {
        OtherRule {
            description: String::new(),
            priority,
            table: Some(table),
            mark,
            dscp: None,
            tos: None,
            is_inverted: false,
            suppresses: false,
            is_of_vrfs: false,
        }
    }

    #[test]
    fn programs_are_known_by_their_rules() {
        let inverted = OtherRule {
            is_inverted: true,
            ..rule(32_764, Some((51_820, u32::MAX)), 51_820)
        };
        let suppressing = OtherRule {
            suppresses: true,
            ..rule(32_763, None, 254)
        };
        for (rule, name) in [
            (rule(5_210, Some((0x80000, 0xff_0000)), 254), "Tailscale"),
            (rule(5_270, None, 52), "Tailscale"),
            (rule(2_001, Some((0x100, 0x3f00)), 1), "mwan3"),
            (inverted, "WireGuard (wg-quick)"),
            (suppressing, "WireGuard (wg-quick)"),
            (rule(220, None, 220), "strongSwan"),
            (rule(9, Some((0x200, 0xf00)), 2_004), "Cilium"),
            (rule(305, None, 10_000), "FRR (pbrd)"),
            (rule(500, None, 200), OTHER_RULES),
            (rule(500, Some((0x100, 0x3f00)), 1), OTHER_RULES),
        ] {
            assert_eq!(of_rule(&rule), name, "{rule:?}");
        }
    }

    #[test]
    fn programs_are_known_by_the_names_they_give() {
        for (table, chain, name) in [
            ("mangle", "KUBE-MARK-MASQ", "Kubernetes (kube-proxy)"),
            ("filter", "DOCKER-USER", "Docker"),
            ("mangle", "cali-PREROUTING", "Calico"),
            ("wg-quick-wg0", "premangle", "WireGuard (wg-quick)"),
            ("filter", "ts-forward", "Tailscale"),
            ("fw4", "forward", FIREWALL),
        ] {
            assert_eq!(of_chain(table, chain), name);
        }
        assert_eq!(of_program(Some("cil_from_netdev")), "Cilium");
        assert_eq!(of_program(Some("tc_main")), OTHER_PROGRAMS);
        assert_eq!(of_program(None), OTHER_PROGRAMS);
    }
}
