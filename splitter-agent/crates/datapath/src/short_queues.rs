//! Lets the kernel programs see how full the queues in front of shared tunnels really are.
//!
//! A FIFO's backlog is a number in its `struct Qdisc`. Where that lies, nobody tells: a program at
//! the function that describes FIFOs notes the address while this thread asks the kernel about the
//! queue, and is detached again. Nothing runs for each packet; the split program reads the number
//! where a flow is to be handed over.

use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt as _;

use aya::maps::{Array, MapData};
use aya::programs::{FEntry, ProgramError};
use aya::{Btf, BtfError, EbpfError, EbpfLoader, include_bytes_aligned};
use btfparse::{Offset, Readable, TypeInformation};
use splitter_netlink::describe_qdisc;
use splitter_policy::queue_search::{QueueSearch, ShortQueues};
use thiserror::Error;

use super::KernelError;
use super::error::{map_error, typed};
use super::names::QUEUE_SEARCH;
use super::shapes::Shape;

/// Names the FIFO of a class in front of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueId {
    /// The tunnel's device.
    pub device: u32,
    /// The queueing discipline's number there.
    pub handle: u32,
}

/// Why the programs do not see a queue. They go by their model of it then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnseenQueues {
    /// The kernel has no type information.
    #[error("this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF): {0}")]
    NoTypes(#[source] io::Error),
    /// The type information lacks what is looked for.
    #[error("this kernel's type information is not understood: {0}")]
    Types(String),
    /// The kernel refuses the program that finds the queue.
    #[error("this kernel lets no program watch its functions: {0}")]
    NoTracing(#[from] ProgramError),
    /// The object could not be loaded.
    #[error("cannot load what finds the queues: {0}")]
    Load(#[from] EbpfError),
    /// The kernel does not know the queue.
    #[error("the kernel does not show the queue {handle:x}: of the device {device}: {source}")]
    NoQueue {
        /// The device.
        device: u32,
        /// The queue.
        handle: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program has not run.
    #[error("the kernel has shown the queue and not passed the function `{FUNCTION}` for it")]
    NotFound,
    /// The programs were loaded without the means to look.
    #[error("this kernel lets no program read its memory (kernel_lockdown(7))")]
    Locked,
    /// The search was not made.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The search did not come to its end.
    #[error("the search for the queues ended early")]
    Ended,
    /// A map failed.
    #[error(transparent)]
    Kernel(#[from] Box<KernelError>),
    /// The system does not tell in which PID namespace this process is.
    #[error("cannot tell the PID namespace: {0}")]
    Namespace(#[source] io::Error),
}

impl From<BtfError> for UnseenQueues {
    fn from(error: BtfError) -> Self {
        Self::Types(error.to_string())
    }
}

impl From<KernelError> for UnseenQueues {
    fn from(error: KernelError) -> Self {
        Self::Kernel(Box::new(error))
    }
}

/// Describes a FIFO, of bytes or of packets, to user space.
const FUNCTION: &str = "fifo_dump";
const PROGRAM: &str = "locate_queue";
const TYPES: &str = "/sys/kernel/btf/vmlinux";
static OBJECT: &[u8] = include_bytes_aligned!("../bpf/locate.o");

/// Finds queues of the kernel, those of the short class in front of the short and the long tunnel.
///
/// Blocks for some tenths of a second, so have it done in a thread of its own: one that began in the
/// network namespace of the devices. Nothing is kept.
///
/// # Errors
/// See [`UnseenQueues`].
pub fn locate_queues(queues: [QueueId; 2]) -> Result<ShortQueues, UnseenQueues> {
    let types = Btf::from_sys_fs()?;
    let mut ebpf = EbpfLoader::new().btf(Some(&types)).load(OBJECT)?;
    let missing = |kind, name| KernelError::Missing { kind, name };
    let map = ebpf.take_map(QUEUE_SEARCH);
    let map = map.ok_or_else(|| missing("map", QUEUE_SEARCH))?;
    let mut search = typed(QUEUE_SEARCH, Array::try_from(map))?;
    let program = ebpf.program_mut(PROGRAM);
    let program = program.ok_or_else(|| missing("program", PROGRAM))?;
    let program: &mut FEntry = program.try_into()?;
    program.load(FUNCTION, &types)?;
    // Detached when `ebpf` is dropped.
    program.attach()?;
    drop(types);
    let backlog = backlog_offset()?;
    let mut found = ShortQueues {
        devices: queues.map(|it| it.device),
        ..ShortQueues::default()
    };
    for (address, queue) in found.backlogs.iter_mut().zip(queues) {
        *address = find(&mut search, queue)? + backlog;
    }
    Ok(found)
}

fn find(
    search: &mut Array<MapData, Shape<QueueSearch>>,
    queue: QueueId,
) -> Result<u64, UnseenQueues> {
    search
        .set(0, Shape(of_this_thread()?), 0)
        .map_err(map_error(QUEUE_SEARCH))?;
    let QueueId { device, handle } = queue;
    describe_qdisc(device, handle).map_err(|source| UnseenQueues::NoQueue {
        device,
        handle,
        source,
    })?;
    let Shape(found) = search.get(&0, 0).map_err(map_error(QUEUE_SEARCH))?;
    match found.queue {
        0 => Err(UnseenQueues::NotFound),
        address => Ok(address),
    }
}

fn of_this_thread() -> Result<QueueSearch, UnseenQueues> {
    let namespace = fs::metadata("/proc/thread-self/ns/pid").map_err(UnseenQueues::Namespace)?;
    Ok(QueueSearch {
        namespace_device: namespace.st_dev(),
        namespace_inode: namespace.st_ino(),
        thread: nix::unistd::gettid().as_raw().unsigned_abs().into(),
        queue: 0,
    })
}

/// Where in a `struct Qdisc` the bytes that wait are counted.
fn backlog_offset() -> Result<u64, UnseenQueues> {
    let bytes = fs::read(TYPES).map_err(UnseenQueues::NoTypes)?;
    let types = |error: btfparse::Error| UnseenQueues::Types(error.message().to_owned());
    let known = TypeInformation::new(&InMemory(bytes)).map_err(types)?;
    let unknown = || UnseenQueues::Types("there is no `struct Qdisc`".to_owned());
    let qdisc = known.id_of("Qdisc").ok_or_else(unknown)?;
    match known.offset_of(qdisc, "qstats.backlog").map_err(types)? {
        (_, Offset::ByteOffset(bytes)) => Ok(bytes.into()),
        (_, other) => Err(UnseenQueues::Types(format!(
            "the backlog lies at {other:?}"
        ))),
    }
}

/// The file as one block: reading it number by number takes seconds.
struct InMemory(Vec<u8>);

impl Readable for InMemory {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> btfparse::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buffer.len());
        let bytes = self.0.get(start..end).ok_or_else(|| {
            btfparse::Error::new(btfparse::ErrorKind::IOError, "the file ends too early")
        })?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}
