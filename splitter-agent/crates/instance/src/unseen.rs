//! Instances whose states are not to be seen from here, though they are in this network namespace: a
//! container, or another mount namespace, has directories and a BPF file system of its own. What they have
//! put into the kernel tells of them: a rule of ours for an interface that has a program of ours.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use splitter_config::Config;
use splitter_datapath::{
    Dataplane, ForeignProgram, Pins, TcSide, foreign_tc_programs, is_splitting,
};
use splitter_netlink::{Interface, Interfaces, Netlink, NetlinkError, list_names};
use splitter_steering::routes::{Footprint, Rule, our_rules};

use crate::other_instances::directories;
use crate::{Instance, InstanceError, State};

impl Instance {
    /// Refuses the configuration where such an instance has its tables or rule priorities. To be asked
    /// while this one has no programs.
    pub(crate) async fn check_for_unseen(
        &self,
        interfaces: &Interfaces,
    ) -> Result<(), InstanceError> {
        let footprint = Footprint::of(self.config());
        let known = programs_of(&directories(self.config(), false)?, self.config());
        // Who may not look at programs is left with those that every user sees.
        let is_live = |it: &Interface| is_live(it, &known).unwrap_or(false);
        let rules = live_rules(&self.netlink, interfaces, is_live).await?;
        let mut shared = rules.iter().filter_map(|it| footprint.shared_with_rule(it));
        match shared.next() {
            Some(shared) => Err(InstanceError::UnseenInstance {
                interfaces: names(&rules),
                shared,
            }),
            None => Ok(()),
        }
    }
}

/// The interfaces to which instances that are none of these programs' are attached, or may be.
pub(crate) async fn interfaces_of_others(
    netlink: &Netlink,
    known: &BTreeSet<u32>,
) -> Result<Option<String>, NetlinkError> {
    let interfaces = netlink.interfaces().await?;
    // What cannot be told may be.
    let is_live = |it: &Interface| is_live(it, known).unwrap_or(true);
    let rules = live_rules(netlink, &interfaces, is_live).await?;
    Ok((!rules.is_empty()).then(|| names(&rules)))
}

/// The numbers of the kernel's programs at these pins.
pub(crate) fn programs_at(pins: &Pins) -> Vec<u32> {
    match pins.exist() {
        true => Dataplane::program_ids(pins).unwrap_or_default(),
        false => Vec::new(),
    }
}

/// Those of the instances with these states, of that of a configuration, and of all beside it.
fn programs_of(directories: &[PathBuf], config: &Config) -> BTreeSet<u32> {
    let own = config.pin_dir();
    let beside = own.parent().and_then(|it| std::fs::read_dir(it).ok());
    let beside = beside.into_iter().flatten().flatten();
    let beside = beside.map(|entry| Pins::new(&config.bpffs, &entry.path()));
    let noted = directories.iter().filter_map(|it| noted_pins(it));
    let pins = beside.chain(noted);
    pins.flat_map(|it| programs_at(&it)).collect()
}

fn noted_pins(directory: &Path) -> Option<Pins> {
    let config = State::read(directory).ok()??.config_in_force()?;
    Some(Pins::new(&config.bpffs, &config.pin_dir()))
}

/// The rules of ours for interfaces of which that is so.
async fn live_rules(
    netlink: &Netlink,
    interfaces: &Interfaces,
    is_live: impl Fn(&Interface) -> bool,
) -> Result<Vec<Rule>, NetlinkError> {
    let mut rules = our_rules(netlink).await?;
    let selected: BTreeSet<_> = rules.iter().map(|it| it.interface.clone()).collect();
    let live: BTreeSet<_> = selected
        .into_iter()
        .filter(|name| interfaces.named(name).is_ok_and(&is_live))
        .collect();
    rules.retain(|rule| live.contains(&rule.interface));
    Ok(rules)
}

/// Whether a program that may be one of ours, and is none of those known, sees what comes in there.
fn is_live(interface: &Interface, known: &BTreeSet<u32>) -> io::Result<bool> {
    let is_ours = |name: Option<&str>| name.is_none_or(is_splitting);
    if let Some(id) = interface.xdp.map(|it| it.program_id)
        && !known.contains(&id)
        && is_ours(ForeignProgram::of_id(id).name.as_deref())
    {
        return Ok(true);
    }
    let known: Vec<_> = known.iter().copied().collect();
    let (name, index) = (interface.name.as_str(), interface.index);
    let others = foreign_tc_programs(name, index, TcSide::Ingress, &known)?;
    Ok(others.iter().any(|it| is_ours(it.name.as_deref())))
}

fn names(rules: &[Rule]) -> String {
    let names: BTreeSet<_> = rules.iter().map(|it| it.interface.clone()).collect();
    list_names(&names.into_iter().collect::<Vec<_>>())
}
