//! Frames that come in by an interface although nobody has sent them.
//!
//! What the border itself sends is not split: the rules select what comes in by the site's
//! interfaces. A frame that is put in here takes the whole way of one that was received there, from
//! the program on. Needs Linux 5.18 (`BPF_F_TEST_XDP_LIVE_FRAMES`).

use std::io;
use std::os::fd::OwnedFd;

use splitter_config::SteeringMode;

use super::raw;
use super::{AttachedMode, Pins};

/// The longest frame that can be put in: it lies in a page with its headroom (256 bytes), the
/// kernel's notes on it and `struct skb_shared_info` (320 bytes).
pub const LONGEST_FRAME_BYTES: usize = 3_300;

/// Puts frames in as if an interface had received them.
#[derive(Debug)]
pub struct Injector {
    program: OwnedFd,
    interface: u32,
}

impl Injector {
    /// Puts frames in in front of the program of the instance at `pins`, which is attached to the
    /// interface of that number in `mode`.
    ///
    /// # Errors
    /// The kernel's, such as `EPERM`.
    pub fn before_program(
        pins: &Pins,
        steering: SteeringMode,
        mode: AttachedMode,
        interface: u32,
    ) -> io::Result<Self> {
        let program = match mode {
            // The driver would run it, and no driver receives this frame: so it is what is run.
            AttachedMode::Native => raw::open(&pins.program_of(steering))?,
            // The network stack runs it, on frames that are put in as on any others.
            AttachedMode::Generic | AttachedMode::Tcx | AttachedMode::Clsact => {
                raw::load_passing(NAME)?
            }
        };
        Ok(Self { program, interface })
    }

    /// Puts frames in behind the program, which does not see them: they carry the mark that they
    /// are given. `None` where the program is one that the network stack runs.
    ///
    /// # Errors
    /// As [`Self::before_program`].
    pub fn behind_program(mode: AttachedMode, interface: u32) -> io::Result<Option<Self>> {
        if mode != AttachedMode::Native {
            return Ok(None);
        }
        let program = raw::load_passing(NAME)?;
        Ok(Some(Self { program, interface }))
    }

    /// Puts so many copies of an Ethernet frame in. What becomes of them is not reported.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` where it cannot (before Linux 5.18), or for a frame of more than
    /// [`LONGEST_FRAME_BYTES`].
    pub fn inject(&self, frame: &[u8], count: u32) -> io::Result<()> {
        raw::run_on_live_frames(&self.program, self.interface, frame, count)
    }
}

/// How the program that lets frames pass is called in lists of programs.
const NAME: &str = "splitter_verify";
