//! Notes what passes a device, by flow and by packet, and lets it go on.

use aya_ebpf::Global;
use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::TcContext;
use splitter_policy::cpu_queues::SharedWord as _;
use splitter_policy::flow::{FlowKey, FlowKeyV6, TapEntry};
use splitter_policy::packet::{Network, Transport};
use splitter_policy::packet_selection::{PacketPassage, PacketSelection, SegmentNumbers};

use crate::clock;
use crate::frame::Frame;
use crate::word::KernelWord;

/// Flows that passed, of both families.
#[btf_map]
static TAPPED: HashMap<FlowKeyV6, TapEntry, 65_536> = HashMap::new();

/// The packets that are noted one by one. The verifier knows it, and leaves that out where there are none.
#[unsafe(no_mangle)]
static PACKET_SELECTION: Global<PacketSelection> = Global::new(PacketSelection::NONE);

/// How many packets were selected; those that [`PACKET_PASSAGES`] has no place for are missing there.
#[btf_map]
static PACKETS_SELECTED: Array<KernelWord, 1> = Array::new();

/// Packets that were selected, in the order in which CPUs took places. Who wants them makes it longer.
#[btf_map]
static PACKET_PASSAGES: Array<PacketPassage, 1> = Array::new();

/// Notes a TCP segment, or an aggregate of them. `None` where it is neither, or there is no room.
#[inline(always)]
pub fn note(context: &TcContext) -> Option<()> {
    let frame = Frame::new(context);
    let network = Network::parse(&frame).ok()?;
    let Ok(Transport::Tcp(tcp)) = Transport::parse(&frame, &network) else {
        return None;
    };
    let flow = FlowKey::new(network.addresses, &tcp).as_v6();
    let now_ns = clock::monotonic_ns();
    let selection = PACKET_SELECTION.load();
    if selection.is_any() {
        // Of a frame of its own: the compiler would leave out the bounds that it knows to hold, and the verifier does not.
        let numbers = SegmentNumbers::read(&Frame::new(context), &network)?;
        if let Some(digest) = selection.select(&flow, &numbers) {
            note_packet(&PacketPassage {
                at_ns: now_ns,
                digest,
                flow,
                // SAFETY: the context is the one that the kernel passed to the program.
                fwmark: unsafe { (*context.skb.skb).mark },
                traffic_class: network.traffic_class.into(),
            });
        }
    }
    note_flow(&flow, now_ns, network.frame_bytes as u64)
}

/// Places are taken once and never given back, so that no two CPUs write to one.
#[inline(always)]
fn note_packet(passage: &PacketPassage) -> Option<()> {
    let selected = PACKETS_SELECTED.get(0)?;
    let place = u32::try_from(selected.add(1)).ok()?;
    // None beyond the last place.
    let noted = PACKET_PASSAGES.get_ptr_mut(place)?;
    // SAFETY: the value stays mapped while the program runs, and its place is this packet's alone.
    unsafe {
        *noted = PacketPassage {
            at_ns: 0,
            ..*passage
        };
        // Last: who reads meanwhile goes by it.
        (&raw mut (*noted).at_ns).write_volatile(passage.at_ns);
    }
    Some(())
}

#[inline(always)]
fn note_flow(flow: &FlowKeyV6, now_ns: u64, bytes: u64) -> Option<()> {
    let Some(entry) = TAPPED.get_ptr_mut(flow) else {
        let first = TapEntry {
            first_ns: now_ns,
            last_ns: now_ns,
            packets: 1,
            bytes,
        };
        return TAPPED.insert(flow, &first, 0).ok();
    };
    // SAFETY: the value stays mapped while the program runs; plain integers.
    let entry = unsafe { &mut *entry };
    entry.last_ns = now_ns;
    entry.packets += 1;
    entry.bytes += bytes;
    Some(())
}
