//! The settings map: all that the agent hands to the kernel programs.

use crate::clock::TickClock;
use crate::config::PolicyConfig;
use crate::table::Layout;

/// The value of the settings map: configuration, tick clock, layout of the table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The policy's settings.
    pub config: PolicyConfig,
    /// The host's tick clock.
    pub clock: TickClock,
    /// The flow table's sizes and seeds, these as [`Layout::with_odd_seeds`] has them.
    pub layout: Layout,
}

impl Settings {
    /// Makes what the kernel programs are given.
    pub const fn new(config: PolicyConfig, clock: TickClock, layout: Layout) -> Self {
        Self {
            config,
            clock,
            layout: layout.with_odd_seeds(),
        }
    }
}
