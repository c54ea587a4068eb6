//! An agent that is killed under load: packets and flows do not notice, and the next one takes over.

use crate::support::site;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flow_testbed::namespace::NamespaceError;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::wait::poll;
use nix::sys::signal::Signal;
use serde_json::Value;
use site::{PATIENCE, Site, on_site};

/// Short flows a second that are tried for; a busy machine makes fewer.
const FLOWS_PER_SECOND: u32 = 1_000;
/// Short flows that finish before, between and after; fewer would prove little.
const FLOWS: u64 = 1_000;
const CLIENTS: u32 = 8;
/// Of other hosts' neighbour discovery, between two readings.
const STRAY_PACKETS: u64 = 10;

#[test]
fn no_packet_and_no_flow_is_lost_when_the_agent_is_killed_under_load() {
    require!(Program("iperf3"));
    on_site(|site| {
        // Room for all flows, since what is evicted would start again.
        site.configure("[flows]\ntable_size = 65536");
        let before = site.routing();
        let first = site.run();
        let (received, status) = (received_packets(site), site.json(&["status"]));
        let mut bulk = Bulk::start(site);
        let short = ShortFlows::start(site);

        short.wait_for_more(FLOWS);
        let known = longest_flow(site);
        first.end(Signal::SIGKILL);
        short.wait_for_more(FLOWS);
        let orphaned = longest_flow(site);
        assert_same_flow(&known, &orphaned);
        let second = site.run();
        assert!(second.log().contains("adopted"), "{}", second.log());
        short.wait_for_more(FLOWS);
        assert_same_flow(&orphaned, &longest_flow(site));

        let (finished, failed, took) = short.end();
        bulk.end();
        assert!(failed.is_empty(), "beside {finished} flows: {failed:?}");

        // Every packet that came from the site has passed the program; the last ones soon will.
        let mut packets = (0, 0);
        let status_after = poll(PATIENCE, || {
            let status_after = site.json(&["status"]);
            let counted = counted_packets(&status_after) - counted_packets(&status);
            packets = (received_packets(site) - received, counted);
            (counted.abs_diff(packets.0) <= STRAY_PACKETS).then_some(status_after)
        });
        let (received, counted) = packets;
        let status_after = status_after
            .unwrap_or_else(|| panic!("{received} packets came, {counted} were counted"));
        // A flow that had been forgotten would have started twice. A port that is used again within
        // seconds starts its flow again instead.
        let flows = |status: &Value| status["flows"]["started"].as_u64().expect("a number");
        let started = flows(&status_after) - flows(&status);
        let reused = restarted(site, "syn");
        assert_eq!(started + reused, finished + Bulk::CONNECTIONS);
        assert_eq!(restarted(site, "idle"), 0);
        println!("{finished} short flows in {took:?}, {counted} packets");

        assert!(second.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

fn restarted(site: &Site, reason: &str) -> u64 {
    let labels = format!("{{reason=\"{reason}\"}}");
    site.metric(&format!("splitter_flows_restarted_total{labels}")) as u64
}

/// Packets that came from the site.
fn received_packets(site: &Site) -> u64 {
    let of_device = |device| {
        let counters = site.border().device_counters(device);
        counters.expect("it is there").received_packets
    };
    of_device("lan0") + of_device("gen0")
}

fn counted_packets(status: &Value) -> u64 {
    let lists = ["traffic", "passed"].map(|list| status[list].as_array().expect("a list"));
    let packets = lists.into_iter().flatten();
    packets.filter_map(|it| it["packets"].as_u64()).sum()
}

fn longest_flow(site: &Site) -> Value {
    let listing = site.json(&["flows", "--limit", "1"]);
    listing["flows"][0].clone()
}

/// It has gone on counting.
fn assert_same_flow(before: &Value, after: &Value) {
    assert_eq!(before["class"], "long", "{before}");
    for field in ["source_port", "destination_port", "class"] {
        assert_eq!(before[field], after[field], "{before} became {after}");
    }
    for field in ["packets", "age_s"] {
        let [before, after] = [before, after].map(|flow| flow[field].as_f64());
        assert!(after > before, "{field}: {before:?} became {after:?}");
    }
}

/// An upload of iperf3's, slower than the tunnel.
struct Bulk {
    server: std::process::Child,
    client: std::process::Child,
}

impl Bulk {
    /// One for control, one for data.
    const CONNECTIONS: u64 = 2;

    fn start(site: &Site) -> Self {
        let (client, server) = (&site.topology.client, &site.topology.server);
        let address = server.ipv4.to_string();
        let start = |host: &flow_testbed::topology::Host, arguments: &[&str]| {
            let mut command = host.namespace.command("iperf3");
            command.args(arguments).stdin(Stdio::null());
            let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
            quiet.spawn().expect("it can be started")
        };
        let listening = start(server, &["--server", "--one-off", "--bind", &address]);
        site.wait_for("iperf3 to listen", || {
            let shown = server.namespace.run("ss -Hltn sport = :5201");
            (!shown.expect("ss works").is_empty()).then_some(())
        });
        // Longer than a busy machine takes for all of it.
        let rate = ["--time", "600", "--bitrate", "20M"];
        let arguments = [&["--client", &address][..], &rate].concat();
        Self {
            server: listening,
            client: start(client, &arguments),
        }
    }

    fn end(&mut self) {
        // Both first: without its client the server ends by itself.
        for child in [&mut self.client, &mut self.server] {
            let ended = child.try_wait().expect("it is ours");
            assert_eq!(ended, None, "iperf3 ended early");
        }
        for child in [&mut self.client, &mut self.server] {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
        }
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Connections that send some packets and close, at a steady rate.
struct ShortFlows {
    stop: Arc<AtomicBool>,
    finished: Arc<AtomicU64>,
    /// Why flows failed.
    failed: Arc<Mutex<Vec<String>>>,
    clients: Vec<JoinHandle<Result<(), NamespaceError>>>,
    begun: Instant,
}

impl ShortFlows {
    fn start(site: &Site) -> Self {
        let server = &site.topology.server;
        let listener = server
            .namespace
            .enter(|| TcpListener::bind((server.ipv4, 0)));
        let listener = listener.expect("it exists").expect("a port");
        let address = listener.local_addr().expect("it has one");
        for _ in 0..CLIENTS {
            let listener = listener.try_clone().expect("a descriptor");
            std::thread::spawn(move || answer(&listener));
        }
        let flows = Self {
            stop: Arc::default(),
            finished: Arc::default(),
            failed: Arc::default(),
            clients: Vec::new(),
            begun: Instant::now(),
        };
        let start = |_| {
            let (stop, finished, failed) = (
                Arc::clone(&flows.stop),
                Arc::clone(&flows.finished),
                Arc::clone(&flows.failed),
            );
            let client = site.topology.client.namespace.spawn(move || {
                let interval = Duration::from_secs(1) * CLIENTS / FLOWS_PER_SECOND;
                let mut due = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    match exchange(address) {
                        Ok(()) => _ = finished.fetch_add(1, Ordering::Relaxed),
                        Err(error) => failed.lock().expect("no panic").push(error.to_string()),
                    }
                    due += interval;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            });
            client.expect("a thread")
        };
        let clients = (0..CLIENTS).map(start).collect();
        Self { clients, ..flows }
    }

    /// Waits until so many more have finished.
    fn wait_for_more(&self, flows: u64) {
        let finished = || self.finished.load(Ordering::Relaxed);
        let enough = finished() + flows;
        let are_enough = poll(PATIENCE, || (finished() >= enough).then_some(()));
        let failed = self.failed.lock().expect("no panic");
        let why = || format!("{} of {enough} flows in {PATIENCE:?}", finished());
        assert!(are_enough.is_some(), "{}; failed: {failed:?}", why());
    }

    /// How many finished, why others failed, and in which time.
    fn end(self) -> (u64, Vec<String>, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("no panic").expect("it exists");
        }
        let failed = std::mem::take(&mut *self.failed.lock().expect("no panic"));
        let finished = self.finished.load(Ordering::Relaxed);
        (finished, failed, self.begun.elapsed())
    }
}

/// One short flow: the server has read all of it when it closes.
fn exchange(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[7; 4_000])?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer == b"4000" {
        Ok(())
    } else {
        Err(std::io::ErrorKind::UnexpectedEof.into())
    }
}

/// Tells one connection after another how much it has sent. Ends with the test's process.
fn answer(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        let mut received = Vec::new();
        if stream.read_to_end(&mut received).is_ok() {
            let _ = write!(stream, "{}", received.len());
        }
    }
}
