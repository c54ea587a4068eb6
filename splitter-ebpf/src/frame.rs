//! The bytes of the packet that a program runs for.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::BPF_F_RECOMPUTE_CSUM;
use aya_ebpf::helpers::bpf_xdp_get_buff_len;
use aya_ebpf::programs::{TcContext, XdpContext};
use splitter_policy::buffer::{Buffer, BufferMut, RawBuffer};
use splitter_policy::config::PolicyConfig;
use splitter_policy::dscp::{Dscp, Field};
use splitter_policy::steer::Steer;

/// A frame, from its Ethernet header on. Headers lie in its linear part, which
/// alone is at hand; the payload may go on in fragments or pages, which nobody
/// here looks at.
pub struct Frame<'a, C> {
    linear: RawBuffer,
    context: &'a C,
}

/// The context that the kernel calls a program with.
pub trait Context {
    /// The addresses at which the linear part starts and ends.
    fn bounds(&self) -> (usize, usize);

    /// Bytes of the whole frame.
    fn length(&self) -> usize;
}

impl<'a, C: Context> Frame<'a, C> {
    /// The frame that the program runs for.
    #[inline(always)]
    pub fn new(context: &'a C) -> Self {
        let (start, end) = context.bounds();
        // SAFETY: the kernel vouches for the bytes between the two pointers for
        // as long as the program runs, and the program holds no other reference.
        let linear = unsafe { RawBuffer::new(start, end) };
        Self { linear, context }
    }
}

impl<C: Context> Buffer for Frame<'_, C> {
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.linear.read(offset)
    }

    #[inline(always)]
    fn head<const N: usize>(&self) -> Option<&[u8; N]> {
        self.linear.head()
    }

    #[inline(always)]
    fn available(&self) -> usize {
        self.linear.available()
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.context.length()
    }
}

/// XDP programs may write in place; TC programs would have to make the bytes
/// their own first, and mark by the fwmark.
impl BufferMut for Frame<'_, XdpContext> {
    #[inline(always)]
    fn write<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) -> Option<()> {
        self.linear.write(offset, bytes)
    }
}

impl Steer for Frame<'_, TcContext> {
    #[inline(always)]
    fn incoming_mark(&self, config: &PolicyConfig, _: &Field) -> Dscp {
        // SAFETY: the context is the one that the kernel passed to the program.
        config
            .mark_bits
            .read(unsafe { (*self.context.skb.skb).mark })
    }

    #[inline(always)]
    fn steer(&mut self, config: &PolicyConfig, _: &Field, mark: Dscp) -> Option<()> {
        // SAFETY: as above.
        let found = unsafe { (*self.context.skb.skb).mark };
        let wanted = config.mark_bits.applied_to(found, mark);
        self.context.set_mark(wanted);
        Some(())
    }
}

/// The context of a TC program that marks by the DSCP, in the packet's bytes.
pub struct DscpContext<'c>(pub &'c TcContext);

/// By the kernel, which makes the bytes the packet's own first, and renews what a device has summed up. Nothing is
/// read any more then: the bytes may have moved.
impl BufferMut for Frame<'_, DscpContext<'_>> {
    #[inline(always)]
    fn write<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) -> Option<()> {
        let flags = u64::from(BPF_F_RECOMPUTE_CSUM);
        self.context.0.skb.store(offset, &bytes, flags).ok()
    }
}

impl Context for DscpContext<'_> {
    #[inline(always)]
    fn bounds(&self) -> (usize, usize) {
        self.0.bounds()
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.0.length()
    }
}

impl Context for XdpContext {
    #[inline(always)]
    fn bounds(&self) -> (usize, usize) {
        // SAFETY: the context is the one that the kernel passed to the program.
        // Volatile, so that each frame has pointers of its own.
        unsafe {
            (
                (&raw const (*self.ctx).data).read_volatile() as usize,
                (&raw const (*self.ctx).data_end).read_volatile() as usize,
            )
        }
    }

    #[inline(always)]
    fn length(&self) -> usize {
        // SAFETY: the context is the one that the kernel passed to the program.
        unsafe { bpf_xdp_get_buff_len(self.as_ptr().cast()) as usize }
    }
}

impl Context for TcContext {
    #[inline(always)]
    fn bounds(&self) -> (usize, usize) {
        // SAFETY: the context is the one that the kernel passed to the program.
        // Volatile, as above: after a pull they have moved.
        unsafe {
            (
                (&raw const (*self.skb.skb).data).read_volatile() as usize,
                (&raw const (*self.skb.skb).data_end).read_volatile() as usize,
            )
        }
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.len() as usize
    }
}
