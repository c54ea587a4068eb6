//! `C12` and `C13`: items of the list that say something about the paper, and measure nothing.

use crate::figure::Figure;

/// Cloudburst's model of the latency without and with a code (§V-A).
pub fn coding_model() -> Figure {
    note(
        "C12",
        "model of coded latency, section V-A",
        "The paper states that a code of degree d divides the expected latency by d. Its formulas cannot be read in the copies \
         that are to be had. Taken literally the claim is wrong: over a channel that loses a share p of packets, no code gets a message of n \
         packets across with fewer than n / (1 - p) of them in the mean, whatever its degree. What a code costs here is measured \
         as C2 and C7, and not by this model.",
    )
}

/// Item `C13`: the headline of Cloudburst's abstract.
pub fn headline() -> Figure {
    note(
        "C13",
        "headline of the abstract",
        "63.69 % against DCTCP and 60.06 % against PIAS are the numbers of C6, and 24 % against pFabric is that of C10: the headline \
         stands and falls with these two items, and is measured there.",
    )
}

fn note(id: &'static str, title: &'static str, note: &str) -> Figure {
    Figure {
        id,
        title,
        note: note.to_owned(),
        checks: Vec::new(),
        rows: Vec::new(),
        columns: Vec::new(),
        tables: Vec::new(),
        plots: Vec::new(),
    }
}
