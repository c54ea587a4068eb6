//! `codec-overhead`: how many packets a message takes until it can be decoded.
//!
//! On the real wire: headers come from the crate's [`Encoder`] and go to its
//! [`Decoder`]. Symbols have one byte, so that it is the code that takes time.

use cloudburst_code::{Decoder, Encoder, PaperDegree, Received, Schedule, Shape};
use flow_report::Summary;
use rand::{Rng, RngExt};
use serde::{Serialize, Serializer};

use crate::trials;

/// Source symbols a message has.
pub const SYMBOLS: [usize; 5] = [4, 8, 16, 32, 64];

/// Loss patterns that packets meet.
pub const LOSSES: [Loss; 6] = [
    Loss::Percent(0),
    Loss::Percent(1),
    Loss::Percent(5),
    Loss::Percent(10),
    Loss::Percent(30),
    Loss::Path,
];

/// The schedules compared, with their names in tables and JSON.
pub const SCHEDULES: [(&str, Schedule); 3] = [
    ("paper", Schedule::Paper(PaperDegree::Fixed)),
    ("default", Schedule::Default),
    ("mds", Schedule::Mds),
];

/// Paths that packets take in turn.
const PATHS: u32 = 4;

/// Which packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Each with this probability in percent, independently.
    Percent(u32),
    /// All on one of four paths, which packets take in turn; which path is dead
    /// is drawn for each message.
    Path,
}

impl Serialize for Loss {
    /// A number, or `"path"`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Percent(percent) => serializer.serialize_u32(*percent),
            Self::Path => serializer.serialize_str("path"),
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Percent(percent) => write!(formatter, "{percent} %"),
            Self::Path => formatter.write_str("path"),
        }
    }
}

/// One schedule, one size, one kind of loss.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Schedule, one of [`SCHEDULES`].
    pub schedule: (&'static str, Schedule),
    /// Source symbols of a message.
    pub n: usize,
    /// Which packets are lost.
    pub loss: Loss,
}

/// All cells, in the order of the table.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for schedule in SCHEDULES {
        for n in SYMBOLS {
            cells.extend(LOSSES.map(|loss| Cell { schedule, n, loss }));
        }
    }
    cells
}

/// Overhead measured in a cell: packets sent until the message was complete, and packets received
/// above the number of source symbols.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the type's documentation names them all")]
pub struct Overhead {
    pub schedule: &'static str,
    pub n: usize,
    pub loss: Loss,
    pub sent_mean: f64,
    pub sent_p50: usize,
    pub sent_p99: usize,
    pub sent_p999: usize,
    pub excess_mean: f64,
    pub excess_p50: usize,
    pub excess_p99: usize,
    pub excess_p999: usize,
    pub trials: u64,
}

/// Excess that a schedule should not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Excess at the median.
    pub p50: usize,
    /// At the 99th percentile.
    pub p99: usize,
    /// At the 99.9th percentile, where there is a goal for it.
    pub p999: Option<usize>,
}

impl Overhead {
    /// The goal for this cell, if there is one.
    pub fn goal(&self) -> Option<Goal> {
        let (p50, p99) = match (self.schedule, self.loss) {
            ("mds", _) => {
                return Some(Goal {
                    p50: 0,
                    p99: 0,
                    p999: Some(0),
                });
            }
            ("default", Loss::Percent(0)) => (0, 0),
            ("default", Loss::Percent(1)) => (0, 3),
            ("default", Loss::Percent(5)) => (1, 6),
            ("default", Loss::Percent(30)) => (1, 7),
            _ => return None,
        };
        Some(Goal {
            p50,
            p99,
            p999: None,
        })
    }

    /// Returns whether the goal is met, if there is one.
    pub fn meets_goal(&self) -> Option<bool> {
        self.goal().map(|goal| {
            self.excess_p50 <= goal.p50
                && self.excess_p99 <= goal.p99
                && goal.p999.is_none_or(|p999| self.excess_p999 <= p999)
        })
    }
}

/// Sends `trials` messages of a cell.
pub fn measure(cell: Cell, trials: u64, seed: u64) -> Overhead {
    let (sent, received) = trials::run(
        trials,
        || (Vec::new(), Vec::new()),
        |(sent, received), trial| {
            let packets = send(cell, seed, trial);
            sent.push(packets.sent as f64);
            received.push(packets.received as f64);
        },
        |(sent, received), (more_sent, more_received)| {
            sent.extend(more_sent);
            received.extend(more_received);
        },
    );
    let [sent, received] = [sent, received].map(Summary::new);
    let sent_at = |percent| sent.percentile(percent) as usize;
    let excess = |percent| received.percentile(percent) as usize - cell.n;
    Overhead {
        schedule: cell.schedule.0,
        n: cell.n,
        loss: cell.loss,
        sent_mean: sent.mean(),
        sent_p50: sent_at(50.0),
        sent_p99: sent_at(99.0),
        sent_p999: sent_at(99.9),
        excess_mean: received.mean() - cell.n as f64,
        excess_p50: excess(50.0),
        excess_p99: excess(99.0),
        excess_p999: excess(99.9),
        trials,
    }
}

struct Packets {
    sent: usize,
    received: usize,
}

/// Sends one message. All schedules meet the same losses.
fn send(cell: Cell, seed: u64, trial: u64) -> Packets {
    const INVARIANT: &str = "messages of 1 to 64 one-byte symbols suit every schedule";
    let loss_number = match cell.loss {
        Loss::Percent(percent) => percent,
        Loss::Path => u32::MAX,
    };
    let mut random = trials::random(seed, [cell.n as u32, loss_number], trial);
    let mut message = [0; 64];
    random.fill_bytes(&mut message);
    let message = &message[..cell.n];
    // From the trial's random numbers: a count would walk in step with ids.
    let row_seed = random.random();
    let dead_path = random.random_range(0..PATHS);

    let shape = Shape::new(cell.n, 1).expect(INVARIANT);
    let encoder =
        Encoder::new(message, shape, cell.schedule.1, trial as u8, row_seed).expect(INVARIANT);
    let mut decoder = Decoder::for_shape(&shape);
    let mut datagram = [0; cloudburst_code::wire::HEADER_BYTES + 1];
    let mut received = 0;
    for sequence in 0.. {
        let lost = match cell.loss {
            Loss::Percent(percent) => random.random_range(0..100) < percent,
            Loss::Path => sequence % PATHS == dead_path,
        };
        if lost {
            continue;
        }
        received += 1;
        encoder
            .write(sequence..sequence + 1, &mut datagram)
            .expect("the buffer is one datagram");
        if decoder.receive(&datagram) == Ok(Received::Complete) {
            assert_eq!(decoder.message(), Some(message), "decoded another message");
            let sent = sequence as usize + 1;
            return Packets { sent, received };
        }
    }
    unreachable!("a message is complete long before sequence numbers end")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(name: &str, n: usize, loss: Loss) -> Cell {
        let schedule = SCHEDULES.into_iter().find(|it| it.0 == name).unwrap();
        Cell { schedule, n, loss }
    }

    #[test]
    fn fields_are_those_that_scripts_read() {
        let value = |loss| {
            let overhead = measure(cell("default", 4, loss), 10, 1);
            serde_json::to_value(overhead).unwrap()
        };
        let path = value(Loss::Path);
        let mut fields: Vec<_> = path
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        fields.sort_unstable();
        let mut expected = [
            "schedule",
            "n",
            "loss",
            "sent_mean",
            "sent_p50",
            "sent_p99",
            "sent_p999",
            "excess_mean",
            "excess_p50",
            "excess_p99",
            "excess_p999",
            "trials",
        ];
        expected.sort_unstable();
        assert_eq!(fields, expected);
        assert_eq!(path["loss"], "path");
        assert_eq!(value(Loss::Percent(5))["loss"], 5);
    }

    #[test]
    fn nothing_lost_nothing_more() {
        for (name, _) in &SCHEDULES[1..] {
            let overhead = measure(cell(name, 16, Loss::Percent(0)), 50, 1);
            assert_eq!((overhead.sent_p999, overhead.excess_mean), (16, 0.0));
            assert_eq!(overhead.meets_goal(), Some(true));
        }
    }

    #[test]
    fn a_dead_path_takes_its_share() {
        let overhead = measure(cell("mds", 64, Loss::Path), 200, 1);
        assert_eq!(overhead.excess_p999, 0);
        // The 64th packet that arrives is the 85th or 86th sent.
        assert!((85..=86).contains(&overhead.sent_p50));
        assert_eq!(measure(cell("paper", 8, Loss::Path), 9, 1).goal(), None);
    }
}
