//! Which TCP the hosts speak: that of Linux, or one with a part taken away, to see what the part does.

use clap::ValueEnum;

/// Congestion control of all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Control {
    Cubic,
    Reno,
}

/// Loss recovery of all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Recovery {
    // No documentation, which would have the help take a page: by time, with a probe of the tail, as Linux does it.
    Rack,
    // By selective acknowledgements alone, and by the timeout where these are too few.
    Sack,
}

/// Settings of TCP that all flows of a run have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) control: Control,
    pub(crate) recovery: Recovery,
}

impl Control {
    /// The name, of the kernel and of the simulator.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Reno => "reno",
        }
    }
}

impl Recovery {
    /// The simulator's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rack => "rack",
            Self::Sack => "sack",
        }
    }

    /// Why hosts of a kernel of that release cannot recover so, if they cannot: from Linux 6.17 on what `tcp_recovery` of 0
    /// fell back to is not there any more (commit 1c120191dcec), and RACK stays without its probes.
    pub(crate) fn obstacle(self, release: &str) -> Option<String> {
        let mut numbers = release.split(|it: char| !it.is_ascii_digit());
        let mut number = || numbers.next()?.parse::<u32>().ok();
        let version = (number()?, number()?);
        (self == Self::Sack && version >= (6, 17)).then(|| {
            format!(
                "hosts of Linux {release} cannot recover without RACK, which --recovery sack asks for: kernels up to 6.16 can, and \
                 --predict simulates it"
            )
        })
    }

    /// Sysctls that a host's kernel is given for it; none where it does that by itself.
    pub(crate) fn sysctls(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Rack => &[],
            Self::Sack => &[
                ("net.ipv4.tcp_recovery", "0"),
                ("net.ipv4.tcp_early_retrans", "0"),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_without_rack_is_one_of_older_kernels() {
        for (release, can) in [
            ("6.1.0-37-amd64", true),
            ("6.16.12", true),
            ("6.17.0", false),
            ("6.18.44-fc", false),
            ("7.0-rc1", false),
            ("unknown", true),
        ] {
            let obstacle = Recovery::Sack.obstacle(release);
            assert_eq!(obstacle.is_none(), can, "{release}: {obstacle:?}");
            assert!(obstacle.is_none_or(|it| it.contains(release)));
            assert_eq!(Recovery::Rack.obstacle(release), None);
        }
    }
}
