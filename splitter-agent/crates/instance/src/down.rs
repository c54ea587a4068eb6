//! Taking an instance down.

use std::path::PathBuf;

use splitter_config::SteeringMode;
use splitter_control::control_socket;
use splitter_datapath::{Dataplane, Pins, program_kind};
use splitter_netlink::{Netlink, NetlinkError};
use splitter_steering::routes;
use splitter_steering::routes::{Footprint, Item};
use splitter_steering::shaping::{self, SavedQdisc};

use crate::detach::wait_until_detached;
use crate::files::remove_if_there;
use crate::{Instance, InstanceError, Lock, State, health_report, other_instances, pin_owner};

impl Instance {
    /// Takes the instance down and restores what it found, also after a crash.
    ///
    /// Returns in words what was removed; nothing when it was not up.
    ///
    /// # Errors
    /// When something cannot be removed; the rest is by then.
    pub async fn down(&self, _lock: &Lock) -> Result<Vec<String>, InstanceError> {
        // What is being attached would stay.
        let _changing = self.changing.lock().await;
        let directory = self.config.instance_dir();
        pin_owner::check(&self.pins, &directory)?;
        if !self.pins.exist() {
            let interfaces = self.netlink.interfaces().await?;
            self.check_for_unseen(&interfaces).await?;
        }
        let (footprints, original_qdiscs) = match State::read(&directory)? {
            Some(state) => {
                let footprints: Vec<_> = state.footprints().into_iter().cloned().collect();
                (footprints, state.original_qdiscs)
            }
            None => {
                other_instances::check(&self.config, false)?;
                let originals = SavedQdisc::defaults(&self.config);
                (vec![Footprint::of(&self.config)], originals)
            }
        };
        let remains = Remains {
            directory,
            pins: self.pins.clone(),
            footprints,
            original_qdiscs,
        };
        clear(&self.netlink, &remains).await
    }
}

/// What an instance may have left, and where.
pub(crate) struct Remains {
    /// The directory of its state.
    pub(crate) directory: PathBuf,
    pub(crate) pins: Pins,
    pub(crate) footprints: Vec<Footprint>,
    pub(crate) original_qdiscs: Vec<SavedQdisc>,
}

/// Removes and restores all of it, but for pins that are another instance's by now. The caller holds the instance's lock.
pub(crate) async fn clear(
    netlink: &Netlink,
    remains: &Remains,
) -> Result<Vec<String>, InstanceError> {
    let Remains {
        directory, pins, ..
    } = remains;
    let routes = remove_routes(netlink, &remains.footprints).await;
    let mut removed = match pin_owner::check(pins, directory) {
        Ok(()) => remove_programs(netlink, pins).await?,
        Err(_) => Vec::new(),
    };
    // After the marks, so that nothing is marked for classes that are not there.
    let shaping = shaping::restore_all(netlink, &remains.original_qdiscs).await;
    removed.extend(routes?.iter().map(ToString::to_string));
    removed.extend(shaping?);
    remove_if_there(&health_report(directory))?;
    State::remove(directory)?;
    // One that a killed agent has left; a running one would hold the lock.
    let _ = std::fs::remove_file(control_socket(directory));
    Ok(removed)
}

async fn remove_programs(netlink: &Netlink, pins: &Pins) -> Result<Vec<String>, InstanceError> {
    let steering = pins.pinned().unwrap_or(SteeringMode::Dscp);
    let hook = program_kind(steering);
    let linked = pins.linked_interfaces().unwrap_or_default();
    // After a crash there may be pins without a program that can be opened.
    let program_id = Dataplane::pinned_program_id(pins).ok();
    let mut removed: Vec<String> = linked
        .iter()
        .map(|interface| format!("{hook} on {interface}"))
        .collect();
    let counted = pins.counted_devices().unwrap_or_default();
    removed.extend(
        counted
            .iter()
            .map(|it| format!("count of what leaves by {it}")),
    );
    if pins.exist() {
        removed.push(format!("programs and maps in {}", pins.root().display()));
    }
    pins.remove()?;
    if let Some(program_id) = program_id.filter(|_| steering != SteeringMode::Mark) {
        wait_until_detached(netlink, &linked, program_id).await?;
    }
    Ok(removed)
}

async fn remove_routes(
    netlink: &Netlink,
    footprints: &[Footprint],
) -> Result<Vec<Item>, NetlinkError> {
    let mut removed = Vec::new();
    for footprint in footprints {
        removed.extend(routes::remove_all(netlink, footprint).await?);
    }
    Ok(removed)
}
