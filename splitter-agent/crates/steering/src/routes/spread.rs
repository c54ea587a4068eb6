//! Whether this kernel spreads flows over the tunnels of a class: what is in its way.

use std::path::Path;

use splitter_config::Config;
use splitter_netlink::Family;

use super::destinations::limits;

/// Hash of addresses, protocol and ports, so that each flow has a tunnel of its own.
const BY_PORTS: u32 = 1;
/// Hash of the fields in `fib_multipath_hash_fields`.
const BY_FIELDS: u32 = 3;
/// `FIB_MULTIPATH_HASH_FIELD_SRC_PORT` and `..._DST_PORT` of net/ip_fib.h: what sets two flows
/// between the same hosts apart.
const PORTS: u32 = 0x10 | 0x20;

/// A setting of the kernel that keeps flows from being spread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hindrance {
    /// Which packets.
    pub family: Family,
    /// What is in the way.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// All that is in the way of spreading flows in the network namespace of this thread; nothing
/// where each class has a single tunnel.
#[must_use]
pub fn hindrances(config: &Config) -> Vec<Hindrance> {
    let mut found = Vec::new();
    for site in config.by_site() {
        if !site.short.are_several() && !site.long.are_several() {
            continue;
        }
        let families = [Family::V4, Family::V6].into_iter();
        let families = families.filter(|&family| !limits(&site, family).is_empty());
        for hindrance in families.filter_map(|it| of_family(&site, it)) {
            // What is so for all sites is said once.
            if !found.contains(&hindrance) {
                found.push(hindrance);
            }
        }
    }
    found
}

fn of_family(config: &Config, family: Family) -> Option<Hindrance> {
    let unsuitable = config.tunnels().find(|(class, tunnel)| {
        let tunnels = config.tunnels_of(*class);
        tunnels.cannot_be_one_of_several(tunnel, family) && tunnel.gateway.is_point_to_point()
    });
    if let Some((class, tunnel)) = unsuitable {
        let name = config.name_of(class, tunnel);
        return Some(Hindrance {
            family,
            problem: format!(
                "{family} is not split: the kernel spreads it over next hops alone, and {name} names none"
            ),
            remedy: format!(
                "add an {family} next hop to the gateway of each tunnel; on a point-to-point device \
                 any will do, such as \"fe80::1\""
            ),
        });
    }
    // With `balance` the programs spread them.
    if config.balancers().is_some() || !config.families().any(|it| it == family) {
        return None;
    }
    let setting = |name: &str| {
        let path = Path::new("/proc/sys/net")
            .join(directory(family))
            .join(name);
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let policy = setting("fib_multipath_hash_policy")?;
    is_by_address(policy, setting("fib_multipath_hash_fields")).then(|| {
        let key = format!("net.{}.fib_multipath_hash_policy", directory(family));
        Hindrance {
            family,
            problem: format!(
                "{key} is {policy}: all {family} flows between two hosts take the same tunnel of a class"
            ),
            remedy: format!("sysctl {key}=1, and keep it in /etc/sysctl.d"),
        }
    })
}

/// Whether two flows between the same hosts have the same hash.
fn is_by_address(policy: u32, fields: Option<u32>) -> bool {
    match policy {
        BY_PORTS => false,
        BY_FIELDS => fields.is_some_and(|fields| fields & PORTS == 0),
        _ => true,
    }
}

fn directory(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

impl std::fmt::Display for Hindrance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashes_with_a_port_set_flows_apart() {
        let cases = [
            ((0, None), true),
            ((1, None), false),
            ((2, Some(0x37)), true),
            ((3, Some(0x07)), true),
            ((3, Some(0x17)), false),
            ((3, Some(0x20)), false),
        ];
        for ((policy, fields), expected) in cases {
            assert_eq!(
                is_by_address(policy, fields),
                expected,
                "{policy} {fields:?}"
            );
        }
    }

    #[test]
    fn point_to_point_devices_keep_ipv6_from_being_spread() {
        let listed = |first: &str, second: &str| {
            let text = format!(
                "lan = 'eth0'\n[[short.tunnels]]\ndevice = 'a'\n{first}\n[[short.tunnels]]\n\
                 device = 'b'\n{second}\n[long]\ndevice = 'c'\n"
            );
            Config::parse(&text, "test").unwrap()
        };
        let reported = hindrances(&listed("gateway = ['192.0.2.1', 'fe80::1']", ""));
        let reported = reported.iter().find(|it| it.family == Family::V6).unwrap();
        assert_eq!(
            reported.problem,
            "IPv6 is not split: the kernel spreads it over next hops alone, and the short tunnel b names none"
        );
        let both = listed("gateway = 'fe80::1'", "gateway = 'fe80::2'");
        assert_eq!(both.families().collect::<Vec<_>>(), [Family::V6]);
        let alone = Config::parse(
            "lan = 'l'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n",
            "t",
        );
        assert_eq!(hindrances(&alone.unwrap()), []);
    }
}
