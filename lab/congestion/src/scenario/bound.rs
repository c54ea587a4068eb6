//! Bounds: what must hold in a scenario, in virtual and in real time.

use super::Figures;
use crate::cell::{Cell, Scenario};

/// Loss until a sender must have found its rate, and from then on.
const MOST_EARLY_LOSS: f64 = 0.05;
const MOST_LOSS: f64 = 0.02;
const LEAST_GOODPUT: f64 = 0.85;
/// Shares of what cubic gets beside another cubic: cubic's beside us, and ours.
const LEAST_CUBIC: f64 = 0.8;
const LEAST_OURS: f64 = 0.6;
/// What cubic may lose more beside our messages than beside the same ones of another.
const MOST_LOST_TO_MESSAGES: f64 = 0.03;
/// How much more or less than one flow two paths may take.
const MOST_RATIO: f64 = 1.5;
/// Of twenty senders: Jain's index, and loss.
const LEAST_JAIN: f64 = 0.9;
const MOST_CROWD_LOSS: f64 = 0.03;
/// Of a link that falls to a tenth, and is back.
const MOST_DROP_LOSS: f64 = 0.05;
const LEAST_BACK: f64 = 0.8;
const MOST_TENTH_SECOND_BYTES: f64 = 20_000.0;
/// The p99 of incast beside the best peer's, by size in kB.
const INCAST: [(u32, f64); 3] = [(5, 1.0), (20, 0.9), (93, 0.8)];
const MOST_SHORT_RATIO: f64 = 1.1;
/// Through a queue that marks: loss once it may have found its rate, goodput, and the queue, beside cubic's with ECN.
const MOST_MARKED_LOSS: f64 = 0.001;
const LEAST_MARKED_GOODPUT: f64 = 0.8;
const MOST_MARKED_QUEUE: f64 = 1.25;
/// How much more or less than a cubic flow that heeds marks we may take there.
const MOST_MARKED_RATIO: f64 = 2.0;

impl Scenario {
    /// What must hold, in words.
    pub(crate) fn bound(self) -> &'static str {
        match self {
            Self::Alone => {
                "loss at most 5 % until max(1 s, 12 RTT), 2 % after it; goodput at least 85 %"
            }
            Self::Cubic => {
                "of what cubic gets beside cubic, it keeps at least 0.8, and we get at least 0.6"
            }
            Self::Messages => {
                "cubic gets no less than beside QUIC with the same messages, minus 3 % of the link"
            }
            Self::Twenty => "Jain's index at least 0.9, loss at most 3 %",
            Self::Shared => {
                "two paths take what one cubic flow takes beside another, within 1.5 times"
            }
            Self::Drop => {
                "at a tenth loss at most 5 % after max(1 s, 12 RTT); 80 % of the link max(2 s, 20 RTT) after it is back"
            }
            Self::Silent => "less than 20 kB in the tenth second",
            Self::Loss90 | Self::Blackout => {
                "less than 20 kB in the tenth second; a message gets through within 2 RTT + 1 s"
            }
            Self::Incast => {
                "p99 of 5, 20, 93 kB at most 1.0, 0.9, 0.8 of the better of TCP's and QUIC's"
            }
            Self::Marked => {
                "loss at most 0.1 % after max(1 s, 12 RTT), goodput at least 80 %, nine tenths of the time a queue of at most 1.25 times cubic's with ECN"
            }
            Self::Ecn => {
                "after max(1 s, 12 RTT) we get at least half of what cubic with ECN gets, and at most twice that"
            }
            Self::Short => "p99 of short TCP flows at most 1.1 times that beside QUIC",
        }
    }
}

impl Cell {
    /// Whether the bound of its scenario holds.
    pub(crate) fn holds(&self, ours: &Figures, peer: &Figures) -> bool {
        let fair = || peer["cubic"];
        match self.scenario {
            Scenario::Alone => {
                ours["early_loss"] <= MOST_EARLY_LOSS
                    && ours["loss"] <= MOST_LOSS
                    && ours["goodput"] >= LEAST_GOODPUT
            }
            Scenario::Cubic => {
                ours["cubic"] >= LEAST_CUBIC * fair() && ours["share"] >= LEAST_OURS * fair()
            }
            Scenario::Messages => ours["cubic"] >= fair() - MOST_LOST_TO_MESSAGES,
            Scenario::Twenty => ours["jain"] >= LEAST_JAIN && ours["loss"] <= MOST_CROWD_LOSS,
            Scenario::Shared => {
                let ratio = ours["share"] / fair();
                (1.0 / MOST_RATIO..=MOST_RATIO).contains(&ratio)
            }
            Scenario::Drop => ours["loss"] <= MOST_DROP_LOSS && ours["back"] >= LEAST_BACK,
            Scenario::Silent => ours["tenth_second_bytes"] < MOST_TENTH_SECOND_BYTES,
            Scenario::Loss90 | Scenario::Blackout => {
                ours["tenth_second_bytes"] < MOST_TENTH_SECOND_BYTES
                    && ours["recovery_ms"] <= 2.0 * self.rtt_ms + 1_000.0
            }
            Scenario::Incast => INCAST.iter().all(|(kilobytes, most)| {
                let best = ["tcp", "quic"].map(|it| peer[&format!("{it}_p99_ms_{kilobytes}kB")]);
                ours[&format!("p99_ms_{kilobytes}kB")] <= most * best[0].min(best[1])
            }),
            Scenario::Marked => {
                ours["loss"] <= MOST_MARKED_LOSS
                    && ours["goodput"] >= LEAST_MARKED_GOODPUT
                    && ours["queue_ms"] <= MOST_MARKED_QUEUE * peer["queue_ms"]
            }
            Scenario::Ecn => (1.0 / MOST_MARKED_RATIO..=MOST_MARKED_RATIO).contains(&ours["ratio"]),
            Scenario::Short => ours["p99_ms"] <= MOST_SHORT_RATIO * peer["p99_ms"],
        }
    }
}
