//! A packet as traffic control has it: bytes that stay as they are, and their
//! fwmark.

use splitter_policy::buffer::Buffer;
use splitter_policy::config::PolicyConfig;
use splitter_policy::dscp::{Dscp, Field};
use splitter_policy::steer::Steer;

pub(crate) struct FrameWithMark<'f> {
    pub(crate) frame: &'f [u8],
    pub(crate) mark: u32,
}

impl Buffer for FrameWithMark<'_> {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.frame.read(offset)
    }

    fn head<const N: usize>(&self) -> Option<&[u8; N]> {
        self.frame.head()
    }

    fn available(&self) -> usize {
        self.frame.available()
    }
}

impl Steer for FrameWithMark<'_> {
    fn incoming_mark(&self, config: &PolicyConfig, _: &Field) -> Dscp {
        config.mark_bits.read(self.mark)
    }

    fn steer(&mut self, config: &PolicyConfig, _: &Field, mark: Dscp) -> Option<()> {
        self.mark = config.mark_bits.applied_to(self.mark, mark);
        Some(())
    }
}
