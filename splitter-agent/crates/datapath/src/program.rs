//! The program that splits, of whichever type the way of steering has.

use aya::programs::{ProgramError, SchedClassifier, Xdp};
use aya_obj::programs::XdpAttachType;
use splitter_config::SteeringMode;

use super::error::program_error;
use super::names::{BALANCED, BALANCED_BY_DSCP, BALANCED_PAST_STACK, COUNT_EGRESS};
use super::{KernelError, Pins, TcSide};

/// The name of the program of a steering mode, in the object and where it is pinned.
pub const fn program_name(steering: SteeringMode) -> &'static str {
    match steering {
        SteeringMode::Dscp => "split",
        SteeringMode::Mark => "mark",
        SteeringMode::Redirect => "redirect",
    }
}

/// Tells if one of the programs that split has this name, as the kernel says it.
#[must_use]
pub fn is_splitting(name: &str) -> bool {
    let mut names = SteeringMode::ALL.iter().map(|mode| program_name(*mode));
    let choosing = [BALANCED, BALANCED_BY_DSCP, BALANCED_PAST_STACK];
    choosing.contains(&name) || names.any(|it| it == name)
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

#[cfg(test)]
mod tests {
    use splitter_config::{Config, PacketLog};

    use super::*;
    use crate::Object;

    /// The kernel keeps so much of a name.
    const NAME_BYTES: usize = 15;

    #[test]
    fn each_program_that_splits_is_known_by_what_the_kernel_calls_it() {
        let of = |mode: &str, balance: &str| {
            let text = format!(
                "lan = 'l'\n{balance}\n[short]\ndevice = 'a'\ngateway = '192.0.2.1'\nrate_mbit = 9\n[long]\ndevice = 'b'\ngateway = '192.0.2.5'\nrate_mbit = 9\n[steering]\nmode = '{mode}'\n"
            );
            let config = Config::parse(&text, "t").unwrap();
            let object = Object::for_level(PacketLog::Off)
                .unwrap()
                .balancing(&config);
            object.program(config.program_mode())
        };
        let names = [
            of("dscp", ""),
            of("mark", ""),
            of("redirect", ""),
            of("dscp", "balance = 'tr'"),
            of("mark", "balance = 'tr'"),
            of("redirect", "balance = 'tr'"),
        ];
        for name in names {
            assert!(name.len() <= NAME_BYTES && is_splitting(name), "{name}");
        }
        assert!(!is_splitting(COUNT_EGRESS) && !is_splitting("tap"));
    }
}
