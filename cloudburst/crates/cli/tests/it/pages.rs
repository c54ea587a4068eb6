//! What is documented and what the command says of itself are the same.

use flow_telemetry::docs;
#[cfg(target_os = "linux")]
use flow_testbed::prometheus;

use super::{COMMANDS_PAGE, Listening, METRICS_PAGE, cloudburst, stdout};

#[test]
fn page_and_scrape_agree_both_ways() {
    let server = Listening::start(&["serve", "--metrics", "127.0.0.1:0"]);
    assert!(
        cloudburst(&["ping", &server.address(), "-c2", "-i0.02"])
            .status
            .success()
    );
    let (documented, live) = (docs::parse_page(METRICS_PAGE).unwrap(), server.scrape());
    let mismatches = docs::compare(&documented, &live);
    let reported: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
    assert!(reported.is_empty(), "{reported:#?}");
    for row in &documented {
        let family = live.iter().find(|family| family.name == row.name).unwrap();
        for label in row.labels.iter().filter(|label| !label.values.is_empty()) {
            let mut listed: Vec<&str> = label.values.iter().map(String::as_str).collect();
            listed.sort_unstable();
            let live: Vec<&str> = family.label_values(&label.name).into_iter().collect();
            assert_eq!(listed, live, "{}", row.name);
        }
    }
    let value = |name: &str| {
        let family = live.iter().find(|family| family.name == name);
        family.and_then(|family| family.value(&[]))
    };
    assert_eq!(value("cloudburst_messages_received_total"), Some(2.0));
    assert_eq!(value("cloudburst_completion_seconds"), Some(2.0));
    for (reason, _) in cloudburst::TransportStatistics::default().refused.iter() {
        assert!(
            COMMANDS_PAGE.contains(&format!("`{reason}`")),
            "{reason} is not explained"
        );
    }
}

/// It answers each request with a message of its own: the scrape has their exemplars.
#[test]
fn scrape_has_messages_as_exemplars_and_the_older_format_has_none() {
    let server = Listening::start(&["serve", "--metrics", "127.0.0.1:0"]);
    let ping = ["ping", &server.address(), "-c3", "-i0.02"];
    assert!(cloudburst(&ping).status.success());
    let scraped = server.scrape();
    let name = "cloudburst_completion_seconds";
    let family = scraped.iter().find(|it| it.name == name).unwrap();
    let buckets = family
        .samples
        .iter()
        .filter(|it| it.name.ends_with("_bucket"));
    let (mut below, mut seen) = (0.0, Vec::new());
    for bucket in buckets {
        let bound: f64 = bucket.labels["le"].parse().unwrap();
        if let Some(exemplar) = &bucket.exemplar {
            assert!((below..=bound).contains(&exemplar.value), "{bucket:?}");
            assert!(exemplar.unix_s > Some(1.7e9), "{bucket:?}");
            let names: Vec<&str> = exemplar.labels.keys().map(String::as_str).collect();
            assert_eq!(names, ["message", "paths", "peer", "sent", "symbols"]);
            seen.push(exemplar.labels["message"].clone());
        }
        below = bound;
    }
    assert!(seen.contains(&"3".to_owned()), "the last one: {seen:?}");
    let classic = server.get_as("/metrics", "text/plain");
    let samples = classic.lines().filter(|line| !line.starts_with('#'));
    let wrong: Vec<_> = samples.filter(|line| line.contains('#')).collect();
    assert!(classic.contains(name) && wrong.is_empty(), "{wrong:?}");
}

#[test]
fn completions_and_man_page_know_the_commands() {
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let output = cloudburst(arguments);
        assert!(output.status.success());
        assert!(stdout(&output).contains("keygen"));
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    assert!(cloudburst(&["man", "--out", out]).status.success());
    let page = std::fs::read_to_string(directory.path().join("cloudburst-serve.1")).unwrap();
    assert!(page.contains("cloudburst\\-serve"), "{page}");
    assert!(directory.path().join("cloudburst.1").is_file());
}

#[test]
fn every_command_and_flag_is_on_the_page() {
    for command in ["serve", "send", "recv", "ping", "perf", "paths", "keygen"] {
        assert!(
            COMMANDS_PAGE.contains(&format!("\n## {command}\n")),
            "{command}"
        );
        let help = stdout(&cloudburst(&[command, "--help"]));
        let words = help
            .split([' ', ',', '\n'])
            .filter(|it| it.starts_with("--"));
        for flag in words.filter(|it| !matches!(*it, "--help" | "--version")) {
            let flag = flag.trim_end_matches(['.', '`', ':', ';']);
            assert!(COMMANDS_PAGE.contains(flag), "{flag} of {command}");
        }
    }
}

/// The expressions of dashboards and rules, of which each has an answer after traffic.
#[cfg(target_os = "linux")]
#[test]
fn prometheus_answers_all_that_dashboard_and_rules_ask() {
    use flow_testbed::require::Requirement::Program;
    flow_testbed::require!(Program("prometheus"));
    const DASHBOARD: &str = include_str!("../../../../../packaging/grafana/cloudburst.json");
    // It answers each request with a message of its own, so that it has figures of both directions.
    let server = Listening::start(&["serve", "--metrics", "127.0.0.1:0"]);
    let directory = tempfile::tempdir().unwrap();
    let scraped = Prometheus::start(directory.path(), server.metrics.unwrap());
    scraped.wait_for("cloudburst_build_info");
    let ping = ["ping", &server.address(), "-c20", "-i0.1"];
    assert!(cloudburst(&ping).status.success());
    let asked = prometheus::of_dashboard(DASHBOARD).unwrap();
    let rules = scraped.server.rules().unwrap();
    assert!(asked.len() > 15 && rules.len() > 5);
    scraped.wait_for_exemplars("cloudburst_completion_seconds_bucket");
    for expression in asked.iter().chain(&rules) {
        match expression.is_alert {
            false => scraped.wait_for(&expression.text),
            true => prometheus::metrics_in(&expression.text, "cloudburst_")
                .into_iter()
                .for_each(|metric| scraped.wait_for(metric)),
        }
    }
}

/// A Prometheus that scrapes an address of this machine. Killed on drop.
#[cfg(target_os = "linux")]
struct Prometheus {
    child: std::process::Child,
    server: prometheus::Server,
}

#[cfg(target_os = "linux")]
impl Prometheus {
    fn start(directory: &std::path::Path, target: std::net::SocketAddr) -> Self {
        let rules = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../packaging/prometheus/cloudburst.rules.yml");
        let text = prometheus::configuration(&[&target.to_string()], &[&rules]);
        let config = directory.join("prometheus.yml");
        std::fs::write(&config, text).unwrap();
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        drop(port);
        let log = std::fs::File::create(directory.join("log")).unwrap();
        let child = std::process::Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("tsdb").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--enable-feature=exemplar-storage")
            .stderr(log)
            .spawn()
            .unwrap();
        let server = prometheus::Server(address);
        Self { child, server }
    }

    /// Waits until a query has a result that is a number.
    fn wait_for(&self, query: &str) {
        let patience = std::time::Duration::from_secs(30);
        flow_testbed::wait::within(patience, query, || {
            let values = self.server.query(query).ok()?;
            values.iter().any(|value| !value.is_nan()).then_some(())
        });
    }

    /// Waits until exemplars of a metric are stored.
    fn wait_for_exemplars(&self, metric: &str) {
        let patience = std::time::Duration::from_secs(30);
        flow_testbed::wait::within(patience, metric, || {
            let labels = self.server.exemplars(metric).ok()?;
            labels
                .iter()
                .any(|it| it.contains_key("message"))
                .then_some(())
        });
    }
}

#[cfg(target_os = "linux")]
impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
