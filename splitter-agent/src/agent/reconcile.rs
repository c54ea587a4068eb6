//! Keeping everything in place, as far as it can be.

use splitter_instance::{InstanceError, Owner};
use splitter_netlink::{InterfaceName, list_names};
use tracing::{Instrument as _, info_span};

use super::Agent;

impl Agent {
    /// Restores what went missing: an interface that was deleted and made again, a rule that
    /// somebody removed. Returns the interfaces of the site that are not there, which are attached
    /// once they are.
    ///
    /// # Errors
    /// When something cannot be restored at present.
    pub async fn reconcile(&mut self) -> Result<&[InterfaceName], InstanceError> {
        let plan = match self.instance.plan().await {
            Ok(plan) => plan,
            Err(error) => {
                self.report_attached().await;
                return Err(error);
            }
        };
        let unshaped = std::mem::replace(&mut self.unshaped, plan.shaping.absent.clone());
        let is_there = |it: &InterfaceName| !plan.shaping.absent.contains(it);
        let has_appeared = self.note_absent(&plan.absent) || unshaped.iter().any(is_there);
        if plan.is_unchanged() {
            self.last_plan.clear();
            self.report_attached().await;
            return Ok(&self.absent);
        }
        // What was tried before without success is not reported again.
        let steps = plan.to_string();
        if steps != self.last_plan && !has_appeared {
            tracing::warn!(
                event = "reconciling",
                "something was changed behind our back; putting it back:\n{steps}"
            );
        }
        self.last_plan = steps;
        let up = self.instance.up(&self.lock, Owner::Run);
        match up.instrument(info_span!("reconcile")).await {
            Ok(up) => {
                self.monitor.replace(up.dataplane)?;
                self.monitor.count_reconciliation();
                self.report(&up.attached);
                self.last_plan.clear();
                Ok(&self.absent)
            }
            Err(error) => {
                self.report_attached().await;
                Err(error)
            }
        }
    }

    /// Returns true where no interface of the site was there lately, so that nothing is split.
    pub fn splits_nowhere(&self) -> bool {
        let lan = &self.instance.config().lan;
        lan.iter().all(|it| self.absent.contains(it))
    }

    /// Tells which interfaces of the site have gone and come since the last time. True if one has come.
    fn note_absent(&mut self, absent: &[InterfaceName]) -> bool {
        let before = std::mem::replace(&mut self.absent, absent.to_vec());
        let lan = &self.instance.config().lan;
        for gone in absent.iter().filter(|it| !before.contains(it)) {
            tracing::warn!(
                event = "interface_absent",
                interface = %gone,
                "there is no interface {gone}: nothing is split there until it appears"
            );
        }
        let come: Vec<_> = before
            .into_iter()
            .filter(|it| lan.contains(it) && !absent.contains(it))
            .collect();
        if !come.is_empty() {
            let names = list_names(&come);
            tracing::info!(event = "interface_appeared", "there is {names} now");
        }
        !come.is_empty()
    }
}
