//! Larger flow tables for more flows than there is room for, while packets are split.

use std::time::Duration;

use splitter_instance::{InstanceError, Owner};

use super::Agent;

/// After a table could not grow, for want of memory say.
const RETRY_AFTER: Duration = Duration::from_secs(600);

impl Agent {
    /// Has a flow table that is as good as full, as of the last sweep, grow where it may. Flows are
    /// copied, and the programs stay in their place.
    pub async fn grow_tables(&mut self) {
        if self.monitor.uptime() < self.next_growth {
            return;
        }
        let Err(error) = self.try_to_grow().await else {
            return;
        };
        self.next_growth = self.monitor.uptime() + RETRY_AFTER;
        let retry_after_s = RETRY_AFTER.as_secs();
        tracing::warn!(event = "tables_not_grown", %error, retry_after_s, "a flow table is full and cannot grow: the one that is there stays");
    }

    async fn try_to_grow(&mut self) -> Result<(), InstanceError> {
        let dataplane = self.monitor.dataplane();
        let larger = self
            .instance
            .larger_tables(&dataplane, &self.monitor.totals())?;
        let Some(larger) = larger else {
            return Ok(());
        };
        self.instance.grow_tables(Some(larger));
        let grown = self.instance.up(&self.lock, Owner::Run).await;
        // What is loaded by now stays by itself.
        self.instance.grow_tables(None);
        let up = grown?;
        self.monitor.replace(up.dataplane)?;
        self.report_attached().await;
        Ok(())
    }
}
