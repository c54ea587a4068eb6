//! Shared parts of the kernel programs: the data path, the flow table's memory, the clock, frames.
#![no_std]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    allow(
        internal_features,
        reason = "the one way to compare and exchange on this target"
    )
)]

pub mod balance;
#[cfg_attr(feature = "shifted-clock", path = "shifted_clock.rs")]
pub mod clock;
pub mod egress;
mod fixed;
pub mod frame;
pub mod models;
pub mod pipeline;
pub mod queues;
pub mod redirect;
pub mod reverse;
pub mod sites;
pub mod table;
pub mod tap;
pub mod verdict_log;
pub mod word;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // Never reached: the verifier refuses programs that could end up here.
    loop {}
}
