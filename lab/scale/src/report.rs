//! All that was measured, and how it grows.

use anyhow::Result;
use flow_cli::{group_thousands, print};
use flow_report::Table;
use serde::Serialize;

use crate::{at_once::AtOnce, idle::Idle, in_a_row::InARow};

/// What the command prints.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) idle: Vec<Idle>,
    pub(crate) at_once: Vec<AtOnce>,
    pub(crate) in_a_row: Vec<InARow>,
    pub(crate) growth: Growth,
}

/// What one more takes: between the first row and the last, and nothing where there is one row alone.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Growth {
    /// Of the server, for one more idle peer.
    memory_bytes_per_peer: Option<f64>,
    /// The same, each second.
    cpu_us_per_s_per_peer: Option<f64>,
    wakeups_per_s_per_peer: Option<f64>,
    /// Time for a message among the most idle peers, as a multiple of that among the fewest.
    message_cpu_among_idle: Option<f64>,
    /// Time for a message of the most senders at once, as a multiple of that of the fewest.
    message_cpu_at_once: Option<f64>,
    /// For one more message, after the first hundredth of them.
    server_memory_bytes_per_message: Option<f64>,
    client_memory_bytes_per_message: Option<f64>,
}

impl Growth {
    pub(crate) fn of(report: &Report) -> Self {
        let idle = |value: fn(&Idle) -> f64| slope(&report.idle, |it| it.peers.into(), value);
        let in_a_row =
            |value: fn(&InARow) -> f64| slope(&report.in_a_row, |it| it.messages as f64, value);
        Self {
            memory_bytes_per_peer: idle(|it| it.memory_bytes as f64),
            cpu_us_per_s_per_peer: idle(|it| it.cpu_us_per_s),
            wakeups_per_s_per_peer: idle(|it| it.wakeups_per_s),
            message_cpu_among_idle: ratio(&report.idle, |it| it.cpu_us_per_message),
            message_cpu_at_once: ratio(&report.at_once, |it| it.cpu_us_per_message),
            server_memory_bytes_per_message: in_a_row(|it| it.server_memory_bytes as f64),
            client_memory_bytes_per_message: in_a_row(|it| it.client_memory_bytes as f64),
        }
    }
}

/// The first and the last of several rows.
fn ends<T>(rows: &[T]) -> Option<(&T, &T)> {
    match rows {
        [first, .., last] => Some((first, last)),
        _ => None,
    }
}

fn slope<T>(rows: &[T], count: impl Fn(&T) -> f64, value: impl Fn(&T) -> f64) -> Option<f64> {
    let (first, last) = ends(rows)?;
    let more = count(last) - count(first);
    (more > 0.0).then(|| (value(last) - value(first)) / more)
}

fn ratio<T>(rows: &[T], value: impl Fn(&T) -> f64) -> Option<f64> {
    let (first, last) = ends(rows)?;
    (value(first) > 0.0).then(|| value(last) / value(first))
}

impl Report {
    /// Prints a table for each part that was measured.
    pub(crate) fn print(&self) -> Result<()> {
        for (rows, table) in [
            (self.in_a_row.len(), self.table_of_rows()),
            (self.at_once.len(), self.table_of_senders()),
            (self.idle.len(), self.table_of_peers()),
        ] {
            if rows > 0 {
                print(format!("{}\n", table.to_text()))?;
            }
        }
        print(self.growth_in_words())
    }

    fn table_of_rows(&self) -> Table {
        let mut table = Table::new([
            "messages in a row",
            "a second",
            "server's us each",
            "client's us each",
            "server's MB",
            "client's MB",
        ]);
        for row in &self.in_a_row {
            table.row([
                group_thousands(row.messages),
                group_thousands(row.messages_per_s as u64),
                format!("{:.1}", row.server_cpu_us_per_message),
                format!("{:.1}", row.client_cpu_us_per_message),
                megabytes(row.server_memory_bytes),
                megabytes(row.client_memory_bytes),
            ]);
        }
        table
    }

    fn table_of_senders(&self) -> Table {
        let mut table = Table::new([
            "senders at once",
            "failed",
            "p50 ms",
            "p99 ms",
            "max ms",
            "server's us each",
            "server's MB",
        ]);
        for row in &self.at_once {
            table.row([
                group_thousands(row.senders.into()),
                row.failed.to_string(),
                format!("{:.1}", row.p50_ms),
                format!("{:.1}", row.p99_ms),
                format!("{:.1}", row.max_ms),
                format!("{:.1}", row.cpu_us_per_message),
                megabytes(row.memory_bytes),
            ]);
        }
        table
    }

    fn table_of_peers(&self) -> Table {
        let mut table = Table::new([
            "idle peers",
            "server's MB",
            "processor, us a second",
            "wake-ups a second",
            "us a message of one",
        ]);
        for row in &self.idle {
            table.row([
                group_thousands(row.peers.into()),
                megabytes(row.memory_bytes),
                format!("{:.0}", row.cpu_us_per_s),
                format!("{:.2}", row.wakeups_per_s),
                format!("{:.1}", row.cpu_us_per_message),
            ]);
        }
        table
    }

    fn growth_in_words(&self) -> String {
        let growth = &self.growth;
        let lines = [
            (
                growth.memory_bytes_per_peer,
                0,
                "bytes for one more idle peer",
            ),
            (
                growth.cpu_us_per_s_per_peer,
                3,
                "us a second for one more idle peer",
            ),
            (
                growth.wakeups_per_s_per_peer,
                4,
                "wake-ups a second for one more idle peer",
            ),
            (
                growth.message_cpu_among_idle,
                2,
                "times the time for a message, from the fewest idle peers to the most",
            ),
            (
                growth.message_cpu_at_once,
                2,
                "times the time for a message, from the fewest senders to the most",
            ),
            (
                growth.server_memory_bytes_per_message,
                3,
                "bytes of the server for one more message",
            ),
            (
                growth.client_memory_bytes_per_message,
                3,
                "bytes of the client for one more message",
            ),
        ];
        let lines = lines.into_iter().filter_map(|(value, digits, what)| {
            value.map(|value| format!("{value:.digits$} {what}"))
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_between_the_first_row_and_the_last() {
        let rows = [(10.0, 100.0), (50.0, 9_999.0), (110.0, 300.0)];
        assert_eq!(slope(&rows, |it| it.0, |it| it.1), Some(2.0));
        assert_eq!(ratio(&rows, |it| it.1), Some(3.0));
        assert_eq!(slope(&rows[..1], |it| it.0, |it| it.1), None);
        assert_eq!(
            slope(&rows[..2], |_| 1.0, |it| it.1),
            None,
            "no more of anything"
        );
        assert_eq!(ratio(&rows[..1], |it| it.1), None);
        assert_eq!(ratio(&[0.0, 1.0], |it| *it), None);
    }
}
