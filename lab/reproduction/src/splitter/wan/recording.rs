//! What tcpdump sees at both borders, to hold the taps against.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, ensure};
use flow_testbed::{
    namespace::Namespace,
    topology::{LAN, TUNNELS, Topology},
    wait::poll,
};

use super::TIMED;
use crate::splitter::server::Running;

const READY_BOUND: Duration = Duration::from_secs(10);

/// Recordings of the listings' and videos' packets where they come to the server's border, and where they come
/// out of the tunnels: a short class and a long one.
#[derive(Debug)]
pub(super) struct Recording {
    programs: Vec<Running>,
    sent: PathBuf,
    arrived: [PathBuf; 2],
}

impl Recording {
    /// Starts it, with its files in `directory`.
    ///
    /// # Errors
    ///
    /// If tcpdump does not work.
    pub(super) fn start(topology: &Topology, directory: &Path) -> Result<Self> {
        let [client, server] = &topology.borders;
        let sent = directory.join("sent.pcap");
        let arrived = TUNNELS.map(|it| directory.join(format!("{it}.pcap")));
        let mut programs = vec![record(&server.namespace, LAN, &sent)?];
        for (device, file) in TUNNELS.into_iter().zip(&arrived) {
            programs.push(record(&client.namespace, device, file)?);
        }
        for file in [&sent].into_iter().chain(&arrived) {
            let begun = || {
                fs::metadata(file)
                    .ok()
                    .filter(|it| it.len() >= PCAP_HEAD as u64)
            };
            ensure!(
                poll(READY_BOUND, begun).is_some(),
                "tcpdump does not record"
            );
        }
        Ok(Self {
            programs,
            sent,
            arrived,
        })
    }

    /// Ends the recording, and returns the packets that came to the server's border, and those that arrived.
    ///
    /// # Errors
    ///
    /// If a recording cannot be read.
    pub(super) fn end(self) -> Result<(Recorded, Recorded)> {
        self.programs.into_iter().for_each(Running::end);
        let mut arrived = Vec::new();
        for file in &self.arrived {
            arrived.extend(packets(&fs::read(file)?));
        }
        Ok((packets(&fs::read(&self.sent)?), arrived))
    }
}

fn record(border: &Namespace, device: &str, file: &Path) -> Result<Running> {
    let mut command = border.command("tcpdump");
    command.args([
        "-i", device, "-Q", "in", "-s", "96", "-n", "-U", "-Z", "root",
    ]);
    command
        // Else the kernel hands over what came within a second at once, and the last of it is lost when tcpdump ends.
        .args(["--immediate-mode", "--time-stamp-precision=nano", "-w"])
        .arg(file);
    let ports = TIMED.map(|it| format!("tcp src port {}", it.port()));
    Running::start(command.arg(ports.join(" or ")))
}

pub(super) const PCAP_HEAD: usize = 24;
const RECORD_HEAD: usize = 16;
pub(super) const ETHERNET: usize = 14;

/// Key of a packet among all others of a run, its flow first.
pub(super) type PacketKey = (Flow, u16, u32, u32, u16);
/// Ports of the server and of the client.
pub(super) type Flow = (u16, u16);

/// Times in nanoseconds and names of recorded packets.
pub(super) type Recorded = Vec<(u64, PacketKey)>;

/// Reads a recording; what cannot be read ends the list.
pub(super) fn packets(file: &[u8]) -> Recorded {
    let mut rest = file.get(PCAP_HEAD..).unwrap_or_default();
    let mut packets = Vec::new();
    while let Some((head, after)) = rest.split_at_checked(RECORD_HEAD) {
        let word = |at: usize| {
            let bytes = head[at..at + 4].try_into().unwrap_or_default();
            u32::from_ne_bytes(bytes)
        };
        let Some((frame, after)) = after.split_at_checked(word(8) as usize) else {
            break;
        };
        rest = after;
        let at_ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4));
        packets.extend(key(frame).map(|key| (at_ns, key)));
    }
    packets
}

/// Flow, IPv4 identification, sequence number, acknowledgement, length.
fn key(frame: &[u8]) -> Option<PacketKey> {
    let ip = frame.get(ETHERNET..)?;
    let tcp = ip.get(usize::from(ip.first()? & 0xf) * 4..)?;
    let short =
        |bytes: &[u8], at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
    Some((
        (short(tcp, 0)?, short(tcp, 2)?),
        short(ip, 4)?,
        long(4)?,
        long(8)?,
        short(ip, 2)?,
    ))
}

/// By how much each packet's delay differs from that of the packet of its flow before it, in microseconds, of the
/// flows from the server's port.
pub(super) fn delay_variation_us(
    sent: &[(u64, PacketKey)],
    arrived: &[(u64, PacketKey)],
    port: u16,
) -> Vec<f64> {
    let mut arrivals: HashMap<PacketKey, u64> = HashMap::new();
    for (at_ns, key) in arrived {
        arrivals.entry(*key).or_insert(*at_ns);
    }
    // By flow, in the order in which they were sent.
    let mut delays: BTreeMap<Flow, Vec<f64>> = BTreeMap::new();
    for (at_ns, key) in sent.iter().filter(|(_, key)| key.0.0 == port) {
        if let Some(arrival) = arrivals.get(key) {
            let delay_us = (*arrival as f64 - *at_ns as f64) / 1e3;
            delays.entry(key.0).or_default().push(delay_us);
        }
    }
    let flows = delays.values();
    flows
        .flat_map(|delays| delays.windows(2).map(|pair| (pair[1] - pair[0]).abs()))
        .collect()
}
