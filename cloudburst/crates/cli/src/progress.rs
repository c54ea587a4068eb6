//! Progress of a command that takes its time: for people on a terminal, and for programs as lines of
//! JSON.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use clap::ValueEnum;
use cloudburst::{BusyAnswers, Health, PathReport};
use flow_cli::{print_json, print_json_line};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior};

/// How a command tells of its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    /// For people, if standard error is a terminal and there is no --json.
    #[default]
    Auto,
    /// For programs: a JSON object a second on standard output, each on a line, and the result of
    /// --json on the last one.
    Json,
}

/// Ticks once a second from now on; a second that was missed is not made up for.
pub(crate) async fn seconds() -> Interval {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    seconds.tick().await;
    seconds
}

/// A time in seconds, with the milliseconds behind the point.
pub(crate) fn in_seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1e3
}

/// Bits a second, without those behind the point.
pub(crate) fn bits_per_s(bytes: u64, time: Duration) -> u64 {
    (bytes as f64 * 8.0 / time.as_secs_f64()).round() as u64
}

/// How a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    /// One JSON object at the end.
    Json,
    /// JSON objects, one a line.
    JsonLines,
}

impl Output {
    pub(crate) fn new(as_json: bool, progress: Progress) -> Self {
        match progress {
            Progress::Json => Self::JsonLines,
            Progress::Auto if as_json => Self::Json,
            Progress::Auto => Self::Text,
        }
    }

    pub(crate) fn is_json(self) -> bool {
        self != Self::Text
    }

    /// Prints a result.
    pub(crate) fn print(self, result: &Value) -> anyhow::Result<()> {
        match self {
            Self::JsonLines => print_json_line(result),
            Self::Json | Self::Text => print_json(result),
        }
    }

    /// Prints what has been done so far, if programs are to hear of it.
    pub(crate) fn print_progress(self, progress: &Value) -> anyhow::Result<()> {
        match self {
            Self::JsonLines => print_json_line(&json!({ "progress": progress })),
            Self::Json | Self::Text => Ok(()),
        }
    }

    /// A bar for people, if any see it.
    pub(crate) fn bar(self, total: Option<u64>, style: &str) -> ProgressBar {
        if self.is_json() || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        match ProgressStyle::with_template(style) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

/// What is known of the paths to a peer, in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PathTotals {
    good: u64,
    dead: u64,
    unknown: u64,
    /// The share of what goes by good paths that is lost, each as far as it is used.
    loss: f64,
}

impl PathTotals {
    pub(crate) fn of(paths: &[PathReport]) -> Self {
        let mut totals = Self::default();
        let (mut sent, mut lost) = (0, 0.0);
        for path in paths {
            match path.health {
                Health::Good => totals.good += 1,
                Health::Dead => totals.dead += 1,
                _ => totals.unknown += 1,
            }
            if path.health == Health::Good {
                sent += path.sent;
                lost += path.loss * path.sent as f64;
            }
        }
        totals.loss = lost / (sent as f64).max(1.0);
        totals
    }

    /// Adds what programs read of it.
    pub(crate) fn add_to(self, progress: &mut Value) {
        progress["loss"] = self.loss.into();
        progress["paths"] = json!({
            "good": self.good,
            "dead": self.dead,
            "unknown": self.unknown,
        });
    }

    /// `16 paths, 0.3 % lost`
    pub(crate) fn words(self) -> String {
        let paths = if self.good == 1 { "path" } else { "paths" };
        format!("{} {paths}, {:.1} % lost", self.good, self.loss * 100.0)
    }
}

/// Answers that there was no room, for programs.
pub(crate) fn busy_to_json(busy: &BusyAnswers) -> Value {
    busy.iter()
        .map(|(reason, count)| (reason, Value::from(count)))
        .collect()
}

/// Says how often there was no room at the other end, and for what; nothing if there always was.
pub(crate) fn busy_to_text(busy: &BusyAnswers) -> Option<String> {
    let lacking = [
        (busy.messages, "for more messages"),
        (busy.memory, "in its memory for messages"),
        (busy.peers, "for one more client"),
    ];
    let lacking: Vec<String> = lacking
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} times no room {what}"))
        .collect();
    (!lacking.is_empty()).then(|| {
        format!(
            "the peer had {}: what it turned away was offered again until its time was over",
            lacking.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reasons_for_which_there_was_no_room_are_named_with_their_counts() {
        let mut busy = BusyAnswers::default();
        assert_eq!(busy_to_text(&busy), None);
        (busy.messages, busy.peers) = (12, 3);
        let text = busy_to_text(&busy).unwrap();
        assert!(
            text.starts_with("the peer had 12 times no room for more messages, 3 times"),
            "{text}"
        );
        let expected = json!({ "messages": 12, "memory": 0, "peers": 3 });
        assert_eq!(busy_to_json(&busy), expected);
    }
}
