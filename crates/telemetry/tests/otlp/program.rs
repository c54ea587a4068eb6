//! A program that exports, and what a scrape of it shows.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use flow_telemetry::{
    Metrics, MetricsEndpoint, Readiness, docs,
    otlp::{Export, Exporter, Recorder, Request},
};
use tokio::time::sleep;

use crate::{PATIENCE, collector::Collector};

/// What exports: a program with metrics of its own.
pub(crate) struct Program {
    pub(crate) recorder: Recorder,
    pub(crate) endpoint: MetricsEndpoint,
    pub(crate) export: Export,
}

impl Program {
    pub(crate) fn start(
        metrics: Metrics,
        collector: &Collector,
        variables: &[(&str, &str)],
    ) -> Self {
        Self::start_for(metrics, collector.address, variables)
    }

    pub(crate) fn start_for(
        mut metrics: Metrics,
        to: SocketAddr,
        variables: &[(&str, &str)],
    ) -> Self {
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

    pub(crate) async fn scrape(&self) -> Vec<docs::Family> {
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
    pub(crate) async fn until(&self, is_so: impl Fn(&[docs::Family]) -> bool) {
        let began = Instant::now();
        while !is_so(&self.scrape().await) {
            assert!(began.elapsed() < PATIENCE, "{:?}", self.scrape().await);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) fn request(endpoint: Option<String>) -> Request {
    Request {
        endpoint,
        service: "test",
        version: "1.0.0",
        instance: "north".to_owned(),
        sites: vec!["paris".to_owned(), "rome".to_owned()],
    }
}

pub(crate) fn look_up(variables: &[(&str, &str)], name: &str) -> Option<String> {
    let found = variables.iter().find(|(other, _)| *other == name);
    found.map(|(_, value)| (*value).to_owned())
}

pub(crate) fn count(families: &[docs::Family], of: &str, labels: &[(&str, &str)]) -> f64 {
    let name = format!("test_otlp_{of}_total");
    let family = families.iter().find(|family| family.name == name).unwrap();
    family.value(labels).unwrap()
}

/// Batches do not wait for long.
pub(crate) const FAST: [(&str, &str); 3] = [
    ("OTEL_BSP_SCHEDULE_DELAY", "20"),
    ("OTEL_BLRP_SCHEDULE_DELAY", "20"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
];
