//! An endpoint starts: its sockets, its state machine, and the driver that owns both.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
    time::{Duration, Instant},
};

use cloudburst_proto::{StartError, Time, Transport};
use tokio::sync::{Mutex, broadcast, mpsc, watch};

#[cfg(any(target_os = "linux", target_os = "android"))]
use super::bind::Watchers;
use super::{
    BindError, Endpoint, EndpointConfig, EndpointStatistics, Ports,
    bind::{bind_in_memory, bind_sockets},
    clock::Clock,
    commands,
    datagram_socket::DatagramSocket,
    driver::{Driver, Inbox, Io, LocalAddresses, PortRotation},
    endpoint::Shared,
    events::EVENTS,
    memory::MemoryNetwork,
    outgoing::{Outgoing, SendBudget},
    timer::Timer,
    unanswered::UnansweredRequests,
};

impl Endpoint {
    /// Binds sockets and starts the driver on the runtime of tokio that this is called in.
    ///
    /// # Errors
    ///
    /// A [`BindError`] when a port cannot be had, or the system lacks something else.
    ///
    /// # Panics
    ///
    /// Without a runtime, or in one without input and output enabled.
    pub async fn bind(config: EndpointConfig) -> Result<Self, BindError> {
        let sockets = bind_sockets(&config)?;
        let bound = Instant::now();
        let system = |action| move |source| BindError::System { action, source };
        let timer = Timer::new().map_err(system("make a timer"))?;
        let quiet_before = hold(&config.ports, bound).await;
        Self::start_on(
            config,
            Host {
                sockets,
                timer,
                quiet_before,
                // At once, for what lies between would count for another process.
                clock: Clock::system(),
                seed: None,
            },
        )
    }

    fn start_on(config: EndpointConfig, host: Host) -> Result<Self, BindError> {
        let sockets = host.sockets;
        let local_addrs = Arc::new(LocalAddresses::of(&sockets));
        let (commands, taken) = commands::channel();
        let (inbox, arrived) = mpsc::channel(config.inbox_messages.min(MAX_INBOX));
        let inbox_bytes = Arc::new(AtomicUsize::new(0));
        let has_taker = Arc::new(AtomicBool::new(config.keep_early_requests));
        let is_protected = !config.protocol.security.is_unprotected();
        let (events, _) = broadcast::channel(EVENTS);
        let events_missed = Arc::<AtomicU64>::default();
        let room = SendBudget::new(&config.protocol.quotas);
        let most_bytes = config.protocol.max_message_bytes;
        let mut protocol = config.protocol;
        // The caller that named ports is to be found there.
        protocol.rotate_ports &= matches!(config.ports, Ports::Any(_));
        protocol.quiet_before = host.quiet_before;
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        protocol.unix_time = protocol.unix_time.or(since_1970.ok());
        let machine = match host.seed {
            None => Transport::new(protocol, Time::ZERO)?,
            Some(seed) => {
                Transport::deterministic(protocol, seed, Time::ZERO).map_err(StartError::from)?
            }
        };
        let shared = Arc::new(Shared {
            commands,
            transport: machine.id(),
            next_ticket: AtomicU64::new(0),
            room: room.clone(),
            most_bytes,
            send_options: config.send_options,
            inbox: Mutex::new(arrived),
            has_taker: Arc::clone(&has_taker),
            inbox_bytes: Arc::clone(&inbox_bytes),
            closing: watch::Sender::new(false),
            handling: Arc::default(),
            local_addrs: Arc::clone(&local_addrs),
            events: events.downgrade(),
            events_missed: Arc::clone(&events_missed),
        });
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let (watchers, notices) = Watchers::start(&sockets);
        let port_rotation = PortRotation::new(
            (config.dscp, config.socket_buffer_bytes),
            local_addrs,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            watchers,
        );
        let driver = Driver {
            machine,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            notices,
            sockets,
            port_rotation,
            clock: host.clock,
            commands: taken,
            inbox: Inbox {
                messages: inbox,
                bytes: inbox_bytes,
                most_bytes: config.inbox_bytes,
                has_taker,
            },
            events,
            events_missed,
            statistics: EndpointStatistics::default(),
            io: Io::new(host.timer),
            outgoing: Outgoing::new(is_protected),
            next_failure: u64::MAX,
            unanswered: UnansweredRequests::new(shared.commands.downgrade()),
            parked: Default::default(),
            closing: None,
            farewell: None,
            handling: Arc::clone(&shared.handling),
            last_received: None,
        };
        // The driver yields by itself, after more work than the runtime would let it do.
        tokio::spawn(tokio::task::unconstrained(async move {
            let _closes = CloseOnDrop(room);
            driver.await;
        }));
        Ok(Self { shared })
    }
}

/// Binds endpoints in a network in memory.
impl MemoryNetwork {
    /// Binds an endpoint at the addresses of [`EndpointConfig::with_local`], of which it needs at
    /// least one, and starts it on the runtime of tokio that this is called in. It lives by the time of
    /// that runtime; no DSCP is set.
    ///
    /// # Errors
    ///
    /// A [`BindError`] when another endpoint has the port, or no address is stated.
    ///
    /// # Panics
    ///
    /// Without a runtime, or in one without time enabled.
    pub async fn bind(&self, config: EndpointConfig) -> Result<Endpoint, BindError> {
        let sockets = bind_in_memory(&config, self)?;
        let bound = tokio::time::Instant::now();
        let quiet_before = match config.ports.are_named() {
            false => Duration::MAX,
            true => {
                tokio::time::sleep(HOLD).await;
                bound.elapsed()
            }
        };
        Endpoint::start_on(
            config,
            Host {
                sockets,
                timer: Timer::of_runtime(),
                quiet_before,
                clock: Clock::runtime(),
                seed: Some(self.endpoint_seed()),
            },
        )
    }
}

/// What an endpoint is started on.
struct Host {
    sockets: Vec<DatagramSocket>,
    timer: Timer,
    /// For how long nobody else has answered at its ports.
    quiet_before: Duration,
    clock: Clock,
    /// What all comes from that is random; nothing leaves it to the system.
    seed: Option<[u8; 32]>,
}

/// Holds ports that were named for a while. Returns for how long nobody else has answered at them,
/// which is longer than that while a machine is busy.
async fn hold(ports: &Ports, bound: Instant) -> Duration {
    if !ports.are_named() {
        return Duration::MAX;
    }
    // On a thread that may block, for a runtime may have no timer.
    let hold = tokio::task::spawn_blocking(|| std::thread::sleep(HOLD));
    let _ = hold.await;
    bound.elapsed()
}

/// How long ports that were named are held before an endpoint starts: longer than an answer of ours takes
/// to be read. What was accepted for sending before the start, as far as its sender can tell, may have been
/// taken by another process at the same ports.
const HOLD: Duration = Duration::from_millis(100);

/// The channel sets aside a little memory for what it may hold.
const MAX_INBOX: usize = 1 << 20;

/// Nobody waits for capacity at an endpoint whose driver is gone, for whatever reason.
struct CloseOnDrop(SendBudget);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_held_since_they_were_bound_however_busy_the_machine() {
        let busy = Duration::from_millis(300);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let bound = Instant::now();
        let held = runtime.block_on(async {
            tokio::task::spawn_blocking(move || std::thread::sleep(busy));
            hold(&Ports::one(4433), bound).await
        });
        assert!(held >= busy + HOLD, "{held:?}");
    }
}
