//! How packets are spread over the tunnels: what is compared.

mod splitter;

use std::{fmt::Write as _, path::Path};

use anyhow::Result;
use flow_testbed::{
    namespace::{Namespace, NamespaceError},
    require::Requirement::{File, Program},
    scheme::Agent,
    topology::{GENERATOR, LAN},
};
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use self::splitter::{Policy, key_file};
use crate::{
    cell::Case,
    rig::{Rig, address_of_tunnel, device, tunnel_address},
};

/// The table with a default route into a tunnel, and the mark that selects it.
const FIRST_TABLE: usize = 101;

/// A way to spread packets over tunnels, applied at both borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Everything goes into the best tunnel.
    BestSingle,
    /// The kernel's multipath by hash of the 5-tuple, weighted by rate.
    EcmpFlow,
    /// Packets by turns, as often as the rates say.
    EcmpPacket,
    /// The kernel's MPTCP with a subflow on each tunnel, between the hosts.
    Mptcp,
    /// The splitter.
    Splitter(Policy),
}

/// A scheme at work. Dropping it kills its processes; [`remove`](Self::remove) ends them properly.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    agents: Vec<Agent>,
    key: Option<NamedTempFile>,
}

impl Scheme {
    pub(crate) const ALL: [Self; 8] = [
        Self::BestSingle,
        Self::EcmpFlow,
        Self::EcmpPacket,
        Self::Splitter(Policy::Share),
        Self::Splitter(Policy::Letflow),
        Self::Splitter(Policy::Tr),
        Self::Splitter(Policy::TrPaper),
        Self::Mptcp,
    ];

    /// The name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BestSingle => "best_single",
            Self::EcmpFlow => "ecmp_flow",
            Self::EcmpPacket => "ecmp_packet",
            Self::Mptcp => "mptcp",
            Self::Splitter(policy) => policy.name(),
        }
    }

    /// Why this scheme cannot be measured here, if it cannot.
    pub(crate) fn obstacle(self, case: Case, splitter: &Path) -> Result<Option<String>> {
        match self {
            Self::Mptcp => {
                let needs = [Program("mptcpize"), File("/proc/sys/net/mptcp/enabled")];
                let lacking = needs.into_iter().find_map(|it| it.check().err());
                Ok(lacking.map(|it| it.to_string()))
            }
            Self::Splitter(policy) => policy.refused(case, splitter),
            Self::BestSingle | Self::EcmpFlow | Self::EcmpPacket => Ok(None),
        }
    }

    /// Applies this scheme to a fresh testbed. Call it from a thread that lasts as long as the scheme: processes
    /// end with the thread that started them.
    pub(crate) fn apply(
        self,
        rig: &Rig,
        splitter: &Path,
        cancel: &CancellationToken,
    ) -> Result<Applied> {
        let mut applied = Applied::default();
        for (number, border) in rig.borders.iter().enumerate() {
            match self {
                Self::BestSingle => {}
                Self::EcmpFlow => hash_flows(border, number, rig.case)?,
                Self::EcmpPacket => spray_packets(border, number, rig.case)?,
                Self::Mptcp => pin_addresses(border, number, rig.case)?,
                Self::Splitter(policy) => {
                    let key = applied.key.take().map_or_else(key_file, Ok)?;
                    let agent = Agent::launch(border, splitter, |directory| {
                        policy.configuration(rig.case, number, directory, key.path())
                    })?;
                    applied.key = Some(key);
                    applied.agents.push(agent);
                }
            }
        }
        if self == Self::Mptcp {
            allow_subflows(rig)?;
        }
        for agent in &mut applied.agents {
            agent.wait_until_ready(cancel)?;
        }
        Ok(applied)
    }
}

impl Applied {
    /// Ends the processes of the scheme and checks that they took away all that they had set up.
    pub(crate) fn remove(self) -> Result<()> {
        self.agents.into_iter().try_for_each(Agent::stop)?;
        Ok(())
    }
}

fn hash_flows(border: &Namespace, number: usize, case: Case) -> Result<(), NamespaceError> {
    border.sysctl("net.ipv4.fib_multipath_hash_policy", "1")?;
    let mut route = "ip route replace default".to_owned();
    for (tunnel, weight) in weights(case).into_iter().enumerate() {
        let (far, device) = (tunnel_address(1 - number, tunnel), device(tunnel));
        let _ = write!(route, " nexthop via {far} dev {device} weight {weight}");
    }
    border.run(&route)?;
    Ok(())
}

fn spray_packets(border: &Namespace, number: usize, case: Case) -> Result<(), NamespaceError> {
    for tunnel in 0..case.tunnels.len() {
        let table = add_table(border, number, tunnel)?;
        border.run(&format!("ip rule add fwmark {table} table {table}"))?;
    }
    let turns = turns(&weights(case));
    let map: Vec<_> = turns
        .iter()
        .enumerate()
        .map(|(turn, tunnel)| format!("{turn} : {}", FIRST_TABLE + tunnel))
        .collect();
    let rules = format!(
        "table ip bond {{
           chain from-site {{
             type filter hook prerouting priority mangle; policy accept;
             iifname {{ {LAN}, {GENERATOR} }} meta mark set numgen inc mod {} map {{ {} }}
           }}
         }}\n",
        turns.len(),
        map.join(", ")
    );
    border.run_with_input("nft -f -", &rules)?;
    Ok(())
}

/// Sends what comes from or goes to an address of site A's bulk host into the tunnel that it belongs to.
fn pin_addresses(border: &Namespace, number: usize, case: Case) -> Result<(), NamespaceError> {
    let side = if number == 0 { "from" } else { "to" };
    for tunnel in 0..case.tunnels.len() {
        let (table, address) = (
            add_table(border, number, tunnel)?,
            address_of_tunnel(tunnel),
        );
        border.run(&format!("ip rule add {side} {address} table {table}"))?;
    }
    Ok(())
}

/// A table whose default route leads into a tunnel; what is meant for the own site has a more specific route.
fn add_table(border: &Namespace, number: usize, tunnel: usize) -> Result<usize, NamespaceError> {
    let table = FIRST_TABLE + tunnel;
    let (far, device) = (tunnel_address(1 - number, tunnel), device(tunnel));
    border.run(&format!(
        "ip route add default via {far} dev {device} table {table}"
    ))?;
    if tunnel == 0 {
        border.run("ip rule add priority 100 table main suppress_prefixlength 0")?;
    }
    Ok(table)
}

/// Has a connection of the bulk hosts open a subflow from each address.
fn allow_subflows(rig: &Rig) -> Result<(), NamespaceError> {
    for host in &rig.bulk {
        let limits = "ip mptcp limits set subflows 8 add_addr_accepted 8";
        host.namespace.run(limits)?;
    }
    // The first subflow has the best tunnel's address, from which the client connects.
    for tunnel in 1..rig.case.tunnels.len() {
        let address = address_of_tunnel(tunnel);
        let line = format!("ip mptcp endpoint add {address} dev eth0 subflow");
        rig.bulk[0].namespace.run(&line)?;
    }
    Ok(())
}

/// The smallest whole numbers in proportion to the rates.
fn weights(case: Case) -> Vec<u32> {
    let divisor = |mut one: u32, mut other: u32| {
        while other > 0 {
            (one, other) = (other, one % other);
        }
        one
    };
    let rates = case.tunnels.iter().map(|it| it.rate_mbit);
    let common = rates.clone().fold(0, divisor).max(1);
    rates.map(|rate| rate / common).collect()
}

/// The tunnel of each turn of a round in which each has as many as its weight, evenly spread.
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
    use crate::cell;

    fn case(name: &str) -> Case {
        cell::chosen(Some(name), false)[0].case
    }

    #[test]
    fn weights_are_the_rates_in_small_numbers() {
        assert_eq!(weights(case("30+8-")), [15, 4]);
        assert_eq!(weights(case("20+20-f1-")), [1, 1]);
        assert_eq!(weights(case("50+50+20-")), [5, 5, 2]);
    }

    #[test]
    fn turns_of_a_tunnel_are_spread_over_the_round() {
        assert_eq!(turns(&[1, 1]), [0, 1]);
        let turns = turns(&[15, 4]);
        let slow: Vec<_> = (0..19).filter(|it| turns[*it] == 1).collect();
        assert_eq!(slow.len(), 4);
        assert!(
            slow.windows(2)
                .all(|pair| (4..=5).contains(&(pair[1] - pair[0])))
        );
    }

    #[test]
    fn every_scheme_has_a_name_of_its_own() {
        let mut names: Vec<_> = Scheme::ALL.map(Scheme::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Scheme::ALL.len());
    }
}
