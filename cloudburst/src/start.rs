//! An endpoint starts: its sockets, its state machine, and the driver that owns both.

use std::{
    future::poll_fn,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
    task::{Poll, ready},
    time::Duration,
};

use cloudburst_proto::{SocketId, StartError, Time, Transport};
use tokio::sync::{Mutex, broadcast, mpsc, watch};

use super::{
    BindError, Endpoint, EndpointConfig, EndpointStatistics,
    bind::bind_sockets,
    commands,
    driver::{Driver, Inbox, Io, LocalAddresses, PortRotation},
    endpoint::Shared,
    events::EVENTS,
    notices::{self, NoticeSender},
    outgoing::{Outgoing, SendBudget},
    runtime::{DatagramSocket as _, Runtime, Timer, TokioRuntime},
    unanswered::UnansweredRequests,
};

impl Endpoint {
    /// Binds UDP sockets and starts the driver on the runtime of tokio that this is called in.
    ///
    /// # Errors
    ///
    /// A [`BindError`] when a port cannot be had, or the system lacks something else.
    ///
    /// # Panics
    ///
    /// Without a runtime, or in one without input and output enabled.
    pub async fn bind(config: EndpointConfig) -> Result<Self, BindError> {
        Self::bind_with(TokioRuntime, config).await
    }

    /// Binds sockets of this [`Runtime`], and starts the driver on it. A port that was named is held for
    /// 100 ms first, as nobody else is to have answered there of late.
    ///
    /// # Errors
    ///
    /// A [`BindError`] when a port cannot be had, or the system lacks something else.
    ///
    /// # Panics
    ///
    /// As the runtime does: those that are here without a runtime of tokio.
    pub async fn bind_with(
        runtime: impl Runtime,
        config: EndpointConfig,
    ) -> Result<Self, BindError> {
        let sockets = bind_sockets(&runtime, &config)?;
        let system = |action| move |source| BindError::System { action, source };
        let mut timer = runtime.timer().map_err(system("make a timer"))?;
        let quiet_before = match config.ports.are_named() {
            false => Duration::MAX,
            true => hold(&runtime, &mut timer)
                .await
                .map_err(system("set a timer"))?,
        };
        Self::start_on((runtime, timer), sockets, quiet_before, config)
    }

    /// `quiet_before`: for how long nobody else has answered at its ports.
    fn start_on<R: Runtime>(
        (runtime, timer): (R, R::Timer),
        mut sockets: Vec<R::Socket>,
        quiet_before: Duration,
        config: EndpointConfig,
    ) -> Result<Self, BindError> {
        // At once, for what lies between would count for another process.
        let start = runtime.now();
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
        let mut protocol = config.to_protocol();
        protocol.quiet_before = quiet_before;
        protocol.unix_time = protocol.unix_time.or_else(|| runtime.unix_time());
        let machine = match runtime.secret_seed() {
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
        let (reported, notices) = notices::channel();
        for (id, socket) in (0..).map(SocketId).zip(&mut sockets) {
            socket.set_notices(Some(NoticeSender::new(id, reported.clone())));
        }
        let port_rotation = PortRotation::new(
            (config.dscp, config.socket_buffer_bytes),
            local_addrs,
            reported,
        );
        let spawner = runtime.clone();
        let driver = Driver {
            machine,
            runtime,
            notices,
            sockets,
            port_rotation,
            start,
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
            io: Io::new(timer),
            outgoing: Outgoing::new(is_protected),
            next_failure: u64::MAX,
            unanswered: UnansweredRequests::new(shared.commands.downgrade()),
            parked: Default::default(),
            closing: None,
            farewell: None,
            handling: Arc::clone(&shared.handling),
            last_received: None,
        };
        let driver = async move {
            let _closes = CloseOnDrop(room);
            driver.await;
        };
        spawner.spawn(driver);
        Ok(Self { shared })
    }
}

/// Holds ports that were named for a while. Returns for how long nobody else has answered at them,
/// which is longer than that while a machine is busy.
async fn hold<R: Runtime>(runtime: &R, timer: &mut R::Timer) -> io::Result<Duration> {
    let bound = runtime.now();
    let until = bound + HOLD;
    poll_fn(|context| {
        loop {
            let now = runtime.now();
            if now >= until {
                return Poll::Ready(Ok(now - bound));
            }
            // It may wake too early.
            ready!(timer.poll_deadline(context, now, Some(until)))?;
        }
    })
    .await
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
    fn ports_are_held_for_as_long_as_it_took_however_busy_the_machine() {
        let busy = Duration::from_millis(300);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let held = runtime.block_on(async {
            let mut timer = TokioRuntime.timer().unwrap();
            tokio::spawn(async move { std::thread::sleep(busy) });
            hold(&TokioRuntime, &mut timer).await.unwrap()
        });
        assert!(held >= busy, "{held:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn ports_are_held_by_the_time_of_the_runtime() {
        let network = crate::memory::MemoryNetwork::new(1);
        let mut timer = network.timer().unwrap();
        assert_eq!(hold(&network, &mut timer).await.unwrap(), HOLD);
    }
}
