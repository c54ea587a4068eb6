//! The end of a role, in the order that leaves no ACK as it was written.
//!
//! What this leaf has written other leaves restore, and what they have written this one: a leaf ceases to
//! write first, and restores on until nothing comes any more. That is seen, not known: a leaf that other
//! leaves still write to is not taken down.

use std::time::{Duration, Instant};

use splitter_config::{FabricConfig, FabricRole};
use splitter_datapath::{FabricDataplane, KernelError};
use splitter_policy::fabric::FabricStep;
use tokio::time::sleep;

use super::FabricError;

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

/// Takes a role back, also what an agent that was killed has left. A leaf ceases to write, and goes on
/// restoring until nothing has come to be restored for 2 s, or as long as all queues on the way can hold it.
///
/// # Errors
/// [`FabricError::StillWritten`] of a leaf that other leaves still write to after four times as long, which
/// restores on then; and when something cannot be detached or removed.
pub async fn take_down(config: &FabricConfig, ending: Ending) -> Result<(), FabricError> {
    let (bpffs, pins) = (&config.bpffs, config.pin_dir());
    if ending == Ending::Restored
        && let Some(plane) = FabricDataplane::open(bpffs, &pins)
        && plane.role() == FabricRole::Leaf
    {
        FabricDataplane::cease(bpffs, &pins, FabricRole::Leaf)?;
        restore_the_rest(&plane, quiet_of(config)).await?;
    }
    Ok(FabricDataplane::down(bpffs, &pins)?)
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
async fn restore_the_rest(plane: &FabricDataplane, quiet: Duration) -> Result<(), FabricError> {
    let begin = Instant::now();
    let first = restored(plane)?;
    let (mut last, mut since) = (first, begin);
    while since.elapsed() < quiet {
        if begin.elapsed() > quiet * PATIENCE {
            return Err(FabricError::StillWritten {
                acks: last - first,
                seconds: begin.elapsed().as_secs_f64(),
            });
        }
        sleep(LOOK_INTERVAL).await;
        let now = restored(plane)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}

fn restored(plane: &FabricDataplane) -> Result<u64, KernelError> {
    let counters = plane.counters()?;
    let steps = [FabricStep::Read, FabricStep::Restored, FabricStep::Unread];
    Ok(steps.into_iter().map(|it| counters.done(it)).sum())
}

/// A queue for each router holds an ACK for `queue_ms` at most.
fn quiet_of(config: &FabricConfig) -> Duration {
    QUIET.max(config.fabric.queue * config.fabric.hops)
}
