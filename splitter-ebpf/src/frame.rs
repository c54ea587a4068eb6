//! The bytes of the packet that a program runs for.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::bpf_xdp_get_buff_len;
use aya_ebpf::programs::{TcContext, XdpContext};
use splitter_common::buffer::{Buffer, BufferMut, RawBuffer};

/// An XDP frame. Headers lie in its linear part; for a multi-buffer frame the
/// payload may go on in fragments, which nobody here looks at.
pub struct XdpFrame<'a> {
    linear: RawBuffer,
    context: &'a XdpContext,
}

impl<'a> XdpFrame<'a> {
    /// The frame that the program runs for.
    #[inline(always)]
    pub fn new(context: &'a XdpContext) -> Self {
        // SAFETY: the kernel vouches for the bytes between the two pointers for
        // as long as the program runs, and the program holds no other reference.
        let linear = unsafe { RawBuffer::new(context.data(), context.data_end()) };
        Self { linear, context }
    }
}

impl Buffer for XdpFrame<'_> {
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.linear.read(offset)
    }

    #[inline(always)]
    fn available(&self) -> usize {
        self.linear.available()
    }

    #[inline(always)]
    fn length(&self) -> usize {
        // SAFETY: the context is the one that the kernel passed to the program.
        unsafe { bpf_xdp_get_buff_len(self.context.as_ptr().cast()) as usize }
    }
}

impl BufferMut for XdpFrame<'_> {
    #[inline(always)]
    fn write<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) -> Option<()> {
        self.linear.write(offset, bytes)
    }
}

/// A socket buffer, from its Ethernet header on. Only its linear part is at
/// hand; the rest of the payload lies in pages.
pub struct SocketBuffer<'a> {
    linear: RawBuffer,
    context: &'a TcContext,
}

impl<'a> SocketBuffer<'a> {
    /// The packet that the program runs for.
    #[inline(always)]
    pub fn new(context: &'a TcContext) -> Self {
        // SAFETY: as for XDP; this is only read.
        let linear = unsafe { RawBuffer::new(context.data(), context.data_end()) };
        Self { linear, context }
    }
}

impl Buffer for SocketBuffer<'_> {
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.linear.read(offset)
    }

    #[inline(always)]
    fn available(&self) -> usize {
        self.linear.available()
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.context.len() as usize
    }
}
