//! Counts what comes back to the site, by flow.

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::TcContext;
use splitter_policy::clock::Clock as _;
use splitter_policy::flow::{FlowKey, FlowKeyV6};
use splitter_policy::packet::{Addresses, Network, Transport};
use splitter_policy::pass_reason::PassReason;
use splitter_policy::reverse::{Arrival, ReverseEntry, counted};

use crate::clock::KernelClock;
use crate::frame::Frame;
use crate::pipeline::{HEADERS_BYTES, settings};

/// What came back, by the packets' own 5-tuple, of both families. Of more flows than it has room for,
/// those that were silent longest are forgotten; the agent sets how many these are.
#[btf_map]
static REVERSE: LruHashMap<FlowKeyV6, ReverseEntry, 65_536> = LruHashMap::new();

/// Counts a packet that a device of the site is handed, and changes nothing of it. `None` where its
/// flow cannot be one of the table's.
#[inline(always)]
pub fn count(context: &TcContext) -> Option<()> {
    // SAFETY: the context is the one that the kernel passed to the program.
    let skb = unsafe { &*context.skb.skb };
    let (device, packets, bytes) = (skb.ingress_ifindex, skb.gso_segs.max(1), skb.len);
    if device == 0 {
        // This machine has sent it itself.
        return None;
    }
    let (addresses, transport) = match read(context) {
        // Headers may lie in the packet's pages, as in the split program.
        Err(refusal)
            if refusal.is_truncated() && context.pull_data(bytes.min(HEADERS_BYTES)).is_ok() =>
        {
            read(context)
        }
        read => read,
    }
    .ok()?;
    let settings = settings();
    let header = counted(transport, settings.config.protocols)?;
    let key = FlowKey::new(addresses, &header).as_v6();
    let arrival = Arrival {
        packets: packets.into(),
        bytes: bytes.into(),
        now_ns: KernelClock(&settings.clock).coarse_ns(),
        device,
        opens: header.flags.opens(),
    };
    match REVERSE.get_ptr_mut(&key) {
        Some(entry) => {
            // SAFETY: the value stays mapped while the program runs; plain integers.
            let entry = unsafe { &mut *entry };
            entry.count(&arrival, settings.config.idle_timeout_ns);
        }
        None => REVERSE
            .insert(&key, &ReverseEntry::first(&arrival), 0)
            .ok()?,
    }
    Some(())
}

#[inline(always)]
fn read(context: &TcContext) -> Result<(Addresses, Transport), PassReason> {
    let frame = Frame::new(context);
    let network = Network::parse(&frame)?;
    let transport = Transport::parse(&frame, &network)?;
    Ok((network.addresses, transport))
}
