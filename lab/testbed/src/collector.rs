//! OpenTelemetry collectors: one that takes everything and looks for words in it, and the real one.
//!
//! Names and strings are in a protobuf message as they are; what the messages mean is decoded in the tests of
//! `flow-telemetry`, and by the real collector where somebody has it.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use crate::wait::within;

/// A collector on loopback of the network namespace that it was made in. Its thread ends with the test.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    requests: Receiver<Request>,
    received: Vec<Request>,
}

/// A request as it came.
#[derive(Debug)]
pub struct Request {
    /// Path, `/v1/metrics` for instance.
    pub path: String,
    /// Body, a protobuf message.
    pub body: Vec<u8>,
}

impl Request {
    /// Tells whether a text is in the message.
    pub fn contains(&self, text: &str) -> bool {
        let mut windows = self.body.windows(text.len());
        windows.any(|window| window == text.as_bytes())
    }
}

impl Collector {
    /// Listens at a port that the system chooses.
    ///
    /// # Panics
    /// When there is none.
    pub fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let (sender, requests) = channel();
        thread::spawn(move || answer_all(&listener, &sender));
        Self {
            address,
            requests,
            received: Vec::new(),
        }
    }

    /// Returns the URL that an exporter is given.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for a request to a path with all of these texts in it, and returns it.
    ///
    /// # Panics
    /// When none comes `within` that time.
    #[track_caller]
    pub fn wait_for(&mut self, path: &str, texts: &[&str], within: Duration) -> &Request {
        let is_meant = |it: &Request| it.path == path && texts.iter().all(|text| it.contains(text));
        let deadline = Instant::now() + within;
        let index = loop {
            if let Some(index) = self.received.iter().position(is_meant) {
                break index;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.requests.recv_timeout(left) {
                Ok(request) => self.received.push(request),
                Err(_) => panic!("no request to {path} with {texts:?}: {}", self.paths()),
            }
        };
        &self.received[index]
    }

    fn paths(&self) -> String {
        let paths = self.received.iter().map(|it| it.path.as_str());
        format!("{:?}", paths.collect::<Vec<_>>())
    }
}

fn answer_all(listener: &TcpListener, sender: &Sender<Request>) {
    for stream in listener.incoming().flatten() {
        let Some(request) = answered(stream) else {
            continue;
        };
        if sender.send(request).is_err() {
            return;
        }
    }
}

/// Reads a request and says that it is taken; `None` for a connection without a whole one.
fn answered(mut stream: TcpStream) -> Option<Request> {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&buffer[..count]);
        let Some(end) = read.windows(4).position(|it| it == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&read[..end]).into_owned();
        let body = &read[end + 4..];
        if body.len() < length(&head)? {
            continue;
        }
        let taken = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(taken).ok()?;
        return Some(Request {
            path: head.split(' ').nth(1)?.to_owned(),
            body: body.to_vec(),
        });
    }
}

fn length(head: &str) -> Option<usize> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse().ok())?
    })
}

/// The program of OpenTelemetry's own collector, which distributions do not have.
pub const OTELCOL: &str = "otelcol";

/// OpenTelemetry's own collector, which writes in its words what it has understood. Killed on drop.
#[derive(Debug)]
pub struct RealCollector {
    child: Child,
    log: PathBuf,
}

impl RealCollector {
    /// Starts it by a command for [`OTELCOL`], listening at an address where the command runs; its files go
    /// to `directory`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(mut command: Command, address: SocketAddr, directory: &Path) -> Self {
        let configuration = directory.join("collector.yaml");
        fs::write(&configuration, takes_all_at(address)).expect("a file");
        let log = directory.join("collector.log");
        let file = File::create(&log).expect("a file");
        command.arg("--config").arg(configuration);
        let child = command.stdout(Stdio::null()).stderr(file).spawn();
        let child = child.expect("it starts");
        let this = Self { child, log };
        this.wait_for(&["Everything is ready"], Duration::from_secs(30));
        this
    }

    /// Waits until all of these texts are in what it has written.
    ///
    /// # Panics
    /// When one of them is not, `bound` later.
    #[track_caller]
    pub fn wait_for(&self, texts: &[&str], bound: Duration) {
        for text in texts {
            within(bound, text, || {
                let written = fs::read_to_string(&self.log).ok()?;
                written.contains(text).then_some(())
            });
        }
    }
}

impl Drop for RealCollector {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Its configuration: what it takes over HTTP it writes to its log, in full.
fn takes_all_at(address: SocketAddr) -> String {
    let pipeline = "{receivers: [otlp], exporters: [debug]}";
    format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: '{address}'}}}}}}}}\n\
         exporters: {{debug: {{verbosity: detailed}}}}\n\
         service:\n\
         \x20 telemetry: {{metrics: {{level: none}}}}\n\
         \x20 pipelines: {{metrics: {pipeline}, traces: {pipeline}, logs: {pipeline}}}\n"
    )
}
