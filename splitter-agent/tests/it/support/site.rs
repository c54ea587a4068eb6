//! A border router between two sites that a test runs the real binary on.
//!
//! The test runs on a thread with mounts of its own, so that a BPF file system lasts from one
//! command to the next, as on a real machine, and is gone with the test however that ends.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use flow_testbed::namespace::Namespace;
use flow_testbed::require::Requirement::{FileSystem, Program, QueueingDiscipline, Root};
use flow_testbed::require::skip;
use flow_testbed::topology::{GENERATOR, Host, LAN, TUNNELS, Topology, TopologyOptions};
use flow_testbed::wait::poll;
pub(crate) use flow_testbed::wait::within;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use super::daemon::Daemon;
use super::settled::is_settled;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_splitter");
/// Nothing that a test waits for takes longer, also on a machine that is busy otherwise: no command of
/// the splitter, except those that are meant to last.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Where the splitter serves its metrics by default.
const METRICS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 9461);

/// Two sites of which the first one's border has a configuration for the splitter.
pub(crate) struct Site {
    pub(crate) topology: Topology,
    directory: TempDir,
}

impl Site {
    fn new() -> Self {
        let options = TopologyOptions::default();
        let topology = Topology::build(&options).expect("the testbed can be built");
        let directory = TempDir::with_prefix("splitter-test-").expect("a directory");
        let site = Self {
            topology,
            directory,
        };
        for name in ["bpf", "run"] {
            std::fs::create_dir(site.path(name)).expect("a directory");
        }
        mount_bpffs(&site.bpffs());
        site.configure("");
        for border in &site.topology.borders {
            site.wait_for("the border's links and addresses to be in use", || {
                is_settled(border).then_some(())
            });
        }
        site
    }

    /// Replaces the configuration: what every test shares, with the keys and sections of `changes`
    /// in the place of those of the same name.
    pub(crate) fn configure(&self, changes: &str) {
        let tunnel = |index: usize| {
            let gateways = self.topology.borders[0].gateway_addresses(index);
            format!(
                "device = '{}'\ngateway = {gateways:?}\nrate_mbit = 100\n",
                TUNNELS[index]
            )
        };
        let base = format!(
            "name = 'test'\nlan = ['{LAN}', '{GENERATOR}']\nruntime_dir = {:?}\nbpffs = {:?}\n\
             [flows]\ntable_size = 4096\n[short]\n{}[long]\n{}",
            self.path("run"),
            self.bpffs(),
            tunnel(0),
            tunnel(1),
        );
        let mut table: toml::Table = base.parse().expect("TOML");
        table.extend(changes.parse::<toml::Table>().expect("TOML"));
        std::fs::write(self.config(), table.to_string()).expect("a file");
    }

    /// The first site's border.
    pub(crate) fn border(&self) -> &Namespace {
        &self.topology.borders[0].namespace
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn bpffs(&self) -> PathBuf {
        self.path("bpf")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("splitter.toml")
    }

    /// The command at the border, to be run from this thread.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.border().command(BINARY);
        command.arg("--config").arg(self.config()).args(arguments);
        command
    }

    /// Runs the command to its end.
    pub(crate) fn splitter(&self, arguments: &[&str]) -> Output {
        output(self.command(arguments))
    }

    /// Runs a command that must succeed and print JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.splitter(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Runs a command that must end with this exit code; what it says about that.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str], code: i32) -> String {
        let output = self.splitter(arguments);
        let reported = stderr(&output);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {reported}"
        );
        reported
    }

    /// What the splitter knows of the flow from a port at this site, which it must know.
    #[track_caller]
    pub(crate) fn flow_from(&self, port: u16) -> Value {
        self.flow_where(port, |_| true)
    }

    /// The flow of UDP from a port, which a connection of TCP may have as well.
    pub(crate) fn datagrams_from(&self, port: u16) -> Value {
        self.flow_where(port, |flow| flow["protocol"] == "udp")
    }

    fn flow_where(&self, port: u16, is_meant: impl Fn(&Value) -> bool) -> Value {
        let listing = self.json(&["flows", "--limit", "1000"]);
        let mut flows = listing["flows"].as_array().into_iter().flatten();
        let found = flows.find(|flow| flow["source_port"] == port && is_meant(flow));
        found
            .unwrap_or_else(|| panic!("no flow from {port}: {listing}"))
            .clone()
    }

    /// Starts `splitter run` and waits until it is ready.
    pub(crate) fn run(&self) -> Daemon {
        let daemon = self.start();
        self.wait_for("the daemon to be ready", || match self.get("/ready") {
            Ok((200, _)) => Some(()),
            _ => {
                assert!(daemon.is_running(), "it ended:\n{}", daemon.log());
                None
            }
        });
        daemon
    }

    /// Starts `splitter run`.
    pub(crate) fn start(&self) -> Daemon {
        Daemon::start(self.command(&["run"]), &self.path("log"))
    }

    /// Asks the daemon's endpoint; the status and the body.
    pub(crate) fn get(&self, path: &str) -> io::Result<(u16, String)> {
        get_from(self.border(), path)
    }

    /// The value of a sample in a scrape, by its name with labels.
    pub(crate) fn metric(&self, sample: &str) -> f64 {
        // On a machine that is very busy a scrape may be given up.
        let text = self.wait_for("a scrape", || match self.get("/metrics") {
            Ok((200, text)) => Some(text),
            _ => None,
        });
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(sample)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {sample} in\n{text}"))
    }

    /// Asks until there is an answer.
    pub(crate) fn wait_for<T>(&self, what: &str, ask: impl FnMut() -> Option<T>) -> T {
        within(PATIENCE, what, ask)
    }

    /// Rules, routes and devices with their XDP programs, as `ip` shows them, sorted: rules of one
    /// priority select different packets.
    pub(crate) fn routing(&self) -> String {
        let looks = [
            "ip rule",
            "ip -6 rule",
            "ip route show table all",
            "ip -6 route show table all",
        ];
        let shown = looks.map(|look| self.border().run(look).expect("ip works"));
        let links = self.border().run("ip -j link").expect("ip works");
        let links: Vec<Value> = serde_json::from_str(&links).expect("JSON");
        // Not their state, which may settle late.
        let links = links
            .iter()
            .map(|it| format!("{} {}\n", it["ifname"], it["xdp"]));
        let shown = shown.concat() + &links.collect::<String>();
        let mut lines: Vec<&str> = shown.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    /// The mode of the XDP program on a device, in the kernel's number: 1 is native, 2 generic.
    pub(crate) fn xdp_mode(&self, device: &str) -> Option<u64> {
        let shown = self.border().run(&format!("ip -j link show {device}"));
        let links: Value = serde_json::from_str(&shown.expect("it exists")).expect("JSON");
        links[0]["xdp"]["mode"].as_u64()
    }

    /// Nothing that a splitter had set up is left, and all is as it was.
    pub(crate) fn assert_clean(&self, routing_before: &str) {
        assert_eq!(self.routing(), routing_before);
        let pins = self.bpffs().join("splitter");
        assert!(!pins.exists(), "something is left in the BPF file system");
        assert!(!self.path("run/test/state.json").exists());
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The directory could not be removed with a mount in it.
        let _ = umount2(&self.bpffs(), MntFlags::MNT_DETACH);
    }
}

/// Runs a test on a fresh site, or says why not.
pub(crate) fn on_site(test: impl FnOnce(&Site) + Send) {
    let needed = [
        Root,
        Program("ip"),
        Program("tc"),
        Program("ethtool"),
        FileSystem("bpf"),
        QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000"),
    ];
    if let Some(lacking) = needed.into_iter().find_map(|it| it.check().err()) {
        // The harness names the thread after the test.
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        let test = format!("{}::{test}", env!("CARGO_CRATE_NAME"));
        return skip(&test, &lacking.to_string());
    }
    isolated(|| test(&Site::new()));
}

/// A TCP connection from the client at the first site to the server at the other one.
pub(crate) struct Connection {
    near: TcpStream,
    far: TcpStream,
}

impl Connection {
    pub(crate) fn open(topology: &Topology) -> Self {
        Self::between(&topology.client, &topology.server)
    }

    pub(crate) fn between(from: &Host, to: &Host) -> Self {
        Self::over(from, to, to.ipv4.into())
    }

    /// To one of the addresses of `to`.
    pub(crate) fn over(from: &Host, to: &Host, address: IpAddr) -> Self {
        let listener = to.namespace.enter(|| TcpListener::bind((address, 0)));
        let listener = listener.expect("it exists").expect("a port");
        let address = listener.local_addr().expect("it has one");
        let connect = || connect_from_own_port(address);
        let near = from.namespace.enter(connect).expect("it exists");
        let near = near.expect("the other site is reached");
        let (far, _) = listener.accept().expect("it has connected");
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(PATIENCE)).expect("a setting");
            stream.set_write_timeout(Some(PATIENCE)).expect("a setting");
        }
        Self { near, far }
    }

    /// Its end at the first site.
    pub(crate) fn sender(&self) -> &TcpStream {
        &self.near
    }

    /// Its port at the first site, by which it is found among the flows.
    pub(crate) fn port(&self) -> u16 {
        self.near.local_addr().expect("it has one").port()
    }

    /// Sends so many bytes and waits until they are there.
    pub(crate) fn send(&mut self, bytes: usize) {
        carry(&mut self.near, &mut self.far, bytes);
    }

    /// The same from the other end.
    pub(crate) fn answer(&mut self, bytes: usize) {
        carry(&mut self.far, &mut self.near, bytes);
    }

    /// Closes it, so that both directions see a FIN.
    pub(crate) fn close(self) {
        let Self { near, mut far } = self;
        drop(near);
        let _ = far.read(&mut [0; 1]);
    }
}

/// From a port that no other connection has, for a flow is found by it. The kernel itself gives one
/// port to several connections if they go to different ones.
fn connect_from_own_port(to: SocketAddr) -> io::Result<TcpStream> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((any, 0)).into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket.into())
}

fn carry(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    let (data, mut received) = (vec![7; bytes], vec![0; bytes]);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| from.write_all(&data));
        to.read_exact(&mut received).expect("all arrives");
        sending.join().expect("no panic").expect("all is sent");
    });
}

/// Runs a command to its end, within bounds.
pub(crate) fn output(mut command: Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be started");
    // Read meanwhile: what is not read would keep it waiting.
    let stdout = read_on(child.stdout.take());
    let stderr = read_on(child.stderr.take());
    let ended = poll(PATIENCE, || child.try_wait().expect("it is ours"));
    if ended.is_none() {
        let _ = child.kill();
    }
    let output = Output {
        status: child.wait().expect("it is ours"),
        stdout: stdout.join().expect("no panic"),
        stderr: stderr.join().expect("no panic"),
    };
    assert!(ended.is_some(), "{command:?} did not end: {output:?}");
    output
}

fn read_on(pipe: Option<impl io::Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe.expect("it is a pipe");
        pipe.read_to_end(&mut bytes).expect("it can be read");
        bytes
    })
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs `work` on a thread with mounts of its own; a panic goes on in the caller.
pub(crate) fn isolated(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).expect("we are root");
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("we are root");
            work();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

pub(crate) fn mount_bpffs(path: &Path) {
    let flags = MsFlags::empty();
    mount(Some("bpf"), path, Some("bpf"), flags, None::<&str>).expect("the kernel has it");
}

/// Asks the daemon's endpoint at a border; the status and the body.
pub(crate) fn get_from(border: &Namespace, path: &str) -> io::Result<(u16, String)> {
    border.enter(|| get(path)).expect("the border is there")
}

fn get(path: &str) -> io::Result<(u16, String)> {
    let bound = PATIENCE / 2;
    let mut stream = TcpStream::connect_timeout(&METRICS.into(), bound)?;
    stream.set_read_timeout(Some(bound))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::InvalidData)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
}
