//! Where the probes of tunnels, if any run, tell what they find.

use std::fmt;

use serde::Serialize;
use splitter_common::flow::Tunnel;

/// Whoever probes the tunnels.
///
/// Given to [`Observer::with_health`](super::Observer::with_health); without it every tunnel shows
/// as [not probed](Health::NotProbed).
pub trait HealthSource: fmt::Debug + Send + Sync + 'static {
    /// What is known of a tunnel now. Must not block.
    fn health(&self, tunnel: Tunnel) -> TunnelHealth;
}

/// What probes say of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TunnelHealth {
    /// Whether it carries traffic.
    pub health: Health,
    /// Share of probes that were lost of late.
    pub loss_ratio: Option<f64>,
    /// Time there and back.
    pub rtt_s: Option<f64>,
    /// How much that varies.
    pub jitter_s: Option<f64>,
}

/// Whether a tunnel carries traffic, as far as probes tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Health {
    /// Nobody asks.
    #[default]
    #[serde(rename = "not probed")]
    NotProbed,
    /// Probes come back.
    #[serde(rename = "good")]
    Good,
    /// Probes do not come back.
    #[serde(rename = "dead")]
    Dead,
}

impl Health {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotProbed => "not probed",
            Self::Good => "good",
            Self::Dead => "dead",
        }
    }
}
