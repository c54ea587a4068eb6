//! The choice of where the classes of a site start, before anything is put in place: what lives is
//! taken, and what is not there yet is watched.

use splitter_health::{Grade, LinkKind, Start};
use splitter_policy::flow::Class;
use splitter_steering::Placement;

use super::announce::{cause_of, log_awaited, log_taken_over, moved};
use super::choose::{Graded, choose};
use super::health_monitor::HealthMonitor;
use super::monitored_tunnel::MonitoredTunnel;
use super::spec::timing;
use super::switch::announce_move;

impl HealthMonitor {
    /// Where the classes are to be when the instance comes up. `left` is where an earlier agent has
    /// them, or their own tunnels.
    pub(super) fn starting_placement(&mut self, left: &Placement) -> Placement {
        self.left = left.clone();
        for tunnel in &mut self.monitored {
            let link = tunnel.watch.link_state().kind();
            tunnel.start = Start::of(link, is_used(tunnel, left));
        }
        // It routes nothing.
        if self.config.shadow {
            return left.clone();
        }
        let graded = self.monitored.iter().map(|tunnel| Graded {
            role: tunnel.spec.role,
            device: &tunnel.device,
            grade: match tunnel.start {
                Start::Trusted => Grade::Usable,
                Start::Unseen | Start::GivenUp => Grade::Unusable,
            },
        });
        choose(&graded.collect::<Vec<_>>())
    }

    /// Begins to watch, the classes being placed so: as they were left, or as
    /// [`starting_placement`](Self::starting_placement) has chosen.
    pub(super) fn begin(&mut self, placement: &Placement) {
        for index in 0..self.monitored.len() {
            let start = self.monitored[index].start;
            self.watch_from(index, start);
        }
        if !self.left.is_primary() {
            log_taken_over(&self.site, &self.left);
        }
        for class in Class::ALL {
            if let Some(moved) = moved(&self.site, &self.monitored, class, &self.left, placement) {
                announce_move(moved, &self.report);
            }
        }
    }

    /// Watches a tunnel from the start, of which a changed configuration says something else.
    pub(super) fn restart_tunnel(&mut self, index: usize, placement: &Placement) {
        let tunnel = &self.monitored[index];
        let link = tunnel.watch.link_state().kind();
        let start = match is_used(tunnel, placement) {
            // It carries nothing because it could not yet.
            false if tunnel.start == Start::Unseen => Start::Unseen,
            is_used => Start::of(link, is_used),
        };
        self.watch_from(index, start);
    }

    fn watch_from(&mut self, index: usize, start: Start) {
        let now = self.now();
        let timing = timing(&self.config.health);
        let tunnel = &mut self.monitored[index];
        tunnel.start = start;
        tunnel.watch.restart(timing, start, now);
        let (role, by) = (
            tunnel.spec.role.name(),
            self.config.watched_by(&tunnel.spec.tunnel),
        );
        tracing::info!(event = "tunnel_watched", device = %tunnel.device, "watching the {role} tunnel by {by}");
        let link = tunnel.watch.link_state().kind();
        if link != LinkKind::Up {
            tunnel.last_cause = cause_of(link);
            log_awaited(tunnel, link);
        }
    }
}

fn is_used(tunnel: &MonitoredTunnel, placement: &Placement) -> bool {
    placement.uses(tunnel.spec.role, &tunnel.device)
}
