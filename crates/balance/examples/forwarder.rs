//! Forwards UDP datagrams over several paths, in the order in which they came, by TR.
//!
//! ```text
//! forwarder 0.0.0.0:5000 192.0.2.7:5000 10.1.0.2,30,10 10.2.0.2,8,30
//! ```
//!
//! Listens at the first address and forwards to the second: by 10.1.0.2, the address of an interface with 30 Mbit/s and
//! 10 ms, and by 10.2.0.2 with 8 Mbit/s and 30 ms. State the rates a little below the real ones, so that queues build up
//! here, where they are known. One direction: the other one has a forwarder of its own.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Instant;

use flow_balance::{
    Balancer, MAX_PATHS, Packet, PathView, Paths, ServiceTime, ShortFlows, Snapshot, Tr, TrFlow,
    VirtualQueue,
};

/// Flows that are remembered at a time: who sends from ever new ports does not take more memory.
const MAX_FLOWS: usize = 4096;
/// IPv4 and UDP headers, which take their time on the link, too.
const HEADER_BYTES: usize = 28;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, destination, paths @ ..] = arguments.as_slice() else {
        return Err("usage: forwarder LISTEN DESTINATION SOURCE,MBIT,DELAY_MS...".into());
    };
    let (inside, destination) = (UdpSocket::bind(listen)?, destination.parse::<SocketAddr>()?);
    let paths = paths
        .iter()
        .map(|path| parse(path))
        .collect::<Result<Vec<_>, _>>()?;
    if !(1..=MAX_PATHS).contains(&paths.len()) {
        return Err(format!("1 to {MAX_PATHS} paths are needed").into());
    }
    let (sockets, views): (Vec<_>, Vec<_>) = paths.into_iter().unzip();
    let tr = Tr::bonding();
    let slowest_ns = views
        .iter()
        .map(|view| view.propagation_ns)
        .max()
        .unwrap_or(0);
    let mut short_flows = ShortFlows::new(2 * slowest_ns + 1_000_000);
    let mut queues = vec![VirtualQueue::default(); views.len()];
    let mut paths = Snapshot::new(&views);
    let mut flows = HashMap::<SocketAddr, TrFlow>::new();
    let (hasher, start, mut buffer) = (RandomState::new(), Instant::now(), vec![0; 65_536]);
    loop {
        let (length, sender) = inside.recv_from(&mut buffer)?;
        let now_ns = start.elapsed().as_nanos() as u64;
        for (path, queue) in paths.known().iter().zip(&queues) {
            paths.view_mut(path).local_backlog_ns = queue.backlog_ns(now_ns);
        }
        if flows.len() == MAX_FLOWS && !flows.contains_key(&sender) {
            flows.clear();
        }
        let packet = Packet {
            now_ns,
            bytes: (length + HEADER_BYTES) as u32,
            flow_hash: hasher.hash_one(sender),
        };
        let path = tr.choose(
            &mut short_flows,
            flows.entry(sender).or_default(),
            &paths,
            &packet,
        );
        queues[path.index()].send(packet.bytes.into(), now_ns, paths.view(path).service);
        // A path that refuses a datagram has lost it, as a full queue would.
        let _ = sockets[path.index()].send_to(&buffer[..length], destination);
    }
}

/// Reads `SOURCE,MBIT,DELAY_MS`: a socket that sends from there, and what is known of the path.
fn parse(path: &str) -> Result<(UdpSocket, PathView), Failure> {
    let [source, mbit, delay_ms] = path.split(',').collect::<Vec<_>>()[..] else {
        return Err(format!("{path} is not SOURCE,MBIT,DELAY_MS").into());
    };
    let (mbit, delay_ms) = (mbit.parse::<f64>()?, delay_ms.parse::<f64>()?);
    let view = PathView {
        propagation_ns: (delay_ms * 1e6) as u64,
        service: ServiceTime::from_bits_per_second((mbit * 1e6) as u64),
        weight: mbit as u32,
        ..PathView::default()
    };
    Ok((UdpSocket::bind((source.parse::<IpAddr>()?, 0))?, view))
}
