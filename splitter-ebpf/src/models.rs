//! The models of the tunnels, in maps.
//!
//! Decisions for shared tunnels are functions of their own for the verifier, as
//! [`crate::pipeline`] has them.

use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::macros::btf_map;
use splitter_common::classify::FlowPacket;
use splitter_common::config::Config;
use splitter_common::counters::FlowEvent;
use splitter_common::drain::Tunnels;
use splitter_common::flow::{Class, FlowEntry, Tunnel};
use splitter_common::models::Models;
use splitter_common::packet::TcpFlags;
use splitter_common::share::{Ride, Sent, SharedTunnels, Sharing};

use crate::pipeline::{SETTINGS, entry};

#[btf_map]
static TUNNELS: Array<Tunnels, 1> = Array::new();

#[btf_map]
static SHARED: Array<SharedTunnels, 1> = Array::new();

/// What is asked and answered, besides the flow's entry.
#[repr(C)]
#[derive(Clone, Copy)]
struct Exchange {
    bytes: u64,
    tcp_flags: u64,
    carries_data: u64,
    became_long: u64,
    moved: u64,
    rides: u64,
    tunnel: u64,
}

#[btf_map]
static EXCHANGE: PerCpuArray<Exchange, 1> = PerCpuArray::new();

/// The kernel's [`Models`].
pub struct KernelModels;

impl Models for KernelModels {
    #[inline(always)]
    fn dedicated(&mut self) -> Option<&mut Tunnels> {
        // SAFETY: the one value of an array map, made of integers. Another CPU may
        // change it at the same time; the model then misses a packet.
        TUNNELS
            .get_ptr_mut(0)
            .map(|tunnels| unsafe { &mut *tunnels })
    }
}

impl Sharing for KernelModels {
    #[inline(always)]
    fn start(&mut self, _: &Config, now_ns: u64) -> Tunnel {
        let Some(exchange) = EXCHANGE.get_ptr_mut(0) else {
            return Tunnel::Short;
        };
        share_start(now_ns);
        // SAFETY: as below.
        Tunnel::numbered(unsafe { (&raw const (*exchange).tunnel).read_volatile() })
    }

    /// The entry is the one that [`entry`] has for both.
    #[inline(always)]
    fn send(&mut self, _: &Config, _: &mut FlowEntry, sent: Sent) -> Ride {
        let Some(exchange) = EXCHANGE.get_ptr_mut(0) else {
            return NOWHERE;
        };
        // SAFETY: a per-CPU value, and XDP programs do not interrupt each other
        // on one CPU.
        let asked = unsafe { &mut *exchange };
        asked.bytes = sent.packet.bytes;
        asked.tcp_flags = sent.packet.flags.0.into();
        asked.carries_data = sent.packet.carries_data.into();
        asked.became_long = sent.became_long.into();
        share_send(sent.now_ns);
        // Field by field, for the stack's sake.
        macro_rules! told {
            ($field:ident) => {
                // SAFETY: as above.
                unsafe { (&raw const (*exchange).$field).read_volatile() }
            };
        }
        Ride {
            moved: FlowEvent::from_code(told!(moved)),
            rides: Class::numbered(told!(rides)),
            tunnel: Tunnel::numbered(told!(tunnel)),
        }
    }

    #[inline(always)]
    fn send_placed(
        &mut self,
        config: &Config,
        tunnel: Tunnel,
        packet: FlowPacket,
        now_ns: u64,
    ) -> Ride {
        match shared() {
            Some(shared) => shared.send_placed(config, tunnel, packet, now_ns),
            None => NOWHERE,
        }
    }
}

/// Where everything goes when a map is not there, which the kernel rules out.
const NOWHERE: Ride = Ride::in_own(Tunnel::Short);

/// See [`Sharing::start`].
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn share_start(now_ns: u64) -> u64 {
    let (Some(shared), Some(settings), Some(exchange)) =
        (shared(), SETTINGS.get(0), EXCHANGE.get_ptr_mut(0))
    else {
        return 0;
    };
    // SAFETY: as in `send`.
    let exchange = unsafe { &mut *exchange };
    exchange.tunnel = shared.start(&settings.config, now_ns) as u64;
    0
}

/// See [`Sharing::send`].
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn share_send(now_ns: u64) -> u64 {
    let (Some(shared), Some(settings), Some(exchange), Some(entry)) =
        (shared(), SETTINGS.get(0), EXCHANGE.get_ptr_mut(0), entry())
    else {
        return 0;
    };
    // SAFETY: as in `send`.
    let exchange = unsafe { &mut *exchange };
    let sent = Sent {
        packet: FlowPacket {
            segments: 1,
            bytes: exchange.bytes,
            flags: TcpFlags(exchange.tcp_flags as u8),
            carries_data: exchange.carries_data != 0,
        },
        became_long: exchange.became_long != 0,
        now_ns,
    };
    let ride = shared.send(&settings.config, entry, sent);
    exchange.moved = match ride.moved {
        Some(event) => event as u64,
        None => FlowEvent::COUNT as u64,
    };
    exchange.rides = ride.rides as u64;
    exchange.tunnel = ride.tunnel as u64;
    0
}

#[inline(always)]
fn shared() -> Option<&'static mut SharedTunnels> {
    // SAFETY: the one value of an array map, made of integers. Another CPU may
    // change it at the same time; the model then misses a packet, or a turn.
    SHARED.get_ptr_mut(0).map(|shared| unsafe { &mut *shared })
}
