//! Taking down whatever instances of ours have left, without their configurations.

use std::path::{Path, PathBuf};

use serde::Serialize;
use splitter_config::Config;
use splitter_datapath::Pins;
use splitter_netlink::{InterfaceName, Netlink};
use splitter_steering::routes::{self, Footprint};
use splitter_steering::shaping;

use crate::down::{Remains, clear};
use crate::found::{FoundInstance, Search};
use crate::privileges::check_capabilities;
use crate::state::current_network;
use crate::unseen::{interfaces_of_others, programs_at};
use crate::{InstanceError, Lock};

/// Reports what [`down_all`] came to.
#[derive(Debug, Default, Serialize)]
pub struct Cleared {
    /// What was removed, in words.
    pub removed: Vec<String>,
    /// Instances that were left as they are.
    pub kept: Vec<Kept>,
}

/// An instance that was left as it is.
#[derive(Debug, Serialize)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Why, and what to do.
    pub why: String,
    /// Whether it stands in the way of an empty machine: an agent runs it, or it could not be taken down.
    pub is_running: bool,
}

/// Whose things are not to be touched.
#[derive(Default)]
struct Claims {
    footprints: Vec<Footprint>,
    devices: Vec<InterfaceName>,
    /// An instance is left alone of which nobody knows what it has.
    are_incomplete: bool,
}

/// Takes down every instance that no agent runs, by what it has noted, and then removes what else has
/// our marks in this network namespace: rules and routes by their protocol number, and shaping by its
/// numbers. What agents that run have there stays, and so does everything that is not ours.
///
/// # Errors
/// When something cannot be removed; what was removed before stays so.
pub async fn down_all(search: &Search, file: Option<&Config>) -> Result<Cleared, InstanceError> {
    check_capabilities()?;
    let netlink = Netlink::connect()?;
    let mut cleared = Cleared::default();
    let mut claims = Claims::default();
    let instances = search.instances()?;
    let known = instances.iter().map(|it| remains(it, file).pins);
    let known = known.flat_map(|pins| programs_at(&pins)).collect();
    for instance in instances {
        match held(&instance) {
            Ok(_lock) => {
                let remains = remains(&instance, file);
                cleared.removed.extend(clear(&netlink, &remains).await?);
            }
            Err(Reason::Kept(kept)) => {
                // One elsewhere has nothing here.
                if kept.is_running {
                    claims.add(&instance);
                }
                cleared.kept.push(kept);
            }
            Err(Reason::Failed(error)) => return Err(error),
        }
    }
    if let Some(interfaces) = interfaces_of_others(&netlink, &known).await? {
        claims.are_incomplete = true;
        cleared.kept.push(Kept {
            name: format!("at {interfaces}"),
            why: "its program is attached, and its state is not to be seen from here: run this where \
                  it was brought up, such as in its container, or, if nobody has it any more, detach \
                  its program (`bpftool net show dev INTERFACE`)"
                .to_owned(),
            is_running: true,
        });
    }
    // What an agent has put where cannot be told without its state: then nothing else is touched.
    if !claims.are_incomplete {
        let left = routes::remove_leftovers(&netlink, &claims.footprints).await?;
        cleared.removed.extend(left);
        let left = shaping::remove_leftovers(&netlink, &claims.devices).await?;
        cleared.removed.extend(left);
    }
    Ok(cleared)
}

enum Reason {
    Kept(Kept),
    Failed(InstanceError),
}

/// Takes the instance's lock, or says why it is left alone.
fn held(instance: &FoundInstance) -> Result<Lock, Reason> {
    let name = instance.name();
    let noted = instance.known_state().and_then(|state| state.network);
    if noted.is_some() && noted != current_network() {
        return Err(Reason::Kept(Kept {
            name,
            why: "it is in another network namespace; run this there".to_owned(),
            is_running: false,
        }));
    }
    match Lock::acquire(&instance.directory) {
        Ok(lock) => Ok(lock),
        Err(InstanceError::Running { holder }) => Err(Reason::Kept(Kept {
            name,
            why: format!("{holder} runs it; stop that one first"),
            is_running: true,
        })),
        Err(error) => Err(Reason::Failed(error)),
    }
}

/// What an instance has by its state; where that is damaged or of another version, its pins are where
/// the file has them, or where they are by default.
fn remains(instance: &FoundInstance, file: Option<&Config>) -> Remains {
    let state = instance.known_state();
    let config = state.and_then(|state| state.config_in_force());
    let config = config.as_ref().or(file);
    let bpffs = config.map_or_else(
        || PathBuf::from(Config::DEFAULT_BPFFS),
        |it| it.bpffs.clone(),
    );
    let footprints = state.map(|state| state.footprints().into_iter().cloned().collect());
    Remains {
        pins: Pins::new(&bpffs, &pin_dir(&bpffs, &instance.name())),
        footprints: footprints.unwrap_or_default(),
        original_qdiscs: state
            .map(|state| state.original_qdiscs.clone())
            .unwrap_or_default(),
        directory: instance.directory.clone(),
    }
}

fn pin_dir(bpffs: &Path, name: &str) -> PathBuf {
    bpffs.join("splitter").join(name)
}

impl Claims {
    fn add(&mut self, instance: &FoundInstance) {
        let Some(state) = instance.known_state() else {
            self.are_incomplete = true;
            return;
        };
        self.footprints
            .extend(state.footprints().into_iter().cloned());
        let devices = state.original_qdiscs.iter().map(|it| it.device.clone());
        self.devices.extend(devices);
    }
}
