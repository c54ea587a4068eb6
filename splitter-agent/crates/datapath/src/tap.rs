//! Flow completion times where the paper measures them: between two points of the network.
//!
//! A [`Tap`] notes when each TCP flow's first and last packet pass a device. It is attached for as
//! long as the [`Taps`] live and nothing is pinned, so that nothing is left when the process ends.
//! Before Linux 6.6 (TCX) it is a filter of the device's `clsact` queueing discipline, which a
//! process that is killed leaves behind.
//!
//! It times packets one by one, too, where a [`PacketSelection`] says which: [`PacketDelays`] has their delays
//! between two points.

mod delays;
mod packets;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use aya::maps::{HashMap as BpfHashMap, MapData, MapError};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfError, EbpfLoader};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use splitter_config::InvalidValue;
use splitter_netlink::{InterfaceName, Interfaces, NoSuchInterface};
use splitter_policy::flow::{FlowKey, FlowKeyV6, TapEntry};
use splitter_policy::packet_selection::PacketSelection;
use thiserror::Error;

pub use self::delays::{DelaySummary, DelayVariation, PacketDelay, PacketDelays};
use self::packets::PacketMaps;
pub use self::packets::{PACKET_CAPACITY, TimedPacket, TimedPackets};
use crate::names::{PACKET_PASSAGES, PACKET_SELECTION, TAPPED};
use crate::{Clsact, Object, Position, Shape, TcHook, attach_tc};

/// Flows that one tap remembers; later ones are not noted.
pub const CAPACITY: usize = 65_536;

/// Programs that note flows, attached for as long as this lives.
#[derive(Debug, Default)]
pub struct Taps {
    taps: Vec<Tap>,
    /// After the taps: what they are filters of goes when they have gone.
    created: Vec<Clsact>,
}

/// A program that notes flows at one point.
pub struct Tap {
    point: TapPoint,
    hook: TcHook,
    flows: BpfHashMap<MapData, Shape<FlowKeyV6>, Shape<TapEntry>>,
    packets: PacketMaps,
    /// Holds the link.
    _ebpf: Ebpf,
}

/// Names the place of a tap: written `DEVICE`, `DEVICE:ingress` or `DEVICE:egress`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TapPoint {
    /// The device.
    pub device: InterfaceName,
    /// Which packets are noted there.
    pub direction: Direction,
}

/// The way of a packet through a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// It arrives there; it is seen after XDP.
    Ingress,
    /// It leaves there; it is seen before it queues.
    Egress,
}

/// One flow, at all taps that saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TappedFlow {
    /// Source address.
    pub source: IpAddr,
    /// Source port.
    pub source_port: u16,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination port.
    pub destination_port: u16,
    /// What each tap saw, in the order of the taps.
    pub seen: Vec<Passage>,
    /// From the first packet at the first tap to the last packet at the others, as the paper
    /// measures it; `None` when one tap alone saw the flow.
    pub completion_ms: Option<f64>,
}

/// A flow at one tap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Passage {
    /// The tap.
    pub point: TapPoint,
    /// `CLOCK_MONOTONIC` at the first packet; the same clock for all taps on a machine.
    pub first_ns: u64,
    /// `CLOCK_MONOTONIC` at the last packet.
    pub last_ns: u64,
    /// From the first to the last packet.
    pub duration_ms: f64,
    /// Packets; the segments of an aggregate count as one.
    pub packets: u64,
    /// Bytes, Ethernet headers included.
    pub bytes: u64,
}

/// A tap could not be attached or read.
#[derive(Debug, Error)]
pub enum TapError {
    /// The device does not exist.
    #[error(transparent)]
    NoSuchInterface(#[from] NoSuchInterface),
    /// The program could not tell where a packet begins.
    #[error(
        "packets on {0} have no Ethernet header, which the tap goes by; tap the device that carries it, or those of the site"
    )]
    NoEthernet(InterfaceName),
    /// The kernel object could not be loaded.
    #[error("cannot load the tap: {0}")]
    Load(#[from] EbpfError),
    /// The object holds no tap.
    #[error("the kernel object has no tap; agent and object are of different versions")]
    Missing,
    /// The program was refused.
    #[error(
        "cannot attach the tap {point}: {source}; TCX (Linux 6.6 or later) or the clsact queueing discipline with BPF filters is needed"
    )]
    Attach {
        /// Where.
        point: TapPoint,
        /// The reason.
        source: ProgramError,
    },
    /// What it noted could not be read.
    #[error("cannot read what the tap {point} noted: {source}")]
    Read {
        /// Where.
        point: TapPoint,
        /// The reason.
        source: MapError,
    },
}

impl Taps {
    /// Attaches a tap at each point, in this thread's network namespace, of which `interfaces` is
    /// the list. To be dropped in the same namespace. Packets that `selection` has are timed one by one.
    ///
    /// # Errors
    /// See [`TapError`]; nothing stays attached.
    pub fn attach(
        object: &Object,
        points: &[TapPoint],
        interfaces: &Interfaces,
        selection: &PacketSelection,
    ) -> Result<Self, TapError> {
        let mut taps = Self::default();
        for point in points {
            let (tap, created) = Tap::attach(object, point.clone(), interfaces, selection)?;
            taps.taps.push(tap);
            taps.created.extend(created);
        }
        Ok(taps)
    }

    /// Goes through all taps.
    pub fn iter(&self) -> impl Iterator<Item = &Tap> {
        self.taps.iter()
    }

    /// The packets that the taps have timed, by tap.
    ///
    /// # Errors
    /// [`TapError::Read`].
    pub fn packets(&self) -> Result<Vec<TimedPackets>, TapError> {
        self.iter().map(Tap::packets).collect()
    }

    /// Everything that the taps have noted, by flow, the earliest first.
    ///
    /// # Errors
    /// [`TapError::Read`].
    pub fn collect(&self) -> Result<Vec<TappedFlow>, TapError> {
        let noted = self
            .iter()
            .map(|tap| Ok((tap.point.clone(), tap.flows()?)))
            .collect::<Result<Vec<_>, TapError>>()?;
        Ok(join(noted))
    }
}

impl Tap {
    fn attach(
        object: &Object,
        point: TapPoint,
        interfaces: &Interfaces,
        selection: &PacketSelection,
    ) -> Result<(Self, Option<Clsact>), TapError> {
        let interface = interfaces.named(&point.device)?;
        if !interface.is_ethernet {
            return Err(TapError::NoEthernet(point.device));
        }
        let mut ebpf = EbpfLoader::new()
            // Of the splitter's own tables none is used here.
            .map_max_entries("FLOWS_V4", 1)
            .map_max_entries("FLOWS_V6", 1)
            .map_max_entries("TAGS", 1)
            .map_max_entries(PACKET_PASSAGES, packets::capacity(selection))
            .override_global(PACKET_SELECTION, &Shape(*selection), true)
            .load(object.bytes())?;
        let program: &mut SchedClassifier = ebpf
            .program_mut("tap")
            .and_then(|program| program.try_into().ok())
            .ok_or(TapError::Missing)?;
        // The place next to the wire, whatever else is attached.
        let (direction, position) = match point.direction {
            Direction::Ingress => (TcAttachType::Ingress, Position::First),
            Direction::Egress => (TcAttachType::Egress, Position::Last),
        };
        let attached = program.load().and_then(|()| {
            let device = point.device.as_str();
            attach_tc(program, device, interface.index, direction, position)
        });
        let attached = match attached {
            Ok(attached) => attached,
            Err(source) => return Err(TapError::Attach { point, source }),
        };
        let flows = ebpf.take_map(TAPPED).ok_or(TapError::Missing)?;
        let flows = match BpfHashMap::try_from(flows) {
            Ok(flows) => flows,
            Err(source) => return Err(TapError::Read { point, source }),
        };
        let tap = Self {
            point,
            hook: attached.hook,
            flows,
            packets: PacketMaps::take(&mut ebpf)?,
            _ebpf: ebpf,
        };
        Ok((tap, attached.created))
    }

    /// Returns the tap's place.
    pub fn point(&self) -> &TapPoint {
        &self.point
    }

    /// How it is attached.
    pub fn hook(&self) -> TcHook {
        self.hook
    }

    /// The flows noted so far.
    ///
    /// # Errors
    /// [`TapError::Read`].
    pub fn flows(&self) -> Result<Vec<(FlowKey, TapEntry)>, TapError> {
        // A walk that starts over because a key vanished would never end; no key does here.
        let walk = self.flows.iter().take(2 * CAPACITY);
        walk.map(|item| item.map(|(key, entry)| (FlowKey::V6(key.0), entry.0)))
            .collect::<Result<_, _>>()
            .map_err(|source| TapError::Read {
                point: self.point.clone(),
                source,
            })
    }

    /// The packets timed so far.
    ///
    /// # Errors
    /// [`TapError::Read`].
    pub fn packets(&self) -> Result<TimedPackets, TapError> {
        let point = self.point.clone();
        match self.packets.read() {
            Ok((packets, missing)) => Ok(TimedPackets {
                point,
                missing,
                packets,
            }),
            Err(source) => Err(TapError::Read { point, source }),
        }
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("point", &self.point)
            .finish_non_exhaustive()
    }
}

type Noted = (TapPoint, Vec<(FlowKey, TapEntry)>);

fn join(noted: Vec<Noted>) -> Vec<TappedFlow> {
    let mut by_key: HashMap<FlowKey, Vec<Passage>> = HashMap::new();
    for (point, flows) in noted {
        for (key, entry) in flows {
            let passage = Passage::new(point.clone(), &entry);
            by_key.entry(key).or_default().push(passage);
        }
    }
    let joined = by_key.into_iter();
    let mut flows: Vec<_> = joined
        .map(|(key, seen)| TappedFlow::new(&key, seen))
        .collect();
    flows.sort_by_key(|flow| flow.seen.iter().map(|it| it.first_ns).min());
    flows
}

impl Passage {
    fn new(point: TapPoint, entry: &TapEntry) -> Self {
        Self {
            point,
            first_ns: entry.first_ns,
            last_ns: entry.last_ns,
            duration_ms: milliseconds(entry.first_ns, entry.last_ns),
            packets: entry.packets,
            bytes: entry.bytes,
        }
    }
}

impl TappedFlow {
    fn new(key: &FlowKey, seen: Vec<Passage>) -> Self {
        let (source, destination) = key.addresses();
        let (source_port, destination_port) = key.ports();
        let completion_ms = seen.split_first().and_then(|(first, others)| {
            let last_ns = others.iter().map(|passage| passage.last_ns).max()?;
            Some(milliseconds(first.first_ns, last_ns))
        });
        Self {
            source: source.to_canonical(),
            source_port,
            destination: destination.to_canonical(),
            destination_port,
            seen,
            completion_ms,
        }
    }
}

/// Writes its 5-tuple but for the protocol, which is always TCP.
impl fmt::Display for TappedFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            source_port,
            destination,
            destination_port,
            ..
        } = self;
        write!(
            f,
            "{source}:{source_port} -> {destination}:{destination_port}"
        )
    }
}

/// Negative when the points were given against the flow's direction.
fn milliseconds(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns as f64 - from_ns as f64) / 1e6
}

impl FromStr for TapPoint {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (device, direction) = match text.rsplit_once(':') {
            None => (text, Direction::Ingress),
            Some((device, "ingress")) => (device, Direction::Ingress),
            Some((device, "egress")) => (device, Direction::Egress),
            Some((_, other)) => {
                return Err(InvalidValue::new(
                    format!("`{other}` is no direction"),
                    "give ingress or egress",
                ));
            }
        };
        let device = InterfaceName::try_from(device.to_owned())?;
        Ok(Self { device, direction })
    }
}

impl fmt::Display for TapPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        };
        write!(f, "{}:{direction}", self.device)
    }
}

impl Serialize for TapPoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TapPoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(text: &str) -> TapPoint {
        text.parse().unwrap()
    }

    #[test]
    fn points_are_read_as_they_are_written() {
        for text in ["eth0:ingress", "eth0:egress"] {
            assert_eq!(point(text).to_string(), text);
        }
        assert_eq!(point("eth0"), point("eth0:ingress"));
        let error = "eth0:out".parse::<TapPoint>().unwrap_err();
        assert!(error.to_string().contains("give ingress or egress"));
        assert!("".parse::<TapPoint>().is_err());
    }

    #[test]
    fn completion_is_from_the_first_point_to_the_last_packet_elsewhere() {
        let key = |ports| {
            FlowKey::V6(FlowKeyV6 {
                source: [0; 2],
                destination: [0; 2],
                ports,
                protocol: 6,
            })
        };
        let entry = |first_ns, last_ns| TapEntry {
            first_ns,
            last_ns,
            packets: 2,
            bytes: 100,
        };
        let flows = join(vec![
            (
                point("a"),
                vec![
                    (key(2), entry(7_000_000, 8_000_000)),
                    (key(1), entry(1_000_000, 2_000_000)),
                ],
            ),
            (point("b"), vec![(key(1), entry(2_000_000, 5_000_000))]),
            (point("c"), vec![(key(1), entry(3_000_000, 4_500_000))]),
        ]);
        assert_eq!(flows.len(), 2);
        assert_eq!(flows[0].completion_ms, Some(4.0));
        assert_eq!(flows[0].seen[1].duration_ms, 3.0);
        assert_eq!(flows[1].completion_ms, None);
    }
}
