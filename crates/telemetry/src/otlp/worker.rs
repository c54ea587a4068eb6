//! The thread that exports. It shares nothing with the program that either could wait for, but the queues
//! (which are locked for a moment) and the collection of metrics (which waits for scrapes, not they for it).

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    },
    common::v1::InstrumentationScope,
    logs::v1::{LogRecord, ResourceLogs, ScopeLogs},
    metrics::v1::{ResourceMetrics, ScopeMetrics},
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use prost::Message as _;
use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout},
};

use super::{
    Recorder,
    bridge::{self, Bridge},
    delivery::{Delivered, Delivery},
    queue::Queue,
    settings::Settings,
    statistics::{Lost, Signal, Statistics},
};
use crate::{MetricsEndpoint, docs};

/// The thread, from outside.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Dropped, it has the thread end.
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives none, or no file descriptors for its runtime.
    pub(crate) fn start(
        settings: Settings,
        recorder: Recorder,
        endpoint: MetricsEndpoint,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopping) = watch::channel(false);
        let (ending, ended) = oneshot::channel();
        // Now, so that what happens from here on is not missed.
        if settings.destinations[Signal::Traces as usize].is_some() {
            recorder.records.spans.turn_on();
        }
        if settings.destinations[Signal::Logs as usize].is_some() {
            recorder.records.logs.turn_on();
        }
        report_start(&settings);
        thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || {
                runtime.block_on(export(settings, recorder, endpoint, stopping));
                let _ = ending.send(());
                // A look-up of a name that hangs is left behind.
                runtime.shutdown_background();
            })?;
        Ok(Self { stop, ended })
    }

    /// Has it send what there is, and waits for that, but not for long.
    pub(crate) async fn finish(self) {
        let _ = self.stop.send(true);
        let _ = timeout(LAST_WORDS, self.ended).await;
    }
}

fn report_start(settings: &Settings) {
    for signal in Signal::ALL {
        if let Some(to) = &settings.destinations[signal as usize] {
            tracing::info!(
                event = "otlp_started",
                signal = signal.as_str(),
                collector = %to.authority,
                path = to.path,
                "exporting over OTLP"
            );
        }
    }
}

async fn export(
    settings: Settings,
    recorder: Recorder,
    endpoint: MetricsEndpoint,
    stopping: watch::Receiver<bool>,
) {
    let Recorder {
        statistics,
        records,
    } = recorder;
    let settings = Arc::new(settings);
    let task = |signal: Signal, pace: Duration| {
        let to = settings.destinations[signal as usize].clone()?;
        Some(Task {
            delivery: Delivery::new(signal, to, statistics.clone()),
            settings: Arc::clone(&settings),
            statistics: statistics.clone(),
            stopping: stopping.clone(),
            signal,
            pace,
        })
    };
    let metrics = task(Signal::Metrics, settings.metric_interval);
    let traces = task(Signal::Traces, settings.span_delay);
    let logs = task(Signal::Logs, settings.log_delay);
    tokio::join!(
        async {
            if let Some(task) = metrics {
                task.metrics(&endpoint).await;
            }
        },
        async {
            if let Some(task) = traces {
                task.items(&records.spans, traces_request).await;
            }
        },
        async {
            if let Some(task) = logs {
                task.items(&records.logs, logs_request).await;
            }
        },
    );
}

/// The export of one signal.
struct Task {
    delivery: Delivery,
    settings: Arc<Settings>,
    statistics: Statistics,
    stopping: watch::Receiver<bool>,
    signal: Signal,
    /// Time from one request to the next, while not much happens.
    pace: Duration,
}

impl Task {
    /// Exports all metrics now, and again and again. What could not be delivered is collected anew when it
    /// is tried again: it is a sum, of which nothing is lost.
    async fn metrics(mut self, endpoint: &MetricsEndpoint) {
        let mut bridge = Bridge::default();
        loop {
            let pause = match self.collect(endpoint, &mut bridge).await {
                Some((message, points)) => match self.delivery.send(message, points).await {
                    Delivered::Done => self.pace,
                    Delivered::Again(pause) => pause.min(self.pace),
                },
                None => self.pace,
            };
            if self.is_stopping() {
                return;
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = stopped(&mut self.stopping) => {}
            }
        }
    }

    async fn collect(
        &self,
        endpoint: &MetricsEndpoint,
        bridge: &mut Bridge,
    ) -> Option<(Vec<u8>, u64)> {
        // Whoever failed has said so in the log.
        let exposition = timeout(COLLECTION_TIMEOUT, endpoint.exposition(|text| text));
        let exposition = exposition.await.ok()??;
        let families = match docs::parse_exposition(&exposition) {
            Ok(families) => families,
            Err(error) => {
                tracing::error!(event = "collector_failed", %error, "the figures are not as they should be");
                return None;
            }
        };
        let metrics = bridge.convert(&families, now_ns());
        let points = bridge::points(&metrics);
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.settings.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope(&self.settings)),
                    metrics,
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        };
        Some((request.encode_to_vec(), points))
    }

    /// Exports what a queue has, a batch at a time. A batch that could not be delivered is kept and tried
    /// again, while others wait behind it as far as the queue reaches.
    async fn items<T>(mut self, queue: &Queue<T>, request: fn(&Settings, Vec<T>) -> Vec<u8>) {
        loop {
            tokio::select! {
                () = sleep(self.pace) => {}
                () = queue.filled() => {}
                () = stopped(&mut self.stopping) => {}
            }
            if self.is_stopping() {
                queue.turn_off();
            }
            loop {
                let batch = queue.take_batch();
                if batch.is_empty() {
                    break;
                }
                let items = batch.len() as u64;
                if !self.batch(request(&self.settings, batch), items).await {
                    queue.turn_off();
                    let lost = items + queue.len() as u64;
                    self.statistics.count_lost(self.signal, Lost::Ended, lost);
                    return;
                }
            }
            if self.is_stopping() {
                return;
            }
        }
    }

    /// Delivers a batch, however long it takes; returns `false` if the program ends before.
    async fn batch(&mut self, message: Vec<u8>, items: u64) -> bool {
        loop {
            let was_stopping = self.is_stopping();
            match self.delivery.send(message.clone(), items).await {
                Delivered::Done => return true,
                Delivered::Again(_) if was_stopping => return false,
                Delivered::Again(pause) => tokio::select! {
                    () = sleep(pause) => {}
                    () = stopped(&mut self.stopping) => {}
                },
            }
        }
    }

    fn is_stopping(&self) -> bool {
        // Who is gone asks for nothing any more.
        *self.stopping.borrow() || self.stopping.has_changed().is_err()
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

fn traces_request(settings: &Settings, spans: Vec<Span>) -> Vec<u8> {
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(settings.resource.clone()),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope(settings)),
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    request.encode_to_vec()
}

fn logs_request(settings: &Settings, log_records: Vec<LogRecord>) -> Vec<u8> {
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(settings.resource.clone()),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope(settings)),
                log_records,
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    request.encode_to_vec()
}

fn scope(settings: &Settings) -> InstrumentationScope {
    let (name, version) = settings.scope;
    InstrumentationScope {
        name: name.to_owned(),
        version: version.to_owned(),
        ..InstrumentationScope::default()
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// That of scrapes.
const COLLECTION_TIMEOUT: Duration = Duration::from_secs(9);
/// Who presses Ctrl-C waits no longer than this for a collector.
const LAST_WORDS: Duration = Duration::from_secs(2);
