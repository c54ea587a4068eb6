//! `playground` as a user has it: pages that answer, a Prometheus that scrapes them, and Ctrl-C.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use flow_testbed::{prometheus::Server, require, require::Requirement::*, wait::within};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const BOUND: Duration = Duration::from_secs(60);

/// The agent next to the program, which a test of this package alone does not build.
fn splitter() -> &'static str {
    let program = Path::new(env!("CARGO_BIN_EXE_splitter-demo")).with_file_name("splitter");
    program.to_string_lossy().into_owned().leak()
}

/// Ports that are free, and that nobody here is given: neither the other test of this program nor a
/// connection, whose own port is above them.
fn ports() -> [u16; 3] {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    [(); 3].map(|()| {
        loop {
            let port = NEXT.fetch_add(1, Ordering::Relaxed);
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return port;
            }
        }
    })
}

struct Playground {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Playground {
    fn start(ports: [u16; 3], arguments: &[&str]) -> Self {
        let program = env!("CARGO_BIN_EXE_splitter-demo");
        let mut child = Command::new(program)
            .arg("playground")
            .arg(format!("--ports={},{},{}", ports[0], ports[1], ports[2]))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Reads on up to a line that has `what`, and returns all.
    fn until(&mut self, what: &str) -> String {
        let mut text = String::new();
        while !text.contains(what) {
            let read = self.lines.read_line(&mut text).unwrap();
            assert!(read > 0, "ended after {text}");
        }
        text
    }

    fn interrupt(mut self) -> (bool, String) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT).unwrap();
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().success(), rest)
    }
}

fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .ok()?;
    let host = format!("Host: 127.0.0.1:{port}\r\nConnection: close");
    write!(stream, "GET {path} HTTP/1.1\r\n{host}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

#[test]
fn pages_answer_until_ctrl_c_and_nothing_is_left() {
    require!(
        Root,
        Program("ip"),
        Program("tc"),
        Program("ethtool"),
        Program("nft")
    );
    require!(Program("prometheus"), Program("setpriv"), FileSystem("bpf"));
    require!(CongestionControl("cubic"));
    require!(Program(splitter()));
    let ports = ports();
    let mut playground = Playground::start(ports, &["--rates=10,10"]);
    let text = playground.until("Ctrl-C ends it");
    for port in ports {
        assert!(
            text.contains(&format!("http://127.0.0.1:{port}/")),
            "{text}"
        );
    }
    let [one, other, of_prometheus] = ports;
    for port in [one, other] {
        // Ready with both tunnels, each of which its peer answers in, and carrying flows of both classes.
        within(BOUND, "long flows by their tunnel", || {
            let page = get(port, "/metrics")?;
            let counts = page.lines().find_map(|line| {
                let labels = "splitter_packets_total{class=\"long\",tunnel=\"long\"} ";
                line.strip_prefix(labels)?.parse::<f64>().ok()
            });
            (counts? > 0.0).then_some(())
        });
        assert!(get(port, "/ready").is_some_and(|it| it.ends_with("ready\n")));
        assert!(get(port, "/").is_some());
    }
    let server = Server(SocketAddr::from(([127, 0, 0, 1], of_prometheus)));
    let query = "count(splitter_tunnel_round_trip_seconds > 0)";
    within(BOUND, "both tunnels of both borders to be probed", || {
        (server.query(query).ok()? == [4.0]).then_some(())
    });
    let (succeeded, rest) = playground.interrupt();
    assert!(succeeded && rest.contains("All of it is gone."), "{rest}");
    for port in ports {
        TcpListener::bind(("127.0.0.1", port)).expect("the port is free again");
    }
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_left() {
    require!(
        Root,
        Program("ip"),
        Program("tc"),
        Program("ethtool"),
        Program("nft")
    );
    require!(FileSystem("bpf"), CongestionControl("cubic"));
    let [taken, other, third] = ports();
    let _taken = TcpListener::bind(("127.0.0.1", taken)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_splitter-demo"))
        .arg("playground")
        .arg(format!("--ports={other},{taken},{third}"))
        .args(["--splitter", "/nonexistent"])
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(error.contains(&format!("127.0.0.1:{taken}")), "{error}");
    assert!(error.contains("--ports"), "{error}");
    TcpListener::bind(("127.0.0.1", other)).expect("it was given back");
}
