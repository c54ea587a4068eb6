//! One tunnel's sockets around its [`TunnelWatch`]: what is sent and received, and when a socket is
//! made again.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use splitter_config::Dscp;
use splitter_health::{
    Cause, Evidence, KeyRing, LOST_AFTER, LinkState, Nonce, Prober, Responder, Start, TunnelWatch,
    Untimed,
};
use splitter_netlink::InterfaceName;
use tokio::task::JoinHandle;

use super::responding::Responding;
use super::socket::{Binding, ProberSocket, Received, SocketError};
use super::spec::{MonitorSpec, timing};
use splitter_instance::report::SharedReport;

/// How soon a socket that could not be had is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// One tunnel, its sockets and what was last reported of it.
#[derive(Debug)]
pub(super) struct MonitoredTunnel {
    pub(super) spec: MonitorSpec,
    pub(super) device: InterfaceName,
    /// The next hop that is asked when the peer's echo does not decide.
    pub(super) neighbour: Option<IpAddr>,
    pub(super) watch: TunnelWatch,
    /// What was made of it when it began to be watched.
    pub(super) start: Start,
    /// Whether it is known how its device is.
    pub(super) was_looked_at: bool,
    pub(super) last_cause: Cause,
    pub(super) last_evidence: Option<Evidence>,
    pub(super) has_warned: bool,
    /// Of which parts of round trips it was logged that nobody tells how long they are, in the order of [`Untimed::ALL`].
    pub(super) has_logged_untimed: [bool; Untimed::ALL.len()],
    /// When it was last logged that it is unknown whether the tunnel is alive.
    pub(super) unknown_logged: Option<Duration>,
    remote: Option<RemotePeer>,
}

/// The other border, where one is configured.
#[derive(Debug)]
struct RemotePeer {
    peer: IpAddr,
    port: u16,
    dscp: Dscp,
    is_timed: bool,
    responder: Arc<Mutex<Responder>>,
    sockets: Option<Sockets>,
    /// When a socket was last tried to be opened.
    tried: Option<Duration>,
    problem: String,
    last_echo: Duration,
}

#[derive(Debug)]
struct Sockets {
    index: u32,
    prober: ProberSocket,
    responding: JoinHandle<()>,
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.responding.abort();
    }
}

impl MonitoredTunnel {
    /// One that begins to be watched so long after the agent's monitor began.
    pub(super) fn new(
        spec: MonitorSpec,
        identity: Option<&(KeyRing, Nonce)>,
        begun: Duration,
    ) -> Self {
        // In a microsecond no probe is sent, so that these are behind all numbers of before.
        let sequence = u64::try_from(begun.as_micros()).unwrap_or(u64::MAX / 2);
        let gateway = spec.tunnel.gateway;
        let neighbour = gateway.v4.map(IpAddr::V4).or(gateway.v6.map(IpAddr::V6));
        let neighbour = neighbour.filter(|_| spec.health.enabled);
        let peer = spec.tunnel.peer;
        let remote = peer.zip(identity).map(|(peer, (key, nonce))| RemotePeer {
            peer,
            port: spec.health.port.get(),
            dscp: spec.mark,
            is_timed: spec.is_timed,
            responder: Arc::new(Mutex::new(Responder::new(key.clone(), *nonce))),
            sockets: None,
            tried: None,
            problem: String::new(),
            last_echo: Duration::ZERO,
        });
        let prober = remote
            .as_ref()
            .and(identity)
            .map(|(key, nonce)| Prober::new(key.clone(), spec.number, *nonce).after(sequence));
        let timing = timing(&spec.health);
        let has_neighbour = neighbour.is_some();
        Self {
            device: spec.tunnel.device.clone(),
            neighbour,
            watch: TunnelWatch::new(
                timing,
                prober,
                has_neighbour,
                Start::Trusted,
                Duration::ZERO,
            ),
            start: Start::Trusted,
            was_looked_at: false,
            last_cause: Cause::Answer,
            last_evidence: None,
            has_warned: false,
            has_logged_untimed: [false; Untimed::ALL.len()],
            unknown_logged: None,
            remote,
            spec,
        }
    }

    /// Sends a probe. What the socket refuses is lost, which silence will tell.
    pub(super) fn send(&mut self, probe: &[u8], now: Duration) {
        let sockets = self
            .remote
            .as_ref()
            .and_then(|remote| remote.sockets.as_ref());
        let Some(sockets) = sockets else { return };
        match sockets.prober.send(probe) {
            Ok(_) => {}
            Err(error) => self.failed(&error, now),
        }
    }

    /// Takes from the kernel when probes have left. `start` is the agent's.
    pub(super) fn take_departures(&mut self, start: Instant) {
        let sockets = self.remote.as_ref().and_then(|it| it.sockets.as_ref());
        if let Some(sockets) = sockets.filter(|_| self.spec.is_timed) {
            let watch = &mut self.watch;
            sockets.prober.departures(|probe, at| {
                watch.left(probe, at.saturating_duration_since(start));
            });
        }
    }

    /// Waits for a datagram, for ever where there is no socket.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match self
            .remote
            .as_ref()
            .and_then(|remote| remote.sockets.as_ref())
        {
            Some(sockets) => sockets.prober.receive(buffer).await,
            None => std::future::pending().await,
        }
    }

    /// A datagram that is there already.
    pub(super) fn try_receive(&self, buffer: &mut [u8]) -> Option<io::Result<Received>> {
        let sockets = self.remote.as_ref()?.sockets.as_ref()?;
        match sockets.prober.try_receive(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            received => Some(received),
        }
    }

    /// How many datagrams have found no room at its socket since this was asked before.
    pub(super) fn new_drops(&mut self) -> u32 {
        let sockets = self.remote.as_mut().and_then(|it| it.sockets.as_mut());
        sockets.map_or(0, |sockets| sockets.prober.new_drops())
    }

    /// The peer answered.
    pub(super) fn echoed(&mut self, now: Duration) {
        if let Some(remote) = &mut self.remote {
            remote.last_echo = now;
        }
    }

    /// The socket reported an error: the peer's host refuses, or the socket has become useless.
    pub(super) fn failed(&mut self, error: &io::Error, now: Duration) {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => self.watch.refused(now),
            io::ErrorKind::WouldBlock => {}
            _ => tracing::debug!(device = %self.device, %error, "cannot probe"),
        }
    }

    /// Opens sockets where the device is up and they are missing or the device's number is another
    /// one; and makes the prober's again when nothing has come for long, for its source address was
    /// chosen when it was opened.
    ///
    /// # Errors
    /// When a socket cannot be had; it is tried again later.
    pub(super) fn open(
        &mut self,
        now: Duration,
        start: Instant,
        report: &SharedReport,
    ) -> Result<(), SocketError> {
        let LinkState::Up(index) = self.watch.link_state() else {
            return Ok(());
        };
        let Some(remote) = &mut self.remote else {
            return Ok(());
        };
        let binding = Binding {
            device: self.device.clone(),
            index,
            dscp: remote.dscp,
            is_timed: remote.is_timed,
        };
        let was_tried_lately = remote
            .tried
            .is_some_and(|at| now.saturating_sub(at) < RETRY);
        match &mut remote.sockets {
            Some(sockets) if sockets.index == index => {
                let tried = remote.tried.unwrap_or_default();
                let silent_since = remote.last_echo.max(tried);
                if now.saturating_sub(silent_since) >= LOST_AFTER {
                    remote.tried = Some(now);
                    sockets.prober = binding.prober(remote.peer, remote.port)?;
                }
                Ok(())
            }
            None if was_tried_lately => Ok(()),
            _ => {
                remote.tried = Some(now);
                remote.sockets = None;
                let prober = binding.prober(remote.peer, remote.port)?;
                let responder = binding.responder(remote.peer, remote.port)?;
                let state = Arc::clone(&remote.responder);
                let responding = Responding {
                    device: self.device.clone(),
                    peer: remote.peer,
                    responder: state,
                    start,
                    report: report.clone(),
                };
                let responding = responding.run(responder);
                remote.sockets = Some(Sockets {
                    index,
                    prober,
                    responding: tokio::spawn(responding),
                });
                remote.problem.clear();
                Ok(())
            }
        }
    }

    /// Returns true where this problem has not been reported before.
    pub(super) fn is_new_problem(&mut self, problem: &str) -> bool {
        let Some(remote) = &mut self.remote else {
            return false;
        };
        let is_new_problem = remote.problem != problem;
        problem.clone_into(&mut remote.problem);
        is_new_problem
    }
}
