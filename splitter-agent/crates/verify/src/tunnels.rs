//! What the agents of both borders know of each tunnel, by their own probes.
//!
//! A probe of theirs is bound to the tunnel's device, and so is the answer at the other end: an echo
//! proves both directions of that tunnel, whichever flows the kernel's hash gives to it.

use std::fmt;

use serde::Serialize;
use splitter_config::Config;
use splitter_health::Evidence;
use splitter_instance::report::{Report, TunnelReport};

/// A tunnel as the agent that runs here knows it.
#[derive(Debug, Clone, Serialize)]
pub struct TunnelFacts {
    /// The site that it leads to; `default` where none are listed.
    pub site: String,
    /// `short` or `long`: the class that it is for.
    pub tunnel: String,
    /// Its device.
    pub device: String,
    /// Whether it carries packets now.
    pub in_use: bool,
    /// What is known of an agent at its other end.
    pub far_agent: FarAgent,
    /// The round trip of probes, in milliseconds; null where none was answered.
    pub round_trip_ms: Option<f64>,
    /// The part of the last 100 probes that was not answered, in percent; null without such.
    pub loss_percent: Option<f64>,
}

/// Tells whether an agent of ours answers at the other end of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FarAgent {
    /// It does.
    Answers,
    /// It is asked and does not.
    Silent,
    /// No `peer` is configured, so that nobody is asked.
    NotAsked,
}

/// Reads what an agent that runs has found out; nothing where none watches.
pub(crate) fn tunnels(config: &Config) -> Vec<TunnelFacts> {
    let report = Report::read(&config.instance_dir()).filter(Report::is_fresh);
    let reported = report.map(|it| it.tunnels).unwrap_or_default();
    reported.iter().map(|it| facts(config, it)).collect()
}

fn facts(config: &Config, reported: &TunnelReport) -> TunnelFacts {
    let mut tunnels = config.tunnels().map(|(_, it)| it);
    let has_peer = tunnels.any(|it| it.device == reported.device && it.peer.is_some());
    TunnelFacts {
        site: reported.site.to_string(),
        tunnel: reported.tunnel.clone(),
        device: reported.device.to_string(),
        in_use: reported.in_use,
        far_agent: match (has_peer, reported.evidence) {
            (true, Evidence::Echo) if reported.round_trip_s.is_some() => FarAgent::Answers,
            (true, _) => FarAgent::Silent,
            (false, _) => FarAgent::NotAsked,
        },
        round_trip_ms: reported.round_trip_s.map(|it| it * 1e3),
        loss_percent: reported.loss.map(|it| it * 100.0),
    }
}

impl fmt::Display for TunnelFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.device, self.tunnel)?;
        if self.site != splitter_config::SiteName::default().to_string() {
            write!(f, " of {}", self.site)?;
        }
        f.write_str("): ")?;
        match (self.far_agent, self.round_trip_ms) {
            (FarAgent::Answers, Some(round_trip_ms)) => {
                let loss = self.loss_percent.unwrap_or_default();
                write!(
                    f,
                    "the other agent answers, {round_trip_ms:.2} ms there and back, {loss:.0} % lost"
                )
            }
            (FarAgent::Answers | FarAgent::Silent, _) => {
                f.write_str("no agent answers at the other end")
            }
            (FarAgent::NotAsked, _) => {
                f.write_str("no agent is asked at the other end, for it has no `peer`")
            }
        }
    }
}
