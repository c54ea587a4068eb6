//! The programs of a leaf or a spine: loaded, pinned and attached apart from those that split.
//!
//! Everything is pinned below a directory of its own, so that ACKs are written and restored on while no
//! agent runs; a note there says of which build and role the programs are.

mod numbers;
mod placing;
mod remains;

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use aya::include_bytes_aligned;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, Map, MapData, MapError, PerCpuArray};
use aya::programs::SchedClassifier;
use flow_balance::{RemoteBacklogs, ServiceTime};
use splitter_config::{Fabric, FabricRole};
use splitter_netlink::Interfaces;
use splitter_policy::fabric::{Agreement, FabricCounters, MAX_LEAVES};
use splitter_policy::paths::{SitePaths, TunnelPath};
use splitter_policy::sites::SiteKey;

use super::error::{map_error, program_error, typed};
use super::object::OVERRIDE_VARIABLE;
use super::shapes::Shape;
use super::{AttachedMode, KernelError, PathQueues, Pins, TcSide, chain};

pub use remains::FabricRemains;

const AGREEMENT: &str = "AGREEMENT";
pub(super) const LEAVES: &str = "LEAVES";
const PORT_NUMBERS: &str = "PORT_NUMBERS";
const PORTS: &str = "PORTS";
const PORT_QUEUES: &str = "PORT_QUEUES";
pub(super) const REMOTE: &str = "REMOTE";
const COUNTERS: &str = "FABRIC_COUNTERS";
/// The note that what is in place is to stay.
const KEPT: &str = "kept";
const MAPS: [&str; 7] = [
    AGREEMENT,
    LEAVES,
    PORT_NUMBERS,
    PORTS,
    PORT_QUEUES,
    REMOTE,
    COUNTERS,
];

/// A port of a leaf or a spine, attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricPortState {
    /// Its device.
    pub device: String,
    /// The number of the device.
    pub index: u32,
    /// How the programs are attached, at its ingress and egress; none where they are not.
    pub attached: [Option<AttachedMode>; 2],
    /// The configuration has something at its egress: not so on a leaf that only restores.
    pub is_writer: bool,
}

impl FabricPortState {
    /// Tells if what the configuration has there is attached, and nothing else.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let [ingress, egress] = self.attached;
        ingress.is_some() && egress.is_some() == self.is_writer
    }
}

/// Returns the object of the programs: the embedded one, or that of a directory that a test names.
///
/// # Errors
/// Only when `SPLITTER_EBPF_OBJECT_DIR` names a directory without the object.
pub fn fabric_object() -> io::Result<Cow<'static, [u8]>> {
    static OBJECT: &[u8] = include_bytes_aligned!("../bpf/fabric.o");
    match std::env::var_os(OVERRIDE_VARIABLE) {
        Some(directory) => Ok(std::fs::read(PathBuf::from(directory).join("fabric.o"))?.into()),
        None => Ok(OBJECT.into()),
    }
}

/// The names of a role's programs, at ingress and at egress.
#[must_use]
pub const fn fabric_programs(role: FabricRole) -> [&'static str; 2] {
    match role {
        FabricRole::Leaf => ["leaf_ingress", "leaf_egress"],
        FabricRole::Spine => ["spine_ingress", "spine_egress"],
    }
}

/// Describes the ports of a spine for its programs, by the rates of the configuration.
#[must_use]
pub fn fabric_ports(fabric: &Fabric) -> SitePaths {
    let mut ports = SitePaths::default();
    for (index, (path, port)) in ports.tunnels.iter_mut().zip(&fabric.ports).enumerate() {
        ports.known |= 1 << index;
        let rate = port
            .rate_mbit
            .map_or(0, |it| u64::from(it.get()) * 1_000_000);
        *path = TunnelPath {
            service: ServiceTime::from_bits_per_second(rate),
            queue_ns: nanoseconds(fabric),
            ..TunnelPath::default()
        };
    }
    ports.usable = ports.known;
    ports
}

fn nanoseconds(fabric: &Fabric) -> u64 {
    u64::try_from(fabric.queue.as_nanos()).unwrap_or(u64::MAX)
}

/// The agreement that a configuration states.
fn agreement_of(fabric: &Fabric) -> Agreement {
    let hops = u8::try_from(fabric.hops).unwrap_or(u8::MAX);
    Agreement::new(fabric.dscp.policy(), hops, nanoseconds(fabric))
        .unwrap_or_else(|| unreachable!("the configuration has the same bounds"))
}

/// The programs of a leaf or a spine where they are pinned.
#[derive(Debug)]
pub struct FabricDataplane {
    pins: Pins,
    role: FabricRole,
}

impl FabricDataplane {
    /// Opens what is pinned in `directory`; none where nothing is, or something half-made.
    #[must_use]
    pub fn open(bpffs: &Path, directory: &Path) -> Option<Self> {
        let pins = Pins::new(bpffs, directory);
        let role = FabricRole::ALL.iter().copied().find(|role| {
            let programs = fabric_programs(*role);
            programs.iter().all(|it| program_pin(&pins, it).exists())
        })?;
        let are_there = MAPS.iter().all(|name| pins.map(name).exists());
        are_there.then_some(Self { pins, role })
    }

    /// Returns what the machine is.
    #[must_use]
    pub fn role(&self) -> FabricRole {
        self.role
    }

    /// Has what is in place stay when the agent ends.
    ///
    /// # Errors
    /// When the note of it cannot be made.
    pub fn keep(&self) -> Result<(), KernelError> {
        make_note(&self.kept())
    }

    /// Tells if what is in place is to stay when the agent ends.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept().exists()
    }

    fn kept(&self) -> PathBuf {
        self.pins.root().join(KEPT)
    }

    /// Looks how the programs are attached to the ports of a configuration.
    ///
    /// # Errors
    /// When the programs cannot be asked for their numbers.
    pub fn port_states(
        &self,
        fabric: &Fabric,
        interfaces: &Interfaces,
    ) -> Result<Vec<FabricPortState>, KernelError> {
        let ids = fabric_programs(self.role).map(|name| self.program(name));
        let mut numbers = [0; 2];
        for (number, program) in numbers.iter_mut().zip(ids) {
            let (name, program) = program?;
            *number = program.info().map_err(program_error(name))?.id();
        }
        let present = fabric.ports.iter().filter_map(|port| {
            let device = port.device.as_str();
            let index = interfaces.named(&port.device).ok()?.index;
            let mode = |side, id| chain::attached_mode(&self.pins, side, device, index, id);
            Some(FabricPortState {
                device: device.to_owned(),
                index,
                attached: [
                    mode(TcSide::Ingress, numbers[0]),
                    mode(TcSide::Egress, numbers[1]),
                ],
                is_writer: !fabric.restore_only,
            })
        });
        Ok(present.collect())
    }

    /// Reads what all CPUs have counted.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn counters(&self) -> Result<FabricCounters, KernelError> {
        Self::counters_at(&self.pins)
    }

    fn counters_at(pins: &Pins) -> Result<FabricCounters, KernelError> {
        let map = Map::PerCpuArray(map_at(pins, COUNTERS)?);
        let counters: PerCpuArray<_, Shape<FabricCounters>> =
            typed(COUNTERS, PerCpuArray::try_from(map))?;
        let mut sum = FabricCounters::default();
        let per_cpu = counters.get(&0, 0).map_err(map_error(COUNTERS))?;
        per_cpu.iter().for_each(|it| sum.add(&it.0));
        Ok(sum)
    }

    /// Reads what spines have reported of their ports towards a leaf, by the uplinks behind which they are;
    /// nothing of a number beyond all leaves.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn remote_backlogs(&self, leaf: u32) -> Result<RemoteBacklogs, KernelError> {
        if leaf >= MAX_LEAVES as u32 {
            return Ok(RemoteBacklogs::default());
        }
        let map = Map::Array(self.map(REMOTE)?);
        let remote: Array<_, Shape<RemoteBacklogs>> = typed(REMOTE, Array::try_from(map))?;
        Ok(remote.get(&leaf, 0).map_err(map_error(REMOTE))?.0)
    }

    /// Maps the models of the queues in front of a spine's ports.
    ///
    /// # Errors
    /// When the map cannot be opened or mapped.
    pub fn port_queues(&self) -> Result<PathQueues, KernelError> {
        PathQueues::open(&self.pins.map(PORT_QUEUES), PORT_QUEUES)
    }

    pub(super) fn map(&self, name: &'static str) -> Result<MapData, KernelError> {
        map_at(&self.pins, name)
    }

    fn program(&self, name: &'static str) -> Result<(&'static str, SchedClassifier), KernelError> {
        let program = SchedClassifier::from_pin(program_pin(&self.pins, name));
        Ok((name, program.map_err(program_error(name))?))
    }

    /// Writes what the programs go by; the agreement last, without which they write nothing.
    fn configure(&self, fabric: &Fabric, interfaces: &Interfaces) -> Result<(), KernelError> {
        self.set_leaves(fabric)?;
        self.set_port_numbers(fabric, interfaces)?;
        let map = Map::Array(self.map(PORTS)?);
        let mut ports: Array<_, Shape<SitePaths>> = typed(PORTS, Array::try_from(map))?;
        let written = ports.set(0, Shape(fabric_ports(fabric)), 0);
        written.map_err(map_error(PORTS))?;
        let map = Map::Array(self.map(AGREEMENT)?);
        let mut agreement: Array<_, Shape<Agreement>> = typed(AGREEMENT, Array::try_from(map))?;
        let written = agreement.set(0, Shape(agreement_of(fabric)), 0);
        written.map_err(map_error(AGREEMENT))
    }

    fn set_leaves(&self, fabric: &Fabric) -> Result<(), KernelError> {
        let map = Map::LpmTrie(self.map(LEAVES)?);
        let mut leaves: LpmTrie<_, [u32; 5], u32> = typed(LEAVES, LpmTrie::try_from(map))?;
        let mut wanted = Vec::new();
        for leaf in &fabric.leaves {
            for prefix in &leaf.prefixes {
                let address: IpAddr = prefix.network();
                wanted.push((
                    SiteKey::of_prefix(address, prefix.prefix_len()),
                    leaf.number,
                ));
            }
        }
        let key = |it: &SiteKey| Key::new(it.bits, it.words);
        let known: Vec<_> = leaves.keys().filter_map(Result::ok).collect();
        for known in known {
            let (bits, words) = (known.prefix_len(), known.data());
            if !wanted
                .iter()
                .any(|(it, _)| (it.bits, it.words) == (bits, words))
            {
                unless_gone(leaves.remove(&known)).map_err(map_error(LEAVES))?;
            }
        }
        for (prefix, number) in wanted {
            let inserted = leaves.insert(&key(&prefix), number, 0);
            inserted.map_err(map_error(LEAVES))?;
        }
        Ok(())
    }
}

fn map_at(pins: &Pins, name: &'static str) -> Result<MapData, KernelError> {
    MapData::from_pin(pins.map(name)).map_err(map_error(name))
}

fn program_pin(pins: &Pins, name: &str) -> PathBuf {
    pins.root().join(name)
}

fn make_note(path: &Path) -> Result<(), KernelError> {
    std::fs::create_dir_all(path).map_err(|source| KernelError::Pin {
        path: path.to_owned(),
        source,
    })
}

fn unless_gone(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::KeyNotFound) => Ok(()),
        other => other,
    }
}
