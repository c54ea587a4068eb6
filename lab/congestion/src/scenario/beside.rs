//! One sender, alone and beside one cubic flow.

use super::{
    Cell, Figures, Flow, Outcome, SECOND, World, backlog, curves, figures,
    messages as some_messages, ours, quic, run, share, tcp, through,
};
use crate::{cell::Scenario, ours::Ours, scenario::TransportConfig};

/// Loss until a sender must have found its rate, and from then on.
const MOST_EARLY_LOSS: f64 = 0.05;
const MOST_LOSS: f64 = 0.02;
const LEAST_GOODPUT: f64 = 0.85;
/// Shares of what cubic gets beside another cubic: cubic's beside us, and ours.
const LEAST_CUBIC: f64 = 0.8;
const LEAST_OURS: f64 = 0.6;
/// What cubic may lose more beside our messages than beside the same ones over QUIC.
const MOST_LOST_TO_MESSAGES: f64 = 0.03;
const MOST_RATIO: f64 = 1.5;

/// A bound that holds in virtual and in real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Alone,
    Cubic,
}

impl Bound {
    /// The bound of a scenario; of those that have another, the one of a sender alone.
    pub(crate) fn of(scenario: Scenario) -> Self {
        match scenario {
            Scenario::Cubic => Self::Cubic,
            _ => Self::Alone,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Alone => {
                "loss at most 5 % until max(1 s, 12 RTT), 2 % after it; goodput at least 85 %"
            }
            Self::Cubic => {
                "of what cubic gets beside cubic, it keeps at least 0.8, and we get at least 0.6"
            }
        }
    }

    pub(crate) fn holds(self, ours: &Figures, peer: &Figures) -> bool {
        match self {
            Self::Alone => {
                ours["early_loss"] <= MOST_EARLY_LOSS
                    && ours["loss"] <= MOST_LOSS
                    && ours["goodput"] >= LEAST_GOODPUT
            }
            Self::Cubic => {
                let fair = peer["cubic"];
                ours["cubic"] >= LEAST_CUBIC * fair && ours["share"] >= LEAST_OURS * fair
            }
        }
    }
}

pub(super) fn alone(cell: &Cell, is_quick: bool) -> Outcome {
    let settled = cell.settling(1, 12);
    let bytes_ns = (50e6 * 8e9 / cell.bits_per_s()) as u64;
    let duration = if is_quick {
        settled + 10 * SECOND
    } else {
        bytes_ns.max(30 * SECOND)
    };
    let figures_of = |world: &World| -> Figures {
        let [early, late] =
            [0..settled, settled..duration].map(|span| world.link.series.total(0, span));
        let goodput = share(cell, late.goodput_bytes, settled, duration);
        figures([
            ("early_loss", early.loss()),
            ("loss", late.loss()),
            ("goodput", goodput),
            ("through", through(cell, world, 0, settled, duration)),
        ])
    };
    let world = run(cell, duration, vec![ours(0, backlog(cell))]);
    let ours = figures_of(&world);
    let peer = figures_of(&run(cell, duration, vec![tcp(0, backlog(cell))]));
    let holds = Bound::Alone.holds(&ours, &peer);
    Outcome {
        ours,
        peer,
        bound: Bound::Alone.text().into(),
        holds,
        curves: curves(&world, &["ours"]),
    }
}

/// Shares of the link that flow 0 and a cubic flow get.
fn beside_cubic(cell: &Cell, duration: u64, flow: Box<dyn Flow>) -> (World, Figures) {
    let world = run(cell, duration, vec![flow, tcp(1, backlog(cell))]);
    let counts = world.link.series.total(0, 0..duration);
    let figures = figures([
        ("share", through(cell, &world, 0, 0, duration)),
        ("cubic", through(cell, &world, 1, 0, duration)),
        ("loss", counts.loss()),
    ]);
    (world, figures)
}

fn length(cell: &Cell, is_quick: bool) -> u64 {
    if is_quick && cell.rate_mbit > 100.0 {
        10 * SECOND
    } else {
        30 * SECOND
    }
}

pub(super) fn cubic(cell: &Cell, is_quick: bool) -> Outcome {
    let duration = length(cell, is_quick);
    let (world, ours) = beside_cubic(cell, duration, ours(0, backlog(cell)));
    let (_, peer) = beside_cubic(cell, duration, tcp(0, backlog(cell)));
    let holds = Bound::Cubic.holds(&ours, &peer);
    Outcome {
        ours,
        peer,
        bound: Bound::Cubic.text().into(),
        holds,
        curves: curves(&world, &["ours", "cubic"]),
    }
}

pub(super) fn messages(cell: &Cell, is_quick: bool) -> Outcome {
    let duration = length(cell, is_quick);
    let load = some_messages(cell, 0.2, duration);
    let (world, ours) = beside_cubic(cell, duration, ours(0, load.clone()));
    let (_, peer) = beside_cubic(cell, duration, quic(0, load));
    let holds = ours["cubic"] >= peer["cubic"] - MOST_LOST_TO_MESSAGES;
    Outcome {
        ours,
        peer,
        bound: "cubic gets no less than beside QUIC with the same messages, minus 3 % of the link"
            .into(),
        holds,
        curves: curves(&world, &["ours", "cubic"]),
    }
}

pub(super) fn shared(cell: &Cell, is_quick: bool) -> Outcome {
    let duration = length(cell, is_quick);
    let two_paths = Ours::new(0, backlog(cell), 2, &TransportConfig::default());
    let (world, mut ours) = beside_cubic(cell, duration, Box::new(two_paths));
    let (_, peer) = beside_cubic(cell, duration, tcp(0, backlog(cell)));
    let ratio = ours["share"] / peer["cubic"];
    ours.insert("flows".into(), ratio);
    let holds = (1.0 / MOST_RATIO..=MOST_RATIO).contains(&ratio);
    Outcome {
        ours,
        peer,
        bound: "two paths take what one cubic flow takes beside another, within 1.5 times".into(),
        holds,
        curves: curves(&world, &["ours", "cubic"]),
    }
}
