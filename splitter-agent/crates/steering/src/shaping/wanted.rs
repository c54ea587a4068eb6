//! What a tunnel's device is to have.

use std::fmt;

use serde::Serialize;
use splitter_config::{Config, LongQueue, Tunnel};
use splitter_netlink::{Interface, InterfaceName, Interfaces};

use super::filter::{Chosen, program};
use super::wire::{HtbClass, bpf_filter, fifo, fq_codel, htb_class, htb_root};
use super::{HANDLE, TcKind, TcObject, handle_text};

const ROOT: u32 = u32::MAX;
const PARENT: u16 = 1;
const SHORT: u16 = 0x10;
const LONG: u16 = 0x20;
const CLOUDBURST: u16 = 0x30;
/// A full frame of 1,500 bytes with its Ethernet header; there may be larger ones.
const ETHERNET_HEADER: u32 = 14;
/// What the long class is guaranteed, in bytes a second. HTB serves a class below its guarantee
/// even while one of higher priority waits for its turn, and what slips ahead so may overtake its
/// own flow. At this rate that is one packet in some 1.5 s, which no TCP minds.
const LONG_RATE: u64 = 1_000;
/// With which it does not save up for a second one.
const LONG_OWN_BURST: u64 = 1;
/// How often a second a burst may leave: more often than that, timers cost too much.
const BURSTS_A_SECOND: u64 = 4_000;

/// Delay that CoDel tolerates, and the time for which it does, where a packet takes less than the first
/// (RFC 8289 §4).
const TARGET_US: u64 = 5_000;
const INTERVAL_US: u64 = 100_000;
/// What the kernel counts for a packet, of its own notes on it too, by the bytes of a full one.
const MEMORY_BY_BYTE: u32 = 4;

pub(super) const BFIFO: &str = "bfifo";
pub(super) const FQ_CODEL: &str = "fq_codel";

/// The number of the queue in which packets of the short class wait, on each tunnel's device.
pub const SHORT_QUEUE_HANDLE: u32 = queue_handle(SHORT);

/// The numbers of the queues of both classes.
pub(super) const CLASS_QUEUES: [u32; 2] = [queue_handle(SHORT), queue_handle(LONG)];

/// How one tunnel is shaped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// The tunnel's device.
    pub device: InterfaceName,
    /// What leaves by it at most.
    pub bits_per_second: u64,
    /// What the queue of each class holds, in bytes.
    pub queue_bytes: u32,
    /// How the queue of the long class is kept.
    pub long_queue: LongQueue,
    /// Cloudburst's queue, in packets.
    pub cloudburst_packets: Option<u32>,
    #[serde(skip)]
    pub(super) index: u32,
    #[serde(skip)]
    pub(super) objects: Vec<TcObject>,
}

/// The shape of each tunnel whose device is there; none where tunnels are not shared. Whether a device
/// has to be there is for the routes to say.
pub(super) fn shapes(config: &Config, interfaces: &Interfaces) -> Vec<Shape> {
    // A shadow touches nothing.
    if !config.is_shared() || config.shadow {
        return Vec::new();
    }
    let shapes = config.tunnels().filter_map(|(_, tunnel)| {
        // Sharing without a rate is refused when the configuration is read.
        let bits_per_second = config.bits_per_second(tunnel)?;
        let device = interfaces.named(&tunnel.device).ok()?;
        Some(shape(config, tunnel, bits_per_second, device))
    });
    shapes.collect()
}

/// The devices that are to be shaped and are not there.
pub(super) fn absent(config: &Config, interfaces: &Interfaces) -> Vec<InterfaceName> {
    if !config.is_shared() || config.shadow {
        return Vec::new();
    }
    let devices = config.tunnels().map(|(_, tunnel)| &tunnel.device);
    let absent = devices.filter(|it| interfaces.named(it).is_err());
    absent.cloned().collect()
}

fn shape(config: &Config, tunnel: &Tunnel, bits_per_second: u64, device: &Interface) -> Shape {
    let frame_bytes = device.mtu.saturating_add(ETHERNET_HEADER);
    let queue = bits_per_second / 8 * config.share.queue.as_millis() as u64 / 1_000;
    let queue_bytes = u32::try_from(queue)
        .unwrap_or(u32::MAX)
        .max(4 * frame_bytes);
    let classes = Classes::new(config, bits_per_second / 8, frame_bytes);
    Shape {
        device: tunnel.device.clone(),
        bits_per_second,
        queue_bytes,
        long_queue: config.share.long_queue,
        cloudburst_packets: config.share.cloudburst().map(|queue| queue.packets),
        index: device.index,
        objects: objects(config, &classes, queue_bytes),
    }
}

struct Classes {
    parent: HtbClass,
    short: HtbClass,
    long: HtbClass,
    cloudburst: Option<HtbClass>,
}

impl Classes {
    /// The guarantees add up to the whole, so that the parent's rate is kept.
    fn new(config: &Config, whole: u64, frame_bytes: u32) -> Self {
        let burst = (2 * u64::from(frame_bytes) + 72).max(whole / BURSTS_A_SECOND);
        let parent = HtbClass {
            rate: whole,
            ceiling: whole,
            own_burst: burst,
            burst,
            quantum: 2 * frame_bytes,
            priority: 0,
        };
        let long = HtbClass {
            rate: LONG_RATE,
            own_burst: LONG_OWN_BURST,
            priority: 1,
            ..parent
        };
        let cloudburst = config.share.cloudburst().map(|queue| {
            let rate = whole * u64::from(queue.percent) / 100;
            HtbClass {
                rate,
                ceiling: rate,
                ..parent
            }
        });
        let taken = long.rate + cloudburst.map_or(0, |class| class.rate);
        let short = HtbClass {
            rate: whole - taken.min(whole / 2),
            ..parent
        };
        Self {
            parent,
            short,
            long,
            cloudburst,
        }
    }
}

/// Everything, in the order in which it can be added.
fn objects(config: &Config, classes: &Classes, queue_bytes: u32) -> Vec<TcObject> {
    let mut objects = vec![root(), class(0, PARENT, &classes.parent)];
    objects.push(class(PARENT, LONG, &classes.long));
    objects.push(match config.share.long_queue {
        LongQueue::Fifo => queue(LONG, BFIFO, queue_bytes),
        LongQueue::FqCodel => fair_queue(LONG, &classes.parent, queue_bytes),
    });
    objects.push(class(PARENT, SHORT, &classes.short));
    objects.push(queue(SHORT, BFIFO, queue_bytes));
    let marks = config.marks;
    let of_short = [marks.short, marks.short_on_long].map(|mark| (mark, id(SHORT)));
    let mut chosen = match config.mark_bits() {
        Some(mark_bits) => Chosen {
            mark_bits,
            marks: of_short.into(),
            ..Chosen::default()
        },
        None => Chosen {
            dscps: of_short.into(),
            ..Chosen::default()
        },
    };
    if let (Some(of), Some(tiny)) = (&classes.cloudburst, config.share.cloudburst()) {
        objects.push(class(PARENT, CLOUDBURST, of));
        objects.push(queue(CLOUDBURST, "pfifo", tiny.packets));
        chosen.dscps.push((tiny.dscp, id(CLOUDBURST)));
    }
    let (options, fingerprint) = bpf_filter(&program(&chosen, id(LONG), id(SHORT)));
    objects.push(TcObject {
        tc_kind: TcKind::Filter,
        parent: id(0),
        handle: 0,
        kind: "bpf".to_owned(),
        options,
        fingerprint,
    });
    objects
}

/// The number of a class of ours, or with 0 of the root.
pub(super) fn id(minor: u16) -> u32 {
    u32::from(HANDLE) << 16 | u32::from(minor)
}

pub(super) fn root() -> TcObject {
    let (options, fingerprint) = htb_root(LONG);
    TcObject {
        tc_kind: TcKind::Qdisc,
        parent: ROOT,
        handle: id(0),
        kind: "htb".to_owned(),
        options,
        fingerprint,
    }
}

/// A class below another one, or with 0 below the root.
fn class(parent: u16, minor: u16, class: &HtbClass) -> TcObject {
    let (options, fingerprint) = htb_class(class);
    TcObject {
        tc_kind: TcKind::Class,
        // The kernel shows the topmost class below the root of the device.
        parent: if parent == 0 { ROOT } else { id(parent) },
        handle: id(minor),
        kind: "htb".to_owned(),
        options,
        fingerprint,
    }
}

const fn queue_handle(minor: u16) -> u32 {
    ((HANDLE + minor) as u32) << 16
}

fn queue(minor: u16, kind: &str, limit: u32) -> TcObject {
    let options = fifo(limit);
    TcObject {
        tc_kind: TcKind::Qdisc,
        parent: id(minor),
        handle: queue_handle(minor),
        kind: kind.to_owned(),
        fingerprint: options.clone(),
        options,
    }
}

/// A queue for each flow. What takes long to send must not count as a standing queue.
fn fair_queue(minor: u16, whole: &HtbClass, queue_bytes: u32) -> TcObject {
    // A quantum is two frames.
    let two_frames_us = u64::from(whole.quantum) * 1_000_000 / whole.rate.max(1);
    let target_us = TARGET_US.max(two_frames_us);
    let interval_us = INTERVAL_US + target_us - TARGET_US;
    let in_32_bits = |us| u32::try_from(us).unwrap_or(u32::MAX);
    let memory_bytes = queue_bytes.saturating_mul(MEMORY_BY_BYTE);
    let (options, fingerprint) =
        fq_codel(in_32_bits(target_us), in_32_bits(interval_us), memory_bytes);
    TcObject {
        tc_kind: TcKind::Qdisc,
        parent: id(minor),
        handle: queue_handle(minor),
        kind: FQ_CODEL.to_owned(),
        options,
        fingerprint,
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = self.bits_per_second as f64 / 1e6;
        write!(
            f,
            "qdisc htb {} on {}: {mbit} Mbit/s, short flows first, {} kB for each class",
            handle_text(id(0)),
            self.device,
            self.queue_bytes / 1_000
        )?;
        if self.long_queue != LongQueue::Fifo {
            write!(f, ", {} for the long one", self.long_queue)?;
        }
        if let Some(packets) = self.cloudburst_packets {
            write!(f, ", {packets} packets for Cloudburst")?;
        }
        Ok(())
    }
}
