//! What is compared: fabrics, asymmetries, sizes of flows and loads.

use std::{fmt, path::Path};

use netsim::{SizeDistribution, SizeDistributionError};

use crate::tcp::Tcp;

/// The size of a fabric and the TCP of its hosts, which are the same in all cells of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) leaves: u8,
    pub(crate) spines: u8,
    /// Hosts at each leaf.
    pub(crate) hosts: u8,
    /// What links of spines that are not slow are shaped to, IP and Ethernet headers included.
    pub(crate) rate_mbit: u32,
    /// Bytes that the shaper of a link lets out at once after a pause.
    pub(crate) burst_bytes: u32,
    pub(crate) tcp: Tcp,
}

/// A workload whose sizes flows have, scaled to the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sizes {
    WebSearch,
    DataMining,
}

/// A class of sizes, by what a flow would have been in its workload. The bounds are TR's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeClass {
    /// Up to 100 kB.
    Short,
    /// Up to 1 MB.
    Middle,
    /// More.
    Long,
}

/// What goes wrong in the middle third of the time in which flows count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The last spine dies, and comes back.
    SpineDies,
    /// The first leaf has no link to any spine, its daemon ends and another one starts.
    LeafRestarts,
}

/// One point of the comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) shape: Shape,
    /// How many times slower the slow half of the spines is.
    pub(crate) asymmetry: f64,
    pub(crate) sizes: Sizes,
    /// The part of what a leaf's uplinks carry together that its hosts offer, from 0 to 1.
    pub(crate) load: f64,
    pub(crate) fault: Option<Fault>,
}

const ASYMMETRIES: [f64; 4] = [2.5, 1.0, 1.5, 3.5];
const LOADS: [f64; 3] = [0.6, 0.3, 0.8];
const SIZES: [Sizes; 2] = [Sizes::WebSearch, Sizes::DataMining];
/// What a quick run measures, without the shape.
const QUICK: [&str; 2] = ["-asym2.5-web_search-load0.6", "-sym-web_search-load0.6"];

impl Sizes {
    /// The name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WebSearch => "web_search",
            Self::DataMining => "data_mining",
        }
    }

    /// The sizes that TR's table 1 has.
    pub(crate) fn distribution(self) -> Result<SizeDistribution, SizeDistributionError> {
        let name = match self {
            Self::WebSearch => "web_search_tr_table1",
            Self::DataMining => "data_mining_tr_table1",
        };
        // Both are built in.
        SizeDistribution::load(name, Path::new("."))
    }

    /// What sizes are divided by, so that some hundred flows pass in ten seconds: the mean is 117 kB then, and
    /// 76 kB.
    pub(crate) fn divisor(self) -> u64 {
        match self {
            Self::WebSearch => 10,
            Self::DataMining => 100,
        }
    }
}

impl Fault {
    /// The name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SpineDies => "spine_dies",
            Self::LeafRestarts => "leaf_restarts",
        }
    }
}

impl SizeClass {
    pub(crate) const ALL: [Self; 3] = [Self::Short, Self::Middle, Self::Long];

    /// The name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Middle => "middle",
            Self::Long => "long",
        }
    }

    /// The class of a size that a workload has.
    pub(crate) fn of(bytes: u64) -> Self {
        match bytes {
            0..=100_000 => Self::Short,
            100_001..=1_000_000 => Self::Middle,
            _ => Self::Long,
        }
    }
}

impl Cell {
    /// What the links of each spine carry, in Mbit/s: the last half of the spines is the slow one.
    pub(crate) fn rates_mbit(&self) -> Vec<u32> {
        let Shape {
            spines, rate_mbit, ..
        } = self.shape;
        let slow = (f64::from(rate_mbit) / self.asymmetry).round() as u32;
        let fast = spines - spines / 2;
        (0..spines)
            .map(|it| if it < fast { rate_mbit } else { slow })
            .collect()
    }

    /// What a leaf's uplinks carry together.
    pub(crate) fn sum_mbit(&self) -> u32 {
        self.rates_mbit().iter().sum()
    }

    /// The name without the load: `2x2-asym2.5-web_search`, and `2x2-sym-web_search-spine_dies` with a fault.
    pub(crate) fn case(&self) -> String {
        let Shape { leaves, spines, .. } = self.shape;
        let asymmetry = match self.asymmetry {
            1.0 => "sym".to_owned(),
            times => format!("asym{times}"),
        };
        let case = format!("{leaves}x{spines}-{asymmetry}-{}", self.sizes.name());
        match self.fault {
            Some(fault) => format!("{case}-{}", fault.name()),
            None => case,
        }
    }
}

/// Named like `2x2-asym2.5-web_search-load0.6`.
impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-load{}", self.case(), self.load)
    }
}

/// Every cell of a fabric, in the order in which they are measured: what the goals are about first.
pub(crate) fn all(shape: Shape) -> Vec<Cell> {
    let mut cells = Vec::new();
    for sizes in SIZES {
        for load in LOADS {
            for asymmetry in ASYMMETRIES {
                cells.push(Cell {
                    shape,
                    asymmetry,
                    sizes,
                    load,
                    fault: None,
                });
            }
        }
    }
    for fault in [Fault::SpineDies, Fault::LeafRestarts] {
        cells.push(Cell {
            shape,
            asymmetry: 1.0,
            sizes: Sizes::WebSearch,
            // Half as much as one of two spines carries by itself.
            load: 0.3,
            fault: Some(fault),
        });
    }
    cells
}

/// The cells to measure: those whose name contains `name`, or else all, or few for a quick run.
pub(crate) fn chosen(shape: Shape, name: Option<&str>, quick: bool) -> Vec<Cell> {
    let mut cells = all(shape);
    cells.retain(|cell| {
        let own = cell.to_string();
        match name {
            Some(name) => own.contains(name),
            None => !quick || QUICK.iter().any(|it| own.ends_with(it)),
        }
    });
    cells
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tcp::{Control, Recovery};

    pub(crate) const SHAPE: Shape = Shape {
        leaves: 2,
        spines: 2,
        hosts: 2,
        rate_mbit: 70,
        burst_bytes: 3_100,
        tcp: Tcp {
            control: Control::Cubic,
            recovery: Recovery::Rack,
        },
    };

    #[test]
    fn every_cell_has_a_name_of_its_own_by_which_it_is_found() {
        let cells = all(SHAPE);
        assert_eq!(cells.len(), 4 * 3 * 2 + 2);
        for cell in cells {
            assert_eq!(chosen(SHAPE, Some(&cell.to_string()), false), [cell]);
        }
    }

    #[test]
    fn quick_run_has_the_cells_that_it_names_in_every_shape() {
        for leaves in 2..=4 {
            let shape = Shape { leaves, ..SHAPE };
            assert_eq!(chosen(shape, None, true).len(), QUICK.len());
        }
    }

    #[test]
    fn last_half_of_the_spines_is_the_slow_one() {
        let rates = |spines, name| {
            let shape = Shape { spines, ..SHAPE };
            chosen(shape, Some(name), false)[0].rates_mbit()
        };
        assert_eq!(rates(2, "asym3.5"), [70, 20]);
        assert_eq!(rates(3, "asym2.5"), [70, 70, 28]);
        assert_eq!(rates(4, "asym1.5"), [70, 70, 47, 47]);
        assert_eq!(rates(4, "-sym-"), [70; 4]);
        assert_eq!(chosen(SHAPE, Some("asym2.5"), false)[0].sum_mbit(), 70 + 28);
    }

    #[test]
    fn classes_are_those_of_the_size_in_the_workload() {
        assert_eq!(SizeClass::of(100_000), SizeClass::Short);
        assert_eq!(SizeClass::of(100_001), SizeClass::Middle);
        assert_eq!(SizeClass::of(1_000_001), SizeClass::Long);
    }
}
