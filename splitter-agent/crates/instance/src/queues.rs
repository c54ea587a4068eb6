//! Whether the kernel programs see the queues in front of shared tunnels.

use std::sync::atomic::Ordering;

use splitter_datapath::{Dataplane, KernelError, QueueId, UnseenQueues, locate_queues};
use splitter_netlink::Interfaces;
use splitter_policy::queue_search::ShortQueues;
use splitter_steering::shaping::SHORT_QUEUE_HANDLE;
use tokio::sync::oneshot;

use crate::{Instance, Plan};

impl Instance {
    /// Has the programs look into no queue that is about to go.
    pub(crate) fn forget_queues(
        &self,
        dataplane: &mut Dataplane,
        plan: &Plan,
    ) -> Result<(), KernelError> {
        if plan.shaping.is_in_place() {
            return Ok(());
        }
        dataplane.set_short_queues(ShortQueues::default())
    }

    /// Shows the programs the queues in front of shared tunnels, once they are there. Where that
    /// cannot be they go by their model of them, which this process says once.
    pub(crate) async fn see_queues(&self, dataplane: &mut Dataplane, interfaces: &Interfaces) {
        let Some(queues) = self.short_queues(interfaces) else {
            return;
        };
        match see(dataplane, queues).await {
            Ok(()) => tracing::debug!("hand-overs wait for the queues in front of the tunnels"),
            Err(_) if self.is_blind.swap(true, Ordering::Relaxed) => {}
            Err(error) => tracing::warn!(
                event = "queues_unseen",
                %error,
                "the programs cannot see the queues in front of the tunnels and go by a model of \
                 them: on a virtual machine whose host takes processors away a flow may overtake \
                 itself when it is handed over (`handover.drain_margin_us` helps)"
            ),
        }
    }

    /// The queue of the short class of either tunnel, where this instance shapes both.
    fn short_queues(&self, interfaces: &Interfaces) -> Option<[QueueId; 2]> {
        if !self.config.is_shared() || self.config.shadow {
            return None;
        }
        let queue = |device| {
            let device = interfaces.named(device).ok()?.index;
            let handle = SHORT_QUEUE_HANDLE;
            Some(QueueId { device, handle })
        };
        let short = self.config.short.only()?;
        let long = self.config.long.only()?;
        Some([queue(&short.device)?, queue(&long.device)?])
    }
}

/// Looks for the queues unless the programs know them.
async fn see(dataplane: &mut Dataplane, queues: [QueueId; 2]) -> Result<(), UnseenQueues> {
    let known = dataplane.short_queues()?.ok_or(UnseenQueues::Locked)?;
    if known.devices == queues.map(|it| it.device) && !known.backlogs.contains(&0) {
        return Ok(());
    }
    dataplane.set_short_queues(ShortQueues::default())?;
    let (report, found) = oneshot::channel();
    // A thread of its own: this one answers meanwhile, and one of a pool would live on with
    // capabilities that this process gives up.
    std::thread::Builder::new()
        .name("queues".to_owned())
        .spawn(move || report.send(locate_queues(queues)))
        .map_err(UnseenQueues::Thread)?;
    let found = found.await.map_err(|_| UnseenQueues::Ended)??;
    Ok(dataplane.set_short_queues(found)?)
}
