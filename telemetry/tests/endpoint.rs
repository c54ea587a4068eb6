//! The endpoint as a scraper sees it: over a real socket.

use std::{
    io,
    net::SocketAddr,
    sync::mpsc,
    time::{Duration, Instant},
};

use flow_telemetry::{
    BindError, Descriptor, Endpoint, Kind, Metrics, Readiness, Server, docs,
    prometheus_client::{collector::Collector, encoding::DescriptorEncoder},
};
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

#[tokio::test]
async fn a_slow_collector_does_not_stall_the_runtime() {
    let (release, released) = mpsc::channel();
    let mut metrics = Metrics::new("test").unwrap();
    metrics
        .collect([], Stalled(std::sync::Mutex::new(released)))
        .unwrap();
    let running = Running::start(metrics, Readiness::new());

    let scrape = tokio::spawn(exchange(running.address, head("/metrics")));
    tokio::time::sleep(Duration::from_millis(50)).await;
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
    assert!(matches!(error, BindError::InUse { .. }));
    let message = error.to_string();
    assert!(message.contains(&first.local_addr().to_string()));
    assert!(message.contains("choose another"));
}

#[test]
fn an_address_of_another_machine_is_refused() {
    // 192.0.2.0/24 is set aside for documentation (RFC 5737).
    let error = Server::bind(([192, 0, 2, 1], 0).into()).unwrap_err();
    assert!(matches!(error, BindError::NotLocal { .. }), "{error}");
}

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Running {
    fn start(metrics: Metrics, readiness: Readiness) -> Self {
        let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let endpoint = Endpoint::new(metrics, readiness);
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
struct Stalled(std::sync::Mutex<mpsc::Receiver<()>>);

impl Collector for Stalled {
    fn encode(&self, _: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        self.0
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
        panic!("a collector with a mistake in it")
    }
}
