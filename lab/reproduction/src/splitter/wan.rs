//! Passages of packets at the border routers, by the splitter's own tap: completion times, as the paper
//! measures them, and each packet's delay.
//!
//! What the server sends is watched. A flow begins when its first packet leaves the server's
//! border, before it queues for a tunnel, and ends when its last one arrives at the client's.

use std::{collections::HashMap, num::NonZeroU32};

use anyhow::{Context as _, Result, ensure};
use flow_testbed::{
    namespace::Namespace,
    topology::{TUNNELS, Topology},
};
use splitter_config::PacketLog;
use splitter_datapath::{
    Object,
    tap::{Direction, PACKET_CAPACITY, PacketDelays, TapPoint, TappedFlow, Taps, TimedPacket},
};
use splitter_netlink::{InterfaceName, Netlink};
use splitter_policy::packet_selection::PacketSelection;

use super::schedule::Kind;

/// All packets, by a key that need not be a secret here.
const EVERY_PACKET: PacketSelection =
    PacketSelection::one_in(NonZeroU32::MIN, [0x5350_4c49, 0x5454_4552]);

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

    /// By how much each packet's delay differed from that of the packet of its flow before it, in
    /// microseconds (RFC 3393), with the sign left out: of listings, and of videos.
    ///
    /// # Errors
    ///
    /// If a tap cannot be read, or had no place for all packets.
    pub fn jitter_us(&self) -> Result<[Vec<f64>; 2]> {
        let (sent, arrived) = (packets(&self.leaving)?, packets(&self.arriving)?);
        Ok(TIMED.map(|kind| jitter_us(&sent, &arrived, kind.port())))
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
        anyhow::Ok(Taps::attach(&object, &points, &interfaces, &EVERY_PACKET)?)
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

/// The requests whose packets are timed: a short class and a long one.
const TIMED: [Kind; 2] = [Kind::List, Kind::Video];

/// Packets by either tunnel.
fn packets(taps: &Option<Taps>) -> Result<Vec<TimedPacket>> {
    let mut packets = Vec::new();
    for tap in taps.iter().flat_map(Taps::iter) {
        let timed = tap.packets().context("cannot read the taps")?;
        ensure!(
            timed.missing == 0,
            "the tap {} has places for {PACKET_CAPACITY} packets, and {} more passed; shorten the round",
            timed.point,
            timed.missing
        );
        packets.extend(timed.packets);
    }
    Ok(packets)
}

/// Of the flows from the server's port.
fn jitter_us(sent: &[TimedPacket], arrived: &[TimedPacket], port: u16) -> Vec<f64> {
    let delays = PacketDelays::between(sent, arrived);
    let variation = delays.variation();
    variation
        .filter(|(sent, _)| sent.source.port() == port)
        .map(|(_, ns)| ns.unsigned_abs() as f64 / 1e3)
        .collect()
}

#[cfg(test)]
mod recording;
#[cfg(test)]
mod tests;
