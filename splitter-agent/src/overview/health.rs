//! Where the probes of tunnels, if any run, tell what they find.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use splitter_health::{Condition, LinkKind};
use splitter_netlink::InterfaceName;
use splitter_policy::flow::Class;
use splitter_steering::Egress;

use splitter_instance::State;
use splitter_instance::report::{Report, SharedReport, TunnelReport, common_egress};

/// The source of what probes of the tunnels find.
///
/// Given to [`Observer::with_health`](super::Observer::with_health); without it every tunnel shows
/// as [not probed](Health::NotProbed).
pub trait HealthSource: fmt::Debug + Send + Sync + 'static {
    /// Returns what is known of the tunnel on a device now. Must not block.
    fn health(&self, device: &InterfaceName) -> TunnelHealth;

    /// Returns where the packets of a class go now, if that is known and the same for all sites. Must
    /// not block.
    fn egress(&self, class: Class) -> Option<Egress>;
}

/// Shows what probes say of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TunnelHealth {
    /// Whether it carries traffic.
    pub health: Health,
    /// How its device is, where somebody looks whether it has the addresses that it needs.
    #[serde(skip)]
    pub link: Option<LinkKind>,
    /// Whether packets of a class are sent over it; `None` where nobody asks.
    pub in_use: Option<bool>,
    /// Share of probes that were lost of late.
    pub loss_ratio: Option<f64>,
    /// Time there and back.
    pub rtt_s: Option<f64>,
    /// How much that varies.
    pub jitter_s: Option<f64>,
}

/// Says whether a tunnel carries traffic, as far as probes report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Health {
    /// Nobody asks.
    #[default]
    #[serde(rename = "not probed")]
    NotProbed,
    /// Probes come back.
    #[serde(rename = "good")]
    Good,
    /// Probes have failed to come back; still in use.
    #[serde(rename = "suspect")]
    Suspect,
    /// Probes have failed to come back while this machine was overloaded, which proves nothing; still
    /// in use.
    #[serde(rename = "unknown")]
    Unknown,
    /// Probes do not come back.
    #[serde(rename = "dead")]
    Dead,
    /// Probes come back after it was dead; not in use yet.
    #[serde(rename = "returning")]
    Returning,
}

impl Health {
    /// Returns its name in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotProbed => "not probed",
            Self::Good => "good",
            Self::Suspect => "suspect",
            Self::Unknown => "unknown",
            Self::Dead => "dead",
            Self::Returning => "returning",
        }
    }
}

impl HealthSource for SharedReport {
    fn health(&self, device: &InterfaceName) -> TunnelHealth {
        self.tunnel(device).as_ref().map(of).unwrap_or_default()
    }

    fn egress(&self, class: Class) -> Option<Egress> {
        self.egress(class)
    }
}

/// Reads what the agent of an instance writes of its tunnels, for other processes.
#[derive(Debug)]
pub struct WrittenReport(PathBuf);

impl WrittenReport {
    /// Names the report of the instance with this directory.
    #[must_use]
    pub fn of(directory: PathBuf) -> Self {
        Self(directory)
    }
}

impl HealthSource for WrittenReport {
    fn health(&self, device: &InterfaceName) -> TunnelHealth {
        let report = Report::read(&self.0).filter(Report::is_fresh);
        let mut tunnels = report.iter().flat_map(|it| &it.tunnels);
        let found = tunnels.find(|it| it.device == *device);
        found.map(of).unwrap_or_default()
    }

    /// While nobody watches, where it was left.
    fn egress(&self, class: Class) -> Option<Egress> {
        let report = Report::read(&self.0).filter(Report::is_fresh);
        let reported = report.and_then(|report| common_egress(&report.classes, class));
        reported.or_else(|| {
            let placements = State::read(&self.0).ok()??.placements;
            placements.common(class)
        })
    }
}

fn of(found: &TunnelReport) -> TunnelHealth {
    TunnelHealth {
        health: match found.condition {
            Condition::Up => Health::Good,
            Condition::Suspect => Health::Suspect,
            Condition::Unknown => Health::Unknown,
            Condition::Down => Health::Dead,
            Condition::Returning => Health::Returning,
        },
        link: Some(found.link),
        in_use: Some(found.in_use),
        loss_ratio: found.loss,
        rtt_s: found.round_trip_s,
        jitter_s: found.jitter_s,
    }
}
