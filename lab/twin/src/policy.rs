//! What is predicted and measured: ways to use two uplinks.

use std::path::Path;

use flow_testbed::scheme::{Scheme, SplitterScheme};

use crate::network;

/// A way to use two uplinks, which the simulator and the testbed both have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The kernel's multipath by hash of the 5-tuple.
    Ecmp,
    /// The splitter with a tunnel for each class.
    Dedicated,
    /// The splitter with both classes in both tunnels, short flows first.
    Share,
}

impl Policy {
    /// In the order in which results are shown.
    pub(crate) const ALL: [Self; 3] = [Self::Ecmp, Self::Dedicated, Self::Share];
    /// What runs while the flows are recorded.
    pub(crate) const RECORDED: Self = Self::Dedicated;

    /// The name in results, and of the simulator's scheme.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ecmp => "ecmp",
            Self::Dedicated => "dedicated",
            Self::Share => "share",
        }
    }

    /// The scheme in the testbed; `key` is a file with what both borders' daemons share for probes of the
    /// tunnels. The tunnels' devices have no neighbours that could be asked instead.
    pub(crate) fn scheme(self, splitter: &Path, key: &Path) -> Scheme {
        let mut health = toml::Table::new();
        health.insert("key_file".to_owned(), key.display().to_string().into());
        let mut configuration = toml::Table::new();
        configuration.insert("health".to_owned(), health.into());
        let scheme = SplitterScheme {
            binary: splitter.to_owned(),
            threshold: network::THRESHOLD_PACKETS,
            attach: "native".to_owned(),
            states_rates: true,
            configuration,
        };
        match self {
            Self::Ecmp => Scheme::EcmpFlow,
            Self::Dedicated => Scheme::Splitter(scheme),
            Self::Share => {
                let mut scheme = scheme.sharing(network::SHAPE_PERCENT);
                if let Some(share) = scheme.configuration["share"].as_table_mut() {
                    share.insert("queue_ms".to_owned(), network::queue_ms().into());
                }
                Scheme::Splitter(scheme)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_splitter_has_the_queues_that_are_predicted() {
        let Scheme::Splitter(scheme) = Policy::Share.scheme(Path::new("/x"), Path::new("/key"))
        else {
            panic!("the splitter");
        };
        let share = &scheme.configuration["share"];
        assert_eq!(share["queue_ms"].as_integer(), Some(100));
        assert_eq!(share["shape_percent"].as_integer(), Some(97));
        assert_eq!(scheme.configuration["policy"].as_str(), Some("share"));
        let key = &scheme.configuration["health"]["key_file"];
        assert_eq!(key.as_str(), Some("/key"));
    }
}
