//! Many flows at once: twenty senders, incast, short flows.

use super::{
    Cell, Curves, Figures, Flow, Load, MESSAGE_SIZES, Outcome, Random, SECOND, World, backlog,
    curves, figures, jain, ours, percentile, quic, run, tcp,
};

const SENDERS: usize = 20;
const INCAST_SENDERS: usize = 8;
/// From one round of incast to the next, at least: so long, so many times what the link takes for the round,
/// and so many round trips.
const LEAST_GAP: u64 = 20_000_000;
const GAP_LOADS: f64 = 3.0;
const GAP_ROUND_TRIPS: u64 = 4;
/// Short flows: bytes of each, and their share of the link.
const SHORT_BYTES: usize = 20_000;
const SHORT_SHARE: f64 = 0.1;

pub(super) fn twenty(cell: &Cell, is_quick: bool) -> Outcome {
    let duration = if is_quick { 20 * SECOND } else { 60 * SECOND };
    let from = duration / 3;
    let figures_of = |world: &World| -> Figures {
        let totals = (0..SENDERS).map(|flow| world.link.series.total(flow, from..duration));
        let totals: Vec<_> = totals.collect();
        let rates: Vec<f64> = totals.iter().map(|it| it.through_bytes as f64).collect();
        let sum: f64 = rates.iter().sum();
        let sent: u64 = totals.iter().map(|it| it.sent).sum();
        let dropped: u64 = totals.iter().map(|it| it.dropped).sum();
        figures([
            ("jain", jain(&rates)),
            ("loss", dropped as f64 / sent.max(1) as f64),
            (
                "through",
                sum * 8e9 / (cell.bits_per_s() * (duration - from) as f64),
            ),
        ])
    };
    let all = |of: &dyn Fn(usize, Load) -> Box<dyn Flow>| -> World {
        let flows = (0..SENDERS).map(|flow| of(flow, backlog(cell)));
        run(cell, duration, flows.collect())
    };
    let world = all(&|flow, load| ours(cell, flow, load));
    let ours = figures_of(&world);
    let peer = figures_of(&all(&tcp));
    Outcome::new(
        cell,
        ours,
        peer,
        curves(&world, &["first", "second", "third"]),
    )
}

pub(super) fn incast(cell: &Cell, is_quick: bool) -> Outcome {
    let rounds = if is_quick { 150 } else { 1_000 };
    let (mut all_ours, mut all_peers) = (Figures::new(), Figures::new());
    let mut shown = Curves::default();
    for bytes in MESSAGE_SIZES {
        let gap = incast_gap(cell, bytes);
        let duration = rounds * gap + SECOND;
        let load = Load::Messages((1..=rounds).map(|round| (round * gap, bytes)).collect());
        let mut all = |of: &dyn Fn(usize, Load) -> Box<dyn Flow>| {
            let flows = (0..INCAST_SENDERS).map(|flow| of(flow, load.clone()));
            let world = run(cell, duration, flows.collect());
            let times = world.flows.iter().flat_map(|flow| flow.completions());
            let p99 = percentile(times.map(|(_, ms)| *ms).collect(), 0.99);
            let totals = (0..INCAST_SENDERS).map(|flow| world.link.series.total(flow, 0..duration));
            let (sent, dropped) = totals.fold((0, 0), |(sent, dropped), it| {
                (sent + it.sent, dropped + it.dropped)
            });
            shown = curves(&world, &["first", "second"]);
            (p99, dropped as f64 / sent.max(1) as f64)
        };
        let (tcp, tcp_loss) = all(&tcp);
        let (quic, quic_loss) = all(&quic);
        let (ours, loss) = all(&|flow, load| ours(cell, flow, load));
        let kilobytes = bytes / 1_000;
        let name = |what: &str| format!("{what}_{kilobytes}kB");
        all_ours.extend([(name("p99_ms"), ours), (name("loss"), loss)]);
        all_peers.extend([
            // What no sender can be below: the link carries nothing but the messages.
            (
                name("least_ms"),
                load_ns(cell, bytes) / 1e6 + cell.rtt_ms / 2.0,
            ),
            (name("tcp_p99_ms"), tcp),
            (name("quic_p99_ms"), quic),
            (name("tcp_loss"), tcp_loss),
            (name("quic_loss"), quic_loss),
        ]);
    }
    Outcome::new(cell, all_ours, all_peers, shown)
}

/// How long the link takes for a round of incast.
fn load_ns(cell: &Cell, bytes: usize) -> f64 {
    (INCAST_SENDERS * bytes) as f64 * 8e9 / cell.bits_per_s()
}

/// From one round to the next: before it is over, whatever was sent has got through.
fn incast_gap(cell: &Cell, bytes: usize) -> u64 {
    LEAST_GAP
        .max((GAP_LOADS * load_ns(cell, bytes)) as u64)
        .max(GAP_ROUND_TRIPS * cell.rtt_ns())
}

pub(super) fn short(cell: &Cell, is_quick: bool) -> Outcome {
    let duration = if is_quick { 60 * SECOND } else { 200 * SECOND };
    let mut random = Random::new(5);
    let mut starts = Vec::new();
    let mut at = SECOND as f64;
    let gap = SHORT_BYTES as f64 * 8e9 / (cell.bits_per_s() * SHORT_SHARE);
    while at < (duration - 2 * SECOND) as f64 {
        at += random.exponential() * gap;
        starts.push(at as u64);
    }
    let figures_of = |long: Box<dyn Flow>| -> (World, Figures) {
        let mut flows = vec![long];
        for start in &starts {
            let load = Load::Messages(vec![(*start, SHORT_BYTES)]);
            flows.push(tcp(flows.len(), load));
        }
        let world = run(cell, duration, flows);
        let times = world.flows[1..].iter().flat_map(|flow| flow.completions());
        let times: Vec<f64> = times.map(|(_, ms)| *ms).collect();
        let figures = figures([
            ("p50_ms", percentile(times.clone(), 0.5)),
            ("p99_ms", percentile(times, 0.99)),
            ("share", super::through(cell, &world, 0, 0, duration)),
        ]);
        (world, figures)
    };
    let (world, ours) = figures_of(ours(cell, 0, backlog(cell)));
    let (_, peer) = figures_of(quic(0, backlog(cell)));
    Outcome::new(cell, ours, peer, curves(&world, &["ours"]))
}
