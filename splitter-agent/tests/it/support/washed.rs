//! A firewall that takes marks away.

use flow_testbed::topology::{GENERATOR, LAN};

use super::site::Site;

/// A firewall that takes marks away from what the site sends of these families, behind the program
/// that sets them.
pub(crate) fn wash(site: &Site, families: &[&str]) {
    let rules: Vec<_> = families
        .iter()
        .map(|family| match *family {
            "ipv6" => "ip6 dscp set cs0",
            _ => "ip dscp set cs0",
        })
        .collect();
    let rules = rules.join("\n");
    for (number, device) in [LAN, GENERATOR].into_iter().enumerate() {
        let chain = format!("type filter hook ingress device \"{device}\" priority 0;");
        let table = format!("table netdev wash{number} {{\nchain c {{\n{chain}\n{rules}\n}}\n}}\n");
        site.border()
            .run_with_input("nft -f -", &table)
            .expect("nft takes it");
    }
}

/// Takes the firewall away again.
pub(crate) fn unwash(site: &Site) {
    for number in [0, 1] {
        let line = format!("nft delete table netdev wash{number}");
        site.border().run(&line).expect("it is there");
    }
}
