//! What is written down: a row for each run, and what the runs of a scheme in a cell come to together.

use flow_report::{Median, Table};
use flow_testbed::{campaign::Skip, parallel::Direction};
use serde::{Deserialize, Serialize};

use crate::{cell::Cell, measurement::Outcome, scheme::Scheme};

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The tunnels, by their rates: `30+8`.
    pub(crate) case: String,
    pub(crate) scheme: String,
    /// Decides which packets are lost, how late each is, and when short flows start.
    pub(crate) seed: u64,
    /// Transfers at the same time.
    pub(crate) flows: u32,
    /// The direction of their data.
    pub(crate) direction: Direction,
    /// The part of the packets that each tunnel loses, from 0 to 1.
    pub(crate) loss: f64,
    /// How far a packet's delay may lie from its tunnel's.
    pub(crate) jitter_ms: u32,
    /// Payload that arrived, all transfers together.
    pub(crate) goodput_mbit: f64,
    /// That by the sum of all tunnels' rates: at most 0.965, for headers take the rest.
    pub(crate) share_of_sum: f64,
    /// Round trips as the senders smooth them, ten times a second.
    pub(crate) rtt_p50_ms: f64,
    pub(crate) rtt_p99_ms: f64,
    /// Packets with data that arrived while it counted.
    pub(crate) packets: u64,
    /// The part of them that a later one had overtaken, from 0 to 1.
    pub(crate) out_of_order: f64,
    /// The number of the tunnel that is cut in mid-transfer, from 0 on.
    pub(crate) cut: Option<u8>,
    /// The longest time without a packet with data while it counted.
    pub(crate) longest_stall_ms: f64,
    /// Segments sent again although they had arrived.
    pub(crate) spurious_retransmits: u64,
    /// Segments sent again.
    pub(crate) retransmits: u64,
    /// Segments that the receiver dropped for an old timestamp, and acknowledgements that the sender dropped.
    pub(crate) paws: u64,
    pub(crate) paws_at_sender: u64,
    /// Retransmission timeouts, and those found to have been needless.
    pub(crate) timeouts: u64,
    pub(crate) spurious_timeouts: u64,
    /// The mean completion time of short flows beside.
    pub(crate) short_mean_ms: Option<f64>,
}

impl Row {
    pub(crate) fn new(cell: &Cell, scheme: Scheme, seed: u64, outcome: &Outcome) -> Self {
        let Outcome {
            noted,
            arrivals,
            tcp,
            short_mean_ms,
        } = outcome;
        Self {
            case: cell.case.name.to_owned(),
            scheme: scheme.name().to_owned(),
            seed,
            flows: cell.flows,
            direction: cell.direction,
            loss: cell.loss(),
            jitter_ms: cell.jitter_ms,
            goodput_mbit: noted.goodput_mbit,
            share_of_sum: noted.goodput_mbit / f64::from(cell.case.sum_mbit()),
            rtt_p50_ms: noted.rtt_p50_ms,
            rtt_p99_ms: noted.rtt_p99_ms,
            packets: arrivals.packets,
            out_of_order: arrivals.late_part(),
            cut: cell.cut,
            longest_stall_ms: arrivals.longest_stall.as_secs_f64() * 1e3,
            spurious_retransmits: tcp.spurious_retransmits,
            retransmits: tcp.retransmits,
            paws: tcp.paws,
            paws_at_sender: tcp.paws_at_sender,
            timeouts: tcp.timeouts,
            spurious_timeouts: tcp.spurious_timeouts,
            short_mean_ms: *short_mean_ms,
        }
    }

    fn is_of(&self, cell: &Cell, scheme: &str) -> bool {
        self.scheme == scheme
            && self.case == cell.case.name
            && self.flows == cell.flows
            && self.direction == cell.direction
            && self.loss == cell.loss()
            && self.jitter_ms == cell.jitter_ms
            && self.cut == cell.cut
    }
}

/// A line for each scheme of each cell: medians over the seeds, with the least and the greatest, or that it was
/// not available.
pub(crate) fn table(cells: &[Cell], rows: &[Row], skips: &[Skip]) -> Table {
    let mut table = Table::new([
        "cell",
        "scheme",
        "share of sum",
        "of best single",
        "RTT p50 ms",
        "RTT p99 ms",
        "out of order %",
        "sent again %",
        "needlessly %",
        "PAWS",
        "timeouts",
        "stall ms",
        "short ms",
    ]);
    for cell in cells {
        for scheme in Scheme::ALL.map(Scheme::name) {
            let of = |scheme: &'static str| rows.iter().filter(move |it| it.is_of(cell, scheme));
            if of(scheme).next().is_some() {
                let rows: Vec<_> = of(scheme).collect();
                table.row(line(cell, scheme, &rows, of("best_single")));
            } else if skips.iter().any(|it| is_of(it, cell, scheme)) {
                table.row(unavailable(cell, scheme));
            }
        }
    }
    table
}

fn is_of(skip: &Skip, cell: &Cell, scheme: &str) -> bool {
    skip.case == cell.case.name && skip.scheme == scheme
}

fn unavailable(cell: &Cell, scheme: &str) -> [String; 13] {
    let mut line = std::array::from_fn(|_| "-".to_owned());
    line[0] = cell.to_string();
    line[1] = scheme.to_owned();
    line[2] = "not available".to_owned();
    line
}

fn line<'a>(
    cell: &Cell,
    scheme: &str,
    rows: &[&Row],
    best: impl Iterator<Item = &'a Row>,
) -> [String; 13] {
    let text = |digits, figure: &dyn Fn(&Row) -> f64| {
        Median::of(rows.iter().map(|it| figure(it)))
            .map_or_else(String::new, |it| it.to_text(digits))
    };
    let percent = |count: u64, row: &Row| count as f64 / row.packets.max(1) as f64 * 100.0;
    // Runs with the same seed had the same losses, and followed each other.
    let best: Vec<_> = best.collect();
    let ratios = rows.iter().filter_map(|row| {
        let best = best.iter().find(|it| it.seed == row.seed)?;
        Some(row.goodput_mbit / best.goodput_mbit)
    });
    let ratio = Median::of(ratios).map_or_else(|| "-".to_owned(), |it| it.to_text(2));
    let short = Median::of(rows.iter().filter_map(|it| it.short_mean_ms));
    [
        cell.to_string(),
        scheme.to_owned(),
        text(3, &|it| it.share_of_sum),
        ratio,
        text(1, &|it| it.rtt_p50_ms),
        text(1, &|it| it.rtt_p99_ms),
        text(3, &|it| it.out_of_order * 100.0),
        text(3, &|it| percent(it.retransmits, it)),
        text(3, &|it| percent(it.spurious_retransmits, it)),
        text(0, &|it| it.paws as f64),
        text(0, &|it| it.timeouts as f64),
        text(0, &|it| it.longest_stall_ms),
        short.map_or_else(|| "-".to_owned(), |it| it.to_text(1)),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use flow_testbed::order::Arrivals;

    use super::*;
    use crate::{bulk::Noted, cell, measurement::TcpEvents};

    /// A row of the first cell of a name, with a goodput.
    pub(crate) fn row(cell: &str, scheme: Scheme, seed: u64, goodput_mbit: f64) -> Row {
        let cell = cell::chosen(Some(cell), false)[0];
        let outcome = Outcome {
            noted: Noted {
                goodput_mbit,
                rtt_p50_ms: 40.0,
                rtt_p99_ms: 50.0,
            },
            arrivals: Arrivals {
                packets: 2000,
                out_of_order: 1,
                longest_stall: Duration::from_millis(250),
            },
            tcp: TcpEvents {
                retransmits: 20,
                spurious_retransmits: 2,
                ..TcpEvents::default()
            },
            short_mean_ms: Some(60.0),
        };
        Row::new(&cell, scheme, seed, &outcome)
    }

    #[test]
    fn shares_loss_and_order_are_fractions() {
        let row = row("30+8-f4-down-loss0.5-jitter1", Scheme::EcmpFlow, 3, 19.0);
        assert_eq!((row.share_of_sum, row.loss), (0.5, 0.005));
        assert_eq!((row.out_of_order, row.spurious_retransmits), (0.0005, 2));
        assert_eq!((row.longest_stall_ms, row.cut), (250.0, None));
        let json = serde_json::to_value(&row).expect("plain data");
        assert_eq!(
            (&json["direction"], &json["seed"]),
            (&"down".into(), &3.into())
        );
        assert_eq!((&json["flows"], &json["jitter_ms"]), (&4.into(), &1.into()));
    }

    #[test]
    fn table_compares_with_the_best_single_tunnel_seed_by_seed() {
        let name = "30+8-f1-up-loss0-jitter0";
        let rows = [
            row(name, Scheme::BestSingle, 1, 20.0),
            row(name, Scheme::EcmpPacket, 1, 10.0),
            row(name, Scheme::BestSingle, 2, 10.0),
            row(name, Scheme::EcmpPacket, 2, 20.0),
            row(name, Scheme::EcmpPacket, 3, 99.0),
            row("30+8-f1-up-loss0-jitter1", Scheme::EcmpPacket, 1, 1.0),
        ];
        let text = table(&cell::chosen(Some(name), false), &rows, &[]).to_text();
        assert!(text.contains("1.25 [0.50, 2.00]"), "{text}");
        assert!(text.contains("0.526 [0.263, 2.605]"), "{text}");
        assert!(text.contains("0.050") && text.contains("1.000") && text.contains("0.100"));
        assert!(!text.contains("jitter1"), "{text}");
    }

    #[test]
    fn scheme_that_is_not_available_has_a_line_that_says_so() {
        let name = "30+8-f1-up-loss0-jitter0";
        let skip = |case: &str, scheme| Skip {
            case: case.to_owned(),
            scheme,
            reason: String::new(),
        };
        let rows = [row(name, Scheme::BestSingle, 1, 20.0)];
        let skips = [skip("30+8", "mptcp"), skip("20+20", "tr_paper")];
        let text = table(&cell::chosen(Some(name), false), &rows, &skips).to_text();
        let lines: Vec<_> = text.lines().filter(|it| it.contains("not avail")).collect();
        assert_eq!(lines.len(), 1, "{text}");
        assert!(lines[0].contains("mptcp"), "{text}");
    }
}
