//! Passages of packets at the border routers: completion times by the splitter's own tap, as the paper
//! measures them, and each packet's delay by tcpdump.
//!
//! Both watch what the server sends. A flow begins when its first packet leaves the server's
//! border, before it queues for a tunnel, and ends when its last one arrives at the client's.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flow_testbed::{
    namespace::Namespace,
    topology::{LAN, TUNNELS, Topology},
    wait::poll,
};
use splitter_config::PacketLog;
use splitter_datapath::{
    Object,
    tap::{Direction, TapPoint, TappedFlow, Taps},
};
use splitter_netlink::{InterfaceName, Netlink};

use super::{schedule::Kind, server::Running};

const READY_BOUND: Duration = Duration::from_secs(10);

/// Taps on both borders.
#[derive(Debug)]
pub struct WanTap {
    client: Namespace,
    server: Namespace,
    arriving: Option<Taps>,
    leaving: Option<Taps>,
}

impl WanTap {
    /// Attaches taps to all tunnels' devices.
    ///
    /// # Errors
    ///
    /// If a tap cannot be attached.
    pub fn attach(topology: &Topology) -> Result<Self> {
        let [client, server] = [0, 1].map(|it| topology.borders[it].namespace.clone());
        let arriving = taps(&client, Direction::Ingress)?;
        let leaving = taps(&server, Direction::Egress)?;
        Ok(Self {
            client,
            server,
            arriving: Some(arriving),
            leaving: Some(leaving),
        })
    }

    /// Completion times in milliseconds of all flows from the server's port for `kind`, with when they
    /// began, in seconds from the first of them.
    ///
    /// # Errors
    ///
    /// If a tap cannot be read.
    pub fn completions(&self, kind: Kind) -> Result<Vec<(f64, f64)>> {
        let flows = |taps: &Option<Taps>| match taps {
            Some(taps) => taps.collect().context("cannot read the taps"),
            None => Ok(Vec::new()),
        };
        Ok(join(
            &flows(&self.leaving)?,
            &flows(&self.arriving)?,
            kind.port(),
        ))
    }
}

impl Drop for WanTap {
    fn drop(&mut self) {
        // In the namespace that they are in. A namespace that is gone has taken them along.
        let (arriving, leaving) = (self.arriving.take(), self.leaving.take());
        let _ = self.client.enter(move || drop(arriving));
        let _ = self.server.enter(move || drop(leaving));
    }
}

fn taps(border: &Namespace, direction: Direction) -> Result<Taps> {
    let object = Object::for_level(PacketLog::Off).context("cannot read the kernel object")?;
    let points = TUNNELS.map(|device| {
        let device = InterfaceName::try_from(device.to_owned())?;
        Ok(TapPoint { device, direction })
    });
    let points: Result<Vec<_>> = points.into_iter().collect();
    let points = points?;
    border.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let interfaces = runtime.block_on(async { Netlink::connect()?.interfaces().await })?;
        anyhow::Ok(Taps::attach(&object, &points, &interfaces)?)
    })?
}

/// A flow may leave by one tunnel and then by the other: what counts is its first packet at any.
fn join(leaving: &[TappedFlow], arriving: &[TappedFlow], port: u16) -> Vec<(f64, f64)> {
    let mut last_ns: HashMap<_, u64> = HashMap::new();
    for flow in arriving.iter().filter(|it| it.source_port == port) {
        let last = flow.seen.iter().map(|it| it.last_ns).max().unwrap_or(0);
        last_ns.insert((flow.destination, flow.destination_port), last);
    }
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for flow in leaving.iter().filter(|it| it.source_port == port) {
        let first = flow.seen.iter().map(|it| it.first_ns).min();
        let last = last_ns.get(&(flow.destination, flow.destination_port));
        if let (Some(first), Some(last)) = (first, last) {
            spans.push((first, last.saturating_sub(first)));
        }
    }
    let begin = spans.iter().map(|it| it.0).min().unwrap_or(0);
    let completion = |(first, span): (u64, u64)| ((first - begin) as f64 / 1e9, span as f64 / 1e6);
    spans.into_iter().map(completion).collect()
}

/// Recordings of the listings' packets where they come to the server's border, and where they come
/// out of the tunnels.
#[derive(Debug)]
pub struct Recording {
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
    pub fn start(topology: &Topology, directory: &Path) -> Result<Self> {
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

    /// Ends the recording, and tells how much each packet's delay differed from that of the packet of its
    /// flow before it, in microseconds (RFC 3393), with the sign left out.
    ///
    /// # Errors
    ///
    /// If a recording cannot be read.
    pub fn jitter_us(self) -> Result<Vec<f64>> {
        self.programs.into_iter().for_each(Running::end);
        let mut arrived = Vec::new();
        for file in &self.arrived {
            arrived.extend(packets(&fs::read(file)?));
        }
        Ok(delay_variation_us(
            &packets(&fs::read(&self.sent)?),
            &arrived,
        ))
    }
}

fn record(border: &Namespace, device: &str, file: &Path) -> Result<Running> {
    let mut command = border.command("tcpdump");
    command.args([
        "-i", device, "-Q", "in", "-s", "96", "-n", "-U", "-Z", "root",
    ]);
    command
        .args(["--time-stamp-precision=nano", "-w"])
        .arg(file);
    Running::start(command.arg(format!("tcp src port {}", Kind::List.port())))
}

const PCAP_HEAD: usize = 24;
const RECORD_HEAD: usize = 16;
const ETHERNET: usize = 14;

/// What tells a packet from all others of a run, the client's port first.
type PacketKey = (u16, u16, u32, u32, u16);

/// Times in nanoseconds and names of recorded packets; what cannot be read ends the list.
fn packets(file: &[u8]) -> Vec<(u64, PacketKey)> {
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

/// Port of the client, IPv4 identification, sequence number, acknowledgement, length.
fn key(frame: &[u8]) -> Option<PacketKey> {
    let ip = frame.get(ETHERNET..)?;
    let tcp = ip.get(usize::from(ip.first()? & 0xf) * 4..)?;
    let short =
        |bytes: &[u8], at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
    Some((
        short(tcp, 2)?,
        short(ip, 4)?,
        long(4)?,
        long(8)?,
        short(ip, 2)?,
    ))
}

fn delay_variation_us(sent: &[(u64, PacketKey)], arrived: &[(u64, PacketKey)]) -> Vec<f64> {
    let mut arrivals: HashMap<PacketKey, u64> = HashMap::new();
    for (at_ns, key) in arrived {
        arrivals.entry(*key).or_insert(*at_ns);
    }
    // By flow, in the order in which they were sent.
    let mut delays: BTreeMap<u16, Vec<f64>> = BTreeMap::new();
    for (at_ns, key) in sent {
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use splitter_datapath::tap::Passage;

    use super::*;

    fn flow(port: u16, client: u16, times: &[(u64, u64)]) -> TappedFlow {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let passage = |&(first_ns, last_ns): &(u64, u64)| Passage {
            point: "tun0".parse().unwrap(),
            first_ns,
            last_ns,
            duration_ms: 0.0,
            packets: 1,
            bytes: 1,
        };
        TappedFlow {
            source: address,
            source_port: port,
            destination: address,
            destination_port: client,
            seen: times.iter().map(passage).collect(),
            completion_ms: None,
        }
    }

    #[test]
    fn completion_lasts_from_the_first_departure_to_the_last_arrival_by_either_tunnel() {
        let leaving = [
            flow(8001, 1, &[(5_000_000, 6_000_000), (4_000_000, 4_500_000)]),
            flow(8001, 2, &[(1_004_000_000, 1_005_000_000)]),
            flow(8002, 3, &[(1, 2)]),
            flow(8001, 4, &[(2_000_000_000, 2_000_000_001)]),
        ];
        let arriving = [
            flow(8001, 1, &[(6_000_000, 7_000_000), (5_000_000, 9_000_000)]),
            flow(8001, 2, &[(1_005_000_000, 1_006_000_000)]),
            flow(8002, 3, &[(3, 4)]),
        ];
        // The one that never arrived is none, and another port's is none of these.
        assert_eq!(join(&leaving, &arriving, 8001), [(0.0, 5.0), (1.0, 2.0)]);
    }

    /// A recording of frames with the client's port, the identification and the time in us.
    fn recording(frames: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut file = vec![0; PCAP_HEAD];
        for (port, id, at_us) in frames {
            let mut frame = vec![0; ETHERNET];
            frame.extend([0x45, 0, 5, 220]);
            frame.extend(id.to_be_bytes());
            frame.extend([0; 14]);
            frame.extend(8001_u16.to_be_bytes());
            frame.extend(port.to_be_bytes());
            frame.extend([0; 16]);
            for word in [0, at_us * 1000, frame.len() as u32, frame.len() as u32] {
                file.extend(word.to_ne_bytes());
            }
            file.extend(frame);
        }
        file
    }

    #[test]
    fn jitter_is_the_difference_of_a_flows_successive_delays() {
        let sent = packets(&recording(&[
            (1, 1, 100),
            (2, 7, 110),
            (1, 2, 200),
            (1, 3, 300),
            (1, 4, 400),
        ]));
        // Delays of the first flow: 50, 80, lost, 70.
        let arrived = packets(&recording(&[
            (1, 1, 150),
            (2, 7, 999),
            (1, 2, 280),
            (1, 4, 470),
        ]));
        assert_eq!(delay_variation_us(&sent, &arrived), [30.0, 10.0]);
    }

    #[test]
    fn recording_that_was_cut_off_ends_before_the_cut() {
        let whole = recording(&[(1, 1, 100), (1, 2, 200)]);
        assert_eq!(packets(&whole).len(), 2);
        assert_eq!(packets(&whole[..whole.len() - 1]).len(), 1);
        assert!(packets(&whole[..10]).is_empty());
    }
}
