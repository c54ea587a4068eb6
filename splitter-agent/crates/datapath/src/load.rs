//! Loading an object into the kernel and pinning what is in it.

use std::fs::File;
use std::io::Read as _;

use aya::maps::{Array, Map};
use aya::programs::{ProgramError, SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader};
use splitter_config::{PacketLog, SteeringMode};
use splitter_policy::clock::TickClock;
use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::Seeds;
use splitter_policy::paths::BalancerNumber;
use splitter_policy::settings::Settings;
use splitter_policy::table::{GroupV4, GroupV6, Layout, Tags};

use super::error::{map_errno, map_error, program_errno, typed};
use super::names::{
    BALANCER, BALANCING, CLOCK_PROGRAM, CLOCK_READING, COUNT_EGRESS, COUNTERS, EGRESS, FLOW_TABLES,
    FLOWS_V4, FLOWS_V6, FRAGMENTED, LOGS, LONG_BALANCER, OWN_QUEUES, OWN_SHARE, PATH_FLOW_MASK,
    PATH_FLOWS, READS_QUEUES, REDIRECTING, REVERSE, SETTINGS, SHARED, SHORT_QUEUES, SITE_DEVICES,
    SITES, TAGS, TAPPED, TUNNELS, in_object,
};
use super::shapes::Shape;
use super::table_note::TableNote;
use super::undisturbed::Undisturbed;
use super::{KernelError, Object, Pins, TableSizes, calibrate, raw, reverse, site_paths};

/// How a program is to be loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Flows that the tables are made for.
    pub tables: TableSizes,
    /// The NUMA node whose memory the tables take; any, where none is named.
    pub numa_node: Option<u32>,
    /// How packets get into their tunnel, which decides on the program.
    pub steering: SteeringMode,
    /// What the kernel program logs.
    pub packet_log: PacketLog,
    /// What it is reported.
    pub policy: PolicyConfig,
}

/// Loads `object`, hands it its settings and pins programs and maps.
///
/// Some kernels let no program read their memory (`lockdown=confidentiality`, of which a container
/// may not be told): there the programs do without the queues in front of tunnels.
///
/// Maps that are `kept` are pinned there already.
pub(super) fn load(
    object: &Object,
    pins: &Pins,
    options: &LoadOptions,
    kept: &KeptMaps,
) -> Result<(), KernelError> {
    let _undisturbed = Undisturbed::begin();
    let mut present = kept.clone();
    if let (None, Some(node)) = (kept.layout, options.numa_node) {
        create_on_node(pins, options.tables, node)?;
        present.names.extend(FLOW_TABLES);
    }
    match load_reading(object, pins, (options, &present), true) {
        Err(KernelError::Verifier { last_words, .. }) if last_words.contains(READING) => {
            tracing::debug!("this kernel lets no program read its memory");
            load_reading(object, pins, (options, &present), false)
        }
        loaded => loaded,
    }
}

/// Maps that are pinned where the new programs' maps are to lie, for these to go on with.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptMaps {
    /// Their names.
    pub(super) names: Vec<&'static str>,
    /// How flows are spread over the tables, where those are among them.
    pub(super) layout: Option<Layout>,
    /// The program that counts at the tunnels' egress is there, too.
    pub(super) counts_egress: bool,
}

impl KeptMaps {
    fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }
}

/// Makes the tables where their memory is to be, and pins them.
fn create_on_node(pins: &Pins, tables: TableSizes, node: u32) -> Result<(), KernelError> {
    const MAPPABLE: u32 = 1 << 10;
    let layout = tables.layout(Seeds::default());
    let (groups_v4, groups_v6) = (layout.groups_v4, layout.groups_v6);
    let shapes = [
        (size_of::<GroupV4>(), groups_v4, MAPPABLE),
        (size_of::<GroupV6>(), groups_v6, MAPPABLE),
        (size_of::<Tags>(), groups_v4 + groups_v6, 0),
    ];
    for (name, (bytes, entries, flags)) in FLOW_TABLES.into_iter().zip(shapes) {
        let shape = (bytes as u32, entries);
        let map = raw::create_array_on_node(name, shape, flags, node)
            .map_err(|source| KernelError::NumaNode { node, source })?;
        let path = pins.map(name);
        raw::pin(&map, &path).map_err(|source| KernelError::Pin { path, source })?;
    }
    Ok(())
}

/// How the verifier names what it does not allow then.
const READING: &str = "probe_read_kernel";

fn load_reading(
    object: &Object,
    pins: &Pins,
    (options, kept): (&LoadOptions, &KeptMaps),
    reads_queues: bool,
) -> Result<(), KernelError> {
    let mut ebpf = load_object(object, options, (pins, kept), reads_queues)?;
    let clock = measure_clock(&mut ebpf)?;
    let mut settings: Array<_, Shape<Settings>> =
        typed(SETTINGS, Array::try_from(map_mut(&mut ebpf, SETTINGS)?))?;
    let layout = match kept.layout {
        Some(layout) => layout,
        None => options.tables.layout(draw_seeds()?),
    };
    let given = Settings::new(options.policy, clock, layout);
    settings
        .set(0, Shape(given), 0)
        .map_err(map_error(SETTINGS))?;

    let name = object.program(options.steering);
    match options.steering {
        SteeringMode::Mark => classifier_mut(&mut ebpf, name)?.load(),
        SteeringMode::Dscp | SteeringMode::Redirect => xdp_mut(&mut ebpf, name)?.load(),
    }
    .map_err(load_error(name))?;
    let redirecting: &[_] = match options.steering {
        SteeringMode::Redirect => &REDIRECTING,
        SteeringMode::Dscp | SteeringMode::Mark => &[],
    };
    let balancing: &[_] = if object.balancers().is_some() {
        &BALANCING
    } else {
        &[]
    };
    let seen: &[_] = if reads_queues { &[SHORT_QUEUES] } else { &[] };
    let common = [
        SETTINGS,
        COUNTERS,
        TUNNELS,
        OWN_SHARE,
        SHARED,
        OWN_QUEUES,
        FRAGMENTED,
        EGRESS,
        REVERSE,
        SITE_DEVICES,
        SITES,
    ];
    let logs: &[_] = if ebpf.map(LOGS).is_some() {
        &[LOGS]
    } else {
        &[]
    };
    let own = redirecting.iter().chain(balancing);
    let maps = common.iter().chain(own).chain(seen).chain(logs);
    let maps = maps.chain(&FLOW_TABLES).copied();
    for name in maps.filter(|name| !kept.has(name)) {
        let path = pins.map(name);
        let map = map_mut(&mut ebpf, name)?;
        map.pin(&path)
            .map_err(|source| KernelError::PinObject { path, source })?;
    }
    TableNote::new(layout, options.numa_node).write(pins)?;
    if !kept.counts_egress {
        let path = pins.count_egress();
        let counting = classifier_mut(&mut ebpf, COUNT_EGRESS)?;
        counting.load().map_err(load_error(COUNT_EGRESS))?;
        counting
            .pin(&path)
            .map_err(|source| KernelError::PinObject { path, source })?;
    }
    // Last, because its presence says that all the rest is there.
    let path = pins.program_of(options.steering);
    match options.steering {
        SteeringMode::Mark => classifier_mut(&mut ebpf, name)?.pin(&path),
        SteeringMode::Dscp | SteeringMode::Redirect => xdp_mut(&mut ebpf, name)?.pin(&path),
    }
    .map_err(|source| KernelError::PinObject { path, source })
}

fn load_object(
    object: &Object,
    options: &LoadOptions,
    (pins, kept): (&Pins, &KeptMaps),
    reads_queues: bool,
) -> Result<Ebpf, KernelError> {
    let level = log_level(options.packet_log);
    let reads_queues = u8::from(reads_queues);
    let [balancer, long_balancer] = match object.balancers() {
        Some(it) => [it.short.number(), it.long.number()],
        None => [BalancerNumber::NONE; 2],
    };
    let layout = options.tables.layout(Seeds::default());
    let path_flows = match object.balancers() {
        Some(_) => site_paths::flow_places(options.tables, kept.has(PATH_FLOWS).then_some(pins))?,
        // Up to four megabytes that nobody would look at.
        None => 1,
    };
    let path_flow_mask = path_flows - 1;
    let mut loader = EbpfLoader::new();
    loader
        .map_max_entries(FLOWS_V4, layout.groups_v4)
        .map_max_entries(FLOWS_V6, layout.groups_v6)
        .map_max_entries(TAGS, layout.groups_v4 + layout.groups_v6)
        .map_max_entries(REVERSE, reverse::capacity(options.tables))
        // For another program of the object, and ten megabytes at once.
        .map_max_entries(TAPPED, 1)
        .override_global(READS_QUEUES, &reads_queues, true)
        .map_max_entries(PATH_FLOWS, path_flows)
        .override_global(BALANCER, &balancer.0, true)
        .override_global(LONG_BALANCER, &long_balancer.0, true)
        .override_global(PATH_FLOW_MASK, &path_flow_mask, true)
        .override_global("AYA_LOG_LEVEL", &level, false);
    for name in &kept.names {
        loader.map_pin_path(name, pins.map(name));
    }
    loader.load(object.bytes()).map_err(|error| match &error {
        aya::EbpfError::MapError(source) if map_errno(source) == Some(libc::EPERM) => {
            KernelError::NotPermitted {
                action: "create BPF maps",
            }
        }
        _ => KernelError::Load(error),
    })
}

/// What nobody outside can know, so that nobody can make flows meet in a group.
fn draw_seeds() -> Result<Seeds, KernelError> {
    const SOURCE: &str = "/dev/urandom";
    let mut bytes = [[0; 8]; size_of::<Seeds>() / 8];
    File::open(SOURCE)
        .and_then(|mut file| file.read_exact(bytes.as_flattened_mut()))
        .map_err(|source| KernelError::Seeds {
            path: SOURCE,
            source,
        })?;
    Ok(bytes.map(u64::from_ne_bytes))
}

/// As `aya-log` counts them: 0 is off, 5 is trace.
fn log_level(level: PacketLog) -> u8 {
    match level {
        PacketLog::Off => 0,
        PacketLog::Debug => 4,
        PacketLog::Trace => 5,
    }
}

fn measure_clock(ebpf: &mut Ebpf) -> Result<TickClock, KernelError> {
    xdp_mut(ebpf, CLOCK_PROGRAM)?
        .load()
        .map_err(load_error(CLOCK_PROGRAM))?;
    let map = ebpf.take_map(CLOCK_READING).ok_or(KernelError::Missing {
        kind: "map",
        name: CLOCK_READING,
    })?;
    let reading = typed(CLOCK_READING, Array::try_from(map))?;
    Ok(calibrate::measure(xdp_mut(ebpf, CLOCK_PROGRAM)?, &reading)?)
}

fn xdp_mut<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, KernelError> {
    ebpf.program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or(KernelError::Missing {
            kind: "program",
            name,
        })
}

fn classifier_mut<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, KernelError> {
    ebpf.program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or(KernelError::Missing {
            kind: "program",
            name,
        })
}

fn map_mut<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Map, KernelError> {
    ebpf.map_mut(in_object(name))
        .ok_or(KernelError::Missing { kind: "map", name })
}

pub(super) fn load_error(program: &'static str) -> impl Fn(ProgramError) -> KernelError {
    move |error| match error {
        error if program_errno(&error) == Some(libc::EPERM) => KernelError::NotPermitted {
            action: "load a BPF program",
        },
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => KernelError::Verifier {
            program,
            source: io_error,
            last_words: last_lines(&verifier_log.to_string(), 8),
        },
        source => KernelError::Program { program, source },
    }
}

/// The whole log has a line for each instruction; the reason stands at its end.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
