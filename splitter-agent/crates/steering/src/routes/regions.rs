//! Which addresses to ask about, so that every prefix is asked for itself and not for a more specific
//! one inside it.

use std::net::IpAddr;

use ipnet::IpNet;

use super::probe::{address_of, bits_of, candidates, inside, last_bits};

/// Shorter prefixes begin with addresses that no packet has (`0.0.0.0/8`).
const SHORTEST_WITH_HOSTS_FIRST: u8 = 4;

/// A prefix with addresses that lie in no more specific one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) net: IpNet,
    pub(super) candidates: Vec<IpAddr>,
    pub(super) is_inside_another: bool,
}

/// The regions of prefixes of one family. A prefix that more specific ones cover whole has none.
pub(super) fn of(mut nets: Vec<IpNet>) -> Vec<Region> {
    for net in &mut nets {
        *net = net.trunc();
    }
    nets.sort_unstable_by_key(|net| (bits_of(net.network()), net.prefix_len()));
    nets.dedup();
    let mut regions = Vec::new();
    // Where the prefix that was seen to reach furthest ends.
    let mut reached: Option<u128> = None;
    for (index, net) in nets.iter().enumerate() {
        let is_inside_another = reached.is_some_and(|end| bits_of(net.network()) <= end);
        reached = reached.max(Some(last_bits(net)));
        let candidates = uncovered(net, &nets[index + 1..]);
        if !candidates.is_empty() {
            regions.push(Region {
                net: *net,
                candidates,
                is_inside_another,
            });
        }
    }
    regions
}

/// An address that a packet may have, of a prefix.
pub(super) fn first_address(net: &IpNet) -> IpAddr {
    let inside = inside(net);
    inside.first().copied().unwrap_or(net.network())
}

/// Addresses of `net` in none of the prefixes inside it, which follow it in order.
fn uncovered(net: &IpNet, following: &[IpNet]) -> Vec<IpAddr> {
    let end = last_bits(net);
    let inner = following
        .iter()
        .take_while(|it| bits_of(it.network()) <= end);
    let mut usual = candidates(net);
    let mut cursor = bits_of(net.network());
    let mut is_gap = false;
    for other in inner {
        usual.retain(|address| !other.contains(address));
        let first = bits_of(other.network());
        is_gap |= cursor < first;
        if !is_gap {
            cursor = cursor.max(last_bits(other).saturating_add(1));
        }
        if is_gap && usual.is_empty() {
            break;
        }
    }
    let has_hosts_first = net.prefix_len() >= SHORTEST_WITH_HOSTS_FIRST;
    if usual.is_empty() && cursor <= end && has_hosts_first {
        usual.push(address_of(net, cursor));
    }
    usual
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(nets: &[&str]) -> Vec<Region> {
        of(nets.iter().map(|net| net.parse().unwrap()).collect())
    }

    #[test]
    fn each_region_is_asked_for_by_an_address_of_no_more_specific_one() {
        let nets = [
            "10.0.0.0/8",
            "10.2.0.0/16",
            "10.2.0.0/24",
            "10.2.0.128/25",
            "10.9.9.9/32",
        ];
        let found = regions(&nets);
        assert_eq!(found.len(), nets.len());
        for region in &found {
            for address in &region.candidates {
                let holding = nets.iter().map(|net| net.parse::<IpNet>().unwrap());
                let holding = holding.filter(|net| net.contains(address));
                let longest = holding.max_by_key(IpNet::prefix_len).unwrap();
                assert_eq!(longest, region.net, "{address}");
            }
        }
        let inside: Vec<_> = found.iter().map(|it| it.is_inside_another).collect();
        assert_eq!(inside, [false, true, true, true, true]);
    }

    #[test]
    fn prefix_that_others_cover_whole_has_nothing_to_ask() {
        let found = regions(&["10.0.0.0/30", "10.0.0.0/31", "10.0.0.2/31"]);
        assert_eq!(found.len(), 2, "{found:?}");
        // One address is left.
        let found = regions(&["10.0.0.0/30", "10.0.0.0/31", "10.0.0.2/32"]);
        let whole = found.iter().find(|it| it.net.prefix_len() == 30).unwrap();
        assert_eq!(whole.candidates, ["10.0.0.3".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn everything_is_asked_for_by_addresses_that_packets_have() {
        for net in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1"] {
            let found = regions(&[net]);
            let first = found[0].candidates[0];
            assert!(!first.is_unspecified() && !first.is_loopback(), "{first}");
        }
    }
}
