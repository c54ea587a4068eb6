//! Everything arrives as it was, and nothing that was not asked for.

use std::time::Duration;

use flow_telemetry::{
    Metrics, MetricsEndpoint, Readiness,
    otlp::{Exporter, Recorder},
    prometheus_client::metrics::{counter::Counter, histogram::Histogram},
};
use hyper::StatusCode;
use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    },
    common::v1::any_value::Value,
    metrics::v1::metric::Data,
    resource::v1::Resource,
    trace::v1::Span,
};
use tokio::time::sleep;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::{
    collector::{Collector, always},
    decoded::{all, named, string, total, value},
    program::{FAST, Program, look_up, request},
};

#[tokio::test]
async fn metrics_arrive_as_a_scrape_shows_them() {
    let mut collector = Collector::listen(always(StatusCode::OK)).await;
    let mut metrics = Metrics::new("test").unwrap();
    metrics.build_info("1.0.0").unwrap();
    let counter = Counter::<u64>::default();
    let sent = metrics.register("sent_bytes_total", "Bytes sent", counter);
    let sent = sent.unwrap();
    let histogram = Histogram::new([0.5, 2.0]);
    let times = metrics.register("answer_seconds", "Time to an answer", histogram);
    let times = times.unwrap();
    sent.inc_by(1500);
    for time in [0.1, 1.0, 1.5, 9.0] {
        times.observe(time);
    }
    let program = Program::start(
        metrics,
        &collector,
        &[("OTEL_METRIC_EXPORT_INTERVAL", "50")],
    );

    let first: ExportMetricsServiceRequest = collector.next("/v1/metrics").await;
    sent.inc_by(500);
    let later = loop {
        let next: ExportMetricsServiceRequest = collector.next("/v1/metrics").await;
        if total(&all(&next), "test_sent_bytes_total").0 == 2000.0 {
            break next;
        }
    };

    let metrics = all(&first);
    let (value, since, at) = total(&metrics, "test_sent_bytes_total");
    assert_eq!((value, since), (1500.0, at), "begins when it is first seen");
    assert_eq!(named(&metrics, "test_sent_bytes_total").unit, "By");
    assert_eq!(
        named(&metrics, "test_sent_bytes_total").description,
        "Bytes sent."
    );
    let (_, later_since, later_at) = total(&all(&later), "test_sent_bytes_total");
    assert_eq!(later_since, since);
    assert!(later_at > at);
    let Some(Data::Histogram(histogram)) = &named(&metrics, "test_answer_seconds").data else {
        panic!("{metrics:?}");
    };
    let point = &histogram.data_points[0];
    assert_eq!(point.explicit_bounds, [0.5, 2.0]);
    assert_eq!(point.bucket_counts, [1, 2, 1]);
    assert_eq!((point.count, point.sum), (4, Some(11.6)));

    let resource = first.resource_metrics[0].resource.clone().unwrap();
    assert_eq!(string(&resource.attributes, "service.name"), "test");
    assert_eq!(string(&resource.attributes, "service.version"), "1.0.0");
    assert_eq!(string(&resource.attributes, "instance"), "north");
    let id = string(&resource.attributes, "service.instance.id");
    assert!(id == "north" || id.ends_with("/north"), "{id}");
    assert_eq!(sites(&resource), ["paris", "rome"]);
    let scope = first.resource_metrics[0].scope_metrics[0].scope.clone();
    assert_eq!(scope.unwrap().name, "test");
    assert_eq!(collector.head("content-type"), "application/x-protobuf");
    program.export.finish().await;
}

#[tokio::test]
async fn spans_and_events_arrive_and_belong_together() {
    let mut collector = Collector::listen(always(StatusCode::OK)).await;
    let program = Program::start(Metrics::new("test").unwrap(), &collector, &FAST);
    let subscriber = tracing_subscriber::registry().with(program.recorder.layer());
    tracing::subscriber::with_default(subscriber, || {
        tracing::warn!(event = "alone", device = "wan0", "nothing around it");
        let reload = tracing::info_span!("reload", source = "SIGHUP");
        reload.in_scope(|| {
            tracing::info_span!("check").in_scope(|| {});
            tracing::error!(event = "config_refused", error = "no such key", "refused");
        });
    });
    program.export.finish().await;

    let mut spans: Vec<Span> = Vec::new();
    while spans.len() < 2 {
        let traces: ExportTraceServiceRequest = collector.next("/v1/traces").await;
        let scopes = traces
            .resource_spans
            .into_iter()
            .flat_map(|it| it.scope_spans);
        spans.extend(scopes.flat_map(|it| it.spans));
    }
    let of = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let reload = of("reload");
    assert_eq!(of("check").parent_span_id, reload.span_id);
    assert_eq!(of("check").trace_id, reload.trace_id);
    assert_eq!(string(&reload.attributes, "source"), "SIGHUP");
    assert!(reload.end_time_unix_nano >= reload.start_time_unix_nano);
    assert_eq!(reload.status.clone().unwrap().code, 2, "an error within it");
    let [refused] = &reload.events[..] else {
        panic!("{:?}", reload.events);
    };
    assert_eq!(refused.name, "config_refused");
    assert_eq!(string(&refused.attributes, "message"), "refused");
    assert_eq!(string(&refused.attributes, "error"), "no such key");

    let mut logs = Vec::new();
    while logs.len() < 2 {
        let sent: ExportLogsServiceRequest = collector.next("/v1/logs").await;
        let scopes = sent.resource_logs.into_iter().flat_map(|it| it.scope_logs);
        logs.extend(scopes.flat_map(|it| it.log_records));
    }
    let [alone, refused] = &logs[..] else {
        panic!("{logs:?}");
    };
    assert_eq!(
        (alone.event_name.as_str(), alone.severity_number),
        ("alone", 13)
    );
    assert_eq!(string(&alone.attributes, "device"), "wan0");
    assert_eq!(alone.trace_id, Vec::<u8>::new());
    assert_eq!(refused.event_name, "config_refused");
    assert_eq!(
        (&refused.trace_id, &refused.span_id),
        (&reload.trace_id, &reload.span_id)
    );
    assert!(refused.time_unix_nano > 0);
}

#[tokio::test]
async fn requests_are_compressed_and_carry_headers_if_that_is_asked_for() {
    let mut collector = Collector::listen(always(StatusCode::OK)).await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_LOGS_EXPORTER", "none"),
    ];
    let program = Program::start(Metrics::new("test").unwrap(), &collector, &variables);
    let sent: ExportMetricsServiceRequest = collector.next("/v1/metrics").await;
    let names: Vec<_> = all(&sent).into_iter().map(|it| it.name).collect();
    assert_eq!(
        names,
        ["test_otlp_requests_total", "test_otlp_lost_items_total"]
    );
    assert_eq!(collector.head("content-encoding"), "gzip");
    assert_eq!(collector.head("x-tenant"), "a b");
    program.export.finish().await;
}

#[tokio::test]
async fn nothing_is_exported_unless_it_is_asked_for() {
    let mut collector = Collector::listen(always(StatusCode::OK)).await;
    let address = format!("http://{}", collector.address);
    let disabled = [
        ("OTEL_SDK_DISABLED", "TRUE"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_str()),
    ];
    // Meant for another program, which speaks gRPC.
    let elsewhere = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_str()),
    ];
    let empty = [("OTEL_EXPORTER_OTLP_ENDPOINT", " ")];
    for variables in [&empty[..], &disabled, &elsewhere] {
        let exporter = Exporter::configured(&request(None), &|name| look_up(variables, name));
        let recorder = Recorder::new();
        let endpoint = MetricsEndpoint::new(Metrics::new("test").unwrap(), Readiness::new());
        let export = exporter.unwrap().start(&recorder, &endpoint).unwrap();
        let subscriber = tracing_subscriber::registry().with(recorder.layer());
        tracing::subscriber::with_default(subscriber, || tracing::info!("nobody hears this"));
        sleep(Duration::from_millis(50)).await;
        export.finish().await;
        assert!(collector.requests.try_recv().is_err());
    }
}

fn sites(resource: &Resource) -> Vec<String> {
    match value(&resource.attributes, "sites") {
        Value::ArrayValue(list) => list
            .values
            .iter()
            .map(|it| match &it.value {
                Some(Value::StringValue(value)) => value.clone(),
                other => panic!("{other:?}"),
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}
