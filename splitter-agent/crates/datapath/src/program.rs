//! The program that splits, of whichever type the way of steering has.

use aya::programs::{ProgramError, SchedClassifier, Xdp};
use aya_obj::programs::XdpAttachType;
use splitter_config::SteeringMode;

use super::error::program_error;
use super::names::COUNT_EGRESS;
use super::{KernelError, Pins, TcSide};

/// The name of the program of a steering mode, in the object and where it is pinned.
pub const fn program_name(steering: SteeringMode) -> &'static str {
    match steering {
        SteeringMode::Dscp => "split",
        SteeringMode::Mark => "mark",
        SteeringMode::Redirect => "redirect",
    }
}

/// The kind of the program of a steering mode, in words.
pub const fn program_kind(steering: SteeringMode) -> &'static str {
    match steering {
        SteeringMode::Mark => "TC program",
        SteeringMode::Dscp | SteeringMode::Redirect => "XDP program",
    }
}

/// The name of the program that is attached to a side of devices by traffic control.
pub(super) const fn program_at(side: TcSide) -> &'static str {
    match side {
        TcSide::Ingress => program_name(SteeringMode::Mark),
        TcSide::Egress => COUNT_EGRESS,
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
                program.map(|program| Self::Xdp(program, program_name(steering)))
            }
        };
        program.map_err(program_error(program_name(steering)))
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
