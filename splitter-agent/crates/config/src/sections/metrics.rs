//! `[metrics]`: where metrics and the status page are served, and what they tell.

use std::net::{Ipv4Addr, SocketAddr};

use crate::declaration::{NEW_START, key};
use crate::declare::section;
use crate::key::Change::{Restart, Set};
use crate::kind::{boolean, socket_address};

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9461);

section! {
    /// Says where metrics and the status page are served, and what they tell.
    pub struct Metrics, GivenMetrics {
        /// Sets where /metrics, /live, /ready and the status page (/) are served.
        address: SocketAddr = key("address", Restart(NEW_START), socket_address())
            .default(ADDRESS)
            .trade_off("There is no authentication: everybody who reaches it can read it.");

        /// The status page names flows by their addresses and ports. Everybody who reaches the
        /// address above can read it.
        flow_addresses: bool = key("flow_addresses", Set, boolean())
            .default(false)
            .trade_off(
                "`true`: [the status page](status.md) and `/status.json` tell who talks to whom. \
                 `false`: flows have names that tell nothing.",
            );
    }
}
