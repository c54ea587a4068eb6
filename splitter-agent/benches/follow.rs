//! How soon the agent follows the main table: from the kernel's notification of a change to that of
//! the last route of the tunnels, and what 10,000 prefixes at once cost.
//!
//! Needs root. `cargo bench -p splitter-agent --bench follow` prints a table; nothing is compared
//! with a bound, for how soon depends on what else the machine does.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flow_testbed::namespace::Namespace;
use flow_testbed::wait::within;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{setsockopt, sockopt};
use rtnetlink::sys::{Socket, protocols::NETLINK_ROUTE};
use tempfile::TempDir;

/// So many changes are timed one by one, and 95 of 100 are as fast as the last but one.
const CHANGES: usize = 20;
const PREFIXES: u32 = 10_000;
/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Each prefix has a route in the table of each class.
const TABLES: usize = 2;

fn main() {
    // `cargo test --benches` calls it only to see whether it starts.
    if !std::env::args().any(|it| it == "--bench") {
        return;
    }
    // The BPF file system of the run is nobody else's.
    unshare(CloneFlags::CLONE_NEWNS).expect("run it as root");
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("a private mount");
    let border = border();
    let mut agent = Agent::start(&border);
    let mut events = Events::listen(&border);
    println!("| prefixes | change | median ms | p95 ms | worst ms |");
    println!("|---:|---|---:|---:|---:|");
    one_by_one(&border, &mut events, 0);
    let line = at_once(&border, &mut events, &agent);
    one_by_one(&border, &mut events, PREFIXES);
    println!("\n{line}");
    agent.end();
}

/// Times single changes while the main table reaches `others` besides through a tunnel.
fn one_by_one(border: &Namespace, events: &mut Events, others: u32) {
    for change in ["add", "del"] {
        let took: Vec<_> = (0..CHANGES)
            .map(|number| {
                let route = format!("ip route {change} 172.16.{number}.0/24 via 192.0.2.1");
                events.drain();
                border.run(&route).expect("a route");
                let (own, theirs) = events.until(TABLES, 1);
                std::thread::sleep(Duration::from_millis(50));
                own - theirs
            })
            .collect();
        report(others, change, took);
    }
}

fn report(others: u32, change: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let ms = |it: Duration| it.as_secs_f64() * 1e3;
    println!(
        "| {others} | {change} | {:.1} | {:.1} | {:.1} |",
        ms(took[CHANGES / 2]),
        ms(took[CHANGES * 95 / 100 - 1]),
        ms(took[CHANGES - 1])
    );
}

/// Adds all prefixes as fast as `ip` does; what to say of it.
fn at_once(border: &Namespace, events: &mut Events, agent: &Agent) -> String {
    let before = agent.memory_kib("VmRSS");
    let mut batch = String::new();
    for number in 0..PREFIXES {
        let [_, _, high, low] = number.to_be_bytes();
        let _ = writeln!(batch, "route add 10.{high}.{low}.0/24 via 192.0.2.1");
    }
    let count = PREFIXES as usize;
    let begin = Instant::now();
    events.drain();
    let (own, theirs) = std::thread::scope(|scope| {
        let adding = scope.spawn(|| border.run_with_input("ip -batch -", &batch));
        let times = events.until(TABLES * count, count);
        adding.join().expect("no panic").expect("routes");
        times
    });
    format!(
        "{PREFIXES} prefixes: {:.0} ms from the first to the last route of the main table, {:.0} ms \
         more to the last of {} routes of the classes; resident memory {:.1} MB before, {:.1} MB \
         after, {:.1} MB at most",
        (theirs - begin).as_secs_f64() * 1e3,
        own.saturating_duration_since(theirs).as_secs_f64() * 1e3,
        TABLES * count,
        before / 1e3,
        agent.memory_kib("VmRSS") / 1e3,
        agent.memory_kib("VmHWM") / 1e3,
    )
}

/// A border with two tunnels and another uplink.
fn border() -> Namespace {
    let border = Namespace::new("border").expect("run it as root");
    for (device, address) in [
        ("lan", "192.168.1.1/24"),
        ("wan0", "192.0.2.2/30"),
        ("wan1", "198.51.100.2/30"),
        ("isp", "203.0.113.2/30"),
    ] {
        for line in [
            format!("ip link add {device} type veth peer far-{device}"),
            format!("ip link set {device} up"),
            format!("ip link set far-{device} up"),
            format!("ip addr add {address} dev {device}"),
        ] {
            border.run(&line).expect("a device");
        }
    }
    border
        .run("ip route add default via 203.0.113.1")
        .expect("a route");
    border
        .sysctl("net.ipv4.ip_forward", "1")
        .expect("a setting");
    border
}

/// `splitter run`, with all that it leaves.
struct Agent {
    child: Child,
    directory: TempDir,
}

impl Agent {
    fn start(border: &Namespace) -> Self {
        let directory = TempDir::with_prefix("splitter-bench-").expect("a directory");
        let path = |name: &str| directory.path().join(name);
        for name in ["bpf", "run"] {
            fs::create_dir(path(name)).expect("a directory");
        }
        mount(
            Some("bpf"),
            &path("bpf"),
            Some("bpf"),
            MsFlags::empty(),
            None::<&str>,
        )
        .expect("the kernel has it");
        // No probes, whose losses would move the classes: nobody is at the far ends.
        let config = format!(
            "lan = 'lan'\nruntime_dir = {:?}\nbpffs = {:?}\n[flows]\ntable_size = 4096\n[short]\n\
             device = 'wan0'\ngateway = '192.0.2.1'\n[long]\ndevice = 'wan1'\n\
             gateway = '198.51.100.1'\n[routes]\nfollow = true\n[health]\nenabled = false\n",
            path("run"),
            path("bpf"),
        );
        fs::write(path("splitter.toml"), config).expect("a file");
        let log = fs::File::create(path("log")).expect("a file");
        let child = border
            .command(env!("CARGO_BIN_EXE_splitter"))
            .arg("--config")
            .arg(path("splitter.toml"))
            .arg("run")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("it can be started");
        let mut agent = Self { child, directory };
        within(PATIENCE, "the agent to serve", || {
            assert!(agent.is_running(), "it ended:\n{}", agent.log());
            agent.log().contains("serving").then_some(())
        });
        agent
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_none()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// A line of the kernel's account of its memory.
    fn memory_kib(&self, name: &str) -> f64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let mut words = line.expect("it is there").split_whitespace();
        let number = words.nth(1).and_then(|it| it.parse().ok());
        number.expect("a number")
    }

    /// Ends it, and says what it has complained of.
    fn end(&mut self) {
        let id = self.child.id().to_string();
        let mut kill = Command::new("kill");
        let _ = kill.args(["-TERM", &id]).status();
        let _ = self.child.wait();
        let log = self.log();
        let complaints = log
            .lines()
            .filter(|it| it.contains("WARN") || it.contains("ERROR"));
        complaints.for_each(|line| println!("{line}"));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let bpffs: &Path = &self.directory.path().join("bpf");
        let _ = umount2(bpffs, MntFlags::MNT_DETACH);
    }
}

/// The kernel's notifications of IPv4 routes.
struct Events(Socket);

impl Events {
    fn listen(border: &Namespace) -> Self {
        const IPV4_ROUTES: u32 = 7;
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.add_membership(IPV4_ROUTES)?;
            socket.set_non_blocking(true)?;
            Ok::<_, io::Error>(socket)
        };
        let socket = border.enter(open).expect("it exists").expect("a socket");
        // For all that comes in one burst.
        setsockopt(&socket, sockopt::RcvBufForce, &(128 << 20)).expect("run it as root");
        Self(socket)
    }

    fn drain(&mut self) {
        while self.next().is_some() {}
    }

    /// Waits for so many notifications of the agent's routes and of others; when the last of each came.
    fn until(&mut self, own: usize, theirs: usize) -> (Instant, Instant) {
        let (mut seen, mut last) = ([0, 0], [None, None]);
        let begin = Instant::now();
        while seen[0] < own || seen[1] < theirs {
            assert!(begin.elapsed() < PATIENCE, "{seen:?} of {own} and {theirs}");
            match self.next() {
                Some(is_own) => {
                    let index = usize::from(!is_own);
                    seen[index] += 1;
                    last[index] = Some(Instant::now());
                }
                None => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        let [own, theirs] = last.map(|it| it.expect("at least one"));
        (own, theirs)
    }

    /// Whether the next route that was changed is the agent's.
    fn next(&mut self) -> Option<bool> {
        /// Behind the header, in `struct rtmsg`.
        const PROTOCOL: usize = 16 + 5;
        const AGENT: u8 = 94;
        let mut datagram = Vec::with_capacity(8_192);
        match self.0.recv(&mut datagram, 0) {
            Ok(_) => Some(datagram.get(PROTOCOL) == Some(&AGENT)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("cannot hear of routes: {error}"),
        }
    }
}
