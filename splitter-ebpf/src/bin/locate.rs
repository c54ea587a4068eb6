//! Finds a queue of the kernel, for the programs that look how full it is.
#![no_std]
#![no_main]

use core::ffi::c_void;

use aya_ebpf::bindings::bpf_pidns_info;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::bpf_get_ns_current_pid_tgid;
use aya_ebpf::macros::{btf_map, fentry};
use aya_ebpf::programs::FEntryContext;
// What happens in a panic, which the compiler asks for and nothing reaches.
use splitter_ebpf as _;
use splitter_policy::queue_search::QueueSearch;

#[btf_map]
static QUEUE_SEARCH: Array<QueueSearch, 1> = Array::new();

/// A thread, at an address that takes writes of both numbers at once.
#[repr(C, align(8))]
struct Thread(bpf_pidns_info);

/// Runs when the kernel describes a FIFO (`fifo_dump`), in the thread that asked for it.
#[fentry(function = "fifo_dump")]
pub fn locate_queue(context: FEntryContext) -> i32 {
    let Some(search) = QUEUE_SEARCH.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the one value of an array map, made of integers.
    let search = unsafe { &mut *search };
    let mut caller = Thread(bpf_pidns_info { pid: 0, tgid: 0 });
    // SAFETY: the helper writes as many bytes as it is told there are.
    let found = unsafe {
        bpf_get_ns_current_pid_tgid(
            search.namespace_device,
            search.namespace_inode,
            &raw mut caller.0,
            size_of::<bpf_pidns_info>() as u32,
        )
    };
    if found == 0 && u64::from(caller.0.pid) == search.thread {
        search.queue = context.arg::<*const c_void>(0) as u64;
    }
    0
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
