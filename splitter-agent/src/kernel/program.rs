//! The program that splits, of whichever type the way of steering has.

use aya::programs::{ProgramError, SchedClassifier, Xdp};
use aya_obj::programs::XdpAttachType;

use super::error::program_error;
use super::{KernelError, Pins};
use crate::config::SteeringMode;

impl SteeringMode {
    /// What its program is called, in the object and where it is pinned.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Dscp => "split",
            Self::Mark => "mark",
            Self::Redirect => "redirect",
        }
    }

    /// Where its program is, in words.
    pub const fn hook(self) -> &'static str {
        match self {
            Self::Mark => "TC program",
            Self::Dscp | Self::Redirect => "XDP program",
        }
    }
}

/// A program that is pinned.
pub(super) enum Program {
    /// With its name, of which there are two.
    Xdp(Xdp, &'static str),
    Ingress(SchedClassifier),
}

impl Program {
    /// The one at `pins` for a way of steering.
    pub(super) fn from_pin(pins: &Pins, steering: SteeringMode) -> Result<Self, KernelError> {
        let path = pins.program_of(steering);
        let program = match steering {
            SteeringMode::Mark => SchedClassifier::from_pin(path).map(Self::Ingress),
            SteeringMode::Dscp | SteeringMode::Redirect => {
                let program = Xdp::from_pin(path, XdpAttachType::Interface);
                program.map(|program| Self::Xdp(program, steering.program()))
            }
        };
        program.map_err(program_error(steering.program()))
    }

    /// The kernel's number of it.
    pub(super) fn id(&self) -> Result<u32, ProgramError> {
        let info = match self {
            Self::Xdp(program, _) => program.info()?,
            Self::Ingress(program) => program.info()?,
        };
        Ok(info.id())
    }
}
