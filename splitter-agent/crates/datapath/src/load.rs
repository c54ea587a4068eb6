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
use splitter_policy::settings::Settings;
use splitter_policy::table::Layout;

use super::error::{map_errno, map_error, program_errno, typed};
use super::names::{
    CLOCK_PROGRAM, CLOCK_READING, COUNT_EGRESS, COUNTERS, EGRESS, FLOW_TABLES, FLOWS_V4, FLOWS_V6,
    READS_QUEUES, REDIRECTING, REVERSE, SETTINGS, SHORT_QUEUES, SITE_DEVICES, SITES, TAGS, TUNNELS,
};
use super::program::program_name;
use super::shapes::Shape;
use super::table_note::TableNote;
use super::{KernelError, Object, Pins, calibrate, reverse};

/// How a program is to be loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Flows that each family's table is made for.
    pub table_size: u32,
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
/// Flow tables that are `kept` are pinned there already, and are spread by this layout.
pub(super) fn load(
    object: &Object,
    pins: &Pins,
    options: &LoadOptions,
    kept: Option<Layout>,
) -> Result<(), KernelError> {
    match load_reading(object, pins, (options, kept), true) {
        Err(KernelError::Verifier { last_words, .. }) if last_words.contains(READING) => {
            tracing::debug!("this kernel lets no program read its memory");
            load_reading(object, pins, (options, kept), false)
        }
        loaded => loaded,
    }
}

/// How the verifier names what it does not allow then.
const READING: &str = "probe_read_kernel";

fn load_reading(
    object: &Object,
    pins: &Pins,
    (options, kept): (&LoadOptions, Option<Layout>),
    reads_queues: bool,
) -> Result<(), KernelError> {
    let mut ebpf = load_object(object, options, kept.map(|_| pins), reads_queues)?;
    let clock = measure_clock(&mut ebpf)?;
    let mut settings: Array<_, Shape<Settings>> =
        typed(SETTINGS, Array::try_from(map_mut(&mut ebpf, SETTINGS)?))?;
    let layout = match kept {
        Some(layout) => layout,
        None => Layout::for_flows(options.table_size, draw_seeds()?),
    };
    let reported = Settings {
        config: options.policy,
        clock,
        layout,
    };
    settings
        .set(0, Shape(reported), 0)
        .map_err(map_error(SETTINGS))?;

    let name = program_name(options.steering);
    match options.steering {
        SteeringMode::Mark => classifier_mut(&mut ebpf, name)?.load(),
        SteeringMode::Dscp | SteeringMode::Redirect => xdp_mut(&mut ebpf, name)?.load(),
    }
    .map_err(load_error(name))?;
    let redirecting: &[_] = match options.steering {
        SteeringMode::Redirect => &REDIRECTING,
        SteeringMode::Dscp | SteeringMode::Mark => &[],
    };
    let seen: &[_] = if reads_queues { &[SHORT_QUEUES] } else { &[] };
    let common = [
        SETTINGS,
        COUNTERS,
        TUNNELS,
        EGRESS,
        REVERSE,
        SITE_DEVICES,
        SITES,
    ];
    let tables: &[_] = if kept.is_some() { &[] } else { &FLOW_TABLES };
    let maps = common.iter().chain(redirecting).chain(seen).chain(tables);
    for name in maps.copied() {
        let path = pins.map(name);
        let map = map_mut(&mut ebpf, name)?;
        map.pin(&path)
            .map_err(|source| KernelError::PinObject { path, source })?;
    }
    TableNote::new(layout).write(pins)?;
    let path = pins.count_egress();
    let counting = classifier_mut(&mut ebpf, COUNT_EGRESS)?;
    counting.load().map_err(load_error(COUNT_EGRESS))?;
    counting
        .pin(&path)
        .map_err(|source| KernelError::PinObject { path, source })?;
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
    kept_at: Option<&Pins>,
    reads_queues: bool,
) -> Result<Ebpf, KernelError> {
    let level = log_level(options.packet_log);
    let reads_queues = u8::from(reads_queues);
    let groups = Layout::groups_for(options.table_size);
    let mut loader = EbpfLoader::new();
    loader
        .map_max_entries(FLOWS_V4, groups)
        .map_max_entries(FLOWS_V6, groups)
        .map_max_entries(TAGS, 2 * groups)
        .map_max_entries(REVERSE, reverse::capacity(options.table_size))
        .override_global(READS_QUEUES, &reads_queues, true)
        .override_global("AYA_LOG_LEVEL", &level, false);
    if let Some(pins) = kept_at {
        for name in FLOW_TABLES {
            loader.map_pin_path(name, pins.map(name));
        }
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
    ebpf.map_mut(name)
        .ok_or(KernelError::Missing { kind: "map", name })
}

fn load_error(program: &'static str) -> impl Fn(ProgramError) -> KernelError {
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
