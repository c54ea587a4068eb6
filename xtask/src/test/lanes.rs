//! Which test programs run beside which: lanes, and the programs that each has.

use std::thread;

use super::programs::Program;

/// Programs: a package, and one of its targets or all.
pub(super) type Selection = (&'static str, Option<&'static str>);

/// The tests in networks that take as long as all others.
pub(super) const LONGEST: Selection = ("splitter-agent", Some("it"));

/// Programs that measure what networks carry, and take it amiss when too little is left for that.
pub(super) const MEASURING: [Selection; 8] = [
    ("lab/bond", None),
    ("lab/demo", None),
    ("lab/fabric", None),
    ("lab/live", None),
    ("lab/msgbench", None),
    ("lab/reproduction", Some("splitter")),
    ("lab/testbed", None),
    ("lab/twin", None),
];

/// Programs that compute for seconds and wait for nothing. One that is missing here runs among those in
/// networks, and takes processors from them. None touches a network: one that waits for a processor would keep
/// others waiting for the kernel's lock.
pub(super) const COMPUTING: [Selection; 11] = [
    ("cloudburst/crates/code", None),
    ("cloudburst/crates/congestion", None),
    ("cloudburst/crates/proto", None),
    ("crates/splitter-policy", None),
    ("lab/congestion", None),
    ("lab/hostile", None),
    ("lab/reproduction", Some("binary")),
    ("lab/reproduction", Some("reproduction")),
    ("lab/rules", None),
    ("netsim", None),
    ("splitter-agent/crates/advise", None),
];

/// Programs of these that come first, for each ends with one test of minutes by itself.
pub(super) const COMPUTING_LONG: [Selection; 1] = [("cloudburst/crates/proto", None)];

/// Programs that compute at a time. With two, a machine of two processors was late for tests of networks.
pub(super) const COMPUTING_AT_A_TIME: usize = 1;

/// Programs whose tests make networks. What fails in one of these, or in one that measures them, runs once more.
pub(super) const IN_NETWORKS: [Selection; 4] = [
    LONGEST,
    ("cloudburst", Some("it")),
    ("cloudburst/crates/cli", Some("it")),
    ("lab/scale", None),
];

/// The rules of the workspace, which fail for simple reasons and need little: a step of their own.
pub(super) const RULES: Selection = ("lab/rules", Some("rules"));

/// Programs that run one after the other, beside other lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Longest,
    Waiting,
    Computing,
    Measuring,
}

/// Tells if a program is one of these.
pub(super) fn is_in(selections: &[Selection], program: &Program) -> bool {
    selections.iter().any(|(package, target)| {
        *package == program.package && target.is_none_or(|it| it == program.target)
    })
}

impl Lane {
    pub(super) fn of(program: &Program) -> Self {
        if is_in(&[LONGEST], program) {
            Self::Longest
        } else if is_in(&COMPUTING, program) {
            Self::Computing
        } else if is_in(&MEASURING, program) {
            Self::Measuring
        } else {
            Self::Waiting
        }
    }

    /// Tests at a time.
    pub(super) fn threads(self) -> usize {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        match self {
            // No time is claimed of these, and they wait for the more part.
            Self::Longest => 2 * processors,
            Self::Measuring => most_threads(),
            Self::Waiting | Self::Computing => processors.max(2),
        }
    }
}

/// Half as many tests again as processors.
pub(super) fn most_threads() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    processors.saturating_mul(3).div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_package_and_target() {
        let lane = |package: &str, target: &str| Lane::of(&Program::named(package, target));
        assert_eq!(lane("splitter-agent", "it"), Lane::Longest);
        assert_eq!(lane("splitter-agent", "splitter"), Lane::Waiting);
        assert_eq!(lane("netsim", "it"), Lane::Computing);
        assert_eq!(lane("lab/reproduction", "binary"), Lane::Computing);
        assert_eq!(lane("lab/reproduction", "splitter"), Lane::Measuring);
    }

    #[test]
    fn packages_that_are_named_exist() {
        let root = crate::project::root().unwrap();
        let packages = COMPUTING.iter().chain(&COMPUTING_LONG).chain(&MEASURING);
        let packages = packages.chain(&IN_NETWORKS).chain([&RULES]);
        for (package, _) in packages {
            assert!(root.join(package).join("Cargo.toml").exists(), "{package}");
        }
    }
}
