//! The end of a role, in the order that leaves no ACK as it was written.
//!
//! What this leaf has written other leaves restore, and what they have written this one: a leaf ceases to
//! write first, and restores on until nothing comes any more. That is seen, not known: a leaf that other
//! leaves still write to is not taken down.

use std::time::{Duration, Instant};

use splitter_config::{FabricConfig, FabricRole};
use splitter_datapath::{FabricDataplane, FabricRemains, KernelError};
use tokio::time::sleep;

use super::{FabricError, PinnedRole};
use crate::InstanceError;
use crate::down_all::{Cleared, Kept};
use crate::pin_owner::PinOwner;
use crate::privileges::check_capabilities;

/// Nothing has been restored for so long: an ACK is longer under way than that nowhere but in full queues.
const QUIET: Duration = Duration::from_secs(2);
/// So many times that is waited for.
const PATIENCE: u32 = 4;
/// From one look at the counters to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The way in which a role is taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A leaf restores until nothing comes that was written.
    Restored,
    /// All at once, whatever is under way.
    AtOnce,
}

/// Takes a role back that this process holds, also what an agent that was killed has left. A leaf ceases to write, and
/// goes on restoring until nothing has come to be restored for 2 s, or as long as all queues on the way can hold it.
///
/// # Errors
/// [`FabricError::StillWritten`] of a leaf that other leaves still write to after four times as long, which
/// restores on then; and when something cannot be detached or removed.
pub async fn take_down(role: &PinnedRole, ending: Ending) -> Result<(), FabricError> {
    let remains = role.remains();
    if ending == Ending::Restored && remains.role() == Some(FabricRole::Leaf) {
        remains.cease()?;
        let quiet = QUIET.max(remains.longest_wait()?);
        restore_the_rest(&remains, quiet).await?;
    }
    Ok(FabricDataplane::down(role.bpffs(), role.pins())?)
}

/// Takes down all roles of this network namespace that no agent runs, whichever files they are of, each in the way of
/// [`take_down`].
///
/// # Errors
/// When the caller may not, and when the roles cannot be listed. One that cannot be taken down is kept, with the reason,
/// and those after it are taken down all the same.
pub async fn take_down_all(ending: Ending) -> Result<Cleared, FabricError> {
    check_capabilities().map_err(InstanceError::from)?;
    let mut cleared = Cleared::default();
    for role in PinnedRole::all()? {
        let mut keep = |why: String, is_running| {
            let name = role.name();
            cleared.kept.push(Kept {
                name,
                why,
                is_running,
            });
        };
        // One that begins elsewhere is nobody's for a moment.
        if PinOwner::of(role.pins()).is_none() && !role.is_here() {
            continue;
        }
        if !role.is_here() {
            keep(
                "it is in another network namespace; run this there".to_owned(),
                false,
            );
            continue;
        }
        let lock = match role.hold() {
            Ok(lock) => lock,
            Err(FabricError::Held { holder, .. }) => {
                keep(format!("{holder} runs it; stop that one first"), true);
                continue;
            }
            Err(error) => {
                keep(error.to_string(), true);
                continue;
            }
        };
        match take_down(&role, ending).await {
            Ok(()) => cleared.removed.push(format!(
                "the role {}, pinned in {}",
                role.name(),
                role.pins().display()
            )),
            Err(error @ FabricError::StillWritten { .. }) => keep(error.to_string(), true),
            Err(error) => keep(
                format!("{error}; `--at-once` asks nothing of its programs"),
                true,
            ),
        }
        drop(lock);
    }
    Ok(cleared)
}

/// Ends what the role writes when its agent ends; a leaf restores on, until somebody takes it down.
///
/// # Errors
/// When something cannot be detached or removed.
pub fn cease(config: &FabricConfig) -> Result<(), KernelError> {
    let role = config.fabric.role;
    FabricDataplane::cease(&config.bpffs, &config.pin_dir(), role)?;
    if role == FabricRole::Leaf {
        tracing::info!(
            event = "restores_on",
            "writes no more, and restores what other leaves write until `splitter fabric down`"
        );
    }
    Ok(())
}

/// Waits until no ACK has come for so long that was written.
async fn restore_the_rest(remains: &FabricRemains, quiet: Duration) -> Result<(), FabricError> {
    let begin = Instant::now();
    let first = remains.restored()?;
    let (mut last, mut since) = (first, begin);
    while since.elapsed() < quiet {
        if begin.elapsed() > quiet * PATIENCE {
            return Err(FabricError::StillWritten {
                acks: last - first,
                seconds: begin.elapsed().as_secs_f64(),
            });
        }
        sleep(LOOK_INTERVAL).await;
        let now = remains.restored()?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}
