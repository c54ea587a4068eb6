//! Programs of others at traffic control, by TCX (Linux 6.6) or `clsact`.

use std::fmt;
use std::io;

use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use splitter_netlink::clsact;

use super::error::program_errno;
use super::foreign_xdp::name_of;

/// The side of a device at which programs of traffic control run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcSide {
    /// They see what comes in.
    Ingress,
    /// They see what goes out.
    Egress,
}

impl TcSide {
    /// The word in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// A program at a device's ingress or egress that is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignTcProgram {
    /// Its number, as `bpftool prog` shows it.
    pub id: u32,
    /// Its name, where the kernel reports it.
    pub name: Option<String>,
}

/// Lists the programs at a side of a device, but for those with the numbers of `ours`.
///
/// # Errors
/// The kernel's, such as `EPERM` for who may not look.
pub fn foreign_tc_programs(
    interface: &str,
    index: u32,
    side: TcSide,
    ours: &[u32],
) -> io::Result<Vec<ForeignTcProgram>> {
    let (attach_type, filters) = match side {
        TcSide::Ingress => (TcAttachType::Ingress, clsact::ingress_filters(index)),
        TcSide::Egress => (TcAttachType::Egress, clsact::egress_filters(index)),
    };
    let mut programs = by_tcx(interface, attach_type)?;
    for id in filters?.into_iter().filter_map(|it| it.program_id) {
        let name = name_of(id);
        programs.push(ForeignTcProgram { id, name });
    }
    programs.retain(|program| !ours.contains(&program.id));
    Ok(programs)
}

fn by_tcx(interface: &str, attach_type: TcAttachType) -> io::Result<Vec<ForeignTcProgram>> {
    let found = match SchedClassifier::query_tcx(interface, attach_type) {
        Ok((_, found)) => found,
        Err(error) => {
            return match program_errno(&error) {
                // An older kernel has none.
                Some(libc::EINVAL) => Ok(Vec::new()),
                Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                None => Err(unexpected(error)),
            };
        }
    };
    let programs = found.into_iter().map(|program| ForeignTcProgram {
        id: program.id(),
        name: program.name_as_str().map(str::to_owned),
    });
    Ok(programs.collect())
}

fn unexpected(error: ProgramError) -> io::Error {
    io::Error::other(error)
}

impl fmt::Display for ForeignTcProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "`{name}`, number {}", self.id),
            None => write!(f, "number {}", self.id),
        }
    }
}
