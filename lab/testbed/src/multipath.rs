//! The kernel's own ways to spread packets over several next hops, which balancers are compared with.

use std::{fmt::Write as _, net::Ipv4Addr};

use crate::namespace::{Namespace, NamespaceError};

/// The table with a default route to the first next hop, and the mark that selects it.
const FIRST_TABLE: usize = 101;

/// A next hop of a router, behind a link of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its address.
    pub gateway: Ipv4Addr,
    /// The router's device towards it.
    pub device: String,
    /// What the link carries, which is its weight.
    pub rate_mbit: u32,
}

/// Has the router choose by a hash of the 5-tuple, weighted by rate, for all that is not local.
///
/// # Errors
/// The first command that failed.
pub fn hash_flows(router: &Namespace, hops: &[NextHop]) -> Result<(), NamespaceError> {
    router.sysctl("net.ipv4.fib_multipath_hash_policy", "1")?;
    let mut route = "ip route replace default".to_owned();
    for (hop, weight) in hops.iter().zip(weights(hops)) {
        let NextHop {
            gateway, device, ..
        } = hop;
        let _ = write!(route, " nexthop via {gateway} dev {device} weight {weight}");
    }
    router.run(&route)?;
    Ok(())
}

/// Has packets that come in by the devices `from` take next hops by turns, as often as the rates say, by a
/// mark that nftables writes.
///
/// # Errors
/// The first command that failed.
pub fn spray_packets(
    router: &Namespace,
    hops: &[NextHop],
    from: &[&str],
) -> Result<(), NamespaceError> {
    for (index, hop) in hops.iter().enumerate() {
        let table = add_table(router, index, hop)?;
        router.run(&format!("ip rule add fwmark {table} table {table}"))?;
    }
    let turns = turns(&weights(hops));
    let map: Vec<_> = turns
        .iter()
        .enumerate()
        .map(|(turn, hop)| format!("{turn} : {}", FIRST_TABLE + hop))
        .collect();
    let rules = format!(
        "table ip spray {{
           chain from-site {{
             type filter hook prerouting priority mangle; policy accept;
             iifname {{ {} }} meta mark set numgen inc mod {} map {{ {} }}
           }}
         }}\n",
        from.join(", "),
        turns.len(),
        map.join(", ")
    );
    router.run_with_input("nft -f -", &rules)?;
    Ok(())
}

/// Adds a table whose default route leads to the next hop of that number; what is local has a more specific
/// route. Returns the table, for rules of the caller's.
///
/// # Errors
/// The first command that failed.
pub fn add_table(router: &Namespace, index: usize, hop: &NextHop) -> Result<usize, NamespaceError> {
    let table = FIRST_TABLE + index;
    let NextHop {
        gateway, device, ..
    } = hop;
    router.run(&format!(
        "ip route add default via {gateway} dev {device} table {table}"
    ))?;
    if index == 0 {
        router.run("ip rule add priority 100 table main suppress_prefixlength 0")?;
    }
    Ok(table)
}

/// The smallest whole numbers in proportion to the rates.
fn weights(hops: &[NextHop]) -> Vec<u32> {
    let divisor = |mut one: u32, mut other: u32| {
        while other > 0 {
            (one, other) = (other, one % other);
        }
        one
    };
    let rates = hops.iter().map(|it| it.rate_mbit);
    let common = rates.clone().fold(0, divisor).max(1);
    rates.map(|rate| rate / common).collect()
}

/// The next hop of each turn of a round in which each has as many as its weight, evenly spread.
fn turns(weights: &[u32]) -> Vec<usize> {
    let all: u32 = weights.iter().sum();
    let mut credits = vec![0_i64; weights.len()];
    let mut turns = Vec::new();
    for _ in 0..all {
        for (credit, weight) in credits.iter_mut().zip(weights) {
            *credit += i64::from(*weight);
        }
        // Of equal ones the first.
        let richest = (0..weights.len()).rev().max_by_key(|it| credits[*it]);
        let richest = richest.unwrap_or(0);
        credits[richest] -= i64::from(all);
        turns.push(richest);
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(rates_mbit: &[u32]) -> Vec<NextHop> {
        let hop = |&rate_mbit| NextHop {
            gateway: Ipv4Addr::LOCALHOST,
            device: String::new(),
            rate_mbit,
        };
        rates_mbit.iter().map(hop).collect()
    }

    #[test]
    fn weights_are_the_rates_in_small_numbers() {
        assert_eq!(weights(&hops(&[30, 8])), [15, 4]);
        assert_eq!(weights(&hops(&[20, 20])), [1, 1]);
        assert_eq!(weights(&hops(&[50, 50, 20])), [5, 5, 2]);
    }

    #[test]
    fn turns_of_a_hop_are_spread_over_the_round() {
        assert_eq!(turns(&[1, 1]), [0, 1]);
        let turns = turns(&[15, 4]);
        let slow: Vec<_> = (0..19).filter(|it| turns[*it] == 1).collect();
        assert_eq!(slow.len(), 4);
        assert!(
            slow.windows(2)
                .all(|pair| (4..=5).contains(&(pair[1] - pair[0])))
        );
    }
}
