//! Multipath TCP of the kernel.
//!
//! The client has an address for each path, as a host with four uplinks, and opens a subflow from
//! each: it need not guess paths by ports, which is more than ECMP would give it. A pool as for TCP.

use std::{net::Ipv4Addr, rc::Rc};

use anyhow::Result;
use flow_testbed::require::Requirement;
use futures_util::future::LocalBoxFuture;
use socket2::Protocol;

use super::{Client, Scheme, Serving, pool::Pool, stream::Kind, tcp::PooledStreams};
use crate::{
    rig::{PATHS, Rig, addresses},
    scenario::Scenario,
};

const KIND: Kind = Kind {
    protocol: Protocol::MPTCP,
    congestion_control: "cubic",
};
const CONNECTIONS: usize = 8;

/// Multipath TCP of the kernel.
pub(super) struct Mptcp;

impl Scheme for Mptcp {
    fn name(&self) -> &'static str {
        "mptcp"
    }

    fn about(&self) -> &'static str {
        "MPTCP cubic, a pool of 8 connections with a subflow on each path"
    }

    fn requirements(&self) -> Vec<Requirement> {
        vec![
            Requirement::CongestionControl(KIND.congestion_control),
            Requirement::File("/proc/sys/net/mptcp/enabled"),
        ]
    }

    fn prepare(&self, rig: &Rig, _: Scenario) -> Result<()> {
        for host in [&rig.client, &rig.server] {
            host.run("ip mptcp limits set subflows 8 add_addr_accepted 8")?;
        }
        rig.client.run("ip mptcp endpoint flush")?;
        for address in addresses::pinned() {
            rig.client
                .run(&format!("ip mptcp endpoint add {address} dev eth0 subflow"))?;
        }
        Ok(())
    }

    fn serve(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Serving>> {
        Box::pin(async move { Ok(KIND.serve(address)?) })
    }

    fn connect(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Rc<dyn Client>>> {
        Box::pin(async move {
            // The first subflow counts for the path of its address.
            let open = move |index| KIND.connect(address, Some(addresses::pinned()[index % PATHS]));
            let pool = Pool::open(CONNECTIONS, open).await?;
            Ok(Rc::new(PooledStreams(pool)) as Rc<dyn Client>)
        })
    }
}
