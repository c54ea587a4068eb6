//! The grid of schemes and loads that `S2`, `S3`, `S4` and `S6` are read from.

use std::rc::Rc;

use anyhow::Result;
use flow_report::{Plot, Series, Table};

use super::{
    Measured,
    cell::{Cell, Mode, Round},
    note, ratios,
};
use crate::figure::Figure;

/// Loads of the paper, in percent of both tunnels.
pub const LOADS: [u32; 4] = [10, 20, 30, 40];

/// Schemes of the splitter with the baselines that they are set against.
pub const PAIRS: [(Mode, Mode); 4] = [
    (Mode::Dedicated, Mode::EcmpFlow),
    (Mode::Dedicated, Mode::EcmpPacket),
    (Mode::Share, Mode::EcmpFlow),
    (Mode::Share, Mode::EcmpPacket),
];

/// All rounds of the grid.
pub struct Grid {
    cells: Vec<(Cell, Rc<Vec<Round>>)>,
}

impl Grid {
    /// Measures what of it is not known: all of it, or with less effort the paper's solution against
    /// its baseline, and the others under the highest load alone.
    ///
    /// # Errors
    ///
    /// When the testbed fails.
    pub fn measure(measured: &Measured<'_>) -> Result<Self> {
        let everything = measured.effort().everything;
        let modes = |load: u32| {
            let others = [Mode::EcmpPacket, Mode::Share].into_iter();
            let chosen = [Mode::EcmpFlow, Mode::Dedicated].into_iter();
            chosen.chain(others.filter(move |_| everything || load == 40))
        };
        let cells = LOADS.into_iter();
        let cells: Vec<Cell> = cells
            .flat_map(|load| modes(load).map(move |mode| Cell::new(mode, load)))
            .collect();
        measured.measure(&cells)?;
        let rounds = cells.into_iter().map(|it| Ok((it, measured.rounds(it)?)));
        Ok(Self {
            cells: rounds.collect::<Result<_>>()?,
        })
    }

    /// The rounds of a cell, if the grid has it.
    pub fn rounds(&self, mode: Mode, load_percent: u32) -> Option<&[Round]> {
        let is_it = |cell: &Cell| cell.mode == mode && cell.load_percent == load_percent;
        let found = self.cells.iter().find(|(cell, _)| is_it(cell))?;
        Some(found.1.as_slice())
    }

    /// Goes through all rounds.
    pub fn all(&self) -> impl Iterator<Item = &Round> + Clone {
        self.cells.iter().flat_map(|(_, rounds)| rounds.iter())
    }

    /// The ratio of the splitter's value to the baseline's in each round.
    pub fn ratios(
        &self,
        (splitter, baseline): (Mode, Mode),
        load_percent: u32,
        value: impl Fn(&Round) -> f64,
    ) -> Option<Vec<f64>> {
        let of = self.rounds(splitter, load_percent)?;
        let to = self.rounds(baseline, load_percent)?;
        Some(ratios(of, to, value))
    }

    /// A figure of the grid, with the note of its rounds, and without rows and checks.
    pub(super) fn figure(
        &self,
        (id, title): (&'static str, &'static str),
        columns: &[&'static str],
        table: Table,
        plots: Vec<Plot>,
    ) -> Figure {
        Figure {
            id,
            title,
            note: note(self.all()),
            checks: Vec::new(),
            rows: Vec::new(),
            columns: columns.to_vec(),
            tables: vec![table],
            plots,
        }
    }

    /// A value over all rounds of a cell together.
    pub fn pooled(&self, mode: Mode, load: u32, values: fn(&Round) -> &[f64]) -> Vec<f64> {
        let rounds = self.rounds(mode, load).unwrap_or_default();
        rounds.iter().flat_map(values).copied().collect()
    }
}

/// A probability density as shares of values in intervals of equal ratios, ten to a decade.
pub fn density(name: &str, values: &[f64]) -> Series {
    const TO_A_DECADE: f64 = 10.0;
    let place = |value: f64| (value.log10() * TO_A_DECADE).floor();
    let positive: Vec<f64> = values.iter().copied().filter(|it| *it > 0.0).collect();
    let low = positive
        .iter()
        .copied()
        .map(place)
        .fold(f64::INFINITY, f64::min);
    let high = positive
        .iter()
        .copied()
        .map(place)
        .fold(f64::NEG_INFINITY, f64::max);
    let mut points = Vec::new();
    let mut at = low;
    while at <= high {
        let within = positive.iter().filter(|it| place(**it) == at).count();
        points.push((
            10f64.powf((at + 0.5) / TO_A_DECADE),
            within as f64 / positive.len() as f64,
        ));
        at += 1.0;
    }
    Series::line(name, points)
}
