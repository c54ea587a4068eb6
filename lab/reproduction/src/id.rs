//! Names of the papers' items.

use std::str::FromStr;

use crate::splitter;

/// An item that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    /// All items of the papers.
    All,
    /// The splitter's, `S1` to `S6`.
    Splitter(usize),
    /// Cloudburst's, `C1` to `C13`.
    Cloudburst(usize),
    /// TR's items, `T1` to `T16`.
    Tr(usize),
    /// The grid of what is varied of Cloudburst's testbed, which is no item of the paper.
    Grid,
    /// The splitter's items in the simulator, which are no items of the paper of their own.
    Wan,
}

impl Id {
    /// All items of the papers, in their order.
    pub fn figures() -> impl Iterator<Item = Self> {
        let splitter = (1..=splitter::FIGURES.len()).map(Self::Splitter);
        let cloudburst = (1..=13).map(Self::Cloudburst);
        splitter.chain(cloudburst).chain((1..=16).map(Self::Tr))
    }

    /// Tells if the item is of runs of the simulator that take settings (`--set`).
    pub fn takes_settings(self) -> bool {
        matches!(
            self,
            Self::Cloudburst(4..=11) | Self::Tr(1..=14 | 16) | Self::Grid
        )
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.to_ascii_uppercase();
        let found = Self::figures()
            .chain([Self::All, Self::Grid, Self::Wan])
            .find(|it| it.to_string().to_ascii_uppercase() == upper);
        found.ok_or_else(|| {
            let names: Vec<String> = Self::figures().map(|it| it.to_string()).collect();
            format!(
                "there is no such figure; known are all, grid, wan, {}",
                names.join(", ")
            )
        })
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => formatter.write_str("all"),
            Self::Grid => formatter.write_str("grid"),
            Self::Wan => formatter.write_str("wan"),
            Self::Splitter(number) => write!(formatter, "S{number}"),
            Self::Cloudburst(number) => write!(formatter, "C{number}"),
            Self::Tr(number) => write!(formatter, "T{number}"),
        }
    }
}

/// Lists what is asked for, in the order of the papers; the grid and the simulated WAN only by their names.
pub fn chosen(ids: &[Id]) -> impl Iterator<Item = Id> {
    let all = ids.is_empty() || ids.contains(&Id::All);
    let figures = Id::figures().filter(move |it| all || ids.contains(it));
    let others = [Id::Grid, Id::Wan].into_iter();
    figures.chain(others.filter(|it| ids.contains(it)))
}
