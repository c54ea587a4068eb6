//! Frames from the kernel's generator, on one core or several at once.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aya::Pod;
use aya::maps::{Array, PerCpuArray, PerCpuValues};
use aya::programs::{TestRun as _, TestRunAttrs, TestRunOptions, Xdp};
use aya::util::nr_cpus;
use flow_testbed::namespace::Namespace;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use tokio_util::sync::CancellationToken;

use crate::loaded::Loaded;
use crate::packet::{Ip, Packet, Upper};
use crate::rig::{DESTINATION, ROUTER};
use crate::traffic::{self, BYTES, Size};

/// Frames that the generator hands on at once; a veth's ring has room for 256.
pub(crate) const BATCH: u32 = 64;

/// Frames of one system call.
const FRAMES: u32 = BATCH * 512;

/// What generated frames have in common, as the yardstick has it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Template {
    /// Of which the last two are no part.
    head: [u8; 40],
    sum: u32,
    bytes: [u32; 4],
    /// The device that frames are put into.
    pub(crate) device: u32,
    /// The one that `bare_redirect` puts them into.
    pub(crate) redirected_to: u32,
}

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Template {}

impl Template {
    /// Segments from the site to `destination`, for the router's link address.
    pub(crate) fn new(router: [u8; 6], destination: [u8; 4]) -> Self {
        let frame = frame(router, destination, Size::Imix);
        let mut head = [0; 40];
        head[..38].copy_from_slice(&frame[..38]);
        // Total length, checksum, addresses.
        for written in [16..18, 24..26, 26..34] {
            head[written].fill(0);
        }
        let words = head[14..34].chunks(2);
        let sum = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        Self {
            head,
            sum: sum.sum(),
            bytes: BYTES,
            device: 0,
            redirected_to: 0,
        }
    }
}

/// A segment of a connection that goes on, as long as the longest.
pub(crate) fn frame(router: [u8; 6], destination: [u8; 4], size: Size) -> Vec<u8> {
    let segment = Packet {
        ip: Ip::V4 {
            source: [10, 0, 0, 0],
            destination,
            option_bytes: 0,
            fragment: None,
        },
        upper: Upper::tcp(),
        payload_bytes: match size {
            Size::Smallest => 6,
            Size::Imix => 1_460,
        },
        ..Packet::tcp_v4()
    };
    let mut frame = segment.bytes();
    frame[..6].copy_from_slice(&router);
    frame
}

/// The 5-tuple of the flow with this number, as the yardstick's maps have it.
pub(crate) fn key(flow: u32) -> [u32; 4] {
    const TCP: u32 = 6;
    let frame = frame(ROUTER, DESTINATION, Size::Smallest);
    let word = |at: usize| [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]];
    // As the yardstick writes it.
    let source = ((10 << 24 | 64 << 16) + flow).to_be_bytes();
    let destination = (u32::from_be_bytes(DESTINATION) + flow).to_be_bytes();
    [
        u32::from_ne_bytes(source),
        u32::from_ne_bytes(destination),
        u32::from_ne_bytes(word(34)),
        TCP,
    ]
}

/// What generators have sent, and how long they took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) frames: u64,
    pub(crate) elapsed: Duration,
}

/// How long each core sends at the least, and how many frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtLeast {
    pub(crate) duration: Duration,
    pub(crate) frames: u64,
}

/// Where a CPU is in its part of the list, as the yardstick has it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Position {
    next: u32,
    first: u32,
    outside: u32,
}

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Position {}

/// Writes a list of packets, of which each of so many cores has a part.
pub(crate) fn set_list(yardstick: &mut Loaded, list: &[u32], cores: u32) -> Result<()> {
    set_all(yardstick, "LIST", list)?;
    let part = traffic::part(cores);
    let position = |cpu: usize| Position {
        next: 0,
        first: (cpu as u32 % cores) * part,
        outside: !(part - 1),
    };
    set_per_cpu(yardstick, "POSITION", position)
}

/// Writes an array from its beginning on.
pub(crate) fn set_all(yardstick: &mut Loaded, name: &str, values: &[u32]) -> Result<()> {
    let mut map: Array<_, u32> = yardstick.map(name).try_into()?;
    for (index, value) in (0..).zip(values) {
        map.set(index, value, 0)?;
    }
    Ok(())
}

/// Writes what each CPU has for itself.
pub(crate) fn set_per_cpu<T: Pod>(
    yardstick: &mut Loaded,
    name: &str,
    value: impl Fn(usize) -> T,
) -> Result<()> {
    let cpus = nr_cpus().map_err(|(_, error)| error)?;
    let values: Vec<T> = (0..cpus).map(value).collect();
    let mut map: PerCpuArray<_, T> = yardstick.map(name).try_into()?;
    Ok(map.set(0, PerCpuValues::try_from(values)?, 0)?)
}

/// Writes what frames have in common.
pub(crate) fn set_template(yardstick: &mut Loaded, template: Template) -> Result<()> {
    let mut map: Array<_, Template> = yardstick.map("TEMPLATE").try_into()?;
    Ok(map.set(0, template, 0)?)
}

/// Frames that have arrived so far.
pub(crate) fn arrived(yardstick: &mut Loaded) -> Result<u64> {
    let map: PerCpuArray<_, u64> = yardstick.map("ARRIVED").try_into()?;
    Ok(map.get(&0, 0)?.iter().sum())
}

/// Sends frames from so many cores at once.
///
/// # Errors
/// When the kernel generates none, or when it was cancelled.
pub(crate) fn send(
    generator: &Xdp,
    from: &Namespace,
    frame: &[u8],
    cores: u32,
    at_least: AtLeast,
    cancel: &CancellationToken,
) -> Result<Sent> {
    let together = &Barrier::new(cores as usize);
    let of_core = |core: u32| {
        together.wait();
        let entered = from.enter(|| {
            bind(core)?;
            on_core(generator, frame, at_least, cancel)
        });
        entered.context("no thread in the generator's namespace")?
    };
    let of_core = &of_core;
    let sent = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|core| scope.spawn(move || of_core(core)))
            .collect();
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let elapsed = sent.iter().map(|it| it.elapsed).max();
    Ok(Sent {
        frames: sent.iter().map(|it| it.frames).sum(),
        elapsed: elapsed.context("no core")?,
    })
}

/// Keeps this thread on one core.
pub(crate) fn bind(core: u32) -> Result<()> {
    let mut cpu = CpuSet::new();
    cpu.set(core as usize)?;
    sched_setaffinity(Pid::from_raw(0), &cpu).context("cannot keep to one core")
}

fn on_core(
    generator: &Xdp,
    frame: &[u8],
    at_least: AtLeast,
    cancel: &CancellationToken,
) -> Result<Sent> {
    let started = Instant::now();
    let mut frames = 0;
    while started.elapsed() < at_least.duration || frames < at_least.frames {
        ensure!(!cancel.is_cancelled(), "cancelled");
        run(generator, frame, FRAMES, BATCH)?;
        frames += u64::from(FRAMES);
    }
    Ok(Sent {
        frames,
        elapsed: started.elapsed(),
    })
}

/// Runs a generator so many times, so many frames at a time.
pub(crate) fn run(generator: &Xdp, frame: &[u8], times: u32, batch: u32) -> Result<()> {
    ensure!(times > 0 && batch > 0, "nothing to run");
    let options = TestRunOptions {
        data_in: Some(frame),
        repeat: times,
        attrs: TestRunAttrs::new().xdp_live_frames(batch),
        ..TestRunOptions::default()
    };
    generator
        .test_run(options)
        .context("the kernel generates no live frames (Linux 5.18 does)")?;
    Ok(())
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
