//! The kernel's helpers, as far as the programs call them.

use aya_obj::generated::bpf_func_id as id;

use crate::context::{CONTEXT, Context};
use crate::fault::Fault;
use crate::machine::Machine;

/// The knowledge of the kernel, by which it answers when it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Ticks since boot.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// Where the routes lead, as the kernel answers a FIB lookup; `None` where there is none.
    pub route: Option<Route>,
    /// Where they lead packets of this traffic class instead.
    pub route_of: Option<(u8, Route)>,
}

/// The answer to a FIB lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Number of the device that leads to the next hop.
    pub device: u32,
    /// Its link address.
    pub own_address: [u8; 6],
    /// The link address of the next hop.
    pub next_hop: [u8; 6],
}

/// Where the second map address that a program may get begins: maps are no memory to it.
pub(crate) const MAPS: u64 = (u64::MAX - 1) << 32;

/// The registers with which a helper is called.
pub(crate) type Arguments = [u64; 5];

/// What a helper answers, and whether the verifier leaves it a call.
pub(crate) struct Answer {
    pub(crate) value: u64,
    pub(crate) is_call: bool,
}

/// Calls a helper by its number in the kernel's list.
pub(crate) fn call(
    machine: &mut Machine,
    context: &Context,
    helper: u32,
    arguments: Arguments,
) -> Result<Answer, Fault> {
    let [first, second, third, fourth, _] = arguments;
    let called = |value| {
        Ok(Answer {
            value,
            is_call: true,
        })
    };
    match helper {
        LOOKUP => {
            let map = &machine.maps[map_of(machine, first)?];
            let key = machine.memory.bytes(second, map.key_bytes)?;
            Ok(Answer {
                value: map.lookup(key).unwrap_or(0),
                is_call: !map.lookup_is_inlined(),
            })
        }
        UPDATE => {
            let number = map_of(machine, first)?;
            let map = &mut machine.maps[number];
            let key = machine.memory.bytes(second, map.key_bytes)?.to_vec();
            let value = machine.memory.bytes(third, map.value_bytes)?.to_vec();
            let has_room = map.update(&key, &value, &mut machine.memory)?;
            called(if has_room { 0 } else { negative(NO_ROOM) })
        }
        TICKS => Ok(Answer {
            value: machine.kernel.ticks,
            is_call: false,
        }),
        MONOTONIC => called(machine.kernel.monotonic_ns),
        FRAME_BYTES => called(context.end - context.start),
        // All that is sent where it is asked for is of one flow.
        FLOW_HASH => called(0x9e37_79b1),
        // All of a packet is at hand already.
        PULL => called(0),
        LOAD_BYTES_RELATIVE => {
            // From the network header, behind the link's.
            const LINK_BYTES: u64 = 14;
            let (offset, length) = (second & 0xffff_ffff, fourth as usize);
            let from = context.start + LINK_BYTES + offset;
            match machine.memory.bytes(from, length) {
                Ok(bytes) => {
                    let bytes = bytes.to_vec();
                    let to = machine.memory.bytes_mut(third, length)?;
                    to.copy_from_slice(&bytes);
                    called(0)
                }
                Err(_) => called(negative(BAD_ADDRESS)),
            }
        }
        // The checksum of a device's is nobody's here.
        STORE_BYTES if first == CONTEXT => {
            let (offset, length) = (second & 0xffff_ffff, fourth as usize & 0xffff_ffff);
            let bytes = machine.memory.bytes(third, length)?.to_vec();
            match machine.memory.bytes_mut(context.start + offset, length) {
                Ok(to) => {
                    to.copy_from_slice(&bytes);
                    called(0)
                }
                Err(_) => called(negative(BAD_ADDRESS)),
            }
        }
        FIB_LOOKUP if first == CONTEXT => look_up_route(machine, second, third).and_then(called),
        REDIRECT_MAP => {
            let map = &machine.maps[map_of(machine, first)?];
            let key = second as u32;
            let is_there = map.lookup(&key.to_le_bytes()).is_some();
            called(if is_there { XDP_REDIRECT } else { third & 3 })
        }
        // There is no kernel whose memory could be read.
        READ_KERNEL => {
            machine.memory.bytes_mut(first, second as usize)?.fill(0);
            called(negative(BAD_ADDRESS))
        }
        helper => Err(Fault::Helper { helper }),
    }
}

const LOOKUP: u32 = id::BPF_FUNC_map_lookup_elem as u32;
const UPDATE: u32 = id::BPF_FUNC_map_update_elem as u32;
const TICKS: u32 = id::BPF_FUNC_jiffies64 as u32;
const MONOTONIC: u32 = id::BPF_FUNC_ktime_get_ns as u32;
const FRAME_BYTES: u32 = id::BPF_FUNC_xdp_get_buff_len as u32;
const FLOW_HASH: u32 = id::BPF_FUNC_get_hash_recalc as u32;
const PULL: u32 = id::BPF_FUNC_skb_pull_data as u32;
const LOAD_BYTES_RELATIVE: u32 = id::BPF_FUNC_skb_load_bytes_relative as u32;
const STORE_BYTES: u32 = id::BPF_FUNC_skb_store_bytes as u32;
const FIB_LOOKUP: u32 = id::BPF_FUNC_fib_lookup as u32;
const REDIRECT_MAP: u32 = id::BPF_FUNC_redirect_map as u32;
const READ_KERNEL: u32 = id::BPF_FUNC_probe_read_kernel as u32;

const XDP_REDIRECT: u64 = 4;

/// `EFAULT` and `E2BIG`.
const BAD_ADDRESS: i64 = 14;
const NO_ROOM: i64 = 7;

const fn negative(error: i64) -> u64 {
    -error as u64
}

/// The number of the map that an argument stands for.
fn map_of(machine: &Machine, address: u64) -> Result<usize, Fault> {
    let number = address.wrapping_sub(MAPS) as usize;
    if number < machine.maps.len() {
        Ok(number)
    } else {
        Err(Fault::Stopped("a helper was called with what is no map"))
    }
}

/// Writes the answer into `struct bpf_fib_lookup`; returns `BPF_FIB_LKUP_RET_*`.
fn look_up_route(machine: &mut Machine, question: u64, length: u64) -> Result<u64, Fault> {
    const BYTES: u64 = 64;
    const NOT_FORWARDED: u64 = 4;
    const AF_INET: u8 = 2;
    if length & 0xffff_ffff != BYTES {
        return Ok(negative(22));
    }
    let bytes = machine.memory.bytes_mut(question, BYTES as usize)?;
    // `tos`, or `flowinfo` behind the version.
    let traffic_class = match bytes[0] {
        AF_INET => bytes[12],
        _ => bytes[12] << 4 | bytes[13] >> 4,
    };
    let of_class = machine.kernel.route_of;
    let of_class = of_class.filter(|(class, _)| *class == traffic_class);
    let Some(route) = of_class.map(|(_, route)| route).or(machine.kernel.route) else {
        return Ok(NOT_FORWARDED);
    };
    bytes[8..12].copy_from_slice(&route.device.to_le_bytes());
    bytes[52..58].copy_from_slice(&route.own_address);
    bytes[58..64].copy_from_slice(&route.next_hop);
    Ok(0)
}
