//! The report of a monitor on its site.

use splitter_policy::flow::Class;
use splitter_steering::{Egress, Placement};

use super::announce::{class_report, degraded, take_jitter, tunnel_report};
use super::health_monitor::HealthMonitor;

impl HealthMonitor {
    /// Why the site is not ready.
    fn unready(&self, placement: &Placement, problem: Option<&str>) -> Option<String> {
        let is_main = placement.short == Egress::Main || placement.long == Egress::Main;
        match problem {
            _ if self.config.shadow => None,
            None if is_main => Some("no tunnel is alive; packets follow the main table".to_owned()),
            problem => problem.map(str::to_owned),
        }
    }

    pub(super) fn report_all(
        &mut self,
        placement: &Placement,
        problem: Option<&str>,
        is_news: bool,
    ) {
        let now = self.now();
        let jitter = take_jitter(&mut self.monitored, placement);
        let weighed = self.monitored.iter().zip(self.config.tunnels());
        let tunnels = weighed.map(|(monitored, (role, tunnel))| {
            let is_used = placement.uses(role, &tunnel.device) && !self.config.shadow;
            let weight = tunnel.weight;
            tunnel_report(&self.site, monitored, weight, is_used, self.presence, now)
        });
        let tunnels = tunnels.collect();
        let unready = self.unready(placement, problem);
        let degraded = match self.config.shadow {
            true => None,
            false => degraded(&self.monitored, placement),
        };
        // Of the machine, whichever site's monitor notices first.
        let (overload, overloads) = (self.overload.recent(now), self.overload.counts());
        self.report.change_common(|report| {
            report.overload = overload;
            report.overloads = overloads;
        });
        self.report.change(&self.site, is_news, |report| {
            report.tunnels = tunnels;
            report.problem = problem.map(str::to_owned);
            report.unready = unready;
            report.degraded = degraded;
            if report.classes.is_empty() {
                report.classes = Class::ALL.map(|it| class_report(&self.site, it)).into();
            }
            let each = Class::ALL.into_iter().zip(&jitter);
            for ((class, jitter), reported) in each.zip(&mut report.classes) {
                reported.tunnel = placement.of(class);
                reported.jitter.add(jitter);
            }
        });
    }
}
