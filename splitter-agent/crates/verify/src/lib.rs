//! Proves with real packets that a border splits: packets of both classes are put in as if an
//! interface of the site had received them, and are watched where they leave.
//!
//! [`survey`] looks what there is to probe, [`verify`] probes it. What is probed is one flow of TCP
//! for each interface of the site, address family, class and destination: it goes through the
//! program of the instance, the rules and the routes as a host's flow does. Its source is the
//! border's own address at that interface, so that answers end here and reach no host of the site.
//! Packets are seen by a packet socket, on all devices, in both directions.

mod accept_local;
mod capture;
mod filter;
mod frame;
mod judge;
mod marks;
mod mtu;
mod path;
mod report;
mod session;
mod survey;
mod tunnels;
mod way_back;

use std::sync::atomic::AtomicBool;
use std::{io, thread};

pub use report::{Delay, PathReport, Report, Verdict};
pub use survey::{Survey, SurveyError, Targets, survey};
pub use tunnels::{FarAgent, TunnelFacts};
pub use way_back::WayBack;

use crate::report::summarise;

/// Why probing has ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A packet socket could not be had.
    #[error(
        "cannot watch packets: {0}; run as root, or with CAP_NET_RAW besides the splitter's own capabilities"
    )]
    Watch(#[source] io::Error),
    /// The kernel has not put a frame in.
    #[error(
        "cannot put packets in at {interface}: {source}; this takes Linux 5.18, CAP_BPF and CAP_NET_ADMIN"
    )]
    Inject {
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refuses packets with the border's own source, and this could not be changed.
    #[error(
        "cannot have {interface} accept packets with the border's own address: {source}; run as root"
    )]
    AcceptLocal {
        /// The interface.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody has asked for it to end.
    #[error("stopped")]
    Stopped,
}

impl VerifyError {
    /// Returns true where missing rights are the reason.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::Watch(source)
            | Self::Inject { source, .. }
            | Self::AcceptLocal { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            Self::Stopped => false,
        }
    }

    /// Returns true where nothing has been found out: this kernel cannot put packets in, or it was
    /// stopped.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        match self {
            Self::Inject { source, .. } => source.raw_os_error() == Some(libc::EINVAL),
            Self::Stopped => true,
            Self::Watch(_) | Self::AcceptLocal { .. } => false,
        }
    }
}

/// Probes every path of a survey, one after the other, until done or until `stop` is set. Blocks.
///
/// IPv4 refuses packets whose source is the border's own address; while this runs it accepts them
/// on the interfaces that are probed (`accept_local`), and not a moment longer.
///
/// # Errors
/// [`VerifyError`]; what was changed is restored by then.
pub fn verify(survey: &Survey, stop: &AtomicBool) -> Result<Report, VerifyError> {
    let mut paths = Vec::new();
    for plan in &survey.paths {
        paths.extend(path::probe(&survey.border, plan, stop)?);
        // Else the answer to one flow's last packet may be on its way while the next one begins.
        thread::sleep(path::BETWEEN_PATHS);
    }
    let not_covered = survey.not_covered.clone();
    Ok(summarise(
        &survey.border,
        paths,
        survey.tunnels.clone(),
        not_covered,
    ))
}
