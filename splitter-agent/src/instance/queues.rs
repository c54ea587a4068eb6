//! Whether the kernel programs see the queues in front of shared tunnels.

use splitter_datapath::{Dataplane, QueueId};
use splitter_netlink::Interfaces;
use splitter_steering::shaping::SHORT_QUEUE_HANDLE;

use super::plan::ProgramAction;
use super::{Instance, Plan};

impl Instance {
    /// Shows the programs the queues in front of shared tunnels, once they are there. Where that
    /// cannot be they go by their model of them, which is said where something has changed.
    pub(super) fn see_queues(
        &self,
        dataplane: &mut Dataplane,
        plan: &Plan,
        interfaces: &Interfaces,
    ) {
        let Some(queues) = self.short_queues(interfaces) else {
            return;
        };
        let is_new = plan.program != ProgramAction::Keep || !plan.shaping.is_in_place();
        if !is_new && dataplane.sees_queues().unwrap_or(false) {
            return;
        }
        match dataplane.see_queues(queues) {
            Ok(()) => tracing::debug!("hand-overs wait for the queues in front of the tunnels"),
            Err(error) if is_new => tracing::warn!(
                %error,
                "the programs cannot see the queues in front of the tunnels and go by a model of \
                 them: on a virtual machine whose host takes processors away a flow may overtake \
                 itself when it is handed over (`handover.drain_margin_us` helps)"
            ),
            Err(error) => tracing::debug!(%error, "the queues are not seen yet"),
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
