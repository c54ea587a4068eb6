//! The delivery of requests of one signal: when to try again, what is lost, and what of it is logged.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceResponse, metrics::v1::ExportMetricsServiceResponse,
    trace::v1::ExportTraceServiceResponse,
};
use prost::Message as _;
use tokio::time::Instant;

use super::{
    client::{self, Answer},
    settings::Destination,
    statistics::{Lost, Signal, Statistics},
};

/// Sends the requests of a signal.
#[derive(Debug)]
pub(crate) struct Delivery {
    signal: Signal,
    destination: Destination,
    statistics: Statistics,
    pause: Duration,
    complaint: Complaint,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// The collector has it, or does not want it: it is done with.
    Done,
    /// It is to be sent again, after this time.
    Again(Duration),
}

impl Delivery {
    pub(crate) fn new(signal: Signal, destination: Destination, statistics: Statistics) -> Self {
        Self {
            signal,
            destination,
            statistics,
            pause: FIRST_PAUSE,
            complaint: Complaint::default(),
        }
    }

    /// Sends `message`, in which there are so many items, once.
    pub(crate) async fn send(&mut self, message: Vec<u8>, items: u64) -> Delivered {
        let answer = client::post(&self.destination, message).await;
        let is_taken = matches!(answer, Ok(Answer::Taken(_)));
        self.statistics.count_request(self.signal, is_taken);
        let (problem, after) = match answer {
            Ok(Answer::Taken(response)) => {
                self.pause = FIRST_PAUSE;
                self.taken(&response);
                return Delivered::Done;
            }
            Ok(Answer::Refused(status)) => {
                self.statistics
                    .count_lost(self.signal, Lost::Refused, items);
                self.complain(&format!("the collector refuses it: {status}"));
                return Delivered::Done;
            }
            Ok(Answer::Later(status, after)) => {
                (format!("the collector cannot take it now: {status}"), after)
            }
            Err(error) => (error.to_string(), None),
        };
        self.complain(&problem);
        let pause = self.pause.max(after.unwrap_or_default().min(LONGEST_PAUSE));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Delivered::Again(pause)
    }

    /// A response may say that a part was refused, which is not to be sent again.
    fn taken(&mut self, response: &[u8]) {
        match rejected(self.signal, response) {
            Some((items, message)) => {
                self.statistics
                    .count_lost(self.signal, Lost::Refused, items);
                self.complain(&format!("the collector refuses {items} items: {message}"));
            }
            None => self.complaint.settle(self.signal, &self.destination),
        }
    }

    fn complain(&mut self, problem: &str) {
        self.complaint
            .raise(self.signal, &self.destination, problem, Instant::now());
    }
}

/// How many items a response says were refused, and why; `None` if all were taken.
fn rejected(signal: Signal, response: &[u8]) -> Option<(u64, String)> {
    let (items, message) = match signal {
        Signal::Metrics => {
            let decoded = ExportMetricsServiceResponse::decode(response).ok()?;
            let partial = decoded.partial_success?;
            (partial.rejected_data_points, partial.error_message)
        }
        Signal::Traces => {
            let decoded = ExportTraceServiceResponse::decode(response).ok()?;
            let partial = decoded.partial_success?;
            (partial.rejected_spans, partial.error_message)
        }
        Signal::Logs => {
            let decoded = ExportLogsServiceResponse::decode(response).ok()?;
            let partial = decoded.partial_success?;
            (partial.rejected_log_records, partial.error_message)
        }
    };
    let items = u64::try_from(items).ok().filter(|items| *items > 0)?;
    Some((items, message.chars().take(MAX_MESSAGE).collect()))
}

/// A fault that is logged at once, and then less and less often while it lasts.
#[derive(Debug, Default)]
struct Complaint {
    /// Time of the next record, and the time from there to the one after it; `None` while all is well.
    next: Option<(Instant, Duration)>,
    failures: u64,
}

impl Complaint {
    fn raise(&mut self, signal: Signal, to: &Destination, problem: &str, now: Instant) {
        self.failures += 1;
        let pause = match self.next {
            None => FIRST_SILENCE,
            Some((at, pause)) if now >= at => pause,
            Some(_) => return,
        };
        self.next = Some((now + pause, (pause * 2).min(LONGEST_SILENCE)));
        tracing::warn!(
            event = "otlp_failed",
            signal = signal.as_str(),
            collector = %to.authority,
            failures = self.failures,
            next_report_s = pause.as_secs(),
            "cannot export over OTLP: {problem}"
        );
    }

    fn settle(&mut self, signal: Signal, to: &Destination) {
        if self.next.take().is_some() {
            tracing::info!(
                event = "otlp_restored",
                signal = signal.as_str(),
                collector = %to.authority,
                failures = self.failures,
                "exporting over OTLP again"
            );
            self.failures = 0;
        }
    }
}

/// OTLP asks for exponential pauses and leaves the numbers open: a second is what a collector takes to
/// restart, a minute is what an operator waits for without noticing.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const FIRST_SILENCE: Duration = Duration::from_secs(60);
const LONGEST_SILENCE: Duration = Duration::from_secs(3600);
/// Characters of a collector's sentence that are logged.
const MAX_MESSAGE: usize = 300;

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn a_fault_that_lasts_is_logged_less_and_less_often() {
        let settings = crate::otlp::settings::destination_for_tests();
        let mut complaint = Complaint::default();
        let began = Instant::now();
        let mut records = Vec::new();
        for second in 0..3 * 3600_u64 {
            let before = complaint.next;
            let now = began + Duration::from_secs(second);
            complaint.raise(Signal::Traces, &settings, "down", now);
            if complaint.next != before {
                records.push(second);
            }
        }
        assert_eq!(records, [0, 60, 180, 420, 900, 1860, 3780, 7380]);
        assert_eq!(complaint.failures, 3 * 3600);
    }

    #[test]
    fn a_part_that_is_refused_is_read_and_rubbish_is_not() {
        let response = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 3,
                error_message: "x".repeat(1000),
            }),
        };
        let (items, message) = rejected(Signal::Traces, &response.encode_to_vec()).unwrap();
        assert_eq!((items, message.len()), (3, MAX_MESSAGE));
        assert_eq!(rejected(Signal::Traces, &[]), None);
        assert_eq!(rejected(Signal::Logs, b"<html>no</html>"), None);
        let negative = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: -1,
                error_message: String::new(),
            }),
        };
        assert_eq!(rejected(Signal::Traces, &negative.encode_to_vec()), None);
    }
}
