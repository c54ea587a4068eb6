//! What waits in front of tunnels, read from the kernel when somebody scrapes.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use splitter_netlink::{RootQueue, root_queues};

use super::{SplitterCollector, labels_of};

impl SplitterCollector {
    pub(super) fn encode_queues(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let queues = root_queues().unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot read the queues of tunnels");
            Vec::new()
        });
        let tunnels = self.egress.snapshot();
        let rows: Vec<_> = tunnels
            .iter()
            .filter_map(|tunnel| {
                let queue = queues.iter().find(|it| it.interface == tunnel.index)?;
                Some((labels_of(tunnel), *queue))
            })
            .collect();
        type Of = fn(&RootQueue) -> u64;
        let families = &self.families;
        let counters = [
            (&families.queue_sent, (|it| it.sent_bytes) as Of),
            (&families.queue_drops, |it| it.drops.into()),
            (&families.queue_ecn_marks, |it| it.ecn_marks),
        ];
        for (family, of) in counters {
            let mut family = family.encode(encoder)?;
            for (labels, queue) in &rows {
                family
                    .encode_family(labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&of(queue), None)?;
            }
        }
        let mut backlog = families.queue_backlog.encode(encoder)?;
        for (labels, queue) in &rows {
            backlog
                .encode_family(labels)?
                .encode_gauge(&u64::from(queue.backlog_bytes))?;
        }
        Ok(())
    }
}
