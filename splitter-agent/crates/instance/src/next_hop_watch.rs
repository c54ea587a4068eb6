//! Vouches for the next hops that the programs have noted while packets are redirected, and voids them
//! as soon as anything changes that may lead packets elsewhere.
//!
//! Voiding has a thread of its own: until it is done packets go where they went before, and whatever
//! else the agent does can wait. Whoever redirects past the network stack also leaves the kernel in the
//! belief that nobody needs a neighbour's address; those that are in use are asked when they turn stale,
//! as the stack would do with the next packet.
//!
//! A note serves many where it is known how much of a destination rules and routes look at, which is
//! read anew after each change of these; until then each flow is a question of its own. A note that
//! serves many is believed once the thread has heard of all that had changed when it was made, for which it looks
//! often.
//!
//! Where packets choose among tunnels, the thread also keeps the next hop of each for the programs: no question to
//! the kernel would be about the tunnel that was chosen. A change is written before anybody vouches again. One that is stale
//! when it is read is asked as well: it may have turned so before anybody listened.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Instance;
use splitter_config::{Config, SteeringMode, Tunnel};
use splitter_datapath::{KernelError, NextHops, Pins};
use splitter_netlink::{NetlinkError, NextHopChanges, NextHopEvents, StaleNeighbour};
use tokio::sync::{mpsc, watch};

mod routing;
mod tunnel_links;

use routing::Routing;
use tunnel_links::TunnelLinks;

/// How often it is looked at what changes without a notification.
pub const RENEWAL: Duration = Duration::from_millis(500);

/// A neighbour counts as in use for so long after a program was told of it, which it is again after
/// [`NextHop::LIFETIME_NS`](splitter_policy::next_hop::NextHop::LIFETIME_NS).
const IN_USE: Duration = Duration::from_secs(1);

/// Stale neighbours that wait to be asked. More are asked when they turn stale again.
const WAITING: usize = 64;

/// Keeps the thread that voids next hops, and asks neighbours.
#[derive(Debug)]
pub struct NextHopWatch {
    stale: mpsc::Receiver<StaleNeighbour>,
    chosen_among: Tunnels,
    is_over: Arc<AtomicBool>,
}

/// The tunnels that packets choose among, as the configuration in force has them.
#[derive(Clone, Debug, Default)]
struct Tunnels(Arc<Mutex<Vec<Tunnel>>>);

impl Tunnels {
    fn of(config: &Config) -> Self {
        let tunnels = Self::default();
        tunnels.follow(config);
        tunnels
    }

    /// Goes by another configuration from now on.
    fn follow(&self, config: &Config) {
        let redirects = config.steering.mode == SteeringMode::Redirect && !config.shadow;
        *self.locked() = match redirects && config.balancers().is_some() {
            true => config.tunnels().map(|(_, it)| it.clone()).collect(),
            false => Vec::new(),
        };
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Tunnel>> {
        // A list is whole whoever has panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NextHopWatch {
    /// Begins to vouch for what is noted in the maps below `pins`, in the network namespace of this
    /// thread, and voids it with each change; and keeps the next hops of the tunnels that packets choose
    /// among by `config`. What changes without a notification it looks at after each `renewal`. Ends within a tenth of a second after it is dropped, or with the first change or renewal where
    /// no program redirects.
    ///
    /// # Errors
    /// When netlink is not to be had, or no thread.
    pub fn begin(pins: Pins, config: &Config, renewal: Duration) -> Result<Self, BeginError> {
        let (sender, stale) = mpsc::channel(WAITING);
        let is_over = Arc::new(AtomicBool::new(false));
        let chosen_among = Tunnels::of(config);
        let mut watcher = Watcher {
            events: NextHopEvents::listen(renewal)?,
            pins,
            renewal,
            opened: None,
            routing: Routing::unknown(),
            links: TunnelLinks::new(chosen_among.clone()),
            stale: sender,
        };
        let ended = Arc::clone(&is_over);
        let watch = move || watcher.watch(&ended);
        let name = "next-hops".to_owned();
        std::thread::Builder::new().name(name).spawn(watch)?;
        Ok(Self {
            stale,
            chosen_among,
            is_over,
        })
    }

    /// Asks neighbours that are in use when they turn stale, and follows the configuration, for ever.
    pub async fn run(mut self, mut in_force: watch::Receiver<Arc<Instance>>) -> &'static str {
        loop {
            let neighbour = tokio::select! {
                neighbour = self.stale.recv() => neighbour,
                Ok(()) = in_force.changed() => {
                    self.chosen_among.follow(in_force.borrow_and_update().config());
                    continue;
                }
            };
            let Some(neighbour) = neighbour else { break };
            let StaleNeighbour {
                interface, address, ..
            } = neighbour;
            let instance = Arc::clone(&in_force.borrow());
            if let Err(error) = instance.confirm_stale(interface, address).await {
                tracing::debug!(%error, "cannot ask a neighbour that packets are redirected to");
            }
        }
        std::future::pending().await
    }
}

impl Drop for NextHopWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// What the thread has.
struct Watcher {
    events: NextHopEvents,
    pins: Pins,
    renewal: Duration,
    /// Since when.
    opened: Option<(Instant, NextHops)>,
    routing: Routing,
    links: TunnelLinks,
    stale: mpsc::Sender<StaleNeighbour>,
}

impl Watcher {
    fn watch(&mut self, is_over: &AtomicBool) {
        let mut last_problem = String::new();
        while !is_over.load(Ordering::Relaxed) {
            let problem = match self.look() {
                Ok(()) => String::new(),
                Err(error) => error.to_string(),
            };
            if !problem.is_empty() {
                if problem != last_problem {
                    tracing::warn!(event = "next_hops_not_vouched_for", %problem, "the kernel is asked for the path of each packet that is redirected");
                }
                std::thread::sleep(RENEWAL);
            }
            last_problem = problem;
        }
        if let Ok(Some(mut next_hops)) = NextHops::open(&self.pins) {
            // If it fails, nobody vouches for them a little later.
            let _ = next_hops.distrust();
        }
    }

    /// Vouches for what is right, and waits for a change or for the time to look again.
    fn look(&mut self) -> Result<(), LookError> {
        // Before anything is looked at: what had changed by then is seen, or its notification is taken.
        let heard = NextHops::now();
        // Again and again, for another program may have taken the place of the one before. What
        // nobody has vouched for until then is not believed.
        let is_due = !matches!(&self.opened, Some((since, _)) if since.elapsed() < self.renewal);
        if is_due {
            self.opened = NextHops::open(&self.pins)?.map(|it| (Instant::now(), it));
        }
        if let Some((_, next_hops)) = &mut self.opened {
            self.routing.settle(next_hops, is_due)?;
        }
        let changes = self.events.take()?;
        self.apply(changes)?;
        let mut patience = self.renewal;
        if let Some((_, next_hops)) = &mut self.opened {
            if let Some(left) = self.links.keep(next_hops, is_due)? {
                patience = patience.min(left);
            }
            for neighbour in self.links.take_stale() {
                let _ = self.stale.try_send(neighbour);
            }
            next_hops.vouch(heard)?;
            patience = patience.min(self.routing.beat());
        }
        self.events.set_patience(patience)?;
        let changes = self.events.wait()?;
        self.apply(changes)
    }

    /// Voids what is not right any more.
    fn apply(&mut self, changes: NextHopChanges) -> Result<(), LookError> {
        if changes.is_of_routing {
            self.routing.forget();
        }
        if changes.is_change {
            self.links.forget();
        }
        if let Some((_, next_hops)) = &mut self.opened
            && changes.is_change
        {
            self.routing.void(next_hops)?;
        }
        self.confirm(changes.stale)
    }

    /// Has those of the neighbours asked that are in use.
    fn confirm(&self, stale: Vec<StaleNeighbour>) -> Result<(), LookError> {
        let Some((_, next_hops)) = &self.opened else {
            return Ok(());
        };
        for neighbour in stale {
            let (interface, link_address) = (neighbour.interface, neighbour.link_address);
            if self.links.have(interface, link_address)
                || next_hops.is_used(interface, link_address, IN_USE)?
            {
                let _ = self.stale.try_send(neighbour);
            }
        }
        Ok(())
    }
}

/// Watching could not begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// Netlink is not to be had.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The system has no thread to give.
    #[error("cannot start the thread that watches next hops: {0}")]
    Thread(#[from] io::Error),
}

/// Why nobody vouches for next hops now.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error("cannot hear of changes: {0}")]
    Events(#[from] io::Error),
}
