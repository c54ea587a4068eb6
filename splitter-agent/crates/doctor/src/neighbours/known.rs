//! Programs that are known by what they put into the kernel.

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
}

/// Sources: wgengine/router of Tailscale, wg-quick(8), mwan3's `common.sh`, kube-proxy's and Felix'
/// defaults, Cilium's pkg/datapath/linux/linux_defaults, Docker's libnetwork, strongSwan's
/// `charon.routing_table`.
const KNOWN: [Known; 9] = [
    Known {
        name: "Tailscale",
        chains: &["ts-"],
        tables: &[],
        programs: &[],
        rule: |rule| {
            rule.table == Some(52) || matches!(rule.mark, Some((0x40000 | 0x80000, 0xff_0000)))
        },
    },
    Known {
        name: "mwan3",
        chains: &["mwan3_"],
        tables: &["mwan3"],
        programs: &[],
        rule: |rule| {
            matches!(rule.mark, Some((_, 0x3f00))) && (1_001..=3_250).contains(&rule.priority)
        },
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
    },
    Known {
        name: "strongSwan",
        chains: &[],
        tables: &[],
        programs: &[],
        rule: |rule| (rule.table, rule.priority) == (Some(220), 220),
    },
    Known {
        name: "Cilium",
        chains: &["CILIUM_"],
        tables: &[],
        programs: &["cil_"],
        rule: |rule| {
            matches!(rule.mark, Some((_, 0xf00))) && matches!(rule.table, Some(2_004 | 2_005))
        },
    },
    Known {
        name: "Calico",
        chains: &["cali-"],
        tables: &["calico"],
        programs: &["cali_", "calico_"],
        rule: |_| false,
    },
    Known {
        name: "Kubernetes (kube-proxy)",
        chains: &["KUBE-"],
        tables: &["kube-proxy"],
        programs: &[],
        rule: |_| false,
    },
    Known {
        name: "Docker",
        chains: &["DOCKER"],
        tables: &["docker-"],
        programs: &[],
        rule: |_| false,
    },
    Known {
        name: "the kernel's VRFs",
        chains: &[],
        tables: &[],
        programs: &[],
        rule: |rule| rule.is_of_vrfs,
    },
];

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
    use super::*;

    fn rule(priority: u32, mark: Option<(u32, u32)>, table: u32) -> OtherRule {
        OtherRule {
            description: String::new(),
            priority,
            table: Some(table),
            mark,
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
