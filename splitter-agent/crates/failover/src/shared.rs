//! What the monitors of all sites share.

use std::sync::Arc;
use std::time::Instant;

use splitter_config::Config;
use splitter_health::{KeyError, KeyRings};
use splitter_instance::report::SharedReport;
use splitter_netlink::{Netlink, NetlinkError};

use super::link_events::LinkEvents;
use super::overload_signs::OverloadSigns;
use super::socket::SocketError;

/// Holds what the monitors of all sites share.
#[derive(Debug)]
pub(super) struct Shared {
    /// What the agent proves to peers with; nothing without a peer.
    pub(super) keys: KeyRings,
    pub(super) netlink: Arc<Netlink>,
    pub(super) events: LinkEvents,
    pub(super) overload: OverloadSigns,
    pub(super) start: Instant,
    pub(super) report: SharedReport,
}

/// Why the tunnels cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealthMonitorError {
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A socket cannot be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The kernel refuses a request.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl Shared {
    pub(super) fn new(config: &Config) -> Result<Self, HealthMonitorError> {
        let files = match config.health.enabled {
            true => config.key_files(),
            false => std::collections::BTreeSet::new(),
        };
        Ok(Self {
            keys: KeyRings::load(files)?,
            netlink: Arc::new(Netlink::connect()?),
            events: LinkEvents::listen()?,
            overload: OverloadSigns::default(),
            start: Instant::now(),
            report: SharedReport::default(),
        })
    }
}
