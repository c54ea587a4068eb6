//! Taking an instance down.

use splitter_config::SteeringMode;
use splitter_control::control_socket;
use splitter_datapath::{Dataplane, program_kind};
use splitter_netlink::NetlinkError;
use splitter_steering::routes;
use splitter_steering::routes::{Footprint, Item};
use splitter_steering::shaping;

use crate::files::remove_if_there;
use crate::{Instance, InstanceError, Lock, State, health_report, other_instances};

impl Instance {
    /// Takes the instance down and restores what it found, also after a crash.
    ///
    /// Returns in words what was removed; nothing when it was not up.
    ///
    /// # Errors
    /// When something cannot be removed; the rest is by then.
    pub async fn down(&self, _lock: &Lock) -> Result<Vec<String>, InstanceError> {
        let directory = self.config.instance_dir();
        let (footprints, original_qdiscs) = match State::read(&directory)? {
            Some(state) => {
                let footprints: Vec<_> = state.footprints().into_iter().cloned().collect();
                (footprints, state.original_qdiscs)
            }
            None => {
                other_instances::check(&self.config)?;
                let originals = shaping::SavedQdisc::defaults(&self.config);
                (vec![Footprint::of(&self.config)], originals)
            }
        };
        let routes = self.remove_routes(&footprints).await;
        let steering = self.pins.pinned().unwrap_or(SteeringMode::Dscp);
        let hook = program_kind(steering);
        let linked = self.pins.linked_interfaces().unwrap_or_default();
        // After a crash there may be pins without a program that can be opened.
        let program_id = Dataplane::pinned_program_id(&self.pins).ok();
        let mut removed: Vec<String> = linked
            .iter()
            .map(|interface| format!("{hook} on {interface}"))
            .collect();
        if self.pins.exist() {
            removed.push(format!(
                "programs and maps in {}",
                self.pins.root().display()
            ));
        }
        self.pins.remove()?;
        if let Some(program_id) = program_id.filter(|_| steering != SteeringMode::Mark) {
            self.wait_until_detached(&linked, program_id).await?;
        }
        // After the marks, so that nothing is marked for classes that are not there.
        let shaping = shaping::restore_all(&self.netlink, &original_qdiscs).await;
        removed.extend(routes?.iter().map(ToString::to_string));
        removed.extend(shaping?);
        remove_if_there(&health_report(&directory))?;
        State::remove(&directory)?;
        // One that a killed agent has left; a running one would hold the lock.
        let _ = std::fs::remove_file(control_socket(&directory));
        Ok(removed)
    }

    async fn remove_routes(&self, footprints: &[Footprint]) -> Result<Vec<Item>, NetlinkError> {
        let mut removed = Vec::new();
        for footprint in footprints {
            removed.extend(routes::remove_all(&self.netlink, footprint).await?);
        }
        Ok(removed)
    }
}
