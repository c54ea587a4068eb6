//! The loop that watches the tunnels of one site: it sends what is due, takes what comes, asks the kernel, and
//! has the classes moved. What any of it means is decided elsewhere.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use splitter_config::{Config, SiteName};
use splitter_health::{
    Condition, DATAGRAM_BYTES, KeyError, KeyRing, KeyRings, LinkState, Nonce, PeerPresence, Stamp,
    Start,
};
use splitter_netlink::{Interfaces, Netlink};
use splitter_steering::Placement;
use tokio::sync::watch;
use tokio::time::sleep_until;

use super::announce::{log_change, log_evidence, log_unknown, warn_once};
use super::choose::{Graded, choose};
use super::link_events::LinkEvents;
use super::links::{Found, find_interfaces, find_links, take_links, tunnels_of};
use super::liveness::check_liveness;
use super::looking::Looking;
use super::monitored_tunnel::MonitoredTunnel;
use super::next_hops::{has_to_resolve, resolve_next_hops};
use super::overload_signs::OverloadSigns;
use super::shared::{HealthMonitorError, Shared};
use super::socket::Received;
use super::spec::{specs, timing};
use super::switch::Failover;
use super::untimed::log_untimed;
use splitter_instance::report::SharedReport;
use splitter_instance::{Instance, Lock};

/// How often devices are looked at without an event, which can get lost.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// How many datagrams are taken in one go, so that a flood of them does not keep from judging.
const DRAIN_LIMIT: usize = 64;

/// A pause in the loop that is longer than this was no listening.
const STALL: Duration = Duration::from_millis(50);

/// Watches the tunnels of one site.
#[derive(Debug)]
pub(super) struct HealthMonitor {
    pub(super) site: SiteName,
    /// As it would be for the site alone.
    pub(super) config: Config,
    /// What this agent proves to the peer with; none without a peer.
    identity: Option<Identity>,
    keys: KeyRings,
    /// One for each tunnel, in the order of the configuration.
    pub(super) monitored: Vec<MonitoredTunnel>,
    /// Where an earlier agent had left the classes; their own tunnels where there was none.
    pub(super) left: Placement,
    netlink: Arc<Netlink>,
    events: LinkEvents,
    pub(super) presence: PeerPresence,
    pub(super) overload: OverloadSigns,
    start: Instant,
    looked: Duration,
    pub(super) report: SharedReport,
}

impl HealthMonitor {
    /// Prepares everything that can fail for reasons that will not pass: the sockets of the devices
    /// that are there. `config` is what there is for the site alone. Changes nothing.
    ///
    /// # Errors
    /// See [`HealthMonitorError`].
    pub(super) async fn new(config: &Config, shared: &Shared) -> Result<Self, HealthMonitorError> {
        let identity = identity(config, &shared.keys)?;
        let mut guard = Self {
            site: config.site_name(),
            monitored: specs(config)
                .into_iter()
                .map(|it| MonitoredTunnel::new(it, identity.as_ref(), Duration::ZERO))
                .collect(),
            config: config.clone(),
            identity,
            keys: shared.keys.clone(),
            left: Placement::PRIMARY,
            netlink: Arc::clone(&shared.netlink),
            events: shared.events.clone(),
            presence: PeerPresence::Unconfirmed,
            overload: shared.overload.clone(),
            start: shared.start,
            looked: Duration::ZERO,
            report: shared.report.clone(),
        };
        guard.report_all(&Placement::PRIMARY, None, true);
        let now = guard.now();
        guard.read_links(now).await;
        for tunnel in &mut guard.monitored {
            match tunnel.open(now, guard.start, &guard.report) {
                // An address may come later, another process on the port will not go.
                Err(error) if error.source.kind() == io::ErrorKind::AddrInUse => {
                    return Err(error.into());
                }
                Err(error) => warn_once(tunnel, &error),
                Ok(()) => {}
            }
        }
        Ok(guard)
    }

    /// Returns the site that it watches.
    pub(super) fn site(&self) -> &SiteName {
        &self.site
    }

    /// Watches the tunnels of an instance that is up, until the site is in its configuration no more.
    /// Returns the site.
    pub(super) async fn run(
        mut self,
        mut in_force: watch::Receiver<Arc<Instance>>,
        lock: &Lock,
    ) -> SiteName {
        let instance = Arc::clone(&in_force.borrow_and_update());
        let placements = instance.placements().unwrap_or_default();
        let placement = placements.of(&self.site).clone();
        self.begin(&placement);
        let (report, site) = (self.report.clone(), self.site.clone());
        let mut failover = Failover::new(in_force.clone(), lock, report, site, placement);
        let mut looking = Looking::default();
        // Next hops may not be known yet.
        looking.want();
        let mut listening_since = self.now();
        loop {
            if looking.is_due(self.now().saturating_sub(self.looked) >= LOOK_INTERVAL) {
                looking.begin(self.look());
            }
            let wake = self.wake(looking.is_under_way());
            let slept = self.now();
            let event = self.next_event(wake, &mut looking).await;
            let mut woken = self.now();
            let missed = slept.saturating_sub(listening_since) + woken.saturating_sub(wake);
            if missed > STALL {
                self.monitored
                    .iter_mut()
                    .for_each(|it| it.watch.excuse(missed));
            }
            let suspect_after = timing(&self.config.health).suspect_after();
            self.overload.late(missed, suspect_after, woken);
            listening_since = woken;
            match event {
                Event::Datagram(index, received, buffer) => {
                    self.take(index, received, &buffer, woken);
                }
                Event::Links => looking.want(),
                // A reload may have changed the tunnels.
                Event::Found(found) if found.tunnels == tunnels_of(&self.monitored) => {
                    take_links(&mut self.monitored, &found.links, woken);
                    if let Some(interfaces) = &found.interfaces {
                        self.tell_delays(&in_force, lock, interfaces);
                    }
                }
                Event::Found(_) => looking.want(),
                Event::Time => {}
            }
            self.drain(woken);
            if in_force.has_changed().unwrap_or(false) {
                let instance = Arc::clone(&in_force.borrow_and_update());
                let placement = failover.current().clone();
                let Some(config) = instance.config().of_site(&self.site) else {
                    return self.site;
                };
                self.follow_config(&config, &placement).await;
                looking.want();
                woken = self.now();
            }
            let has_changed = self.tick(woken).await;
            let has_moved = self.settle(&mut failover, woken).await;
            let is_news = has_changed || has_moved;
            self.report_all(failover.current(), failover.problem(), is_news);
        }
    }

    /// Goes by another configuration from now on. A tunnel of which that says something else is
    /// watched from the start; what is known of the others stays.
    async fn follow_config(&mut self, config: &Config, placement: &Placement) {
        if self.config.health.key_file != config.health.key_file {
            match identity(config, &self.keys) {
                Ok(identity) => self.identity = identity,
                Err(error) => {
                    tracing::error!(event = "key_unusable", site = %self.site, %error, "the site's key stays as it was");
                }
            }
        }
        self.config = config.clone();
        let mut before = std::mem::take(&mut self.monitored);
        let (mut others, begun) = (Vec::new(), self.now());
        for spec in specs(config) {
            if let Some(known) = before.iter().position(|it| it.spec == spec) {
                self.monitored.push(before.swap_remove(known));
                continue;
            }
            let mut tunnel = MonitoredTunnel::new(spec, self.identity.as_ref(), begun);
            let same_device = before.iter().find(|it| it.device == tunnel.device);
            if same_device.is_some_and(|it| it.watch.machine().is_unseen()) {
                tunnel.start = Start::Unseen;
            }
            others.push(self.monitored.len());
            self.monitored.push(tunnel);
        }
        drop(before);
        if others.is_empty() {
            return;
        }
        // The task that answered on the old sockets ends before there are new ones.
        tokio::task::yield_now().await;
        let now = self.now();
        self.read_links(now).await;
        for index in others {
            self.restart_tunnel(index, placement);
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wake(&self, is_looking: bool) -> Duration {
        let now = self.now();
        // What is under way tells when it has ended.
        let next_look = match is_looking {
            true => now + LOOK_INTERVAL,
            false => self.looked + LOOK_INTERVAL,
        };
        let deadlines = self
            .monitored
            .iter()
            .map(|tunnel| match tunnel.watch.link_state() {
                LinkState::Up(_) => tunnel.watch.deadline(now),
                // Nothing is sent into a device that is down.
                LinkState::NoAddress(_) | LinkState::Down(_) | LinkState::Absent => next_look,
            });
        let earliest = deadlines.min().unwrap_or(now);
        earliest.min(next_look).max(now)
    }

    async fn next_event(&mut self, wake: Duration, looking: &mut Looking) -> Event {
        let receive = |(index, tunnel)| Box::pin(receive(index, tunnel));
        let datagrams = select_all(self.monitored.iter().enumerate().map(receive));
        tokio::select! {
            (event, ..) = datagrams => event,
            () = self.events.next(), if !looking.is_wanted() => Event::Links,
            found = looking.found() => Event::Found(found),
            () = sleep_until((self.start + wake).into()) => Event::Time,
        }
    }

    /// What has come already is taken before silence is judged.
    fn drain(&mut self, now: Duration) {
        let mut buffer = [0; DATAGRAM_BYTES + 1];
        for index in 0..self.monitored.len() {
            for _ in 0..DRAIN_LIMIT {
                let Some(received) = self.monitored[index].try_receive(&mut buffer) else {
                    break;
                };
                self.take(index, received, &buffer, now);
            }
        }
    }

    fn take(&mut self, index: usize, received: io::Result<Received>, buffer: &[u8], now: Duration) {
        let tunnel = &mut self.monitored[index];
        self.overload.socket_dropped(tunnel.new_drops(), now);
        let received = match received {
            Ok(received) => received,
            Err(error) => return tunnel.failed(&error, now),
        };
        // In front of the answer, for a probe has left before.
        tunnel.take_departures(self.start);
        let arrived = Stamp {
            at: received.at.saturating_duration_since(self.start),
            is_kernels: received.is_kernels,
        };
        let bytes = &buffer[..received.length.min(buffer.len())];
        match tunnel.watch.receive(bytes, arrived, now) {
            Ok(change) => {
                tunnel.echoed(now);
                log_untimed(tunnel);
                if self.presence == PeerPresence::Unconfirmed {
                    self.presence = PeerPresence::Confirmed;
                    tracing::info!(event = "peer_answers", device = %tunnel.device, "the peer answers probes");
                }
                if let Some(change) = change {
                    log_change(tunnel, change);
                }
            }
            Err(refusal) => self.report.refused(refusal),
        }
    }

    /// Has packets choose among the tunnels by what probes measure: half of the shortest round trip.
    fn tell_delays(
        &self,
        in_force: &watch::Receiver<Arc<Instance>>,
        lock: &Lock,
        interfaces: &Interfaces,
    ) {
        let monitored = self.monitored.iter();
        let measured = |it: &MonitoredTunnel| {
            let round_trip = it.watch.prober()?.measure().shortest_round_trip()?;
            Some(round_trip / 2)
        };
        let delays: Vec<_> = monitored
            .map(|it| (it.device.clone(), measured(it)))
            .collect();
        let told = Instance::set_measured_delays(in_force, lock, &delays, interfaces);
        if let Err(error) = told {
            tracing::debug!(%error, "packets choose among the tunnels by what was measured before");
        }
    }

    async fn read_links(&mut self, now: Duration) {
        self.looked = now;
        let found = find_links(&tunnels_of(&self.monitored), &self.netlink).await;
        take_links(&mut self.monitored, &found, now);
    }

    /// Begins to look at the devices, and to have the kernel ask next hops that it does not know.
    fn look(&mut self) -> impl Future<Output = Found> + use<> {
        self.looked = self.now();
        let (tunnels, netlink) = (tunnels_of(&self.monitored), Arc::clone(&self.netlink));
        let resolves = has_to_resolve(&self.config);
        let is_chosen = self.config.balancers().is_some();
        async move {
            let links = find_links(&tunnels, &netlink).await;
            if resolves {
                resolve_next_hops(&tunnels, &links, &netlink).await;
            }
            let interfaces = match is_chosen {
                true => find_interfaces().await,
                false => None,
            };
            Found {
                tunnels,
                links,
                interfaces,
            }
        }
    }

    /// Sends, asks and judges. True if a tunnel's condition changed.
    async fn tick(&mut self, now: Duration) -> bool {
        let before = self.conditions();
        let overload = self.overload.look(now);
        for tunnel in &mut self.monitored {
            if let Err(error) = tunnel.open(now, self.start, &self.report) {
                warn_once(tunnel, &error);
            }
            if let Some(probe) = tunnel.watch.due(now) {
                if let Some(probe) = probe {
                    tunnel.take_departures(self.start);
                    // Later than `now` by what other tunnels' probes and routing have taken, which is not this one's delay.
                    tunnel.watch.leaves(self.start.elapsed());
                    tunnel.send(&probe, now);
                }
                check_liveness(tunnel, &self.netlink, self.presence, now).await;
            }
            if let Some(overload) = overload
                && tunnel.watch.overloaded(now).is_some()
            {
                log_unknown(tunnel, overload, now);
            }
            if let Some(change) = tunnel.watch.tick(now) {
                log_change(tunnel, change);
            }
            log_evidence(tunnel, self.presence, now);
        }
        self.conditions() != before
    }

    fn conditions(&self) -> Vec<Condition> {
        let monitored = self.monitored.iter();
        monitored.map(|it| it.watch.machine().condition()).collect()
    }

    async fn settle(&mut self, failover: &mut Failover<'_>, now: Duration) -> bool {
        // It routes nothing.
        if self.config.shadow {
            return false;
        }
        let graded = self.monitored.iter().map(|tunnel| Graded {
            role: tunnel.spec.role,
            device: &tunnel.device,
            grade: tunnel.watch.grade(now),
        });
        let wanted = choose(&graded.collect::<Vec<_>>());
        failover.settle(wanted, now, &self.monitored).await
    }
}

/// What an agent proves to a peer with: the keys, and a number that no other run has.
type Identity = (KeyRing, Nonce);

fn identity(config: &Config, keys: &KeyRings) -> Result<Option<Identity>, KeyError> {
    let file = config.health.key_file.as_deref();
    let file = file.filter(|_| config.health.enabled);
    let ring = file.map(|file| keys.of(file)).transpose()?;
    Ok(ring.map(|ring| (ring, Nonce::random())))
}

async fn receive(index: usize, tunnel: &MonitoredTunnel) -> Event {
    let mut buffer = [0; DATAGRAM_BYTES + 1];
    let received = tunnel.receive(&mut buffer).await;
    Event::Datagram(index, received, buffer)
}

enum Event {
    Datagram(usize, io::Result<Received>, [u8; DATAGRAM_BYTES + 1]),
    Links,
    Found(Found),
    Time,
}
