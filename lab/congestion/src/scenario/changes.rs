//! Links that change: to a tenth and back, silence, heavy loss.

use super::{
    Cell, Figures, Flow, Load, Outcome, SECOND, World, backlog, curves, figures, ours, tcp,
    through, world,
};
use crate::world::Change;

/// How long each rate lasts, in s and round trips.
const PHASE: (u64, u64) = (8, 60);
const SHORT_BYTES: usize = 1_000;
/// When heavy loss begins, and how long it lasts.
const SPELL: (u64, u64) = (5 * SECOND, 10 * SECOND);

pub(super) fn drop(cell: &Cell) -> Outcome {
    let phase = cell.settling(PHASE.0, PHASE.1);
    let (down, up, end) = (phase, 2 * phase, 3 * phase);
    let run = |flow: Box<dyn Flow>| -> (World, Figures) {
        let mut world = world(cell, end, vec![flow]);
        world.change(down, Change::Rate(cell.bits_per_s() / 10.0));
        world.change(up, Change::Rate(cell.bits_per_s()));
        world.run(end);
        let low = world.link.series.total(0, down + cell.settling(1, 12)..up);
        let back = up + cell.settling(2, 20);
        let until = (back + cell.settling(1, 5)).min(end);
        let figures = figures([
            ("loss", low.loss()),
            ("back", through(cell, &world, 0, back, until)),
        ]);
        (world, figures)
    };
    let (world, ours) = run(ours(cell, 0, backlog(cell)));
    let (_, peer) = run(tcp(0, backlog(cell)));
    Outcome::new(cell, ours, peer, curves(&world, &["ours"]))
}

pub(super) fn silent(cell: &Cell) -> Outcome {
    let end = 20 * SECOND;
    let run = |flow: Box<dyn Flow>| -> (World, Figures) {
        let mut world = world(cell, end, vec![flow]);
        world.change(0, Change::Loss(1.0));
        world.run(end);
        let mut figures = Figures::new();
        note_seconds(&world, 0, &mut figures);
        (world, figures)
    };
    let (world, ours) = run(ours(cell, 0, backlog(cell)));
    let (_, peer) = run(tcp(0, backlog(cell)));
    Outcome::new(cell, ours, peer, curves(&world, &["ours"]))
}

/// Bytes that were sent in some seconds after a time.
fn note_seconds(world: &World, from: u64, figures: &mut Figures) {
    let names = ["first", "second", "fourth", "tenth"];
    for (name, second) in names.into_iter().zip([0, 1, 3, 9]) {
        let begin = from + second * SECOND;
        let counts = world.link.series.total(0, begin..begin + SECOND);
        figures.insert(format!("{name}_second_bytes"), counts.sent_bytes as f64);
    }
}

/// A backlog of messages of one datagram each: what gets through is seen at once.
fn short_messages(cell: &Cell) -> Load {
    match backlog(cell) {
        Load::Backlog { ahead, .. } => Load::Backlog {
            message_bytes: SHORT_BYTES,
            ahead,
        },
        load @ Load::Messages(_) => load,
    }
}

pub(super) fn spell(cell: &Cell, loss: f64) -> Outcome {
    let (begin, length) = SPELL;
    let over = begin + length;
    let end = over + 10 * SECOND;
    let run = |flow: Box<dyn Flow>| -> (World, Figures) {
        let mut world = world(cell, end, vec![flow]);
        world.change(begin, Change::Loss(loss));
        world.change(over, Change::Loss(0.0));
        world.run(end);
        let mut figures = Figures::new();
        note_seconds(&world, begin, &mut figures);
        let first = world.flows[0]
            .completions()
            .iter()
            .find(|(at, _)| *at >= over);
        let recovery = first.map_or(f64::NAN, |(at, _)| (at - over) as f64 / 1e6);
        figures.insert("recovery_ms".into(), recovery);
        let last = through(cell, &world, 0, over + 5 * SECOND, end);
        figures.insert("back".into(), last);
        (world, figures)
    };
    let load = short_messages(cell);
    let (world, ours) = run(ours(cell, 0, load.clone()));
    let (_, peer) = run(tcp(0, load));
    Outcome::new(cell, ours, peer, curves(&world, &["ours"]))
}
