//! The agent as it ships, on this kernel.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeSpec;
use nix::sys::utsname::uname;
use nix::time::{ClockId, clock_settime};
use nix::unistd::Pid;
use serde_json::Value;
use splitter_policy::config::PolicyConfig;
use splitter_policy::dscp::Dscp;

use super::network::{Arrived, CABLES, Capture, LAN, Network, SERVER, Tunnel, VLANS};
use super::qdiscs::count_clsact;
use super::{Row, bond, fabric, queues, tenant};

pub(crate) const SPLITTER: &str = "/bin/splitter";
pub(crate) const CONFIG: &str = "/run/splitter.toml";
const THRESHOLD: usize = 40;
/// The flow has to leave the short tunnel between two packets.
const PAUSE: Duration = Duration::from_millis(15);
/// Longer than the agent leaves between two sweeps of its table.
const SWEPT: Duration = Duration::from_secs(6);

/// Loading takes seconds here, so the agent loads its programs once.
pub(crate) fn try_all(network: &Network, report: impl Fn(Row)) -> Result<()> {
    let try_out = |name, attempt: fn(&Network) -> Result<Vec<&'static str>>| {
        eprintln!("{name}");
        report(Row::of_agent(name, attempt(network)));
    };
    try_out("agent: splits natively", |network| {
        split(network, "native", CABLES)
    });
    try_out("agent: verifies", verify);
    try_out("agent: splits generically", |network| {
        split(network, "generic", CABLES)
    });
    try_out("agent: splits into VLANs", |network| {
        network.add_vlans()?;
        split(network, "generic", VLANS)
    });
    try_out("agent: wall clock jumps", wall_clock_jumps);
    try_out("agent: goes down", go_down);
    try_out("agent: marks by fwmark", mark_by_fwmark);
    try_out("agent: redirects", redirect);
    try_out("agent: bonds two tunnels", bond::takes_both_tunnels);
    try_out("agent: sees its queues", queues::are_seen);
    try_out("agent: shares by fair queues", queues::are_fair);
    try_out("agent: leaves VRFs alone", tenant::keeps_its_routes);
    try_out("agent: taps", tap);
    try_out("fabric: a leaf", fabric::leaf_writes_and_restores);
    try_out("fabric: a spine", fabric::spine_reports);
    Ok(())
}

/// What this kernel has for programs of traffic control.
pub(crate) fn expected_hook() -> Result<&'static str> {
    let system = uname()?;
    let release = system.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split('.')
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next(), numbers.next());
    Ok(if version >= (Some(6), Some(6)) {
        "tcx"
    } else {
        "clsact"
    })
}

/// Short until the threshold, then long, by mark and by tunnel.
fn split(network: &Network, mode: &'static str, tunnels: [Tunnel; 2]) -> Result<Vec<&'static str>> {
    configure("dscp", mode, tunnels, false)?;
    bring_up(mode)?;
    let marks = [
        PolicyConfig::DEFAULT_SHORT_MARK,
        PolicyConfig::DEFAULT_LONG_MARK,
    ];
    send_both_classes(network, marks, tunnels)?;
    Ok(vec![mode])
}

/// With packets of its own, put in as if the site had sent them.
fn verify(_: &Network) -> Result<Vec<&'static str>> {
    let server = SERVER.0.to_string();
    let report = json(&["verify", "--to", &server, "--count", "3"])?;
    ensure!(report["verdict"] == "ok", "{report}");
    let paths = report["paths"].as_array().into_iter().flatten();
    for (path, tunnel) in paths.zip(CABLES) {
        let taken = &path["taken"][tunnel.device];
        ensure!(taken.as_u64() >= Some(3), "{path}");
    }
    Ok(Vec::new())
}

/// By the kernel's mark, the packets as they came; and nothing is left.
fn mark_by_fwmark(network: &Network) -> Result<Vec<&'static str>> {
    let hook = expected_hook()?;
    configure("mark", "auto", CABLES, false)?;
    bring_up(hook)?;
    send_both_classes(network, [Dscp::NONE; 2], CABLES)?;
    // Another build takes its place where it is.
    let mut config = std::fs::OpenOptions::new().append(true).open(CONFIG)?;
    config.write_all(b"[log]\npackets = 'debug'\n")?;
    bring_up(hook)?;
    send_both_classes(network, [Dscp::NONE; 2], CABLES)?;
    go_down(network)?;
    let qdiscs = count_clsact()?;
    ensure!(qdiscs == 0, "{qdiscs} clsact queueing disciplines are left");
    Ok(vec![hook])
}

/// Without the stack, into tunnels whose far ends take that.
fn redirect(network: &Network) -> Result<Vec<&'static str>> {
    let _receiving = network.receive_redirected()?;
    configure("redirect", "native", CABLES, false)?;
    bring_up("native")?;
    let marks = [
        PolicyConfig::DEFAULT_SHORT_MARK,
        PolicyConfig::DEFAULT_LONG_MARK,
    ];
    send_both_classes(network, marks, CABLES)?;
    let reported = json(&["status"])?;
    let redirected = reported["redirected"]["packets"].as_u64().unwrap_or(0);
    // All but the first packet of the connection, or a few for which neighbours were not known.
    ensure!(
        redirected >= 3 * THRESHOLD as u64 / 2,
        "{redirected} packets were redirected: {reported}"
    );
    go_down(network)?;
    Ok(vec!["native"])
}

/// What it logged.
pub(crate) fn bring_up(mode: &str) -> Result<String> {
    let (up, log) = logged(&["up"])?;
    let attached = &up["attached"];
    ensure!(attached[0]["mode"] == mode, "attached as {attached}");
    Ok(log)
}

/// A flow that becomes long; what arrives by the two tunnels has these marks.
pub(crate) fn send_both_classes(
    network: &Network,
    marks: [Dscp; 2],
    tunnels: [Tunnel; 2],
) -> Result<()> {
    let before = packets_of_class(&json(&["status"])?, "short");
    let captures = [network.capture(tunnels[0])?, network.capture(tunnels[1])?];
    network.connect()?.send(2 * THRESHOLD, PAUSE)?;

    let [first, second] = captures.map(Capture::packets);
    let (first, second) = (first?, second?);
    let all_have = |packets: &[Arrived], mark: Dscp| {
        let mark = mark.value();
        packets.iter().all(|packet| packet.dscp == mark)
    };
    ensure!(
        all_have(&first, marks[0]) && all_have(&second, marks[1]),
        "marks in the short tunnel {first:?}, in the long one {second:?}"
    );
    ensure!(
        first.len() >= THRESHOLD && second.len() >= THRESHOLD / 2,
        "{} packets in the short tunnel and {} in the long one",
        first.len(),
        second.len()
    );
    let status = json(&["status"])?;
    let counted = packets_of_class(&status, "short") - before;
    ensure!(
        counted == THRESHOLD as u64,
        "{counted} packets were taken for those of a short flow: {status}"
    );
    Ok(())
}

/// Nothing is left, and packets go on.
pub(crate) fn go_down(network: &Network) -> Result<Vec<&'static str>> {
    let mut connection = network.connect()?;
    json(&["down"])?;
    ensure!(json(&["status"])?["up"] == false, "it is up after `down`");
    connection.send(1, Duration::ZERO)?;
    let left = Path::new("/sys/fs/bpf/splitter").exists();
    ensure!(!left, "something is left in the BPF file system");
    Ok(Vec::new())
}

fn packets_of_class(status: &Value, class: &str) -> u64 {
    let traffic = status["traffic"].as_array().into_iter().flatten();
    traffic
        .filter(|it| it["class"] == class)
        .filter_map(|it| it["packets"].as_u64())
        .sum()
}

/// Flows and packets are noted at both ends of the router, by whatever hook this kernel has; and nothing is left.
fn tap(network: &Network) -> Result<Vec<&'static str>> {
    let egress = format!("{}:egress", CABLES[0].device);
    let mut command = Command::new(SPLITTER);
    command.args(["tap", "--json", "--packets", "1", LAN, &egress]);
    let (child, _log) = start(command, "noting flows")?;
    let mut connection = network.connect()?;
    connection.send(5, Duration::ZERO)?;
    let reported = end(child)?;
    let reported: Value =
        serde_json::from_str(&reported).with_context(|| format!("reported {reported}"))?;
    let hook = expected_hook()?;
    for place in [0, 1] {
        ensure!(
            reported["hooks"][place] == hook,
            "attached by {}",
            reported["hooks"]
        );
    }
    let port = connection.port()?;
    let mut flows = reported["flows"].as_array().into_iter().flatten();
    let flow = flows
        .find(|flow| flow["source_port"] == port)
        .with_context(|| format!("the flow was not noted: {reported}"))?;
    let seen = flow["seen"].as_array().map(Vec::len);
    ensure!(
        seen == Some(2),
        "the flow was not seen at both points: {flow}"
    );
    let matched = reported["delays"]["matched"].as_u64();
    ensure!(
        matched > Some(0),
        "no packet was timed at both points: {}",
        reported["delays"]
    );
    // One that was there before would stay; this kernel has none.
    let qdiscs = count_clsact()?;
    ensure!(qdiscs == 0, "{qdiscs} clsact queueing disciplines are left");
    Ok(vec![hook])
}

/// Times in the table are of a clock that nobody can set.
fn wall_clock_jumps(network: &Network) -> Result<Vec<&'static str>> {
    let mut command = Command::new(SPLITTER);
    command.args(["-c", CONFIG, "run"]);
    let (child, _log) = start(command, "serving")?;
    let mut connection = network.connect()?;
    connection.send(2 * THRESHOLD, Duration::ZERO)?;
    let port = connection.port()?;
    let before = flow(port)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    const DAY: Duration = Duration::from_secs(86_400);
    for jumped in [now + 3_650 * DAY, now.saturating_sub(DAY).max(DAY)] {
        clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_duration(jumped))?;
        thread::sleep(SWEPT / 2);
        connection.send(1, Duration::ZERO)?;
    }
    let after = flow(port)?;
    ensure!(
        after["class"] == "long" && after["packets"].as_u64() > before["packets"].as_u64(),
        "{before} became {after}"
    );
    let age = after["age_s"].as_f64().unwrap_or(f64::MAX);
    ensure!(age < 60.0, "{after}");
    end(child)?;
    Ok(Vec::new())
}

fn flow(port: u16) -> Result<Value> {
    let listing = json(&["flows"])?;
    let mut flows = listing["flows"].as_array().into_iter().flatten();
    flows
        .find(|flow| flow["source_port"] == port)
        .cloned()
        .with_context(|| format!("the flow is not in the table: {listing}"))
}

/// Tunnels are shared if so asked for, at a rate so slow that what is sent at once waits.
pub(crate) fn configure(
    steering: &str,
    mode: &str,
    [short, long]: [Tunnel; 2],
    is_shared: bool,
) -> Result<()> {
    let (policy, rate, queue) = match is_shared {
        true => (
            "policy = 'share'\n",
            "rate_mbit = 1\n",
            "[share]\nqueue_ms = 500\n",
        ),
        false => ("", "", ""),
    };
    let text = format!(
        "lan = '{LAN}'\n{policy}[flows]\ntable_size = 1024\nthreshold = {THRESHOLD}\n\
         [short]\ndevice = '{}'\ngateway = '{}'\n{rate}\
         [long]\ndevice = '{}'\ngateway = '{}'\n{rate}\
         {queue}[steering]\nmode = '{steering}'\n[attach]\nmode = '{mode}'\n",
        short.device,
        short.gateway(),
        long.device,
        long.gateway(),
    );
    Ok(std::fs::write(CONFIG, text)?)
}

/// Runs the agent to its end; what it printed.
pub(crate) fn json(arguments: &[&str]) -> Result<Value> {
    logged(arguments).map(|(reported, _)| reported)
}

/// Runs the agent to its end; what it printed, and what it logged.
fn logged(arguments: &[&str]) -> Result<(Value, String)> {
    eprintln!("splitter {}", arguments.join(" "));
    let output = Command::new(SPLITTER)
        .args(["-c", CONFIG, "--json"])
        .args(arguments)
        .output()?;
    let reported = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("`splitter {}`: {reported} {log}", arguments.join(" "));
    }
    let reported =
        serde_json::from_str(&reported).with_context(|| format!("reported {reported}"))?;
    Ok((reported, log.into_owned()))
}

/// Starts the agent and waits until its log says so.
fn start(mut command: Command, ready: &str) -> Result<(Child, BufReader<ChildStderr>)> {
    eprintln!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut log = BufReader::new(child.stderr.take().context("it was asked for")?);
    let mut reported = String::new();
    loop {
        let known = reported.len();
        if log.read_line(&mut reported)? == 0 {
            break;
        }
        eprint!("{}", &reported[known..]);
        if reported.contains(ready) {
            return Ok((child, log));
        }
    }
    bail!("it ended early: {reported}");
}

/// Ends it with SIGTERM; what it printed.
fn end(mut child: Child) -> Result<String> {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
    let mut reported = String::new();
    let mut output = child.stdout.take().context("it was asked for")?;
    output.read_to_string(&mut reported)?;
    let status = child.wait()?;
    ensure!(status.success(), "it ended with {status}");
    Ok(reported)
}
