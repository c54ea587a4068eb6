//! Thresholds of remote sites: the prefixes that lie there, and what the programs make of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Map, MapData, MapError};
use ipnet::IpNet;
use splitter_policy::config::PolicyConfig;
use splitter_policy::sites::SiteKey;
use splitter_policy::thresholds::{ThresholdIndex, Thresholds};

use super::error::{map_errno, map_error, typed};
use super::names::SITES;
use super::{Dataplane, KernelError, Pins};

/// The threshold of what lies in each prefix; the longest prefix decides. Empty where all flows have the
/// same.
pub type PrefixThresholds = BTreeMap<IpNet, u64>;

/// The trie that the programs look destinations up in.
pub(super) struct SiteMap(LpmTrie<MapData, [u32; 5], u32>);

impl SiteMap {
    pub(super) fn open(pins: &Pins) -> Result<Self, KernelError> {
        let data = MapData::from_pin(pins.map(SITES)).map_err(|source| KernelError::Map {
            name: SITES,
            source,
        })?;
        Ok(Self(typed(SITES, LpmTrie::try_from(Map::LpmTrie(data)))?))
    }

    /// The index of the threshold of each prefix.
    fn read(&self) -> Result<BTreeMap<IpNet, ThresholdIndex>, KernelError> {
        let entries = self.0.iter().map(|entry| {
            let (key, index) = entry.map_err(map_error(SITES))?;
            Ok(net_of(&key).map(|net| (net, ThresholdIndex::numbered(index.into()))))
        });
        let entries = entries.filter_map(Result::transpose);
        entries.collect()
    }

    /// Has the programs look up these prefixes and no others.
    fn write(&mut self, wanted: &BTreeMap<IpNet, ThresholdIndex>) -> Result<(), KernelError> {
        let found = self.read()?;
        for (net, index) in wanted {
            if found.get(net) != Some(index) {
                let number = u32::try_from(index.number()).unwrap_or_default();
                let inserted = self.0.insert(&key_of(net), number, 0);
                inserted.map_err(map_error(SITES))?;
            }
        }
        for net in found.keys().filter(|it| !wanted.contains_key(it)) {
            let removed = self.0.remove(&key_of(net));
            removed.or_else(unless_gone).map_err(map_error(SITES))?;
        }
        Ok(())
    }
}

impl Dataplane {
    /// Returns the thresholds of prefixes that the programs go by.
    ///
    /// # Errors
    /// When the maps cannot be read.
    pub fn prefix_thresholds(&self) -> Result<PrefixThresholds, KernelError> {
        let thresholds = self.policy()?.thresholds;
        if thresholds.are_uniform() {
            return Ok(PrefixThresholds::new());
        }
        let found = self.sites.read()?.into_iter();
        Ok(found
            .map(|(net, index)| (net, threshold_at(&thresholds, index)))
            .collect())
    }

    /// Returns the threshold of flows to an address.
    ///
    /// # Errors
    /// When the maps cannot be read.
    pub fn threshold_of(&self, destination: IpAddr) -> Result<u64, KernelError> {
        let thresholds = self.policy()?.thresholds;
        if thresholds.are_uniform() {
            return Ok(thresholds.common());
        }
        // The trie finds the longest of its prefixes, also for us.
        let index = match self.sites.0.get(&key_of(&destination.into()), 0) {
            Ok(number) => ThresholdIndex::numbered(number.into()),
            Err(MapError::KeyNotFound) => ThresholdIndex::UNKNOWN,
            Err(error) => return Err(map_error(SITES)(error)),
        };
        Ok(threshold_at(&thresholds, index))
    }

    /// Changes the settings, and the thresholds of prefixes to those that they were made for. Flows
    /// keep what is known of them; none is held against the threshold of another site meanwhile.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn set_policy_by_prefix(
        &mut self,
        policy: PolicyConfig,
        prefixes: &PrefixThresholds,
    ) -> Result<(), KernelError> {
        let before = self.policy()?.thresholds;
        if policy.thresholds == before && before.are_uniform() {
            return self.set_policy(policy);
        }
        self.set_policy(PolicyConfig {
            thresholds: policy.thresholds.while_following(&before),
            ..policy
        })?;
        let indices = match policy.thresholds.are_uniform() {
            true => BTreeMap::new(),
            false => prefixes
                .iter()
                .map(|(net, threshold)| (*net, policy.thresholds.index_of(*threshold)))
                .collect(),
        };
        self.sites.write(&indices)?;
        self.set_policy(policy)
    }
}

fn threshold_at(thresholds: &Thresholds, index: ThresholdIndex) -> u64 {
    match index.is_unknown() {
        true => thresholds.common(),
        false => thresholds.at(index),
    }
}

fn key_of(net: &IpNet) -> Key<[u32; 5]> {
    let SiteKey { words, bits } = SiteKey::of_prefix(net.network(), net.prefix_len());
    Key::new(bits, words)
}

fn net_of(key: &Key<[u32; 5]>) -> Option<IpNet> {
    let key = SiteKey {
        words: key.data(),
        bits: key.prefix_len(),
    };
    let (address, length) = key.prefix()?;
    IpNet::new(address, length).ok()
}

fn unless_gone(error: MapError) -> Result<(), MapError> {
    match map_errno(&error) {
        Some(libc::ENOENT) => Ok(()),
        _ => Err(error),
    }
}
