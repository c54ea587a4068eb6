//! One sender, alone and beside one cubic flow.

use super::{
    Cell, Figures, Flow, Outcome, SECOND, World, backlog, curves, figures,
    messages as some_messages, ours, quic, run, share, tcp, through,
};
use crate::ours::Ours;

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
    let world = run(cell, duration, vec![ours(cell, 0, backlog(cell))]);
    let ours = figures_of(&world);
    let peer = figures_of(&run(cell, duration, vec![tcp(0, backlog(cell))]));
    Outcome::new(cell, ours, peer, curves(&world, &["ours"]))
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
    let (world, ours) = beside_cubic(cell, duration, ours(cell, 0, backlog(cell)));
    let (_, peer) = beside_cubic(cell, duration, tcp(0, backlog(cell)));
    Outcome::new(cell, ours, peer, curves(&world, &["ours", "cubic"]))
}

pub(super) fn messages(cell: &Cell, is_quick: bool) -> Outcome {
    let duration = length(cell, is_quick);
    let load = some_messages(cell, 0.2, duration);
    let (world, ours) = beside_cubic(cell, duration, ours(cell, 0, load.clone()));
    let (_, peer) = beside_cubic(cell, duration, quic(0, load));
    Outcome::new(cell, ours, peer, curves(&world, &["ours", "cubic"]))
}

pub(super) fn shared(cell: &Cell, is_quick: bool) -> Outcome {
    let duration = length(cell, is_quick);
    let two_paths = Ours::new(0, backlog(cell), 2);
    let (world, mut ours) = beside_cubic(cell, duration, Box::new(two_paths));
    let (_, peer) = beside_cubic(cell, duration, tcp(0, backlog(cell)));
    let ratio = ours["share"] / peer["cubic"];
    ours.insert("flows".into(), ratio);
    Outcome::new(cell, ours, peer, curves(&world, &["ours", "cubic"]))
}
