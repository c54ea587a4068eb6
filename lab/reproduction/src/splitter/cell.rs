//! One cell of the experiments: a scheme under a load, in rounds with seeds of their own.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use flow_testbed::{
    scheme::{Scheme, SplitterScheme},
    timed::{Bounds, Meter},
    topology::{Border, GENERATOR, LAN, TUNNELS, Topology, TopologyOptions},
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    browser,
    client::{self, Answer},
    schedule::{Kind, requests},
    server,
    wan::WanTap,
};

/// Rate of each tunnel. Two cores carry 200 Mbit/s in both directions together with what makes and
/// watches the traffic, and not the paper's two times 1 Gbit/s.
pub const RATE_MBIT: u32 = 100;
/// Threshold of the paper's experiments, as far as it tells: the upper end of its critical range.
pub const THRESHOLD: u32 = 40;
/// How long answers that are under way at the end are waited for.
const DRAIN: Duration = Duration::from_secs(2);
/// Table of the rule by which the background is routed that enters behind the splitter.
const BACKGROUND_TABLE: u32 = 77;
const BACKGROUND_PRIORITY: u32 = 50;

/// A way to spread packets over the two tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By a hash of the 5-tuple: the load balancer that the paper names.
    EcmpFlow,
    /// Packet by packet, as its sentence about the baseline says.
    EcmpPacket,
    /// All in the first tunnel, without a splitter.
    OneTunnel,
    /// The splitter with a tunnel for each class, by XDP in generic mode.
    Generic,
    /// The splitter with a tunnel for each class, by XDP in native mode: the paper's solution.
    Dedicated,
    /// The splitter with both classes in both tunnels.
    Share,
}

impl Mode {
    /// Returns its name in rows and runs.
    pub fn name(self) -> &'static str {
        match self {
            Self::EcmpFlow => "ecmp_flow",
            Self::EcmpPacket => "ecmp_packet",
            Self::OneTunnel => "one_tunnel",
            Self::Generic => "generic",
            Self::Dedicated => "dedicated",
            Self::Share => "share",
        }
    }

    fn is_split(self) -> bool {
        matches!(self, Self::Generic | Self::Dedicated | Self::Share)
    }
}

/// A scheme, a load, a threshold: one of the things that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The way to spread packets.
    pub mode: Mode,
    /// The background, in percent of both tunnels' rates, in each direction.
    pub load_percent: u32,
    /// The splitter's threshold in packets.
    pub threshold: u32,
    /// Whether videos and uploads run beside the listings.
    pub transfers: bool,
    /// Whether a browser loads pages in the place of the listings.
    pub pages: bool,
}

impl Cell {
    /// A cell with the paper's threshold and all of its requests.
    pub fn new(mode: Mode, load_percent: u32) -> Self {
        Self {
            mode,
            load_percent,
            threshold: THRESHOLD,
            transfers: true,
            pages: false,
        }
    }

    fn file_name(&self, seed: u64) -> String {
        let kinds = match (self.pages, self.transfers) {
            (true, _) => "pages",
            (false, true) => "all",
            (false, false) => "lists",
        };
        let Self {
            load_percent,
            threshold,
            ..
        } = self;
        let mode = self.mode.name();
        format!("{mode}-{load_percent}-{threshold}-{kinds}-seed{seed}.json")
    }

    /// Kinds of requests that are made by curl.
    pub(crate) fn kinds(&self) -> &'static [Kind] {
        match (self.pages, self.transfers) {
            (true, _) => &[Kind::Video, Kind::Upload],
            (false, true) => &Kind::ALL,
            (false, false) => &[Kind::List],
        }
    }
}

/// How long a round is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Length {
    /// How long requests are made, the warm-up included.
    pub whole_s: f64,
    /// How long before they count.
    pub warm_up_s: f64,
}

/// The results of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What was run.
    pub cell: Cell,
    /// For how long.
    pub length: Length,
    /// With which requests.
    pub seed: u64,
    /// Completion times of the listings in milliseconds, by the taps.
    pub list_ms: Vec<f64>,
    /// How much the delays of the listings' packets varied, in microseconds.
    pub jitter_us: Vec<f64>,
    /// The same of the videos' packets; none where packets are simulated.
    pub long_jitter_us: Vec<f64>,
    /// Rates of the videos and uploads that ended, in Mbit/s of payload, as curl has it.
    pub transfer_mbit: Vec<f64>,
    /// Load times of pages in the browser, in milliseconds.
    pub page_ms: Vec<f64>,
    /// Requests that had not been answered 2 s after the last, and pages that had not loaded after 20 s.
    pub unanswered: usize,
    /// What MGEN sent, in percent of both tunnels' rates, from each side.
    pub background_percent: [f64; 2],
    /// What the machine lacked, so that this may not have measured the tunnels.
    pub objection: Option<String>,
}

/// Takes a round from `directory` where one of the same settings is, or measures it and writes it there.
///
/// # Errors
///
/// If it cannot be measured or written.
pub fn round(
    cell: &Cell,
    length: Length,
    seed: u64,
    directory: &Path,
    measure: impl FnOnce() -> Result<Round>,
) -> Result<Round> {
    let file = directory.join(cell.file_name(seed));
    let known = fs::read_to_string(&file).ok();
    let known = known.and_then(|text| serde_json::from_str::<Round>(&text).ok());
    if let Some(known) = known.filter(|it| it.length == length && it.cell == *cell) {
        return Ok(known);
    }
    let measured = measure().with_context(|| format!("cannot measure {}", cell.file_name(seed)))?;
    fs::create_dir_all(directory)?;
    let text = serde_json::to_string(&measured)?;
    fs::write(&file, &text).with_context(|| format!("cannot write {}", file.display()))?;
    // A number that is read back may differ in its last bit; both times it is to be the same.
    Ok(serde_json::from_str(&text)?)
}

/// Measures a round on real packets.
///
/// # Errors
///
/// If the testbed or one of its programs fails.
pub fn measure(cell: &Cell, length: Length, seed: u64, splitter: &Path) -> Result<Round> {
    let files = directory()?;
    let topology = Topology::build(&TopologyOptions {
        rates_mbit: [RATE_MBIT; 2],
        ..TopologyOptions::default()
    })?;
    let cancel = CancellationToken::new();
    let applied = scheme(cell, splitter).apply(&topology, &cancel)?;
    for border in topology.borders.iter().filter(|_| cell.mode.is_split()) {
        route_background(border, cell.mode)?;
    }
    let server = server::serve(&topology.server, files.path())?;
    let taps = WanTap::attach(&topology)?;
    let meter = Meter::start();
    let background = match cell.load_percent {
        0 => Vec::new(),
        load => server::background(&topology, load, files.path())?,
    };
    let sent = || {
        topology
            .generators
            .each_ref()
            .map(|it| it.namespace.device_counters("eth0"))
    };
    let (before, begun) = (sent(), std::time::Instant::now());

    let whole = Duration::from_secs_f64(length.whole_s);
    let upload = files
        .path()
        .join("www")
        .join(Kind::Upload.port().to_string());
    let requests = requests(cell.kinds(), whole, seed);
    let browsing = match cell.pages {
        true => Some(browser::browse(&topology, files.path(), whole)?),
        false => None,
    };
    let answers = client::visit(&topology.client, &topology.server, requests, upload, DRAIN);
    // First, for it works in what goes away with an error.
    let pages = browsing.map_or(Ok(Vec::new()), browser::ended)?;
    let answers = answers?;

    let (after, seconds) = (sent(), begun.elapsed().as_secs_f64());
    drop(background);
    let objection = meter.end().exceeded(&Bounds::COMPARISON);
    let [jitter_us, long_jitter_us] = taps.jitter_us()?;
    let list_ms = taps.completions(Kind::List)?;
    drop((taps, server));
    for border in topology.borders.iter().filter(|_| cell.mode.is_split()) {
        unroute_background(border)?;
    }
    applied.remove()?;
    let capacity = f64::from(2 * RATE_MBIT) * 1e6;
    let mut background_percent = [0.0; 2];
    for ((before, after), percent) in before.into_iter().zip(after).zip(&mut background_percent) {
        let bytes = after?.sent_bytes - before?.sent_bytes;
        *percent = bytes as f64 * 8.0 / seconds / capacity * 100.0;
    }
    let counts = |at_s: f64| at_s >= length.warm_up_s;
    Ok(Round {
        cell: *cell,
        length,
        seed,
        list_ms: list_ms
            .into_iter()
            .filter(|it| counts(it.0))
            .map(|it| it.1)
            .collect(),
        jitter_us,
        long_jitter_us,
        transfer_mbit: answers
            .iter()
            .filter(|it| counts(it.at_s))
            .filter_map(rate_mbit)
            .collect(),
        unanswered: answers.iter().filter(|it| it.seconds.is_none()).count()
            + pages.iter().filter(|it| it.ms.is_none()).count(),
        page_ms: pages
            .iter()
            .filter(|it| counts(it.at_s))
            .filter_map(|it| it.ms)
            .collect(),
        background_percent,
        objection,
    })
}

/// In memory, where there is such a file system: what is uploaded is not to wait for a disk.
fn directory() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let place = match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    };
    remove_what_is_left(&place)?;
    TempDir::with_prefix_in(format!("{PREFIX}{}-", std::process::id()), place)
        .context("cannot make a directory for the run's files")
}

/// How directories of runs are called: this, the id of the process, and what makes it the only one.
const PREFIX: &str = "flow-reproduction-";

/// Removes the directories of runs that were killed, or ended by Ctrl-C, before they could.
fn remove_what_is_left(place: &Path) -> Result<()> {
    for entry in fs::read_dir(place).context("cannot list directories for files")? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let owner = name.to_str().and_then(|it| it.strip_prefix(PREFIX));
        let id = owner.and_then(|it| it.split('-').next()?.parse::<u32>().ok());
        if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            // Another run may have been faster.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

fn rate_mbit(answer: &Answer) -> Option<f64> {
    let bits = answer.kind.bytes() as f64 * 8.0;
    let seconds = answer.seconds.filter(|_| answer.kind != Kind::List)?;
    Some(bits / seconds / 1e6)
}

fn scheme(cell: &Cell, splitter: &Path) -> Scheme {
    // The background enters behind the splitter, as the paper's does, at the routers.
    let mut configuration = toml::Table::new();
    configuration.insert("lan".to_owned(), vec![LAN].into());
    let attach = match cell.mode {
        Mode::Generic => "generic",
        _ => "native",
    };
    let dedicated = SplitterScheme {
        binary: splitter.to_owned(),
        threshold: cell.threshold,
        attach: attach.to_owned(),
        states_rates: true,
        configuration,
    };
    match cell.mode {
        Mode::EcmpFlow => Scheme::EcmpFlow,
        Mode::EcmpPacket => Scheme::EcmpPacket,
        Mode::OneTunnel => Scheme::OneTunnel,
        Mode::Generic | Mode::Dedicated => Scheme::Splitter(dedicated),
        Mode::Share => Scheme::Splitter(dedicated.sharing(100)),
    }
}

/// With a tunnel for each class the background, which is long, has the long one. Where both share
/// both, it is spread over them as without a splitter.
fn route_background(border: &Border, mode: Mode) -> Result<()> {
    let [first, second] = border.gateways;
    let path = match mode {
        Mode::Share => {
            border
                .namespace
                .sysctl("net.ipv4.fib_multipath_hash_policy", "1")?;
            format!("nexthop via {first} nexthop via {second}")
        }
        _ => format!("via {second} dev {}", TUNNELS[1]),
    };
    border.namespace.run(&format!(
        "ip route add default table {BACKGROUND_TABLE} {path}"
    ))?;
    border.namespace.run(&format!(
        "ip rule add priority {BACKGROUND_PRIORITY} iif {GENERATOR} table {BACKGROUND_TABLE}"
    ))?;
    Ok(())
}

/// The splitter leaves a border as it was, which is checked; so do we.
fn unroute_background(border: &Border) -> Result<()> {
    border
        .namespace
        .run(&format!("ip rule del priority {BACKGROUND_PRIORITY}"))?;
    border
        .namespace
        .run(&format!("ip route flush table {BACKGROUND_TABLE}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_runs_that_have_ended_are_removed_and_no_others() {
        let place = tempfile::tempdir().expect("a directory");
        let mut child = std::process::Command::new("true")
            .spawn()
            .expect("it is there");
        let ended = child.id();
        child.wait().expect("it ends");
        let own = std::process::id();
        let names = [
            format!("{PREFIX}{ended}-a"),
            format!("{PREFIX}{own}-b"),
            format!("{PREFIX}x"),
            format!("other-{ended}-c"),
        ];
        for name in &names {
            fs::create_dir(place.path().join(name)).expect("a directory");
        }
        remove_what_is_left(place.path()).expect("it can be listed");
        let is_there = names.map(|it| place.path().join(it).exists());
        assert_eq!(is_there, [false, true, true, true]);
    }
}
