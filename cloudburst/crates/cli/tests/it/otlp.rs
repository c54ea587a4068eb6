//! Export to an OpenTelemetry collector, and what a build without it says.

use super::{Listening, as_given, stderr};

#[cfg(not(feature = "otlp"))]
#[test]
fn build_without_export_refuses_the_flag_and_warns_of_the_variable() {
    let address = "http://127.0.0.1:4318";
    let output = super::cloudburst(&["serve", "--ports", "any:1", "--otlp", address]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let words = stderr(&output);
    assert!(words.contains("built without it"), "{words}");
    assert!(words.contains("--features otlp"), "{words}");

    let server = Listening::start(&["serve", "--mode", "size"]);
    let peer = server.address();
    let perf = ["perf", &peer, "--insecure-no-key", "-d", "0.1"];
    let quiet = as_given(&perf);
    assert!(!stderr(&quiet).contains("otlp"), "{}", stderr(&quiet));
    let warned = std::process::Command::new(super::BINARY)
        .args(perf)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        .output()
        .unwrap();
    assert!(warned.status.success(), "{}", stderr(&warned));
    let words = stderr(&warned);
    assert!(words.contains("event=\"otlp_not_built\""), "{words}");
}

#[cfg(all(feature = "otlp", target_os = "linux"))]
#[test]
fn metrics_and_events_reach_a_collector_until_the_end() {
    use std::time::Duration;

    use flow_testbed::collector::Collector;

    const WITHIN: Duration = Duration::from_secs(20);
    let mut collector = Collector::listen();
    let mut server = Listening::start(&["serve", "--otlp", &collector.url()]);
    let peer = server.address();
    let ping = as_given(&["ping", &peer, "--insecure-no-key", "-c2"]);
    assert!(ping.status.success(), "{}", stderr(&ping));
    assert_eq!(server.interrupt(), Some(0));

    let names = ["cloudburst_messages_received_total", "service.name"];
    collector.wait_for("/v1/metrics", &names, WITHIN);
    // The events of its start and of its end, as there was time for a last request.
    collector.wait_for("/v1/logs", &["serving", "addresses"], WITHIN);
    collector.wait_for("/v1/logs", &["ending", "Ctrl-C"], WITHIN);
}

/// Exports to OpenTelemetry's own collector, which decodes what comes.
#[cfg(all(feature = "otlp", target_os = "linux"))]
#[test]
fn opentelemetrys_collector_understands_metrics_with_exemplars_and_events() {
    use std::{net::TcpListener, process::Command, time::Duration};

    use flow_testbed::{
        collector::{OTELCOL, RealCollector},
        require::Requirement::Program,
    };

    const WITHIN: Duration = Duration::from_secs(20);
    flow_testbed::require!(Program(OTELCOL));
    let directory = tempfile::tempdir().unwrap();
    // Free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let collector = RealCollector::start(Command::new(OTELCOL), address, directory.path());
    let mut server = Listening::start_with(
        &["serve", "--otlp", &format!("http://{address}")],
        &[("OTEL_METRIC_EXPORT_INTERVAL", "500")],
    );
    let ping = ["ping", &server.address(), "--insecure-no-key", "-c2"];
    assert!(as_given(&ping).status.success());
    let metrics = [
        "-> service.name: Str(cloudburst)",
        "-> Name: cloudburst_messages_received_total",
        "-> Name: cloudburst_completion_seconds",
        "Exemplar #0",
        "-> message: Str(2)",
    ];
    collector.wait_for(&metrics, WITHIN);
    assert_eq!(server.interrupt(), Some(0));
    collector.wait_for(&["EventName: serving", "EventName: ending"], WITHIN);
}
