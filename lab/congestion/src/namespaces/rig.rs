//! The rig: namespaces with a bottleneck between them, and what sends through it.
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

use anyhow::{Context, Result, bail, ensure};
use flow_testbed::namespace::{DelayLine, Namespace};
use serde_json::Value;

use super::{incast, keys::Keys};
use crate::cell::Cell;

/// Counts what the server's side receives: UDP, then TCP.
const THROUGH: &str = "table inet through {
 chain input {
  type filter hook input priority 0
  meta l4proto udp counter
  meta l4proto tcp counter
 }
}
";
/// Least burst of the token bucket: two packets.
const BURST_BYTES: usize = 3_100;
/// What listens needs a moment to be there.
const LISTEN: Duration = Duration::from_millis(500);
pub(super) const SERVER: &str = "10.9.1.2";
/// Two of the client, for two paths.
pub(super) const CLIENTS: [&str; 2] = ["10.9.0.1", "10.9.0.3"];

/// A sender and a receiver with a bottleneck between them.
pub(super) struct Rig {
    pub(super) client: Namespace,
    router: Namespace,
    pub(super) server: Namespace,
    pub(super) bits_per_s: f64,
    queue_bytes: usize,
    keys: Keys,
    _line: DelayLine,
}

/// Bytes that came through the bottleneck.
#[derive(Clone, Copy, Debug)]
pub(super) struct Through {
    pub(super) udp_bytes: u64,
    pub(super) tcp_bytes: u64,
}

/// A process that ends with this value.
pub(super) struct Running(Child, Instant);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Rig {
    pub(super) fn new(cell: &Cell) -> Result<Self> {
        let [client, router, server] = ["client", "router", "server"].map(Namespace::new);
        let (client, router, server) = (client?, router?, server?);
        client.connect("eth0", &router, "lan")?;
        let one_way = Duration::from_nanos(cell.rtt_ns() / 2);
        let line = router.connect_delayed("wan", &server, "eth0", one_way)?;
        let up = |device: &str, address: &str| {
            format!("address add {address}/24 dev {device}\nlink set {device} up\n")
        };
        let [first, second] = CLIENTS;
        let mut addresses = up("eth0", first) + &up("eth0", second);
        for address in incast::SERVERS {
            addresses += &up("eth0", &address.to_string());
        }
        let batch = addresses + "route add default via 10.9.0.2\n";
        client.run_with_input("ip -batch -", &batch)?;
        let batch = up("lan", "10.9.0.2") + &up("wan", "10.9.1.1");
        router.run_with_input("ip -batch -", &batch)?;
        let batch = up("eth0", SERVER) + "route add default via 10.9.1.1\n";
        server.run_with_input("ip -batch -", &batch)?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        server.run_with_input("nft -f -", THROUGH)?;
        let rig = Self {
            client,
            router,
            server,
            bits_per_s: cell.bits_per_s(),
            queue_bytes: cell.queue_bytes(),
            keys: Keys::new()?,
            _line: line,
        };
        rig.shape("add", cell.bits_per_s())?;
        Ok(rig)
    }

    /// Gives the bottleneck another rate; its queue stays as it is.
    pub(super) fn set_rate(&self, bits_per_s: f64) -> Result<()> {
        self.shape("change", bits_per_s)
    }

    fn shape(&self, verb: &str, bits_per_s: f64) -> Result<()> {
        let (rate, limit) = (bits_per_s as u64, self.queue_bytes);
        self.router.run(&format!(
            "tc qdisc {verb} dev wan root tbf rate {rate}bit burst {BURST_BYTES} limit {limit}"
        ))?;
        Ok(())
    }

    /// Loses so many of ten packets that leave the client.
    pub(super) fn lose(&self, of_ten: u32) -> Result<()> {
        let some = format!("numgen random mod 10 < {of_ten}");
        let which = if of_ten < 10 { &some } else { "" };
        self.router.run_with_input(
            "nft -f -",
            &format!(
                "table ip loss {{\n chain forward {{\n type filter hook forward priority 0;\n \
                 iif lan {which} drop\n }}\n}}\n"
            ),
        )?;
        Ok(())
    }

    pub(super) fn lose_nothing(&self) -> Result<()> {
        self.router.run("nft delete table ip loss")?;
        Ok(())
    }

    /// Starts what listens on a port: the command, or iperf3.
    pub(super) fn listen(&self, program: Option<&Path>, port: u16) -> Result<Running> {
        let port = port.to_string();
        let mut command = match program {
            Some(program) => {
                let mut command = self.server.command(&program.display().to_string());
                command.args(["serve", "--ports", &port]);
                command.args(self.keys.of_server());
                command
            }
            None => {
                let mut command = self.server.command("iperf3");
                command.args(["-s", "-p", &port]);
                command
            }
        };
        let child = quiet(&mut command).spawn();
        let child = child.context("cannot start what listens; is iperf3 there?")?;
        thread::sleep(LISTEN);
        Ok(Running(child, Instant::now()))
    }

    /// Starts a sender for so many seconds: the command's messages of a size at a rate from so many
    /// addresses, or cubic, which keeps below the rate if that is below the bottleneck's.
    pub(super) fn send(&self, flow: &Flow<'_>, seconds: u64) -> Result<Running> {
        let (port, seconds) = (flow.port.to_string(), seconds.to_string());
        let load = (flow.bits_per_s / 1e3) as u64;
        let mut command;
        if let Some(program) = flow.program {
            command = self.client.command(&program.display().to_string());
            let peer = format!("{SERVER}:{port}");
            command.args(["perf", &peer, "--json"]);
            command.args(self.keys.of_client());
            command.args(["--size", flow.size, "--load", &format!("{load}kbit")]);
            command.args(["--duration", &seconds]);
            for address in CLIENTS.iter().take(flow.paths) {
                command.args(["--bind", address]);
            }
        } else {
            command = self.client.command("iperf3");
            command.args(["-c", SERVER, "-p", &port, "-J", "-C", "cubic"]);
            command.args(["-t", &seconds]);
            if flow.bits_per_s < self.bits_per_s {
                command.args(["-b", &format!("{load}k")]);
            }
        }
        let child = quiet(&mut command).stdout(Stdio::piped()).spawn();
        let child = child.context("cannot start the sender")?;
        Ok(Running(child, Instant::now()))
    }

    /// Packets that the bottleneck has sent, and those that it has dropped.
    pub(super) fn counts(&self) -> Result<(f64, f64)> {
        let [packets, drops] = self.queue(["packets", "drops"])?;
        Ok((packets, drops))
    }

    /// Bytes that wait before the bottleneck.
    pub(super) fn queue_bytes(&self) -> Result<f64> {
        let [backlog] = self.queue(["backlog"])?;
        Ok(backlog)
    }

    fn queue<const N: usize>(&self, counts: [&str; N]) -> Result<[f64; N]> {
        let text = self.router.run("tc -s -j qdisc show dev wan")?;
        let list: Value = serde_json::from_str(&text).context("tc printed no JSON")?;
        let mut values = [0.0; N];
        for (value, name) in values.iter_mut().zip(counts) {
            let count = list[0][name].as_f64();
            *value = count.with_context(|| format!("tc shows no {name} of the queue: {text}"))?;
        }
        Ok(values)
    }

    /// Bytes that the server's side has received so far.
    pub(super) fn through(&self) -> Result<Through> {
        let text = self.server.run("nft -j list chain inet through input")?;
        let list: Value = serde_json::from_str(&text).context("nft printed no JSON")?;
        let items = list["nftables"].as_array().into_iter().flatten();
        let expressions = items.filter_map(|item| item["rule"]["expr"].as_array());
        let counts = expressions
            .flatten()
            .filter_map(|it| it["counter"]["bytes"].as_u64());
        match counts.collect::<Vec<_>>()[..] {
            [udp_bytes, tcp_bytes] => Ok(Through {
                udp_bytes,
                tcp_bytes,
            }),
            _ => bail!("nft does not show two counters: {text}"),
        }
    }

    /// Bytes that the client has sent so far, and those of them that the server has received.
    pub(super) fn bytes(&self) -> Result<(u64, u64)> {
        let sent = self.router.device_counters("lan")?.received_bytes;
        let received = self.server.device_counters("eth0")?.received_bytes;
        Ok((sent, received))
    }
}

/// Why `cloudburst perf` says that a message failed whose time was over.
const TOO_LATE: &str = "message given up: the time is over";

/// A sender of messages, or cubic where there is no program.
#[derive(Clone, Copy)]
pub(super) struct Flow<'a> {
    pub(super) program: Option<&'a Path>,
    pub(super) port: u16,
    pub(super) size: &'static str,
    pub(super) bits_per_s: f64,
    /// Addresses that it sends from.
    pub(super) paths: usize,
}

/// The share of packets that were dropped between two counts.
pub(super) fn loss(before: (f64, f64), after: (f64, f64)) -> f64 {
    let (packets, drops) = (after.0 - before.0, after.1 - before.1);
    drops / (packets + drops).max(1.0)
}

fn quiet(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

/// Waits for a sender, and returns what it printed, and the seconds that it took.
fn output(sender: &mut Running) -> Result<(Value, f64)> {
    let mut text = String::new();
    if let Some(out) = &mut sender.0.stdout {
        std::io::Read::read_to_string(out, &mut text)?;
    }
    let status = sender.0.wait()?;
    let seconds = sender.1.elapsed().as_secs_f64();
    let report: Option<Value> = serde_json::from_str(&text).ok();
    let has_starved = status.code() == Some(1) && report.as_ref().is_some_and(has_starved);
    ensure!(
        status.success() || has_starved,
        "a sender failed: {status}: {text}"
    );
    Ok((report.context("a sender printed no JSON")?, seconds))
}

/// Whether this is the report of `cloudburst perf`, which fails then, that messages were offered and their time was over
/// before any was delivered: a rate of nothing, and no reason to end what is measured.
fn has_starved(report: &Value) -> bool {
    let failures = report["failures"].as_object();
    let are_late = failures.is_some_and(|it| it.keys().all(|reason| reason == TOO_LATE));
    report["offered"].as_u64() > Some(0) && report["delivered"] == 0 && are_late
}

/// Waits for a sender. Returns what got there, in bits per second.
pub(super) fn goodput(sender: &mut Running, is_ours: bool) -> Result<f64> {
    let (report, seconds) = output(sender)?;
    let found = if is_ours {
        // Its rate is over the time in which messages are offered, and the last ones come later.
        let offered = report["seconds"].as_f64();
        let rate = report["goodput_bits_per_s"].as_f64().zip(offered);
        rate.map(|(rate, offered)| rate * offered / seconds.max(offered))
    } else {
        report["end"]["sum_received"]["bits_per_second"].as_f64()
    };
    found.context("a sender's report has no rate")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that prints this and ends so.
    fn sender(report: &str, code: u8) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("printf '%s' '{report}'; exit {code}")]);
        let child = command.stdout(Stdio::piped()).spawn();
        Running(child.expect("there is a shell"), Instant::now())
    }

    #[test]
    fn who_has_starved_has_a_rate_of_nothing() {
        let report = |failure: &str| {
            let figures =
                r#""offered": 2, "delivered": 0, "seconds": 0.01, "goodput_bits_per_s": 0.0"#;
            format!(r#"{{ {figures}, "failures": {{ "{failure}": 1 }} }}"#)
        };
        let starved = report(TOO_LATE);
        assert_eq!(goodput(&mut sender(&starved, 1), true).unwrap(), 0.0);
        assert!(goodput(&mut sender(&starved, 101), true).is_err());
        assert!(goodput(&mut sender(&report("not allowed"), 1), true).is_err());
        let refused = goodput(&mut sender(r#"{ "error": "no key" }"#, 1), true);
        assert!(refused.unwrap_err().to_string().contains("no key"));
        assert!(goodput(&mut sender("", 0), true).is_err());
    }
}
