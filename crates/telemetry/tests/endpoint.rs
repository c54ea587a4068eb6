//! The endpoint as a scraper sees it: over a real socket.

use std::{
    io::{self, Read as _},
    net::SocketAddr,
    sync::mpsc,
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;
use flow_telemetry::{
    Descriptor, Kind, ListenError, Metrics, MetricsEndpoint, Readiness, Server, StatusPage, docs,
    page::{Field, Format, Layout, Status, StatusFuture, StatusTable},
    prometheus_client::{collector::Collector, encoding::DescriptorEncoder},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};

#[tokio::test]
async fn a_scrape_is_openmetrics_and_runs_the_collectors() {
    let mut metrics = Metrics::new("test").unwrap();
    metrics.build_info("1.0.0").unwrap();
    let entries = Descriptor::new("entries", Kind::Gauge, "Entries of a table").unwrap();
    let table = Table {
        entries: entries.clone(),
    };
    metrics.collect([&entries], table).unwrap();
    let running = Running::start(metrics, Readiness::new());

    let reply = running.get("/metrics").await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let families = docs::parse_exposition(&reply.body).unwrap();
    let value = |name: &str, labels: &[(&str, &str)]| {
        let family = families.iter().find(|family| family.name == name);
        family.and_then(|family| family.value(labels))
    };
    assert_eq!(value("test_build_info", &[("version", "1.0.0")]), Some(1.0));
    assert_eq!(value("test_entries", &[("family", "ipv6")]), Some(3.0));
    running.stop().await;
}

#[tokio::test]
async fn a_scrape_is_in_the_form_that_is_asked_for() {
    let mut metrics = Metrics::new("test").unwrap();
    metrics.build_info("1.0.0").unwrap();
    let running = Running::start(metrics, Readiness::new());

    let old = "GET /metrics HTTP/1.1\r\nhost: x\r\naccept: text/plain\r\n";
    let reply = running.send(old).await;
    let kind = reply.header("content-type");
    assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(reply.header("vary"), Some("accept, accept-encoding"));
    assert_eq!(reply.header("content-encoding"), None);
    let body = "# TYPE test_build_info gauge\ntest_build_info{version=\"1.0.0\"} 1\n";
    assert!(reply.body.ends_with(body), "{}", reply.body);

    // Prometheus' own head, of which the body is no text.
    let packed = "GET /metrics HTTP/1.1\r\nhost: x\r\naccept-encoding: gzip\r\n\
                  connection: close\r\n\r\n";
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(packed.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    let end = reply.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(reply[..end].to_vec()).unwrap();
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut body = String::new();
    GzDecoder::new(&reply[end + 4..])
        .read_to_string(&mut body)
        .unwrap();
    assert!(body.ends_with("# EOF\n"), "{body}");
    running.stop().await;
}

#[tokio::test]
async fn readiness_flips_and_says_why() {
    let readiness = Readiness::waiting_for("attach", "not attached yet");
    let running = Running::start(Metrics::new("test").unwrap(), readiness.clone());

    let reply = running.get("/ready").await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.body, "not ready: attach: not attached yet\n");
    assert_eq!(running.get("/live").await.status, 200);

    readiness.ok("attach");
    assert_eq!(running.get("/ready").await.status, 200);
    readiness.fail("tunnel", "wan0 is down");
    assert_eq!(running.get("/ready").await.status, 503);

    readiness.degrade("tunnel", "wan1 is down");
    let reply = running.get("/ready").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.body, "ready, but degraded: tunnel: wan1 is down\n");
    readiness.fail("attach", "not attached");
    let reply = running.get("/ready").await;
    assert_eq!(reply.status, 503);
    let both = "not ready: attach: not attached; degraded: tunnel: wan1 is down\n";
    assert_eq!(reply.body, both);
    running.stop().await;
}

#[tokio::test]
async fn refuses_what_it_does_not_serve() {
    let running = Running::start(Metrics::new("test").unwrap(), Readiness::new());

    let reply = running.send("POST /metrics HTTP/1.1\r\nhost: x\r\n").await;
    assert_eq!(reply.status, 405);
    assert_eq!(reply.header("allow"), Some("GET"));
    assert_eq!(running.get("/secrets").await.status, 404);
    assert!(running.get("/").await.body.contains("href=\"/metrics\""));
    running.stop().await;
}

#[tokio::test]
async fn a_page_shows_people_and_programs_the_same() {
    let readiness = Readiness::waiting_for("tunnel", "wan0 is <down>");
    let status = Fixed(Ok(
        json!({ "age_s": 0.25, "rows": [{ "name": "a&b", "bytes": 1_500 }] }),
    ));
    let running = Running::start_with(status, readiness.clone());

    let reply = running.get("/").await;
    assert_eq!(reply.status, 200);
    for shown in [
        "250 ms",
        "a&amp;b",
        "1.50 kB",
        "tunnel: wan0 is &lt;down&gt;",
    ] {
        assert!(reply.body.contains(shown), "{shown}: {}", reply.body);
    }
    let policy = reply.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-"),
        "{policy}"
    );
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));

    let reply = running.get("/status.json").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let reported: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(reported["rows"][0]["bytes"], 1_500);
    assert_eq!(
        (&reported["ready"], &reported["age_s"]),
        (&json!(false), &json!(0.25))
    );
    readiness.ok("tunnel");
    let reply = running.get("/status.json").await;
    assert!(
        reply.body.contains("\"readiness\":\"ready\""),
        "{}",
        reply.body
    );
    running.stop().await;
}

#[tokio::test]
async fn a_status_that_cannot_be_read_or_has_no_end_is_reported_as_such() {
    for status in [
        Fixed(Err("the table has gone".to_owned())),
        Fixed(Ok(json!({ "rows": "long ".repeat(100_000) }))),
        Fixed(Ok(json!("no object"))),
    ] {
        let running = Running::start_with(status, Readiness::new());
        let reply = running.get("/status.json").await;
        assert_eq!(reply.status, 503);
        assert!(reply.body.len() < 200, "{}", reply.body.len());
        let reported: Value = serde_json::from_str(&reply.body).unwrap();
        assert!(
            reported["error"].as_str().unwrap().contains("the "),
            "{reported}"
        );
        assert_eq!(running.get("/live").await.status, 200);
        running.stop().await;
    }
    let running = Running::start_with(
        Fixed(Err("the table has gone".to_owned())),
        Readiness::new(),
    );
    let reply = running.get("/").await;
    assert_eq!(reply.status, 200, "its script tries again");
    assert!(reply.body.contains("the table has gone"));
    running.stop().await;
}

#[tokio::test]
async fn without_a_page_there_is_no_status() {
    let running = Running::start(Metrics::new("test").unwrap(), Readiness::new());
    assert_eq!(running.get("/status.json").await.status, 404);
    running.stop().await;
}

const LAYOUT: Layout = Layout {
    title: "a test",
    about: "Nothing of importance",
    facts: &[Field::new("age_s", "Age", Format::Seconds)],
    tables: &[StatusTable {
        key: "rows",
        caption: "Rows",
        note: "",
        empty: "None.",
        columns: &[
            Field::new("name", "Name", Format::Text),
            Field::new("bytes", "Bytes", Format::Bytes),
        ],
    }],
    documents: &[],
};

#[derive(Debug)]
struct Fixed(Result<Value, String>);

impl Status for Fixed {
    fn status(&self) -> StatusFuture<'_> {
        Box::pin(async { self.0.clone() })
    }
}

#[tokio::test]
async fn a_head_without_end_is_cut_off() {
    let running = Running::start(Metrics::new("test").unwrap(), Readiness::new());
    let endless = format!("GET / HTTP/1.1\r\nx-padding: {}\r\n", "a".repeat(64 * 1024));
    // The endpoint may close while the head is still being sent.
    if let Ok(reply) = running.exchange(&endless).await {
        assert!((400..500).contains(&reply.status), "{}", reply.status);
    }
    assert_eq!(running.get("/live").await.status, 200);
    running.stop().await;
}

/// More than are served at a time, each with the beginning of a head.
async fn slow_clients(address: SocketAddr) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..80 {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /live HTTP/1.1\r\n").await.unwrap();
        clients.push(client);
    }
    clients
}

/// An endpoint with a scrape under way, which ends when something is sent to the last.
async fn stalled_scrape() -> (Running, JoinHandle<io::Result<Reply>>, mpsc::Sender<()>) {
    let (release, released) = mpsc::channel();
    let (start, mut started) = tokio::sync::mpsc::unbounded_channel();
    let stalled = Stalled {
        start,
        released: std::sync::Mutex::new(released),
    };
    let mut metrics = Metrics::new("test").unwrap();
    metrics.collect([], stalled).unwrap();
    let running = Running::start(metrics, Readiness::new());

    let scrape = tokio::spawn(exchange(running.address, head("/metrics")));
    started.recv().await.unwrap();
    (running, scrape, release)
}

#[tokio::test]
async fn slow_clients_keep_nobody_out() {
    let (running, scrape, release) = stalled_scrape().await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.extend(slow_clients(running.address).await);
        let asked = tokio::time::timeout(Duration::from_secs(3), running.get("/live"));
        assert_eq!(asked.await.expect("at once").status, 200);
    }
    release.send(()).unwrap();
    let scraped = scrape.await.unwrap().expect("a request is let finish");
    assert_eq!(scraped.status, 200);
    running.stop().await;
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_its_connection_in_seconds() {
    let running = Running::start(Metrics::new("test").unwrap(), Readiness::new());
    let mut slow = TcpStream::connect(running.address).await.unwrap();
    // A byte now and then is not enough.
    let closed = async {
        loop {
            let mut reply = [0; 256];
            let read = tokio::time::timeout(Duration::from_millis(500), slow.read(&mut reply));
            match read.await {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(_)) => {}
                Err(_) if slow.write_all(b"G").await.is_err() => return,
                Err(_) => {}
            }
        }
    };
    let closed = tokio::time::timeout(Duration::from_secs(10), closed).await;
    closed.expect("closed by the deadline");
    running.stop().await;
}

#[tokio::test]
async fn a_slow_collector_does_not_stall_the_runtime() {
    let (running, scrape, release) = stalled_scrape().await;
    // This test has one thread: were the collector on it, nothing would answer.
    assert_eq!(running.get("/live").await.status, 200);
    assert!(!scrape.is_finished());
    release.send(()).unwrap();
    assert_eq!(scrape.await.unwrap().unwrap().status, 200);
    running.stop().await;
}

#[tokio::test]
async fn a_collector_that_panics_fails_its_scrape_alone() {
    let mut metrics = Metrics::new("test").unwrap();
    metrics.collect([], Panicking).unwrap();
    let running = Running::start(metrics, Readiness::new());
    assert_eq!(running.get("/metrics").await.status, 500);
    assert_eq!(running.get("/live").await.status, 200);
    running.stop().await;
}

#[tokio::test]
async fn shutting_down_does_not_wait_for_idle_clients() {
    let running = Running::start(Metrics::new("test").unwrap(), Readiness::new());
    let idle = TcpStream::connect(running.address).await.unwrap();
    let asked = Instant::now();
    running.stop().await;
    assert!(asked.elapsed() < Duration::from_secs(4));
    drop(idle);
}

#[test]
fn a_port_in_use_is_refused_with_a_remedy() {
    let first = Server::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let error = Server::bind(first.local_addr()).unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }));
    let message = error.to_string();
    assert!(message.contains(&first.local_addr().to_string()));
    assert!(message.contains("choose another"));
}

#[test]
fn an_address_of_another_machine_is_refused() {
    // 192.0.2.0/24 is set aside for documentation (RFC 5737).
    let error = Server::bind(([192, 0, 2, 1], 0).into()).unwrap_err();
    assert!(matches!(error, ListenError::NotLocal { .. }), "{error}");
}

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Running {
    fn start(metrics: Metrics, readiness: Readiness) -> Self {
        Self::serve(MetricsEndpoint::new(metrics, readiness))
    }

    fn start_with(status: Fixed, readiness: Readiness) -> Self {
        let metrics = Metrics::new("test").unwrap();
        Self::serve(
            MetricsEndpoint::new(metrics, readiness).with_page(StatusPage::new(LAYOUT, status)),
        )
    }

    fn serve(endpoint: MetricsEndpoint) -> Self {
        let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.serve(endpoint, async {
            let _ = stopped.await;
        }));
        Self {
            address,
            stop,
            task,
        }
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(&head(path)).await
    }

    async fn send(&self, head: &str) -> Reply {
        self.exchange(head).await.unwrap()
    }

    async fn exchange(&self, head: &str) -> io::Result<Reply> {
        exchange(self.address, head.to_owned()).await
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

fn head(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n")
}

async fn exchange(address: SocketAddr, head: String) -> io::Result<Reply> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(b"connection: close\r\n\r\n").await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    let (head, body) = reply
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok(Reply {
        status: status.ok_or(io::ErrorKind::InvalidData)?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

#[derive(Debug)]
struct Table {
    entries: Descriptor,
}

impl Collector for Table {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let mut family = self.entries.encode(&mut encoder)?;
        for (name, entries) in [("ipv4", 12_i64), ("ipv6", 3)] {
            family
                .encode_family(&[("family", name)])?
                .encode_gauge(&entries)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Stalled {
    start: tokio::sync::mpsc::UnboundedSender<()>,
    released: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Collector for Stalled {
    fn encode(&self, _: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        self.start.send(()).map_err(|_| std::fmt::Error)?;
        self.released
            .lock()
            .unwrap()
            .recv_timeout(Duration::from_secs(8))
            .map_err(|_| std::fmt::Error)
    }
}

#[derive(Debug)]
struct Panicking;

impl Collector for Panicking {
    fn encode(&self, _: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        panic!("a collector with a defect")
    }
}
