//! The rights of a thread, which it gives up for good.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};

/// A thread's rights could not be given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RightsError {
    /// The capabilities could not be read or set.
    #[error("cannot give up capabilities: {0}")]
    Capabilities(#[from] CapsError),
    /// Programs that are started could gain rights.
    #[error("cannot rule out that rights are gained (no_new_privs): {0}")]
    NoNewPrivileges(#[from] nix::Error),
}

/// Gives up every capability but these, for this thread and those that it starts from now on, and for good: what it
/// starts gains none either.
///
/// # Errors
/// [`RightsError`]; what could be given up has been all the same.
pub fn keep_rights(kept: &CapsHashSet) -> Result<(), RightsError> {
    // First, for it takes a right itself.
    let ruled_out = rule_out_gains(kept);
    caps::set(None, CapSet::Effective, kept)?;
    caps::set(None, CapSet::Permitted, kept)?;
    caps::clear(None, CapSet::Inheritable)?;
    ruled_out
}

fn rule_out_gains(kept: &CapsHashSet) -> Result<(), RightsError> {
    nix::sys::prctl::set_no_new_privs()?;
    // Without this right the set limits nothing that no_new_privs does not.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::read(None, CapSet::Bounding)?.difference(kept) {
            caps::drop(None, CapSet::Bounding, *capability)?;
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    Ok(())
}
