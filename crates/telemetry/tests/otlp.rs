//! The export as a collector sees it: OTLP/HTTP over a real socket, decoded with OpenTelemetry's own types.

use std::{
    convert::Infallible,
    fmt,
    io::Read as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;
use flow_telemetry::{
    Metrics, MetricsEndpoint, Readiness, docs,
    otlp::{Export, Exporter, Lost, Recorder, Request, Signal},
    prometheus_client::{
        collector::Collector as PrometheusCollector,
        encoding::DescriptorEncoder,
        metrics::{counter::Counter, histogram::Histogram},
    },
};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Incoming},
    header::HeaderMap,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::ExportLogsServiceRequest,
        metrics::v1::{
            ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
        },
        trace::v1::ExportTraceServiceRequest,
    },
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::{Metric, metric::Data, number_data_point},
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message;
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{sleep, timeout},
};
use tracing_subscriber::layer::SubscriberExt as _;

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

/// More than fits into a queue.
const RECORDED: u64 = 5_000;

/// Batches do not wait for long.
const FAST: [(&str, &str); 3] = [
    ("OTEL_BSP_SCHEDULE_DELAY", "20"),
    ("OTEL_BLRP_SCHEDULE_DELAY", "20"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
];

fn request(endpoint: Option<String>) -> Request {
    Request {
        endpoint,
        service: "test",
        version: "1.0.0",
        instance: "north".to_owned(),
        sites: vec!["paris".to_owned(), "rome".to_owned()],
    }
}

fn look_up(variables: &[(&str, &str)], name: &str) -> Option<String> {
    let found = variables.iter().find(|(other, _)| *other == name);
    found.map(|(_, value)| (*value).to_owned())
}

/// What exports: a program with metrics of its own.
struct Program {
    recorder: Recorder,
    endpoint: MetricsEndpoint,
    export: Export,
}

impl Program {
    fn start(metrics: Metrics, collector: &Collector, variables: &[(&str, &str)]) -> Self {
        Self::start_for(metrics, collector.address, variables)
    }

    fn start_for(mut metrics: Metrics, to: SocketAddr, variables: &[(&str, &str)]) -> Self {
        let recorder = Recorder::new();
        recorder.register(&mut metrics).unwrap();
        let endpoint = MetricsEndpoint::new(metrics, Readiness::new());
        let request = request(Some(format!("http://{to}")));
        let exporter = Exporter::configured(&request, &|name| look_up(variables, name));
        let export = exporter.unwrap().start(&recorder, &endpoint).unwrap();
        Self {
            recorder,
            endpoint,
            export,
        }
    }

    async fn scrape(&self) -> Vec<docs::Family> {
        let server = flow_telemetry::Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.local_addr();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(server.serve(self.endpoint.clone(), async {
            let _ = stopped.await;
        }));
        let head = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer)
            .await
            .unwrap();
        drop(stop);
        serving.await.unwrap().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        docs::parse_exposition(body).unwrap()
    }

    /// Waits until a scrape is as it should be.
    async fn until(&self, is_so: impl Fn(&[docs::Family]) -> bool) {
        let began = Instant::now();
        while !is_so(&self.scrape().await) {
            assert!(began.elapsed() < PATIENCE, "{:?}", self.scrape().await);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn count(families: &[docs::Family], of: &str, labels: &[(&str, &str)]) -> f64 {
    let name = format!("test_otlp_{of}_total");
    let family = families.iter().find(|family| family.name == name).unwrap();
    family.value(labels).unwrap()
}

async fn within(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it does not come");
        sleep(Duration::from_millis(10)).await;
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers requests, and shows them.
struct Collector {
    address: SocketAddr,
    requests: UnboundedReceiver<Received>,
    body: Arc<Mutex<Vec<u8>>>,
    last: Option<HeaderMap>,
    /// Requests to other paths than those looked for so far.
    later: Vec<Received>,
}

struct Received {
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// The status for the nth request; `None` for no answer at all.
type Answers = fn(usize) -> Option<StatusCode>;

fn always(status: StatusCode) -> Answers {
    match status {
        StatusCode::OK => |_| Some(StatusCode::OK),
        StatusCode::BAD_REQUEST => |_| Some(StatusCode::BAD_REQUEST),
        other => panic!("{other}"),
    }
}

impl Collector {
    async fn listen(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = unbounded_channel();
        let body = Arc::new(Mutex::new(Vec::new()));
        let counter = Arc::new(Mutex::new(0));
        let answer = Arc::clone(&body);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (sender, answer, counter) = (sender.clone(), answer.clone(), counter.clone());
                let service = service_fn(move |request: hyper::Request<Incoming>| {
                    let (sender, answer) = (sender.clone(), answer.clone());
                    let index = {
                        let mut counter = counter.lock().unwrap();
                        *counter += 1;
                        *counter - 1
                    };
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes().to_vec();
                        let _ = sender.send(Received {
                            path: head.uri.path().to_owned(),
                            headers: head.headers,
                            body,
                        });
                        let Some(status) = answers(index) else {
                            return std::future::pending().await;
                        };
                        let body = Bytes::from(answer.lock().unwrap().clone());
                        let mut response = Response::new(Full::new(body));
                        *response.status_mut() = status;
                        Ok::<_, Infallible>(response)
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            address,
            requests,
            body,
            last: None,
            later: Vec::new(),
        }
    }

    fn answer_with(&self, body: Vec<u8>) {
        *self.body.lock().unwrap() = body;
    }

    /// The next request to this path, decoded.
    async fn next<M: Message + Default>(&mut self, path: &str) -> M {
        loop {
            let kept = self.later.iter().position(|it| it.path == path);
            let received = match kept {
                Some(index) => self.later.remove(index),
                None => {
                    let received = timeout(PATIENCE, self.requests.recv()).await;
                    received.expect("a request in time").unwrap()
                }
            };
            if received.path != path {
                self.later.push(received);
                continue;
            }
            let body = match received.headers.get("content-encoding") {
                Some(encoding) if encoding == "gzip" => {
                    let mut unpacked = Vec::new();
                    GzDecoder::new(&*received.body)
                        .read_to_end(&mut unpacked)
                        .unwrap();
                    unpacked
                }
                _ => received.body,
            };
            self.last = Some(received.headers);
            return M::decode(&*body).expect("it is OTLP");
        }
    }

    /// A header of the last request that was looked at.
    fn head(&self, name: &str) -> &str {
        self.last.as_ref().unwrap()[name].to_str().unwrap()
    }
}

fn all(request: &ExportMetricsServiceRequest) -> Vec<Metric> {
    request.resource_metrics[0].scope_metrics[0].metrics.clone()
}

fn named<'m>(metrics: &'m [Metric], name: &str) -> &'m Metric {
    let found = metrics.iter().find(|metric| metric.name == name);
    found.unwrap_or_else(|| panic!("{name} in {metrics:?}"))
}

/// Value, start and time of a counter without labels.
fn total(metrics: &[Metric], name: &str) -> (f64, u64, u64) {
    match &named(metrics, name).data {
        Some(Data::Sum(sum)) if sum.is_monotonic => {
            let point = &sum.data_points[0];
            let Some(number_data_point::Value::AsDouble(value)) = point.value else {
                panic!("{point:?}");
            };
            (value, point.start_time_unix_nano, point.time_unix_nano)
        }
        other => panic!("{other:?}"),
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> &'a Value {
    let found = attributes.iter().find(|it| it.key == key);
    let found = found.unwrap_or_else(|| panic!("{key} in {attributes:?}"));
    found.value.as_ref().unwrap().value.as_ref().unwrap()
}

fn string(attributes: &[KeyValue], key: &str) -> String {
    match value(attributes, key) {
        Value::StringValue(value) => value.clone(),
        other => panic!("{other:?}"),
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
