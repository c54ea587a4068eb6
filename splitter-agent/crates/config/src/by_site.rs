//! A configuration as seen from one remote site.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use ipnet::IpNet;
use splitter_netlink::{Family, InterfaceName};
use splitter_policy::flow::TunnelRole;

use crate::{Config, Site, SiteName};

impl Config {
    /// Lists what the configuration would be for each remote site alone, in the order of the file.
    #[must_use]
    pub fn by_site(&self) -> Vec<Cow<'_, Self>> {
        if self.sites.is_empty() {
            return vec![Cow::Borrowed(self)];
        }
        let base = self.without_sites();
        let sites = self.sites.iter();
        sites.map(|site| Cow::Owned(base.with_site(site))).collect()
    }

    /// Returns what the configuration would be for the site of that name alone.
    #[must_use]
    pub fn of_site(&self, name: &SiteName) -> Option<Cow<'_, Self>> {
        if self.sites.is_empty() {
            return (self.site_name() == *name).then_some(Cow::Borrowed(self));
        }
        let site = self.sites.iter().find(|it| it.name == *name)?;
        Some(Cow::Owned(self.without_sites().with_site(site)))
    }

    /// Lists the names of the sites, in the order of the file.
    #[must_use]
    pub fn site_names(&self) -> Vec<SiteName> {
        match &self.sites[..] {
            [] => vec![SiteName::default()],
            sites => sites.iter().map(|it| it.name.clone()).collect(),
        }
    }

    /// Returns the name of the only site, or of the first of several.
    #[must_use]
    pub fn site_name(&self) -> SiteName {
        let first = self.sites.first().map(|it| it.name.clone());
        first.unwrap_or_default()
    }

    /// Returns the name of the site that a device leads to, where sites are listed.
    #[must_use]
    pub fn site_behind(&self, device: &InterfaceName) -> Option<&SiteName> {
        let leads = |site: &&Site| {
            let mut tunnels = site.short.iter().chain(&site.long);
            tunnels.any(|it| it.device == *device)
        };
        Some(&self.sites.iter().find(leads)?.name)
    }

    /// Tells whether there is more than one remote site.
    #[must_use]
    pub fn has_several_sites(&self) -> bool {
        self.sites.len() > 1
    }

    /// Lists the files of the keys that tunnels with a peer go by, each once.
    #[must_use]
    pub fn key_files(&self) -> BTreeSet<&Path> {
        let own = self.sites.iter().map(|it| it.health.key_file.as_deref());
        let common = self.health.key_file.as_deref();
        own.chain([common]).flatten().collect()
    }

    /// Tells whether one of several sites has a threshold of its own.
    #[must_use]
    pub fn have_sites_thresholds(&self) -> bool {
        self.has_several_sites() && self.sites.iter().any(|it| it.threshold.is_some())
    }

    /// Returns the prefixes behind the tunnels, of all sites; `None` for everything, or where one of the sites
    /// states none.
    #[must_use]
    pub fn destinations(&self) -> Option<Cow<'_, [IpNet]>> {
        if self.sites.is_empty() {
            return self.routes.destinations.as_deref().map(Cow::Borrowed);
        }
        let mut all = Vec::new();
        for site in &self.sites {
            all.extend_from_slice(site.destinations.as_deref()?);
        }
        Some(all.into())
    }

    /// Lists the address families that are split: those that all tunnels of a site carry.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        let is_carried = |family: &Family| self.by_site().iter().any(|site| site.carry(*family));
        let carried: Vec<_> = [Family::V4, Family::V6]
            .into_iter()
            .filter(is_carried)
            .collect();
        carried.into_iter()
    }

    fn carry(&self, family: Family) -> bool {
        self.short.carry(family) && self.long.carry(family)
    }

    fn without_sites(&self) -> Self {
        let mut base = self.clone();
        base.sites.clear();
        base.short.set_of_sites(Vec::new());
        base.long.set_of_sites(Vec::new());
        base
    }

    fn with_site(&self, site: &Site) -> Self {
        let mut alone = self.clone();
        alone
            .short
            .set_of_sites(site.tunnels_of(TunnelRole::Short).to_vec());
        alone
            .long
            .set_of_sites(site.tunnels_of(TunnelRole::Long).to_vec());
        alone.health = site.health.over(&self.health);
        alone.sites = vec![site.clone()];
        alone
    }
}
