//! The same in real time: the command `cloudburst` and iperf3's cubic, between network namespaces.
//!
//! ```text
//! client ── veth ── router: tbf, drop-tail ── delay line ── server
//! ```

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use flow_testbed::namespace::{DelayLine, Namespace};
use serde_json::Value;

use crate::{
    cell::{Cell, Scenario},
    outcome::Row,
    scenario::{Bound, Figures, figures},
};

/// Least burst of the token bucket: two packets.
const BURST_BYTES: usize = 3_100;
/// What listens needs a moment to be there.
const LISTEN: Duration = Duration::from_millis(500);
const SECONDS: u64 = 15;

/// Cells that are measured in namespaces.
pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for scenario in [Scenario::Alone, Scenario::Cubic] {
        for rate_mbit in [10.0, 100.0] {
            cells.extend([10.0, 50.0].map(|rtt_ms| Cell {
                scenario,
                rate_mbit,
                rtt_ms,
                queue_bdp: 1.0,
            }));
        }
    }
    cells
}

/// Measures a cell with the command `program`.
pub(crate) fn measure(cell: &Cell, program: &Path) -> Result<Row> {
    let run = |is_ours| -> Result<Figures> {
        let rig = Rig::new(cell)?;
        match cell.scenario {
            Scenario::Cubic => rig.beside_cubic(program, is_ours),
            _ => rig.alone(cell, program, is_ours),
        }
    };
    let (ours, peer) = (run(true)?, run(false)?);
    let bound = Bound::of(cell.scenario);
    let holds = bound.holds(&ours, &peer);
    Ok(Row {
        scenario: format!("{}_in_namespaces", cell.scenario.name()),
        rate_mbit: cell.rate_mbit,
        rtt_ms: cell.rtt_ms,
        queue_bdp: cell.queue_bdp,
        ours,
        peer,
        bound: bound.text().to_owned(),
        holds,
    })
}

/// A sender and a receiver with a bottleneck between them.
struct Rig {
    client: Namespace,
    router: Namespace,
    server: Namespace,
    bits_per_s: f64,
    _line: DelayLine,
}

/// A process that ends with this value.
struct Running(Child, Instant);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Rig {
    fn new(cell: &Cell) -> Result<Self> {
        let [client, router, server] = ["client", "router", "server"].map(Namespace::new);
        let (client, router, server) = (client?, router?, server?);
        client.connect("eth0", &router, "lan")?;
        let one_way = Duration::from_nanos(cell.rtt_ns() / 2);
        let line = router.connect_delayed("wan", &server, "eth0", one_way)?;
        let batch = |addresses: [(&str, &str); 1]| {
            let lines = addresses.map(|(device, address)| {
                format!("address add {address} dev {device}\nlink set {device} up\n")
            });
            lines.concat()
        };
        client.run_with_input(
            "ip -batch -",
            &(batch([("eth0", "10.9.0.1/24")]) + "route add default via 10.9.0.2\n"),
        )?;
        router.run_with_input(
            "ip -batch -",
            &(batch([("lan", "10.9.0.2/24")]) + &batch([("wan", "10.9.1.1/24")])),
        )?;
        server.run_with_input(
            "ip -batch -",
            &(batch([("eth0", "10.9.1.2/24")]) + "route add default via 10.9.1.1\n"),
        )?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        let (rate, limit) = (cell.bits_per_s() as u64, cell.queue_bytes());
        router.run(&format!(
            "tc qdisc add dev wan root tbf rate {rate}bit burst {BURST_BYTES} limit {limit}"
        ))?;
        Ok(Self {
            client,
            router,
            server,
            bits_per_s: cell.bits_per_s(),
            _line: line,
        })
    }

    fn listen(&self, program: &Path, is_ours: bool, port: u16) -> Result<Running> {
        let mut command = if is_ours {
            let mut command = self.server.command(&program.display().to_string());
            command.args(["serve", "--ports", &port.to_string()]);
            command
        } else {
            let mut command = self.server.command("iperf3");
            command.args(["-s", "-p", &port.to_string()]);
            command
        };
        let child = quiet(&mut command).spawn();
        let child = child.context("cannot start what listens; is iperf3 there?")?;
        thread::sleep(LISTEN);
        Ok(Running(child, Instant::now()))
    }

    fn send(&self, program: &Path, is_ours: bool, port: u16) -> Result<Running> {
        let seconds = SECONDS.to_string();
        let mut command = if is_ours {
            let mut command = self.client.command(&program.display().to_string());
            let load = format!("{}kbit", (self.bits_per_s * 1.2 / 1e3) as u64);
            let peer = format!("10.9.1.2:{port}");
            command.args(["perf", &peer, "--json", "--size", "100k"]);
            command.args(["--load", &load, "--duration", &seconds]);
            command
        } else {
            let mut command = self.client.command("iperf3");
            command.args(["-c", "10.9.1.2", "-p", &port.to_string(), "-J"]);
            command.args(["-C", "cubic", "-t", &seconds]);
            command
        };
        let child = quiet(&mut command).stdout(Stdio::piped()).spawn();
        let child = child.context("cannot start the sender")?;
        Ok(Running(child, Instant::now()))
    }

    /// Packets that the bottleneck has sent, and those that it has dropped.
    fn counts(&self) -> Result<(f64, f64)> {
        let text = self.router.run("tc -s -j qdisc show dev wan")?;
        let list: Value = serde_json::from_str(&text).context("tc printed no JSON")?;
        let count = |name: &str| list[0][name].as_f64();
        let counts = count("packets").zip(count("drops"));
        counts.context("tc shows no packets and drops of the queue")
    }

    fn alone(&self, cell: &Cell, program: &Path, is_ours: bool) -> Result<Figures> {
        let _server = self.listen(program, is_ours, 4433)?;
        let began = Instant::now();
        let mut sender = self.send(program, is_ours, 4433)?;
        let settled = Duration::from_nanos(cell.settling(1, 12));
        thread::sleep(settled.saturating_sub(began.elapsed()));
        let early = self.counts()?;
        let share = share(&finish(&mut sender)?, is_ours, self.bits_per_s)?;
        let all = self.counts()?;
        let loss = |(packets, drops): (f64, f64)| drops / (packets + drops).max(1.0);
        Ok(figures([
            ("early_loss", loss(early)),
            ("loss", loss((all.0 - early.0, all.1 - early.1))),
            ("goodput", share),
        ]))
    }

    fn beside_cubic(&self, program: &Path, is_ours: bool) -> Result<Figures> {
        let _servers = (
            self.listen(program, is_ours, 4433)?,
            self.listen(program, false, 5201)?,
        );
        let mut first = self.send(program, is_ours, 4433)?;
        let mut cubic = self.send(program, false, 5201)?;
        let first = finish(&mut first)?;
        let cubic = finish(&mut cubic)?;
        Ok(figures([
            ("share", share(&first, is_ours, self.bits_per_s)?),
            ("cubic", share(&cubic, false, self.bits_per_s)?),
        ]))
    }
}

fn quiet(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

/// Waits for a sender, and returns what it printed, and the seconds that it took.
fn finish(sender: &mut Running) -> Result<(Value, f64)> {
    let mut text = String::new();
    if let Some(out) = &mut sender.0.stdout {
        std::io::Read::read_to_string(out, &mut text)?;
    }
    let status = sender.0.wait()?;
    ensure!(status.success(), "a sender failed: {status}: {text}");
    let seconds = sender.1.elapsed().as_secs_f64();
    let report = serde_json::from_str(&text).context("a sender printed no JSON")?;
    Ok((report, seconds))
}

/// What got there, as a share of the link.
fn share((report, seconds): &(Value, f64), is_ours: bool, bits_per_s: f64) -> Result<f64> {
    let found = if is_ours {
        // Its rate is over the time in which messages are offered, and the last ones come later.
        let offered = report["seconds"].as_f64();
        let rate = report["goodput_bits_per_s"].as_f64().zip(offered);
        rate.map(|(rate, offered)| rate * offered / seconds.max(offered))
    } else {
        report["end"]["sum_received"]["bits_per_second"].as_f64()
    };
    Ok(found.context("a sender's report has no rate")? / bits_per_s)
}
