//! The report of the tunnels' health, as metrics and `splitter status` read it, and the file between.

mod shared;

use std::collections::VecDeque;
use std::num::NonZeroU8;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use splitter_config::SiteName;
use splitter_health::{Condition, Evidence, LinkKind, OverloadCounts, Refusal, Untimed};
use splitter_netlink::{InterfaceName, list_names};
use splitter_policy::flow::Class;
use splitter_policy::histogram::Histogram;
use splitter_steering::Egress;

use crate::state::health_report;
pub use shared::{SharedReport, SiteReport};

/// A report that is older is from an agent that has ended: one that runs writes it every second.
const FRESH: Duration = Duration::from_secs(5);

/// How the tunnels are, and where the classes, of every site.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// When it was written, in milliseconds since 1970.
    pub written_unix_ms: u64,
    /// All tunnels, site by site, those of the short class first.
    pub tunnels: Vec<TunnelReport>,
    /// Both classes of each site, the short one first.
    pub classes: Vec<ClassReport>,
    /// The last moves of classes, the newest last.
    pub moves: VecDeque<Move>,
    /// Why a class is not where it should be.
    pub problem: Option<String>,
    /// What the sites do without: dead tunnels, and classes out of theirs.
    #[serde(default)]
    pub degraded: Option<String>,
    /// Datagrams that were refused, in the order of [`Refusal::ALL`].
    #[serde(default)]
    pub refused: [u64; Refusal::ALL.len()],
    /// Which packets leave by other tunnels than those that they are meant for.
    #[serde(default)]
    pub strays: Vec<Misrouted>,
    /// What showed within the last 10 s that this machine is overloaded.
    #[serde(default)]
    pub overload: Option<String>,
    /// How often something did.
    #[serde(default)]
    pub overloads: OverloadCounts,
}

/// Reports packets that leave by a tunnel that their class is not in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misrouted {
    /// The site that the tunnel leads to.
    pub site: SiteName,
    /// `short` or `long`: the class whose tunnels they are meant for.
    pub tunnel: String,
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// The device by which they leave.
    pub device: InterfaceName,
    /// What was seen and what to do, in words.
    pub problem: String,
}

/// Reports how one tunnel is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TunnelReport {
    /// The site that it leads to.
    #[serde(default)]
    pub site: SiteName,
    /// `short` or `long`: the class that it is for.
    pub tunnel: String,
    /// Its device.
    pub device: InterfaceName,
    /// Its share of the flows of its class, relative to the weights of the others.
    #[serde(default = "lightest")]
    pub weight: NonZeroU8,
    /// Whether it carries packets.
    #[serde(default)]
    pub in_use: bool,
    /// How its device is.
    #[serde(default)]
    pub link: LinkKind,
    /// How it stands.
    pub condition: Condition,
    /// Since when, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// By what that is known.
    pub evidence: Evidence,
    /// How often it went down.
    pub downs: u64,
    /// Probes that were sent.
    pub probes_sent: u64,
    /// Probes that were not answered in time.
    pub probes_lost: u64,
    /// The lost share of the last 100 probes, 0 to 1.
    pub loss: Option<f64>,
    /// Smoothed round-trip time in seconds.
    pub round_trip_s: Option<f64>,
    /// Smoothed difference between one round trip and the next, in seconds.
    pub jitter_s: Option<f64>,
    /// The parts of the last round trip besides the path of which nobody told how long they were, by [`Untimed::name`], where
    /// packets choose by what probes measure.
    #[serde(default)]
    pub untimed: Vec<String>,
    /// Answers by what was in their round trips besides the path, in the order of [`Untimed::ALL`].
    #[serde(default)]
    pub untimed_answers: [u64; Untimed::ALL.len()],
}

impl Report {
    /// Says in words what is not as it should be, each by itself.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let degraded = self.degraded.iter().map(|it| format!("degraded: {it}"));
        let strays = self.strays.iter();
        let misrouted = strays.map(|it| format!("misrouted: {}", it.problem));
        let overload = self.overload.iter().map(|it| {
            format!("overloaded within the last 10 s: {it}; missing answers did not count then")
        });
        let tunnels = self.tunnels.iter();
        degraded
            .chain(self.problem.clone())
            .chain(misrouted)
            .chain(overload)
            .chain(tunnels.filter_map(TunnelReport::untimed_in_words))
            .collect()
    }
}

impl TunnelReport {
    /// Says what is in the delay of a tunnel besides the path, if packets choose by it and there is something.
    fn untimed_in_words(&self) -> Option<String> {
        (!self.untimed.is_empty()).then(|| {
            format!(
                "the delay of {} has more in it than the path, since nobody tells how long that takes: {}",
                self.device,
                self.untimed.join(", ")
            )
        })
    }
}

/// Reports where one class goes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassReport {
    /// The site that its packets go to.
    #[serde(default)]
    pub site: SiteName,
    /// `short` or `long`.
    pub class: String,
    /// Where its packets go.
    pub tunnel: Egress,
    /// How often it was moved there, in the order of [`Egress::ALL`].
    pub moves: [u64; Egress::ALL.len()],
    /// Differences between a probe's round-trip time and the next one's, in the tunnels that it was in then. For metrics
    /// alone, which are of the agent that measures.
    #[serde(skip)]
    pub jitter: Histogram,
}

/// A class went to other tunnels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The site of which the class is meant.
    #[serde(default)]
    pub site: SiteName,
    /// `short` or `long`.
    pub class: String,
    /// Where it was.
    pub from: Egress,
    /// Where it is; the same where it only left or took up some of the tunnels there.
    pub to: Egress,
    /// The tunnels that it left, where others there go on.
    #[serde(default)]
    pub left: Vec<InterfaceName>,
    /// The tunnels that it took up next to others.
    #[serde(default)]
    pub taken_up: Vec<InterfaceName>,
    /// Why.
    pub reason: String,
}

impl Move {
    /// Describes the move and its reason in a sentence.
    #[must_use]
    pub fn description(&self) -> String {
        let (class, reason) = (class_of(&self.site, &self.class), &self.reason);
        if self.from != self.to {
            let (from, to) = (self.from, self.to);
            return format!("{class} goes from {from} to {to}: {reason}");
        }
        let part = |verb: &str, devices: &[InterfaceName]| match devices {
            [] => None,
            devices => Some(format!("{verb} {}", list_names(devices))),
        };
        let parts = [part("leaves", &self.left), part("takes up", &self.taken_up)];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        format!("{class} {}: {reason}", parts.join(" and "))
    }
}

/// Names a class, with its site where that has a name.
#[must_use]
pub fn class_of(site: &SiteName, class: &str) -> String {
    match *site == SiteName::default() {
        true => format!("the {class} class"),
        false => format!("the {class} class of {site}"),
    }
}

fn lightest() -> NonZeroU8 {
    NonZeroU8::MIN
}

impl Report {
    /// The report of the instance whose directory this is, if there is one that can be read.
    #[must_use]
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(health_report(directory)).ok()?).ok()
    }

    /// Returns true while an agent is watching.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        unix_ms().abs_diff(self.written_unix_ms) < FRESH.as_millis() as u64
    }
}

/// Returns where a class goes, if that is the same in all of these reports.
pub fn common_egress<'r>(
    reports: impl IntoIterator<Item = &'r ClassReport>,
    class: Class,
) -> Option<Egress> {
    let of_class = reports.into_iter().filter(|it| it.class == class.name());
    let mut egresses = of_class.map(|it| it.tunnel);
    let first = egresses.next()?;
    egresses.all(|it| it == first).then_some(first)
}

/// Returns the milliseconds since 1970, by a clock that may jump: for people alone.
#[must_use]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
