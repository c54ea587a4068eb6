//! The splitter's figures `S1` to `S6` (its §III), on real packets between network namespaces.
//!
//! Two borders run the shipped agent; nginx answers curl and a browser through them, MGEN makes the background,
//! and the splitter's own taps measure. What the paper leaves open is in `docs/src/reproduction/splitter.md`.
//! Rounds are kept as those of [`tr`](crate::tr) are. [`simulated`] has the same cells in the simulator, at rates that this
//! machine does not carry, and [`columns`] sets both beside each other.

pub mod attach;
pub(crate) mod browser;
pub mod cell;
pub mod client;
pub mod columns;
pub mod distributions;
pub mod grid;
pub mod headline;
pub mod loads;
pub(crate) mod page_loads;
pub mod schedule;
pub mod server;
pub mod simulated;
pub mod thresholds;
pub mod wan;

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    rc::Rc,
};

use anyhow::Result;
use flow_report::Summary;
use flow_testbed::require::{Lacking, Requirement};

use self::{
    cell::{Cell, Length, Round},
    simulated::Network,
};
use crate::{check::Check, figure::Figure};

/// How much is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// Rounds of each cell, with seeds of their own.
    pub rounds: u64,
    /// Length of each.
    pub length: Length,
    /// Thresholds of S1, besides the paper's.
    pub thresholds: Vec<u32>,
    /// Loads at which S1 varies the threshold, in percent.
    pub threshold_loads: Vec<u32>,
    /// Loads under which a browser loads pages, in percent.
    pub page_loads: Vec<u32>,
    /// Length of rounds in which it does.
    pub page_length: Length,
    /// Networks of the simulator, by rate.
    pub networks: [Network; 3],
    /// Whether all modes run under all loads, and not only where one of them is asked about.
    pub everything: bool,
}

impl Effort {
    /// Ten rounds of 12 s: some three hours for all figures.
    pub fn full() -> Self {
        let length = Length {
            whole_s: 12.0,
            warm_up_s: 2.0,
        };
        Self {
            rounds: 10,
            length,
            page_loads: vec![20, 40],
            page_length: length,
            networks: Network::full(length),
            thresholds: vec![1, 3, 5, 10, 20, 100, 300, 1_000],
            threshold_loads: vec![10, 20, 30, 40],
            everything: true,
        }
    }

    /// Three rounds of 2.5 s.
    pub fn quick() -> Self {
        let length = Length {
            whole_s: 2.5,
            warm_up_s: 0.5,
        };
        Self {
            rounds: 3,
            length,
            page_loads: vec![40],
            page_length: Length {
                whole_s: 5.0,
                warm_up_s: 1.0,
            },
            networks: Network::quick(length),
            thresholds: vec![1, 10, 1_000],
            threshold_loads: vec![40],
            everything: false,
        }
    }
}

/// What rounds are measured on.
#[derive(Clone, Debug)]
enum Medium {
    /// Real packets, by this program of the agent.
    Packets(PathBuf),
    /// The simulator, so many rounds at a time.
    Simulator(Network, usize),
}

/// Experiments that have been run, or will be when a figure needs them.
pub struct Measured<'a> {
    effort: Effort,
    directory: &'a Path,
    medium: Medium,
    cells: RefCell<HashMap<Cell, Rc<Vec<Round>>>>,
}

impl<'a> Measured<'a> {
    /// Nothing yet. Rounds go to, and come from, `directory`; `splitter` is the agent's program.
    pub fn new(effort: Effort, directory: &'a Path, splitter: PathBuf) -> Self {
        Self {
            effort,
            directory,
            medium: Medium::Packets(splitter),
            cells: RefCell::default(),
        }
    }

    /// Nothing yet, of rounds that are simulated, `jobs` at a time.
    pub fn simulated(effort: Effort, directory: &'a Path, network: Network, jobs: usize) -> Self {
        Self {
            effort,
            directory,
            medium: Medium::Simulator(network, jobs),
            cells: RefCell::default(),
        }
    }

    /// A figure; `number` is 1 to 6. It says what is lacking where it cannot be measured here.
    ///
    /// # Errors
    ///
    /// When the testbed fails.
    pub fn figure(&self, number: usize) -> Result<Figure> {
        let (id, title) = FIGURES[number - 1];
        let lacking = self.lacking();
        if !lacking.is_empty() {
            return Ok(absent(id, title, &lacking));
        }
        match number {
            1 => thresholds::figure(self),
            2 => loads::figure(self),
            3 => distributions::jitter(self),
            4 => distributions::completion(self),
            5 => attach::figure(self),
            _ => headline::figure(self),
        }
    }

    /// Returns whether packets are simulated.
    pub fn is_simulated(&self) -> bool {
        matches!(self.medium, Medium::Simulator(..))
    }

    /// Returns how much is measured.
    pub fn effort(&self) -> &Effort {
        &self.effort
    }

    /// All rounds of a cell.
    ///
    /// # Errors
    ///
    /// When the testbed fails.
    pub fn rounds(&self, cell: Cell) -> Result<Rc<Vec<Round>>> {
        if let Some(known) = self.cells.borrow().get(&cell) {
            return Ok(Rc::clone(known));
        }
        self.measure(&[cell])?;
        Ok(self.cells.borrow().get(&cell).cloned().unwrap_or_default())
    }

    /// Measures what is not known of these cells, by turns, so that what drifts on the machine falls on
    /// all alike.
    ///
    /// # Errors
    ///
    /// When the testbed fails.
    pub fn measure(&self, cells: &[Cell]) -> Result<()> {
        let is_new = |it: &&Cell| !self.cells.borrow().contains_key(it);
        let new: Vec<Cell> = cells.iter().filter(is_new).copied().collect();
        // The next round starts with another cell.
        let order = (1..=self.effort.rounds).flat_map(|seed| {
            let new = &new;
            (0..new.len()).map(move |index| (new[(index + seed as usize) % new.len()], seed))
        });
        let order: Vec<(Cell, u64)> = order.collect();
        let runs = self.directory.join("runs");
        let measured = match &self.medium {
            Medium::Packets(splitter) => {
                let runs = runs.join("splitter");
                let progress = crate::progress(order.len(), "splitter");
                let round = |&(cell, seed): &(Cell, u64)| {
                    let length = match cell.pages {
                        true => self.effort.page_length,
                        false => self.effort.length,
                    };
                    let measure = || cell::measure(&cell, length, seed, splitter);
                    progress.inc(1);
                    cell::round(&cell, length, seed, &runs, measure)
                };
                let rounds: Result<Vec<Round>> = order.iter().map(round).collect();
                progress.finish_and_clear();
                rounds?
            }
            Medium::Simulator(network, jobs) => network.rounds(&order, &runs, *jobs)?,
        };
        let mut rounds: HashMap<Cell, Vec<Round>> = HashMap::new();
        for round in measured {
            rounds.entry(round.cell).or_default().push(round);
        }
        let shared = rounds
            .into_iter()
            .map(|(cell, rounds)| (cell, Rc::new(rounds)));
        self.cells.borrow_mut().extend(shared);
        Ok(())
    }

    fn lacking(&self) -> Vec<Lacking> {
        use Requirement::*;
        let Medium::Packets(splitter) = &self.medium else {
            return Vec::new();
        };
        let programs = ["ip", "tc", "ethtool", "nft", "nginx", "curl", "mgen"];
        let mut requirements: Vec<Requirement> = programs.map(Program).into();
        requirements.extend([Root, FileSystem("bpf"), CongestionControl("cubic")]);
        let mut lacking: Vec<Lacking> = requirements
            .into_iter()
            .filter_map(|it| it.check().err())
            .collect();
        if !splitter.exists() {
            lacking.push(Lacking {
                reason: format!("lacks the agent, {}", splitter.display()),
                remedy: "build it (`cargo build --release -p splitter-agent`)".to_owned(),
            });
        }
        lacking
    }
}

/// Ids and subjects of all figures.
pub const FIGURES: [(&str, &str); 6] = [
    ("S1", "speed-up of short flows over thresholds, figure 4(a)"),
    ("S2", "speed-up of short flows over loads, figure 4(b)"),
    ("S3", "packet jitter, figure 5, rows 1 and 2"),
    ("S4", "completion times, figure 5, row 3"),
    ("S5", "what the programs add to completion times, figure 6"),
    ("S6", "headline of the abstract"),
];

/// An item that cannot be measured on this machine.
fn absent(id: &'static str, title: &'static str, lacking: &[Lacking]) -> Figure {
    let reasons: Vec<String> = lacking.iter().map(Lacking::to_string).collect();
    Figure {
        id,
        title,
        note: format!("This machine cannot measure it: {}.", reasons.join("; ")),
        checks: vec![Check::undecided("all of it", "", "", "not measured here")],
        rows: Vec::new(),
        columns: Vec::new(),
        tables: Vec::new(),
        plots: Vec::new(),
    }
}

/// The ratio of a figure of one cell's rounds to that of another's with the same seeds.
pub(crate) fn ratios(of: &[Round], to: &[Round], value: impl Fn(&Round) -> f64) -> Vec<f64> {
    let pairs = of.iter().zip(to);
    pairs
        .map(|(one, other)| value(one) / value(other))
        .collect()
}

/// The mean completion time of listings, in milliseconds.
pub(crate) fn list_mean_ms(round: &Round) -> f64 {
    Summary::new(round.list_ms.iter().copied()).mean()
}

/// What was run, and what the machine lacked.
pub(crate) fn note<'r>(rounds: impl Iterator<Item = &'r Round> + Clone) -> String {
    let mut note = "Two tunnels of 100 Mbit/s, a tenth of the paper's; listings of 5 packets by nginx and curl".to_owned();
    if rounds.clone().any(|it| it.cell.transfers) {
        note += ", videos and uploads of a hundredth of the paper's sizes";
    }
    let loaded = rounds.clone().filter(|it| it.cell.load_percent > 0);
    let off = loaded.flat_map(|it| {
        let wanted = f64::from(it.cell.load_percent);
        it.background_percent
            .map(|sent| (sent / wanted - 1.0).abs() * 100.0)
    });
    if let Some(off) = off.reduce(f64::max) {
        let _ = write!(
            note,
            ", MGEN behind the splitter, which sent what it was to within {off:.1} %"
        );
    }
    let unanswered: usize = rounds.clone().map(|it| it.unanswered).sum();
    let _ = write!(
        note,
        ". {unanswered} requests were not answered within 2 s of the end. "
    );
    note += &objections(rounds);
    note.trim_end().to_owned()
}

/// Rounds in which the machine lacked so much that it was not the tunnels alone that were measured.
fn objections<'r>(rounds: impl IntoIterator<Item = &'r Round>) -> String {
    let all: Vec<&Round> = rounds.into_iter().collect();
    let objected: Vec<&&Round> = all.iter().filter(|it| it.objection.is_some()).collect();
    let Some(first) = objected.first().and_then(|it| it.objection.as_deref()) else {
        return String::new();
    };
    let (some, all) = (objected.len(), all.len());
    format!("In {some} of {all} rounds the machine lacked something, such as: {first}.")
}
