//! Thresholds of remote sites: from the configuration and what lies where to the kernel programs.

use splitter_config::Config;
use splitter_datapath::PrefixThresholds;
use splitter_policy::config::PolicyConfig;
use splitter_policy::thresholds::Thresholds;
use splitter_steering::routes::Destinations;

use crate::loaded::Loaded;
use crate::{Instance, InstanceError};

impl Instance {
    /// Adds the thresholds of sites to settings that know the common one alone. Those in force stay
    /// as they are numbered while they say the same.
    pub(crate) fn add_thresholds(
        &self,
        policy: &mut PolicyConfig,
        prefixes: &PrefixThresholds,
        loaded: &Loaded,
    ) -> Result<(), InstanceError> {
        let common = policy.thresholds.common();
        let mut present = Thresholds::uniform(common);
        if let Loaded::Current(dataplane) = loaded {
            present = dataplane.policy()?.thresholds;
            if present.common() == common && dataplane.prefix_thresholds()? == *prefixes {
                policy.thresholds = present;
                return Ok(());
            }
        }
        let next = present.followed_by(common, prefixes.values().copied());
        policy.thresholds = next.ok_or(InstanceError::TooManyThresholds)?;
        Ok(())
    }

    /// Has the programs look up what lies at the sites now, where these have thresholds of their own.
    pub(crate) fn follow_thresholds(
        &self,
        destinations: &Destinations,
    ) -> Result<(), InstanceError> {
        if !self.config.have_sites_thresholds() {
            return Ok(());
        }
        let Some(mut dataplane) = self.open()? else {
            return Ok(());
        };
        let before = dataplane.policy()?;
        let prefixes = prefix_thresholds(&self.config, destinations, before.thresholds.common());
        let next = before
            .thresholds
            .followed_by(before.thresholds.common(), prefixes.values().copied());
        let policy = PolicyConfig {
            thresholds: next.ok_or(InstanceError::TooManyThresholds)?,
            ..before
        };
        Ok(dataplane.set_policy_by_prefix(policy, &prefixes)?)
    }
}

/// The threshold of what lies in each prefix; nothing where all have the common one.
pub(crate) fn prefix_thresholds(
    config: &Config,
    destinations: &Destinations,
    common: u64,
) -> PrefixThresholds {
    if !config.have_sites_thresholds() {
        return PrefixThresholds::new();
    }
    let threshold = |site: usize| {
        let own = config.sites.get(site).and_then(|it| it.threshold);
        own.map_or(common, |it| it.get().into())
    };
    let prefixes = destinations.split_by_site();
    let prefixes: PrefixThresholds = prefixes
        .map(|(net, site)| (net.trunc(), threshold(site)))
        .collect();
    match prefixes.values().all(|it| *it == common) {
        true => PrefixThresholds::new(),
        false => prefixes,
    }
}
