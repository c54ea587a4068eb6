//! The testbed of one run: two sites, a far host at the end of a long cable, and `iperf3`.

use std::{
    process::{Child, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{Cell, Direction, Run, SETTLING};
use crate::{
    namespace::{Counters, DelayLine, Namespace, NamespaceError},
    scheme::{Scheme, SchemeError},
    topology::{Topology, TopologyOptions},
    traffic::{self, TrafficError},
    workload::{PACKET_BYTES, PACKET_PAYLOAD_BYTES, Schedule, ShortFlows, Workload},
};

/// Round trips up to this are those of the namespaces themselves.
const OWN_ROUND_TRIP_MS: f64 = 1.0;
/// The far host, and the end of its cable at the generator of site B.
const FAR: [&str; 2] = ["10.2.9.2", "10.2.9.1"];
/// How long `iperf3` may take to listen.
const LISTENING: Duration = Duration::from_secs(5);
/// The longest wait for short flows under way at the end.
const DRAIN: Duration = Duration::from_millis(2_500);

/// Why a run ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RigError {
    /// The testbed could not be built or read.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A scheme failed.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// Short flows could not be made.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// A program could not be started or waited for.
    #[error("cannot run iperf3 ({what}): {source}")]
    Start {
        /// Which one of both.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A program said something else than what was measured.
    #[error("iperf3 measured nothing: {0}")]
    Iperf(String),
}

/// Two sites and a far host.
pub(super) struct Rig {
    cell: Cell,
    topology: Topology,
    /// Where transfers end.
    far: Namespace,
    address: String,
    _line: Option<DelayLine>,
}

impl Rig {
    /// Builds the testbed of a cell.
    pub(super) fn build(cell: &Cell) -> Result<Self, RigError> {
        let topology = Topology::build(&TopologyOptions {
            rates_mbit: cell.rates_mbit,
            // Several transfers may have the bandwidth of both tunnels.
            shape_access: false,
            queue_behind_border: false,
            delays: None,
        })?;
        let near = &topology.generators[1];
        let (mut far, mut address) = (near.namespace.clone(), near.ipv4.to_string());
        let mut line = None;
        if cell.round_trip_ms > OWN_ROUND_TRIP_MS {
            far = Namespace::new("far")?;
            let delay = Duration::from_secs_f64(cell.round_trip_ms / 2e3);
            line = Some(
                near.namespace
                    .connect_delayed("far0", &far, "eth0", delay)?,
            );
            let [own, gateway] = FAR;
            address = own.to_owned();
            near.namespace.sysctl("net.ipv4.ip_forward", "1")?;
            near.namespace.run_with_input(
                "ip -batch -",
                &format!("address add {gateway}/24 dev far0\nlink set dev far0 up\n"),
            )?;
            far.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
            far.run_with_input(
                "ip -batch -",
                &format!(
                    "link set dev lo up\naddress add {own}/24 dev eth0\nlink set dev eth0 up\n\
                     route add default via {gateway} congctl cubic\n"
                ),
            )?;
            let border = &topology.borders[1].namespace;
            border.run(&format!("ip route add {own}/32 via {}", near.ipv4))?;
        }
        Ok(Self {
            cell: cell.clone(),
            topology,
            far,
            address,
            _line: line,
        })
    }

    /// Runs the transfers by a scheme.
    pub(super) fn run(
        &self,
        scheme: &Scheme,
        counting: Duration,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<Run, RigError> {
        let applied = scheme.apply(&self.topology, cancel)?;
        let before = self.counters()?;
        let (mut server, client) = self.start(counting)?;
        let short_ms = self.short_flows(counting, seed, cancel);
        let output = client.wait_with_output();
        // It has served one client, or there was none.
        let _ = server.kill();
        let _ = server.wait();
        let output = output.map_err(|source| RigError::Start {
            what: "client",
            source,
        })?;
        let sum_mbit = sum_mbit(&String::from_utf8_lossy(&output.stdout))?;
        let after = self.counters()?;
        let rise = |name: &str| -> u64 {
            let pairs = after.iter().zip(&before);
            pairs.map(|(after, before)| after.since(before, name)).sum()
        };
        let run = Run {
            sum_mbit,
            short_ms: short_ms?,
            paws_estab: rise("TcpExtPAWSEstab"),
            retransmits: rise("TcpRetransSegs"),
        };
        applied.remove()?;
        Ok(run)
    }

    fn counters(&self) -> Result<Vec<Counters>, NamespaceError> {
        let near = &self.topology.generators[0].namespace;
        [near, &self.far]
            .map(Namespace::counters)
            .into_iter()
            .collect()
    }

    /// Starts both ends of the transfers; the one that listens comes first.
    fn start(&self, counting: Duration) -> Result<(Child, Child), RigError> {
        let failed = |what| move |source| RigError::Start { what, source };
        let mut server = self
            .far
            .command("iperf3")
            .args(["-s", "-1"])
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed("server"))?;
        let since = Instant::now();
        while self.far.run("ss -Hltn sport = 5201")?.trim().is_empty() {
            if since.elapsed() > LISTENING {
                let _ = server.kill();
                let _ = server.wait();
                return Err(RigError::Iperf("its server does not listen".to_owned()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        let mut client = self.topology.generators[0].namespace.command("iperf3");
        client.args(["-c", &self.address, "--json"]);
        client.args(["-P", &self.cell.parallel.to_string()]);
        client.args(["-O", &SETTLING.as_secs().to_string()]);
        client.args(["-t", &counting.as_secs().to_string()]);
        if self.cell.direction == Direction::Down {
            client.arg("-R");
        }
        match client.stdout(Stdio::piped()).spawn() {
            Ok(client) => Ok((server, client)),
            Err(source) => {
                let _ = server.kill();
                let _ = server.wait();
                Err(failed("client")(source))
            }
        }
    }

    /// Runs short flows beside, if there are to be any; their completion times.
    fn short_flows(
        &self,
        counting: Duration,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<Vec<f64>, RigError> {
        if !self.cell.beside_short_flows {
            return Ok(Vec::new());
        }
        let workload = Workload {
            short: ShortFlows::mixed(),
            background: None,
            length: SETTLING + counting,
            seed,
        };
        let schedule: Arc<Schedule> = Arc::new(workload.schedule());
        let outcomes = traffic::run(&self.topology, &schedule, DRAIN, cancel, &mut |_| {})?;
        let settled = outcomes.iter().filter(|it| it.at >= SETTLING);
        let completed = settled.filter_map(|it| it.completion);
        Ok(completed.map(|it| it.as_secs_f64() * 1e3).collect())
    }
}

/// The sum of what was received, with the headers of its packets.
fn sum_mbit(output: &str) -> Result<f64, RigError> {
    #[derive(Deserialize)]
    struct Report {
        end: End,
    }
    #[derive(Deserialize)]
    struct End {
        sum_received: Sum,
    }
    #[derive(Deserialize)]
    struct Sum {
        bits_per_second: f64,
    }
    let report: Report = serde_json::from_str(output)
        .map_err(|error| RigError::Iperf(format!("{error} in {output}")))?;
    let payload_mbit = report.end.sum_received.bits_per_second / 1e6;
    Ok(payload_mbit * f64::from(PACKET_BYTES) / f64::from(PACKET_PAYLOAD_BYTES))
}
