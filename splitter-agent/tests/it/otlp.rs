//! Export to an OpenTelemetry collector, and what a build without it says.

use crate::support::site::on_site;

#[cfg(not(feature = "otlp"))]
#[test]
fn build_without_export_refuses_to_start_and_changes_nothing() {
    on_site(|site| {
        let before = site.routing();
        site.configure("[otlp]\nendpoint = 'http://127.0.0.1:4318'\n");
        let words = site.refused(&["run"], 3);
        assert!(words.contains("built without it"), "{words}");
        assert!(words.contains("--features otlp"), "{words}");
        assert_eq!(site.routing(), before);
    });
}

#[cfg(feature = "otlp")]
#[test]
fn metrics_spans_and_events_reach_a_collector() {
    use std::time::Duration;

    use flow_testbed::collector::Collector;
    use nix::sys::signal::Signal;

    /// Spans wait for five seconds.
    const WITHIN: Duration = Duration::from_secs(30);

    on_site(|site| {
        let mut collector = site.border().enter(Collector::listen).expect("it exists");
        site.configure(&format!("[otlp]\nendpoint = '{}'\n", collector.url()));
        let daemon = site.run();
        let families = ["splitter_flow_completion_seconds", "splitter_packets_total"];
        collector.wait_for("/v1/metrics", &families, WITHIN);
        let who = ["service.name", "splitter", "instance", "test", "sites"];
        collector.wait_for("/v1/metrics", &who, WITHIN);

        assert!(site.splitter(&["reload"]).status.success());
        let reload = ["control_request", "reload", "reload_asked"];
        collector.wait_for("/v1/traces", &reload, WITHIN);
        collector.wait_for("/v1/logs", &["reload_asked", "config_unchanged"], WITHIN);
        let taken = "splitter_otlp_requests_total{signal=\"traces\",result=\"taken\"}";
        assert!(site.metric(taken) >= 1.0);

        assert!(daemon.end(Signal::SIGTERM).success());
        collector.wait_for("/v1/logs", &["ending", "SIGTERM"], WITHIN);
        collector.wait_for("/v1/traces", &["down"], WITHIN);
    });
}

/// Exports to OpenTelemetry's own collector, which decodes what comes.
#[cfg(feature = "otlp")]
#[test]
fn opentelemetrys_collector_understands_metrics_spans_and_events() {
    use std::time::Duration;

    use flow_testbed::{
        collector::{OTELCOL, RealCollector},
        require,
        require::Requirement::Program,
    };
    use nix::sys::signal::Signal;

    const WITHIN: Duration = Duration::from_secs(30);
    require!(Program(OTELCOL));
    on_site(|site| {
        let directory = tempfile::tempdir().unwrap();
        let address = "127.0.0.1:4318".parse().unwrap();
        let otelcol = site.border().command(OTELCOL);
        let collector = RealCollector::start(otelcol, address, directory.path());
        site.configure(&format!("[otlp]\nendpoint = 'http://{address}'\n"));
        let daemon = site.run();
        assert!(site.splitter(&["reload"]).status.success());
        let metrics = [
            "-> service.name: Str(splitter)",
            "-> instance: Str(test)",
            "-> Name: splitter_packets_total",
            "-> IsMonotonic: true",
            "-> AggregationTemporality: Cumulative",
            "-> Name: splitter_flow_completion_seconds",
            "-> DataType: Histogram",
        ];
        collector.wait_for(&metrics, WITHIN);
        collector.wait_for(&["Name           : control_request"], WITHIN);
        collector.wait_for(&["EventName: reload_asked"], WITHIN);
        assert!(daemon.end(Signal::SIGTERM).success());
        collector.wait_for(&["EventName: ending"], WITHIN);
    });
}
