//! Tells user space what became of each packet, in the build that logs.

use aya_ebpf::programs::XdpContext;
use splitter_common::split::Outcome;

/// Writes nothing: this is the build without logging.
#[cfg(not(feature = "log"))]
#[inline(always)]
pub fn write(_: &XdpContext, _: Outcome) {}

/// Writes a record of a packet that was split (trace) or passed untreated
/// (debug).
#[cfg(feature = "log")]
#[inline(always)]
pub fn write(context: &XdpContext, outcome: Outcome) {
    use aya_log_ebpf::debug;
    use splitter_common::flow::{Class, Tunnel};

    match outcome {
        Outcome::Split { class, tunnel } => {
            let verdict = match (class, tunnel) {
                (Class::Short, Tunnel::Short) => "short",
                (Class::Short, Tunnel::Long) => "short, started in the long tunnel",
                (Class::Long, Tunnel::Short) => "long, still in the short tunnel",
                (Class::Long, Tunnel::Long) => "long",
            };
            write_flow(context, verdict);
        }
        Outcome::Passed(refusal) => debug!(context, "passed untreated: {}", refusal.name()),
    }
}

/// Names the flow where its headers lie at fixed places: the verifier would not
/// follow the whole parser a second time.
#[cfg(feature = "log")]
#[inline(always)]
fn write_flow(context: &XdpContext, verdict: &'static str) {
    use crate::frame::Frame;
    use aya_log_ebpf::trace;
    use splitter_common::buffer::Buffer as _;

    const IPV4_WITHOUT_OPTIONS: [u8; 3] = [0x08, 0x00, 0x45];
    let frame = Frame::new(context);
    match (frame.read::<3>(12), frame.read::<12>(26)) {
        (Some(IPV4_WITHOUT_OPTIONS), Some([a, b, c, d, e, f, g, h, i, j, k, l])) => {
            let (source, destination) = (
                u32::from_be_bytes([a, b, c, d]),
                u32::from_be_bytes([e, f, g, h]),
            );
            let (from, to) = (u16::from_be_bytes([i, j]), u16::from_be_bytes([k, l]));
            trace!(
                context,
                "{:i}:{} -> {:i}:{}: {}", source, from, destination, to, verdict
            );
        }
        _ => trace!(context, "{}", verdict),
    }
}
