//! The metrics of a live agent, held to their page and to what Prometheus takes.

use crate::support::daemon;
use crate::support::site;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use daemon::Daemon;
use flow_telemetry::Kind;
use flow_telemetry::docs::{self, Family};
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use serde_json::Value;
use site::{Connection, Site, on_site};

const PAGE: &str = include_str!("../../../docs/src/reference/metrics.md");
/// Much longer than the agent leaves between two sweeps of its table.
const SWEPT: Duration = Duration::from_secs(30);

#[test]
fn page_is_what_the_families_declare() {
    const COMMAND: &str = "UPDATE=1 cargo test -p splitter-agent --test it page_is_what";
    let filled = splitter_agent::metrics::fill_reference(PAGE).expect("the markers name sections");
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../docs/src/reference/metrics.md"
        );
        std::fs::write(path, filled).expect("the page can be written");
    } else {
        assert!(PAGE == filled, "the page has other tables; run `{COMMAND}`");
    }
}

/// Runs a test on a site with a daemon that has seen a short and a long flow, or says why not.
fn after_traffic(test: impl FnOnce(&Site, Connection) + Send) {
    on_site(|site| {
        let daemon = site.run();
        let mut short = Connection::open(&site.topology);
        short.send(10_000);
        short.close();
        let mut long = Connection::open(&site.topology);
        long.send(200_000);
        // The pause that lets it move to the other tunnel.
        std::thread::sleep(Duration::from_millis(50));
        long.send(200_000);
        test(site, long);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

fn scrape(site: &Site) -> Vec<Family> {
    let (status, text) = site.get("/metrics").expect("it answers");
    assert_eq!(status, 200);
    docs::parse_exposition(&text).expect("it is OpenMetrics")
}

#[test]
fn page_and_scrape_agree_both_ways() {
    after_traffic(|site, _long| {
        let (documented, live) = (docs::parse_page(PAGE).expect("it is a page"), scrape(site));
        let mismatches = docs::compare(&documented, &live);
        let reported: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
        assert!(reported.is_empty(), "{reported:#?}");

        // No reason is left out on the page, and none stands there that does not exist.
        for row in &documented {
            let family = live.iter().find(|family| family.name == row.name);
            let family = family.expect("compared above");
            assert!(!family.help.is_empty(), "{}", row.name);
            assert!(!family.samples.is_empty(), "{} has no samples", row.name);
            if family.kind == Kind::Histogram {
                // Without this bucket Prometheus computes no quantiles.
                assert!(family.label_values("le").contains("+Inf"), "{}", row.name);
            }
            for label in row.labels.iter().filter(|label| !label.values.is_empty()) {
                let listed: BTreeSet<&str> = label.values.iter().map(String::as_str).collect();
                assert_eq!(listed, family.label_values(&label.name), "{}", row.name);
            }
        }
    });
}

/// What pages name that begins like a metric and is none.
const CRATES: [&str; 2] = ["splitter_policy", "splitter_agent"];

#[test]
fn no_page_names_a_metric_that_does_not_exist() {
    after_traffic(|site, _long| {
        let (_, text) = site.get("/metrics").expect("it answers");
        let live: BTreeSet<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split([' ', '{']).next())
            .chain(
                text.lines()
                    .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()),
            )
            .collect();
        let mut pages = Vec::new();
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src");
        find_pages(&docs, &mut pages);
        let mut named = 0;
        for page in pages {
            let text = std::fs::read_to_string(&page).expect("it is there");
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let names = words.filter(|word| word.starts_with("splitter_"));
            for word in names.filter(|word| !CRATES.contains(word)) {
                named += 1;
                assert!(live.contains(word), "{}: {word}", page.display());
            }
        }
        assert!(named > 10, "{named} metrics are named");
    });
}

fn find_pages(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("it is there").path();
        if path.is_dir() {
            find_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

#[test]
fn every_figure_is_what_has_happened() {
    after_traffic(|site, mut long| {
        // The totals is taken every few seconds.
        let live = site::within(SWEPT, "a sweep", || {
            let live = scrape(site);
            (value(&live, "splitter_flows", "class", "long") == 1.0).then_some(live)
        });
        let labelled = |name: &str, label: &str, of: &str| value(&live, name, label, of);
        let plain = |name: &str| sample(&live, name, &[]);

        assert_eq!(plain("splitter_flows_started_total"), 2.0);
        assert_eq!(plain("splitter_flows_long_total"), 1.0);
        let handovers = |reason| labelled("splitter_handovers_total", "reason", reason);
        assert_eq!(handovers("drained") + handovers("max_wait"), 1.0);
        for (name, label, of, expected) in [
            ("splitter_flows_finished_total", "class", "short", 1.0),
            ("splitter_flow_completion_seconds", "class", "short", 1.0),
            ("splitter_flow_completion_seconds", "class", "long", 0.0),
            ("splitter_attached_interfaces", "mode", "native", 2.0),
            ("splitter_flow_table_capacity", "family", "ipv4", 4096.0),
        ] {
            assert_eq!(labelled(name, label, of), expected, "{name} {of}");
        }
        assert!(labelled("splitter_flow_table_entries", "family", "ipv4") >= 1.0);
        assert_eq!(plain("splitter_evictions_total"), 0.0);
        assert_eq!(plain("splitter_mark_failures_total"), 0.0);

        let of = |class, tunnel| [("class", class), ("tunnel", tunnel)];
        let packets = |class, tunnel| sample(&live, "splitter_packets_total", &of(class, tunnel));
        // SYN, ACK, 7 packets and FIN of the one flow, 40 packets of the other one.
        let short = packets("short", "short");
        assert!((47.0..=60.0).contains(&short), "{short}");
        assert_eq!(packets("short", "long"), 0.0);
        assert!(
            packets("long", "long") >= 100.0,
            "{}",
            packets("long", "long")
        );
        let bytes = sample(&live, "splitter_bytes_total", &of("long", "long"));
        assert!(bytes > 1_000.0 * packets("long", "long"), "{bytes}");

        long.send(10_000);
        long.close();
        site.wait_for("the long flow to finish", || {
            let finished = value(
                &scrape(site),
                "splitter_flow_completion_seconds",
                "class",
                "long",
            );
            (finished == 1.0).then_some(())
        });
    });
}

/// The sample of a family that has a label of this value.
fn value(families: &[Family], name: &str, label: &str, of: &str) -> f64 {
    sample(families, name, &[(label, of)])
}

fn sample(families: &[Family], name: &str, labels: &[(&str, &str)]) -> f64 {
    let family = families.iter().find(|family| family.name == name);
    let value = family.and_then(|family| family.value(labels));
    value.unwrap_or_else(|| panic!("no {name} with {labels:?}"))
}

#[test]
fn promtool_finds_nothing_wrong() {
    require!(Program("promtool"));
    after_traffic(|site, _long| {
        let (_, text) = site.get("/metrics").expect("it answers");
        let mut child = site
            .border()
            .command("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it is there");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin
            .write_all(in_text_format(&text).as_bytes())
            .expect("it reads");
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
    });
}

/// OpenMetrics in Prometheus' older text format, the only one that promtool reads: there a family
/// has the name of its samples, and neither info, unit nor end exist.
fn in_text_format(open_metrics: &str) -> String {
    let kinds: BTreeMap<&str, &str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    let mut text = String::new();
    for line in open_metrics.lines() {
        let line = match line.split(' ').collect::<Vec<_>>()[..] {
            ["#", "UNIT", ..] | ["#", "EOF"] => continue,
            ["#", keyword, name, ..] => {
                let (suffix, kind) = match kinds[name] {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    other => ("", other),
                };
                let rest = match keyword {
                    "TYPE" => kind,
                    _ => line.splitn(4, ' ').last().unwrap_or_default(),
                };
                format!("# {keyword} {name}{suffix} {rest}")
            }
            _ => line.to_owned(),
        };
        text += &line;
        text.push('\n');
    }
    text
}

#[test]
fn prometheus_scrapes_the_agent_and_answers_queries() {
    require!(Program("prometheus"));
    after_traffic(|site, _long| {
        let _prometheus = start_prometheus(site);
        let query = "splitter_packets_total{class=\"long\",tunnel=\"long\"}";
        let packets = site.wait_for("Prometheus to know the long flow", || ask(site, query));
        assert!(packets >= 100.0, "{packets}");
        // Types and histograms are understood as well.
        let median =
            "histogram_quantile(0.5,splitter_flow_completion_seconds_bucket{class=\"short\"})";
        let seconds = site.wait_for("a quantile", || ask(site, median));
        assert!((0.0..1.0).contains(&seconds), "{seconds}");
    });
}

fn start_prometheus(site: &Site) -> Daemon {
    let config = site.path("prometheus.yml");
    let text = "global: {scrape_interval: 500ms}\n\
                scrape_configs:\n\
                - job_name: splitter\n\
                \x20 static_configs: [{targets: ['127.0.0.1:9461']}]\n";
    std::fs::write(&config, text).expect("a file");
    let mut command = site.border().command("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            site.path("tsdb").display()
        ))
        .arg("--web.listen-address=127.0.0.1:9090");
    Daemon::start(command, &site.path("prometheus-log"))
}

/// The first result of a query, once there is one.
fn ask(site: &Site, query: &str) -> Option<f64> {
    let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let answer = site.border().enter(move || {
        let mut stream = TcpStream::connect("127.0.0.1:9090").ok()?;
        stream.set_read_timeout(Some(site::PATIENCE)).ok()?;
        let head = format!("GET /api/v1/query?query={escaped} HTTP/1.0\r\nHost: x\r\n\r\n");
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    });
    let answer = answer.expect("the border is there")?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let reported: Value = serde_json::from_str(body).ok()?;
    let value = reported["data"]["result"][0]["value"][1].as_str()?.parse();
    value.ok().filter(|value: &f64| !value.is_nan())
}
