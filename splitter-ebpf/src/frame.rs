//! The bytes of the packet that a program runs for.

use aya_ebpf::programs::{TcContext, XdpContext};
use splitter_common::buffer::RawBuffer;

/// The linear part of an XDP frame. Headers lie in it; for a multi-buffer frame
/// the payload may go on in fragments, which nobody here looks at.
#[inline(always)]
pub fn of_xdp(context: &XdpContext) -> RawBuffer {
    // SAFETY: the kernel vouches for the bytes between the two pointers for as
    // long as the program runs, and the program holds no other reference.
    unsafe { RawBuffer::new(context.data(), context.data_end()) }
}

/// The linear part of a socket buffer, from its Ethernet header on.
#[inline(always)]
pub fn of_tc(context: &TcContext) -> RawBuffer {
    // SAFETY: as for XDP; this program only reads.
    unsafe { RawBuffer::new(context.data(), context.data_end()) }
}
