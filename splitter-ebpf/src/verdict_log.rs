//! Tells user space what became of each packet, in the build that logs.

#[cfg(feature = "log")]
use aya_ebpf::EbpfContext;
use aya_ebpf::programs::{TcContext, XdpContext};
use splitter_policy::split::Outcome;

#[cfg(feature = "log")]
use crate::frame::Context;

/// Writes the verdict on a packet, with a stack frame of its own: all calls in a chain share 512
/// bytes.
#[inline(always)]
pub fn write_xdp(_context: &XdpContext, _outcome: Outcome) {
    #[cfg(feature = "log")]
    apart::write_verdict(_context.ctx, apart::to_bits(_outcome));
}

/// Writes the verdict on a packet in traffic control.
#[inline(always)]
pub fn write_skb(_context: &TcContext, _outcome: Outcome) {
    #[cfg(feature = "log")]
    apart::write_verdict_skb(_context.skb.skb, apart::to_bits(_outcome));
}

#[cfg(feature = "log")]
mod apart {
    use aya_ebpf::bindings::{__sk_buff, xdp_md};
    use aya_ebpf::programs::{TcContext, XdpContext};
    use splitter_policy::flow::{Class, TunnelRole};
    use splitter_policy::split::{Decision, Outcome};

    #[inline(always)]
    pub(super) fn to_bits(outcome: Outcome) -> u64 {
        Decision::to_bits(match outcome {
            Outcome::Split { class, tunnel } => Ok(Decision {
                class,
                queue_class: class,
                tunnel,
                is_dropped: false,
            }),
            Outcome::Dropped => Ok(Decision {
                class: Class::Long,
                queue_class: Class::Long,
                tunnel: TunnelRole::Short,
                is_dropped: true,
            }),
            Outcome::Passed(refusal) => Err(refusal),
        })
    }

    #[inline(always)]
    fn outcome(bits: u64) -> Outcome {
        match Decision::from_bits(bits) {
            Ok(Decision {
                is_dropped: true, ..
            }) => Outcome::Dropped,
            Ok(Decision { class, tunnel, .. }) => Outcome::Split { class, tunnel },
            Err(refusal) => Outcome::Passed(refusal),
        }
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    pub(super) extern "C" fn write_verdict(context: *mut xdp_md, bits: u64) -> u64 {
        super::write(&XdpContext::new(context), outcome(bits));
        0
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    pub(super) extern "C" fn write_verdict_skb(context: *mut __sk_buff, bits: u64) -> u64 {
        super::write(&TcContext::new(context), outcome(bits));
        0
    }
}

/// Writes a record of a packet that was split (trace) or passed untreated
/// (debug).
#[cfg(feature = "log")]
#[inline(always)]
fn write<C: Context + EbpfContext>(context: &C, outcome: Outcome) {
    use aya_log_ebpf::debug;
    use splitter_policy::flow::{Class, TunnelRole};

    match outcome {
        Outcome::Split { class, tunnel } => {
            let verdict = match (class, tunnel) {
                (Class::Short, TunnelRole::Short) => "short",
                (Class::Short, TunnelRole::Long) => "short, started in the long tunnel",
                (Class::Long, TunnelRole::Short) => "long, still in the short tunnel",
                (Class::Long, TunnelRole::Long) => "long",
            };
            write_flow(context, verdict);
        }
        Outcome::Dropped => write_flow(context, "long, dropped to leave the short tunnel"),
        Outcome::Passed(refusal) => debug!(context, "passed untreated: {}", refusal.name()),
    }
}

/// Names the flow where its headers lie at fixed places: the verifier would not
/// follow the whole parser a second time.
#[cfg(feature = "log")]
#[inline(always)]
fn write_flow<C: Context + EbpfContext>(context: &C, verdict: &'static str) {
    use crate::frame::Frame;
    use aya_log_ebpf::trace;
    use splitter_policy::buffer::Buffer as _;

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
