//! Collectors that are absent, silent, busy or do not want it, and a scrape that fails.

use std::{
    fmt,
    time::{Duration, Instant},
};

use flow_telemetry::{
    Metrics,
    otlp::{Lost, Signal},
    prometheus_client::{collector::Collector as PrometheusCollector, encoding::DescriptorEncoder},
};
use hyper::StatusCode;
use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceRequest,
    metrics::v1::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse},
};
use prost::Message as _;
use tokio::time::sleep;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::{
    PATIENCE,
    collector::{Collector, always},
    program::{FAST, Program, count},
};

#[tokio::test]
async fn collector_that_is_absent_holds_nothing_up_and_what_is_lost_is_counted() {
    // Nobody listens there any more.
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let program = Program::start_for(Metrics::new("test").unwrap(), address, &FAST);
    let subscriber = tracing_subscriber::registry().with(program.recorder.layer());
    let began = Instant::now();
    tracing::subscriber::with_default(subscriber, || {
        for number in 0..RECORDED {
            tracing::info!(event = "tick", number, "tick");
            tracing::info_span!("tock").in_scope(|| {});
        }
    });
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    // Each signal has been tried.
    let failed = |signal| [("signal", signal), ("result", "failed")];
    for signal in ["metrics", "traces", "logs"] {
        program
            .until(|families| count(families, "requests", &failed(signal)) > 0.0)
            .await;
    }
    let Program {
        recorder, export, ..
    } = program;
    let began = Instant::now();
    export.finish().await;
    assert!(began.elapsed() < Duration::from_secs(1), "refused at once");
    for signal in [Signal::Traces, Signal::Logs] {
        let full = recorder.lost(signal, Lost::QueueFull);
        // What the queue holds, and a batch under way.
        assert!(full >= RECORDED - 2048 - 512, "{signal:?}: {full}");
        let ended = recorder.lost(signal, Lost::Ended);
        assert!((512..=2560).contains(&ended), "{signal:?}: {ended}");
        let known = full + ended;
        match signal {
            Signal::Traces => assert_eq!(known, RECORDED),
            _ => assert!(known >= RECORDED, "{known}"),
        }
    }
}

#[tokio::test]
async fn collector_that_does_not_answer_delays_neither_scrapes_nor_the_end() {
    let collector = Collector::listen(|_| None).await;
    let program = Program::start(Metrics::new("test").unwrap(), &collector, &FAST);
    let began = Instant::now();
    for _ in 0..20 {
        program.scrape().await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    let began = Instant::now();
    program.export.finish().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn what_a_busy_collector_turned_away_is_sent_again() {
    let answers = |request: usize| {
        Some(match request {
            0..3 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::OK,
        })
    };
    let mut collector = Collector::listen(answers).await;
    let only_logs = [FAST[0], FAST[1], ("OTEL_METRICS_EXPORTER", "none")];
    let program = Program::start(Metrics::new("test").unwrap(), &collector, &only_logs);
    let subscriber = tracing_subscriber::registry().with(program.recorder.layer());
    tracing::subscriber::with_default(subscriber, || tracing::info!(event = "once", "x"));
    for request in 0..4 {
        let sent: ExportLogsServiceRequest = collector.next("/v1/logs").await;
        let records = &sent.resource_logs[0].scope_logs[0].log_records;
        assert_eq!(records[0].event_name, "once", "request {request}");
    }
    let taken = [("signal", "logs"), ("result", "taken")];
    program
        .until(|families| count(families, "requests", &taken) == 1.0)
        .await;
    assert_eq!(program.recorder.lost(Signal::Logs, Lost::Refused), 0);
    program.export.finish().await;
}

#[tokio::test]
async fn what_a_collector_refuses_for_good_is_counted_and_not_sent_again() {
    let mut collector = Collector::listen(always(StatusCode::BAD_REQUEST)).await;
    let only_logs = [FAST[0], FAST[1], ("OTEL_METRICS_EXPORTER", "none")];
    let program = Program::start(Metrics::new("test").unwrap(), &collector, &only_logs);
    let subscriber = tracing_subscriber::registry().with(program.recorder.layer());
    tracing::subscriber::with_default(subscriber, || tracing::info!(event = "once", "x"));
    let _: ExportLogsServiceRequest = collector.next("/v1/logs").await;
    let refused = || program.recorder.lost(Signal::Logs, Lost::Refused);
    within(|| refused() == 1).await;
    sleep(Duration::from_millis(200)).await;
    assert!(collector.requests.try_recv().is_err());
    program.export.finish().await;
}

#[tokio::test]
async fn points_of_which_a_part_is_refused_are_counted() {
    let partial = ExportMetricsServiceResponse {
        partial_success: Some(ExportMetricsPartialSuccess {
            rejected_data_points: 7,
            error_message: "too old".to_owned(),
        }),
    };
    let collector = Collector::listen(always(StatusCode::OK)).await;
    collector.answer_with(partial.encode_to_vec());
    let program = Program::start(Metrics::new("test").unwrap(), &collector, &[]);
    within(|| program.recorder.lost(Signal::Metrics, Lost::Refused) == 7).await;
    program.export.finish().await;
}

#[tokio::test]
async fn scrape_that_fails_is_not_exported_and_ends_nothing() {
    #[derive(Debug)]
    struct Unreadable;
    impl PrometheusCollector for Unreadable {
        fn encode(&self, _: DescriptorEncoder<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }
    let mut collector = Collector::listen(always(StatusCode::OK)).await;
    let mut metrics = Metrics::new("test").unwrap();
    metrics.collect([], Unreadable).unwrap();
    let program = Program::start(metrics, &collector, &FAST);
    let subscriber = tracing_subscriber::registry().with(program.recorder.layer());
    tracing::subscriber::with_default(subscriber, || tracing::info!(event = "still", "x"));
    let _: ExportLogsServiceRequest = collector.next("/v1/logs").await;
    program.export.finish().await;
}

async fn within(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it does not come");
        sleep(Duration::from_millis(10)).await;
    }
}

/// More than fits into a queue.
const RECORDED: u64 = 5_000;
