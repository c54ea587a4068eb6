//! The metrics of a live agent, held to their page and to what Prometheus takes.

use crate::support::daemon;
use crate::support::site;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

use daemon::Daemon;
use flow_telemetry::Kind;
use flow_telemetry::docs::{self, Family};
use flow_testbed::prometheus::{self, Expression, Server};
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::topology::TUNNELS;
use nix::sys::signal::Signal;
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
        // What leaves by tunnels is looked at every few seconds, and before that there is nothing to show.
        site::within(SWEPT, "a look at the tunnels", || {
            let (_, text) = site.get("/metrics").ok()?;
            text.contains("\nsplitter_tunnel_egress_packets_total{")
                .then_some(())
        });
        test(site, long);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

fn scrape(site: &Site) -> Vec<Family> {
    let (status, text) = site.get("/metrics").expect("it answers");
    assert_eq!(status, 200);
    docs::parse_exposition(&text).expect("it is OpenMetrics")
}

/// Nothing is shown of it before a spine has reported, as in `fabric::heard`.
const OF_A_FABRIC: &str = "splitter_tunnel_spine_report_age_seconds";

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
            let is_shown = !family.samples.is_empty();
            assert_eq!(is_shown, row.name != OF_A_FABRIC, "{}", row.name);
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

/// What pages name that begins like a metric and is none: crates, and the file of a package.
const OTHERS: [&str; 3] = ["splitter_policy", "splitter_agent", "splitter_0"];

#[test]
fn no_page_names_a_metric_that_does_not_exist() {
    after_traffic(|site, _long| {
        let (_, text) = site.get("/metrics").expect("it answers");
        // A leaf's and a spine's are served by an agent of its own.
        let of_fabric = splitter_agent::metrics::fabric_names();
        let live: BTreeSet<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split([' ', '{']).next())
            .chain(
                text.lines()
                    .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()),
            )
            .chain(of_fabric.iter().map(String::as_str))
            .collect();
        let mut pages = Vec::new();
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src");
        find_pages(&docs, &mut pages);
        let mut named = 0;
        for page in pages {
            let text = std::fs::read_to_string(&page).expect("it is there");
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let names = words.filter(|word| word.starts_with("splitter_"));
            for word in names.filter(|word| !OTHERS.contains(word)) {
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
        assert!(plain("splitter_process_cpu_seconds_total") > 0.0);
        assert!(plain("splitter_process_resident_memory_bytes") > 1e6);
        assert!(plain("splitter_process_open_fds") > 3.0);
        let started =
            UNIX_EPOCH + Duration::from_secs_f64(plain("splitter_process_start_time_seconds"));
        let running = started.elapsed().expect("it has started before");
        assert!(running < Duration::from_secs(300), "{running:?}");
        assert_eq!(labelled("splitter_instance_info", "name", "test"), 1.0);
        let sweep_s = plain("splitter_sweep_seconds");
        assert!(sweep_s > 0.0 && sweep_s < 5.0, "{sweep_s}");
        let scrape_s = plain("splitter_scrape_seconds");
        assert!(scrape_s > 0.0 && scrape_s < 5.0, "{scrape_s}");
        // 100 Mbit/s are stated for each.
        for device in TUNNELS {
            let name = "splitter_tunnel_capacity_bytes_per_second";
            assert_eq!(labelled(name, "device", device), 12_500_000.0);
        }

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

#[test]
fn queues_of_tunnels_are_counted_with_what_they_drop() {
    require!(Program("tc"));
    on_site(|site| {
        // Less than two segments wait.
        let queue = "root tbf rate 20mbit burst 3100 limit 3100";
        let line = format!("tc qdisc replace dev {} {queue}", TUNNELS[0]);
        site.border().run(&line).expect("it has a queue");
        let daemon = site.run();
        let mut flow = Connection::open(&site.topology);
        site.wait_for("a packet that found no place", || {
            flow.send(20_000);
            let live = scrape(site);
            let of_short = |name| value(&live, name, "device", TUNNELS[0]);
            let sent = of_short("splitter_tunnel_queue_sent_bytes_total");
            let waiting = of_short("splitter_tunnel_queue_backlog_bytes");
            assert!(waiting <= 3_100.0, "{waiting}");
            (sent > 10_000.0 && of_short("splitter_tunnel_queue_drops_total") > 0.0).then_some(())
        });
        assert!(daemon.end(Signal::SIGTERM).success());
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

/// The expressions of dashboards and rules, of which each has an answer after traffic.
const DASHBOARD: &str = include_str!("../../../packaging/grafana/splitter.json");

/// What is `NaN` on a site whose tunnels have no peers to probe.
const OF_PROBES: [&str; 2] = [
    "splitter_tunnel_round_trip_seconds",
    "splitter_tunnel_loss_ratio",
];

#[test]
fn prometheus_answers_all_that_dashboard_and_rules_ask() {
    require!(Program("prometheus"));
    on_site(|site| {
        let daemon = site.run();
        let _prometheus = start_prometheus(site);
        site.wait_for("the first scrape", || {
            let started = query(site, "splitter_flows_started_total").ok()?;
            (!started.is_empty()).then_some(())
        });
        for bytes in [10_000, 400_000] {
            let mut flow = Connection::open(&site.topology);
            flow.send(bytes);
            // The pause that lets it move to the other tunnel.
            std::thread::sleep(Duration::from_millis(50));
            flow.send(bytes);
            flow.close();
        }
        let asked = prometheus::of_dashboard(DASHBOARD).expect("it is JSON");
        let rules = site.border().enter(|| SERVER.rules());
        let rules = rules.expect("the border is there").expect("no rule failed");
        assert!(asked.len() > 20 && rules.len() > 8);
        for expression in asked.iter().chain(&rules) {
            holds_data(site, expression);
        }
        // Numbers are those of the traffic.
        let long = query(
            site,
            "splitter_packets_total{class=\"long\",tunnel=\"long\"}",
        );
        assert!(long.expect("it answers")[0] >= 100.0);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

/// Waits until an expression has a result that is a number; of an alert, until what it looks at has one.
fn holds_data(site: &Site, expression: &Expression) {
    let asked = match expression.is_alert {
        false => vec![expression.text.as_str()],
        true => prometheus::metrics_in(&expression.text, "splitter_"),
    };
    for text in asked {
        let may_be_unknown = OF_PROBES.iter().any(|name| text.contains(name));
        site.wait_for(&format!("{} ({text})", expression.place), || {
            let values = query(site, text).unwrap_or_else(|error| panic!("{error}"));
            let is_known = |value: &f64| may_be_unknown || !value.is_nan();
            values.iter().any(is_known).then_some(())
        });
    }
}

fn query(site: &Site, text: &str) -> std::io::Result<Vec<f64>> {
    let answer = site.border().enter(|| SERVER.query(text));
    answer.expect("the border is there")
}

/// In the border's namespace, where nobody else listens.
const SERVER: Server = Server(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090));

fn start_prometheus(site: &Site) -> Daemon {
    let config = site.path("prometheus.yml");
    let rules =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus/splitter.rules.yml");
    let text = prometheus::configuration(&["127.0.0.1:9461"], &[&rules]);
    std::fs::write(&config, text).expect("a file");
    let mut command = site.border().command("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            site.path("tsdb").display()
        ))
        .arg(format!("--web.listen-address={}", SERVER.0));
    Daemon::start(command, &site.path("prometheus-log"))
}
