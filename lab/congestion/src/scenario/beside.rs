//! One sender, alone and beside one cubic flow.

use super::{
    Cell, Counts, Figures, Flow, Outcome, SECOND, World, backlog, curves, figures,
    messages as some_messages, ours, percentile, quic, run, share, tcp, tcp_with_ecn, through,
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

/// Alone through a queue that marks, beside cubic with ECN in its place.
pub(super) fn marked(cell: &Cell, is_quick: bool) -> Outcome {
    let settled = cell.settling(1, 12);
    let duration = settled + length(cell, is_quick);
    let figures_of = |world: &World| -> Figures {
        let series = &world.link.series;
        let [early, late] = [0..settled, settled..duration].map(|span| series.total(0, span));
        let queue = percentile(series.queues(settled..duration), 0.9);
        figures([
            ("early_loss", early.loss()),
            ("loss", late.loss()),
            ("marked", late.marked as f64 / late.sent.max(1) as f64),
            (
                "goodput",
                share(cell, late.goodput_bytes, settled, duration),
            ),
            ("queue_ms", queue * 8e3 / cell.bits_per_s()),
        ])
    };
    let world = run(cell, duration, vec![ours(cell, 0, backlog(cell))]);
    let ours = figures_of(&world);
    let cubic = tcp_with_ecn(0, backlog(cell));
    let peer = figures_of(&run(cell, duration, vec![cubic]));
    Outcome::new(cell, ours, peer, curves(&world, &["ours"]))
}

/// Beside cubic with ECN through a queue that marks, and another cubic with ECN in our place.
pub(super) fn ecn(cell: &Cell, is_quick: bool) -> Outcome {
    let settled = cell.settling(1, 12);
    let duration = settled + length(cell, is_quick);
    let beside = |flow: Box<dyn Flow>| -> (World, Figures) {
        let world = run(cell, duration, vec![flow, tcp_with_ecn(1, backlog(cell))]);
        let late = settled..duration;
        let [own, cubic] = [0, 1].map(|flow| world.link.series.total(flow, late.clone()));
        let [share, others] = [0, 1].map(|flow| through(cell, &world, flow, settled, duration));
        let marked = |counts: &Counts| counts.marked as f64 / counts.sent.max(1) as f64;
        let queue = percentile(world.link.series.queues(late.clone()), 0.9);
        let figures = figures([
            ("share", share),
            ("cubic", others),
            ("ratio", share / others),
            ("loss", own.loss()),
            ("cubic_loss", cubic.loss()),
            ("marked", marked(&own)),
            ("cubic_marked", marked(&cubic)),
            ("queue_ms", queue * 8e3 / cell.bits_per_s()),
        ]);
        (world, figures)
    };
    let (world, ours) = beside(ours(cell, 0, backlog(cell)));
    let (_, peer) = beside(tcp_with_ecn(0, backlog(cell)));
    Outcome::new(cell, ours, peer, curves(&world, &["ours", "cubic"]))
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
