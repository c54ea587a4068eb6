//! What spans and events go through on their way to the exporter.

use tracing_subscriber::{Registry, layer::Layer};

use super::statistics::{Lost, Signal, Statistics};
use crate::{Metrics, NameError};

/// Takes spans and events from the program's log, and counts how their export goes. Copies are one and
/// the same.
///
/// Before an export [starts](super::Exporter::start) it keeps nothing.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    pub(super) statistics: Statistics,
    #[cfg(feature = "otlp")]
    pub(super) records: std::sync::Arc<recording::Records>,
}

impl Recorder {
    /// Makes one that keeps nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers `otlp_requests_total` and `otlp_lost_items_total`, which stay 0 without an export.
    ///
    /// # Errors
    /// [`NameError::Duplicate`] when called twice for one registry.
    pub fn register(&self, metrics: &mut Metrics) -> Result<(), NameError> {
        self.statistics.register(metrics)
    }

    /// Returns how many items of a signal the collector never got, for this reason.
    pub fn lost(&self, signal: Signal, reason: Lost) -> u64 {
        self.statistics.lost(signal, reason)
    }

    /// Returns the layer of a subscriber that spans and events come by. It never waits.
    #[cfg(not(feature = "otlp"))]
    pub fn layer(&self) -> impl Layer<Registry> + Send + Sync + use<> {
        tracing_subscriber::layer::Identity::new()
    }

    /// Returns the layer of a subscriber that spans and events come by. It never waits.
    #[cfg(feature = "otlp")]
    pub fn layer(&self) -> impl Layer<Registry> + Send + Sync + use<> {
        recording::layer(self)
    }
}

#[cfg(feature = "otlp")]
pub(super) mod recording {
    use std::{mem, time::Duration};

    use opentelemetry::{Context, InstrumentationScope, trace::TracerProvider as _};
    use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
    use opentelemetry_proto::tonic::{
        common::v1::{AnyValue, KeyValue, any_value::Value},
        logs::v1::LogRecord,
        trace::v1::{Span, span},
    };
    use opentelemetry_sdk::{
        error::OTelSdkResult,
        logs::{LogProcessor, SdkLogRecord, SdkLoggerProvider},
        trace::{SdkTracerProvider, SpanData, SpanProcessor},
    };

    use super::{Layer, Lost, Recorder, Registry, Signal};
    use crate::otlp::queue::Queue;

    /// The queues of what is recorded, in the form in which it is sent.
    #[derive(Debug, Default)]
    pub(crate) struct Records {
        pub(crate) spans: Queue<Span>,
        pub(crate) logs: Queue<LogRecord>,
    }

    pub(super) fn layer(recorder: &Recorder) -> impl Layer<Registry> + Send + Sync + use<> {
        let traces = SdkTracerProvider::builder().with_span_processor(Spans(recorder.clone()));
        let spans = tracing_opentelemetry::layer()
            .with_tracer(traces.build().tracer("tracing"))
            // An event's field `error` is a field like others; its level tells how bad it is.
            .with_error_fields_to_exceptions(false)
            .with_error_records_to_exceptions(false)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        let logs = SdkLoggerProvider::builder().with_log_processor(Logs(recorder.clone()));
        let events = OpenTelemetryTracingBridge::new(&logs.build());
        // Outermost last: an event sees the span that it happens in.
        spans.and_then(events)
    }

    /// Puts spans that have ended into their queue.
    #[derive(Debug)]
    struct Spans(Recorder);

    impl SpanProcessor for Spans {
        fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &Context) {}

        fn on_end(&self, span: SpanData) {
            let Recorder {
                records,
                statistics,
            } = &self.0;
            if !records.spans.is_on() {
                return;
            }
            let mut span = Span::from(span);
            span.events.iter_mut().for_each(name_by_event);
            if !records.spans.push(span) {
                statistics.count_lost(Signal::Traces, Lost::QueueFull, 1);
            }
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
    }

    /// Puts events into their queue.
    #[derive(Debug)]
    struct Logs(Recorder);

    impl LogProcessor for Logs {
        fn emit(&self, record: &mut SdkLogRecord, _: &InstrumentationScope) {
            let Recorder {
                records,
                statistics,
            } = &self.0;
            if !records.logs.is_on() {
                return;
            }
            let mut record = LogRecord::from(&*record);
            // The bridge knows the event by its place in the source.
            record.event_name = take_event(&mut record.attributes).unwrap_or_default();
            record.time_unix_nano = record.observed_time_unix_nano;
            if !records.logs.push(record) {
                statistics.count_lost(Signal::Logs, Lost::QueueFull, 1);
            }
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
    }

    /// Names a span's event by its stable name, where it has one; its message becomes an attribute.
    fn name_by_event(event: &mut span::Event) {
        if let Some(name) = take_event(&mut event.attributes) {
            let message = mem::replace(&mut event.name, name);
            event.attributes.push(KeyValue {
                key: "message".to_owned(),
                value: Some(AnyValue {
                    value: Some(Value::StringValue(message)),
                }),
                ..KeyValue::default()
            });
        }
    }

    /// Takes the stable name of an event out of its fields.
    fn take_event(attributes: &mut Vec<KeyValue>) -> Option<String> {
        let index = attributes.iter().position(|it| it.key == "event")?;
        match attributes.remove(index).value?.value? {
            Value::StringValue(name) => Some(name),
            _ => None,
        }
    }
}
