//! How packets are spread over the tunnels: what is compared.

mod splitter;

use std::path::Path;

use anyhow::Result;
use flow_testbed::{
    multipath::{self, NextHop},
    namespace::{Namespace, NamespaceError},
    require::Requirement::{File, Program},
    scheme::Agent,
    topology::{GENERATOR, LAN},
};
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use self::splitter::{Policy, key_file};
use crate::{
    cell::{Case, Tunnel},
    rig::{Rig, address_of_tunnel, device, tunnel_address},
};

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
            let hops = next_hops(number, rig.case);
            match self {
                Self::BestSingle => {}
                Self::EcmpFlow => multipath::hash_flows(border, &hops)?,
                Self::EcmpPacket => multipath::spray_packets(border, &hops, &[LAN, GENERATOR])?,
                Self::Mptcp => pin_addresses(border, number, &hops)?,
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

/// Sends what comes from or goes to an address of site A's bulk host into the tunnel that it belongs to.
fn pin_addresses(
    border: &Namespace,
    number: usize,
    hops: &[NextHop],
) -> Result<(), NamespaceError> {
    let side = if number == 0 { "from" } else { "to" };
    for (tunnel, hop) in hops.iter().enumerate() {
        let table = multipath::add_table(border, tunnel, hop)?;
        let address = address_of_tunnel(tunnel);
        border.run(&format!("ip rule add {side} {address} table {table}"))?;
    }
    Ok(())
}

/// The far ends of the tunnels as a border sees them.
fn next_hops(border: usize, case: Case) -> Vec<NextHop> {
    let hop = |(index, tunnel): (usize, &Tunnel)| NextHop {
        gateway: tunnel_address(1 - border, index),
        device: device(index).to_owned(),
        rate_mbit: tunnel.rate_mbit,
    };
    case.tunnels.iter().enumerate().map(hop).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_has_a_name_of_its_own() {
        let mut names: Vec<_> = Scheme::ALL.map(Scheme::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Scheme::ALL.len());
    }
}
