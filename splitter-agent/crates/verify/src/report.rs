//! What probing has found, for people and for programs.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use crate::survey::Border;
use crate::tunnels::{FarAgent, TunnelFacts};
use crate::way_back::WayBack;

/// Sums up what was found at a border.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The instance.
    pub name: String,
    /// The worst of all paths.
    pub verdict: Verdict,
    /// The verdict in a line.
    pub summary: String,
    /// Each path that was probed: where a class has several tunnels to a site, one for each of them
    /// that a flow has taken.
    pub paths: Vec<PathReport>,
    /// The tunnels, as the agents of both borders know them by their own probes; empty while no agent
    /// runs here.
    pub tunnels: Vec<TunnelFacts>,
    /// What was not, in words.
    pub not_covered: Vec<String>,
}

/// Tells whether a path is as intended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Packets have left as intended, and were answered.
    Ok,
    /// It cannot be told.
    Unknown,
    /// Packets have not left as intended.
    Wrong,
}

/// The probes of a class between two addresses.
#[derive(Debug, Clone, Serialize)]
pub struct PathReport {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The class of the flow: `short` or `long`.
    pub class: &'static str,
    /// The site of the destination; null where none are listed.
    pub site: Option<String>,
    /// The interface that packets were put in at.
    pub lan: String,
    /// Their source: the border's own address there.
    pub source: IpAddr,
    /// Their destination.
    pub destination: IpAddr,
    /// Its port.
    pub port: u16,
    /// The devices that packets of the class are to leave by.
    pub intended: Vec<String>,
    /// The devices that they have left by, and how many packets.
    pub taken: BTreeMap<String, u64>,
    /// Where marks are: `DSCP` or `fwmark`.
    pub mark_in: &'static str,
    /// The marks that they have left with, by their numbers, and how many packets; `none` stands for
    /// a fwmark without a known one.
    pub marked: BTreeMap<String, u64>,
    /// Packets that an answer was waited for.
    pub sent: u64,
    /// Those that were answered.
    pub answered: u64,
    /// What answered: `tcp` the flow itself, `icmp` echoes with the same mark; null if nothing did.
    pub answered_by: Option<&'static str>,
    /// The part that was not answered, in percent; null if nothing was.
    pub loss_percent: Option<f64>,
    /// The time from leaving to the answer's arrival; null if nothing was answered.
    pub delay_ms: Option<Delay>,
    /// The largest IP packet that was answered with fragmentation forbidden, in bytes.
    pub mtu: Option<u64>,
    /// The largest that was tried.
    pub mtu_tried: Option<u64>,
    /// The devices that answers have come in by, and how many.
    pub came_back_by: BTreeMap<String, u64>,
    /// What answers tell of the way back.
    pub way_back: WayBack,
    /// Whether it is as intended.
    pub verdict: Verdict,
    /// Why, in words.
    pub why: String,
    /// What to do where it is not.
    pub remedy: Option<String>,
}

/// A delay in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Delay {
    /// The shortest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The longest.
    pub max: f64,
}

impl Delay {
    /// Sums up delays; `None` of none.
    pub(crate) fn of(delays_ms: &[f64]) -> Option<Self> {
        if delays_ms.is_empty() {
            return None;
        }
        Some(Self {
            min: delays_ms.iter().copied().fold(f64::INFINITY, f64::min),
            mean: delays_ms.iter().sum::<f64>() / delays_ms.len() as f64,
            max: delays_ms.iter().copied().fold(0.0, f64::max),
        })
    }
}

/// Adds what paths together have left open, and the verdict.
pub(crate) fn summarise(
    border: &Border,
    paths: Vec<PathReport>,
    tunnels: Vec<TunnelFacts>,
    mut not_covered: Vec<String>,
) -> Report {
    for device in &border.tunnel_devices {
        let is_taken = paths.iter().any(|it| it.taken.contains_key(device));
        if !is_taken && !paths.is_empty() {
            not_covered.push(format!("{device}: no probe has left by this tunnel"));
        }
    }
    let back = |it: &PathReport| it.way_back.verdict == Verdict::Ok;
    if !paths.is_empty() && !paths.iter().any(back) {
        not_covered
            .push("how the other border splits: run `splitter verify` there, too".to_owned());
    }
    if tunnels.is_empty() {
        not_covered.push(
            "each tunnel there and back: `splitter run` asks the other agent where a tunnel has a `peer`"
                .to_owned(),
        );
    }
    let verdict = paths.iter().map(|it| it.verdict).max();
    let verdict = verdict.unwrap_or(Verdict::Unknown);
    Report {
        name: border.name.clone(),
        verdict,
        summary: summary(&paths, &tunnels, verdict),
        paths,
        tunnels,
        not_covered,
    }
}

fn summary(paths: &[PathReport], tunnels: &[TunnelFacts], verdict: Verdict) -> String {
    let count = |verdict| paths.iter().filter(|it| it.verdict == verdict).count();
    let all = paths.len();
    match verdict {
        _ if all == 0 => "nothing could be probed".to_owned(),
        Verdict::Ok => {
            let (sent, answered) = paths.iter().fold((0, 0), |(sent, answered), it| {
                (sent + it.sent, answered + it.answered)
            });
            let back = paths.iter().filter(|it| it.way_back.verdict == Verdict::Ok);
            let asked = tunnels
                .iter()
                .filter(|it| it.far_agent != FarAgent::NotAsked);
            let answering = tunnels
                .iter()
                .filter(|it| it.far_agent == FarAgent::Answers);
            let agents = match asked.count() {
                0 => String::new(),
                asked => format!(
                    "; the other agent answers in {} of {asked} tunnels",
                    answering.count()
                ),
            };
            format!(
                "all {all} paths are as intended, {} of them there and back; {answered} of {sent} \
                 probes were answered{agents}",
                back.count()
            )
        }
        Verdict::Wrong => format!(
            "{} of {all} paths are NOT as intended",
            count(Verdict::Wrong)
        ),
        Verdict::Unknown => {
            format!("{} of {all} paths cannot be told", count(Verdict::Unknown))
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Unknown => "cannot tell",
            Self::Wrong => "WRONG",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for path in &self.paths {
            writeln!(f, "{path}")?;
        }
        if !self.tunnels.is_empty() {
            writeln!(f, "tunnels:")?;
        }
        for tunnel in &self.tunnels {
            writeln!(f, "  {tunnel}")?;
        }
        if !self.not_covered.is_empty() {
            writeln!(f, "not covered:")?;
        }
        for what in &self.not_covered {
            writeln!(f, "  {what}")?;
        }
        write!(f, "{}: {}", self.verdict, self.summary)
    }
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} {} by {}, {} -> {}: {}: {}",
            self.family,
            self.class,
            self.lan,
            self.source,
            self.destination,
            self.verdict,
            self.why
        )?;
        if let Some(remedy) = &self.remedy {
            writeln!(f, "  what to do: {remedy}")?;
        }
        writeln!(
            f,
            "  path   {} (intended: {})",
            counted(&self.taken),
            self.intended.join(" or ")
        )?;
        write!(f, "  mark   {} {}", self.mark_in, counted(&self.marked))?;
        let (Some(delay), Some(by)) = (self.delay_ms, self.answered_by) else {
            return Ok(());
        };
        write!(
            f,
            "\n  delay  {:.2} ms (min {:.2}, max {:.2}), {} of {} answered ({by}), by {}",
            delay.mean,
            delay.min,
            delay.max,
            self.answered,
            self.sent,
            counted(&self.came_back_by)
        )?;
        let back = &self.way_back;
        write!(f, "\n  back   DSCP {}: {}", counted(&back.marked), back.why)?;
        match (self.mtu, self.mtu_tried) {
            (Some(mtu), Some(tried)) if mtu == tried => {
                write!(f, "\n  MTU    {mtu}, the largest that was tried")
            }
            (Some(mtu), Some(tried)) => write!(f, "\n  MTU    {mtu} (up to {tried} were tried)"),
            _ => Ok(()),
        }
    }
}

fn counted(of: &BTreeMap<String, u64>) -> String {
    if of.is_empty() {
        return "none was seen".to_owned();
    }
    let each = of.iter().map(|(name, count)| format!("{name} ({count})"));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_summed_up() {
        let delay = Delay::of(&[2.0, 1.0, 6.0]).unwrap();
        assert_eq!((delay.min, delay.mean, delay.max), (1.0, 3.0, 6.0));
        assert_eq!(Delay::of(&[]), None);
    }

    #[test]
    fn path_is_described_with_its_figures() {
        let count = |name: &str, count| [(name.to_owned(), count)].into();
        let path = PathReport {
            family: "IPv4".to_owned(),
            class: "long",
            lan: "eth0".to_owned(),
            source: [10, 1, 0, 1].into(),
            destination: [10, 2, 0, 5].into(),
            port: 9,
            intended: vec!["wan1".to_owned()],
            taken: count("wan1", 11),
            mark_in: "DSCP",
            marked: count("2", 11),
            sent: 10,
            answered: 9,
            answered_by: Some("tcp"),
            loss_percent: Some(10.0),
            delay_ms: Delay::of(&[20.0, 22.0]),
            mtu: Some(1_450),
            mtu_tried: Some(1_500),
            came_back_by: count("wan0", 9),
            way_back: WayBack {
                marked: count("4", 9),
                class: Some("short"),
                verdict: Verdict::Ok,
                why: "the other border sends answers as a short flow".to_owned(),
            },
            site: None,
            verdict: Verdict::Ok,
            why: "it left as intended and was answered".to_owned(),
            remedy: None,
        };
        let expected = "\
IPv4 long by eth0, 10.1.0.1 -> 10.2.0.5: ok: it left as intended and was answered
  path   wan1 (11) (intended: wan1)
  mark   DSCP 2 (11)
  delay  21.00 ms (min 20.00, max 22.00), 9 of 10 answered (tcp), by wan0 (9)
  back   DSCP 4 (9): the other border sends answers as a short flow
  MTU    1450 (up to 1500 were tried)";
        assert_eq!(path.to_string(), expected);
        let summary = summary(&[path], &[], Verdict::Ok);
        assert_eq!(
            summary,
            "all 1 paths are as intended, 1 of them there and back; 9 of 10 probes were answered"
        );
    }

    #[test]
    fn worst_verdict_is_that_of_the_whole() {
        assert!(Verdict::Wrong > Verdict::Unknown && Verdict::Unknown > Verdict::Ok);
    }
}
