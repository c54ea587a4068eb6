//! Looks for whatever would keep the splitter from working here, and says what to do about it.
//! Nothing is changed.

use std::fmt;

use serde::Serialize;
use splitter_config::Config;
use splitter_netlink::{Netlink, NetlinkError};
use splitter_steering::shaping::short_queue;

mod drivers;
mod fabric;
mod health;
mod machine;
mod neighbours;
mod network;
mod redirect;
mod roles;
mod table;
mod xdp;

pub use fabric::examine_fabric;
pub use neighbours::{Concern, Neighbour, Neighbours, Unseen, neighbours};
pub use roles::examine_role;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub check: String,
    /// How it stands.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// What to do about it, if anything.
    pub remedy: Option<String>,
}

/// Says how something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Nothing to do.
    Ok,
    /// It will work, but not at its best, or it could not be looked at.
    Warn,
    /// It will not work.
    Fail,
}

impl Check {
    fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            status: Status::Ok,
            detail: detail.into(),
            remedy: None,
        }
    }

    fn warn(
        check: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Warn,
            remedy: Some(remedy.into()),
            ..Self::ok(check, detail)
        }
    }

    fn fail(
        check: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Fail,
            remedy: Some(remedy.into()),
            ..Self::ok(check, detail)
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<5} {}: {}", self.status, self.check, self.detail)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// Examines the machine and, with a configuration, the network as the configuration has it.
///
/// # Errors
/// When not even the kernel's interfaces can be listed.
pub async fn examine(
    netlink: &Netlink,
    config: Option<&Config>,
) -> Result<Vec<Check>, NetlinkError> {
    let mut checks = machine::examine(netlink, config).await;
    if let Some(config) = config {
        checks.extend(network::examine(netlink, config).await?);
        let queues = short_queue(config);
        checks.extend(queues.map(|it| Check::warn("queues of tunnels", it.problem, it.remedy)));
        checks.extend(table::examine(config));
    }
    Ok(checks)
}
