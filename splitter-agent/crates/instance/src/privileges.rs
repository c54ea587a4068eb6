//! Capabilities that the agent needs, and giving up the rest.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::geteuid;
use splitter_netlink::{RightsError, keep_rights};
use thiserror::Error;

/// Capabilities that it takes to bring an instance up, to keep it up and to take it down.
pub const NEEDED: [Capability; 3] = [
    Capability::CAP_BPF,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_PERFMON,
];

/// Before Linux 5.8 this stood for the two BPF capabilities, and it still does.
const FORMER: Capability = Capability::CAP_SYS_ADMIN;

/// Capabilities that the caller lacks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not permitted: {} missing; {}", names(.capabilities, " and "), remedy(*.is_root))]
pub struct MissingCapabilities {
    /// Which of [`NEEDED`].
    pub capabilities: Vec<Capability>,
    /// Whether this is root, of whom something has taken them away.
    is_root: bool,
}

/// Refuses early and completely, rather than at the first call that fails.
///
/// # Errors
/// [`MissingCapabilities`].
pub fn check_capabilities() -> Result<(), MissingCapabilities> {
    let capabilities: Vec<_> = NEEDED.into_iter().filter(|&it| !is_allowed(it)).collect();
    if capabilities.is_empty() {
        return Ok(());
    }
    Err(MissingCapabilities {
        capabilities,
        is_root: geteuid().is_root(),
    })
}

/// Gives up every capability besides [`NEEDED`] and `also`, for this thread and those that it starts
/// from now on, and for good. Where one of `paths` belongs to another user, so that it takes
/// root's right to be changed, that right stays. Returns what stays.
///
/// # Errors
/// [`RightsError`]; some may have been given up by then.
pub fn drop_unneeded(also: &[Capability], paths: &[&Path]) -> Result<Vec<Capability>, RightsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let mut wanted: Vec<_> = NEEDED.into_iter().chain(also.iter().copied()).collect();
    if NEEDED.iter().any(|it| !permitted.contains(it)) {
        wanted.push(FORMER);
    }
    if paths.iter().any(|path| is_of_another(path)) {
        wanted.push(Capability::CAP_DAC_OVERRIDE);
    }
    let kept: CapsHashSet = wanted
        .into_iter()
        .filter(|it| permitted.contains(it))
        .collect();
    keep_rights(&kept)?;
    let mut kept: Vec<_> = kept.into_iter().collect();
    kept.sort_by_key(Capability::index);
    Ok(kept)
}

/// Capabilities as messages name them.
pub fn names<'a>(
    capabilities: impl IntoIterator<Item = &'a Capability>,
    separator: &str,
) -> String {
    let names = capabilities.into_iter().map(ToString::to_string);
    names.collect::<Vec<_>>().join(separator)
}

fn is_allowed(capability: Capability) -> bool {
    let effective = |it| caps::has_cap(None, CapSet::Effective, it).unwrap_or(false);
    effective(capability) || (capability != Capability::CAP_NET_ADMIN && effective(FORMER))
}

/// What is not there belongs to nobody.
fn is_of_another(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|it| it.uid() != geteuid().as_raw())
}

fn remedy(is_root: bool) -> impl fmt::Display {
    let all = names(&NEEDED, " ");
    if is_root {
        return format!(
            "this is root without them: give them to the container (docker run --cap-add BPF \
             --cap-add NET_ADMIN --cap-add PERFMON) or take CapabilityBoundingSet= out of the \
             unit, or name them there: {all}"
        );
    }
    let program = std::env::current_exe();
    let program = program.unwrap_or_else(|_| "splitter".into());
    format!(
        "run as root, or give them to the program (sudo setcap {}=ep {}) or to the service \
         (AmbientCapabilities={all})",
        names(&NEEDED, ",").to_lowercase(),
        program.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_ways_to_give_it() {
        let missing = |is_root| {
            let capabilities = vec![Capability::CAP_BPF, Capability::CAP_PERFMON];
            MissingCapabilities {
                capabilities,
                is_root,
            }
            .to_string()
        };
        let reported = missing(false);
        for word in [
            "CAP_BPF and CAP_PERFMON missing",
            "run as root",
            "setcap cap_bpf,cap_net_admin,cap_perfmon=ep /",
            "AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_PERFMON",
        ] {
            assert!(reported.contains(word), "{word:?} is missing in {reported}");
        }
        assert!(missing(true).contains("--cap-add BPF"));
        assert!(!missing(true).contains("run as root"));
    }
}
