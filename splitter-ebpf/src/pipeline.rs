//! The split program's body, with the maps that it works on.
//!
//! It lies here and not in the program's file so that the yardstick can time
//! the very same code.

use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::XdpContext;
use splitter_common::config::Settings;
use splitter_common::counters::Counters;
use splitter_common::drain::Tunnels;
use splitter_common::split::{Outcome, Splitter};
use splitter_common::table::Table;

use crate::clock::KernelClock;
use crate::frame::Frame;
use crate::table::KernelMemory;

#[btf_map]
static SETTINGS: Array<Settings, 1> = Array::new();

#[btf_map]
static COUNTERS: PerCpuArray<Counters, 1> = PerCpuArray::new();

#[btf_map]
static TUNNELS: Array<Tunnels, 1> = Array::new();

/// Splits the frame; `None` only when a map is not there, which the kernel
/// rules out and the verifier cannot know.
#[inline(always)]
pub fn split(context: &XdpContext) -> Option<Outcome> {
    let settings = SETTINGS.get(0)?;
    // SAFETY: a per-CPU value, and XDP programs do not interrupt each other on
    // one CPU; the tunnels' model is shared and says so itself.
    let (counters, tunnels) = unsafe {
        (
            &mut *COUNTERS.get_ptr_mut(0)?,
            &mut *TUNNELS.get_ptr_mut(0)?,
        )
    };
    let mut splitter = Splitter {
        config: &settings.config,
        table: Table {
            memory: &KernelMemory,
            layout: &settings.layout,
        },
        clock: KernelClock(&settings.clock),
        tunnels,
        counters,
    };
    // A frame of its own for each: what the verifier has learnt of the first's
    // bounds would have it look at the second path once more.
    let plain = splitter.split_plain(&mut Frame::new(context));
    Some(match plain {
        Some(outcome) => outcome,
        None => splitter.split(&mut Frame::new(context)),
    })
}
