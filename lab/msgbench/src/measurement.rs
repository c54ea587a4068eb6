//! One scheme in one scenario with one schedule of messages.

use std::{
    path::Path,
    rc::Rc,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use flow_testbed::namespace::NamespaceError;
use futures_util::{
    future::{LocalBoxFuture, try_join_all},
    stream::{self, TryStreamExt as _},
};
use nix::sys::prctl;
use tokio::{
    runtime,
    sync::mpsc,
    task::{LocalSet, spawn_local},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cell::Cell,
    rig::{Borders, Bulk, Direction, Rig, SiteTraffic, SiteTrafficOptions, addresses},
    scheme::{Answer, Client, Coding, Scheme},
    server::Server,
    workload::{self, Arrival},
};

/// A message that has not arrived by then has failed.
pub const LIMIT: Duration = Duration::from_secs(5);

/// Messages before those that count, for each server: every connection has carried some then.
const WARM_UP_MESSAGES: usize = 64;
const WARM_UP_BYTES: u32 = 20_000;
const WARM_UP_AT_ONCE: usize = 8;
/// How long bulk transfers run before messages do: this and so many round trips.
const BULK_LEAD: Duration = Duration::from_millis(900);
const BULK_LEAD_ROUND_TRIPS: u32 = 100;
/// From the start of the clock's thread to the first arrival.
const LEAD: Duration = Duration::from_millis(20);

/// One run of a scheme in a cell, to be measured.
pub struct Run<'a> {
    /// Rig that the messages cross.
    pub rig: &'a Rig,
    /// Conditions on its paths; its round-trip time is the rig's.
    pub cell: Cell,
    /// Scheme that carries the messages.
    pub scheme: &'a Arc<dyn Scheme>,
    /// Messages, with their sizes and start times.
    pub arrivals: &'a [Arrival],
    /// For how long they arrive.
    pub length: Duration,
    /// Seed of what else is random.
    pub seed: u64,
    /// The program `splitter`, for cells with splitters at the borders.
    pub splitter: &'a Path,
}

/// The result of one measurement.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Results of each message.
    pub messages: Vec<Message>,
    /// CPU time of all servers.
    pub server_cpu: Duration,
    /// Bytes that messages have put on the paths.
    pub wire: WireBytes,
    /// Goodput of bulk transfers, if there were any.
    pub bulk_mbit_per_s: Option<f64>,
    /// Completion times of short TCP flows beside, where there were some; `None` for one that had not finished
    /// [`LIMIT`] after the last message was due.
    pub short_flows: Option<Vec<Option<Duration>>>,
}

/// Bytes that messages have put on the paths, headers, repair and acknowledgements included, as the
/// paths' far ends count them; [`Rig::message_traffic`] says how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    /// From clients to servers.
    pub to_server: u64,
    /// From servers to clients.
    pub to_client: u64,
}

impl WireBytes {
    /// Returns the bytes of both directions together.
    pub fn both(self) -> u64 {
        self.to_server + self.to_client
    }

    fn since(self, before: Self) -> Self {
        Self {
            to_server: self.to_server - before.to_server,
            to_client: self.to_client - before.to_client,
        }
    }
}

/// The result of one message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Size of the message.
    pub bytes: u32,
    /// From when its request was due to its last byte; `None` when it had failed or taken more than
    /// [`LIMIT`].
    pub completion: Option<Duration>,
    /// Packets that coding took, for schemes that code.
    pub coding: Option<Arc<OnceLock<Coding>>>,
}

impl Run<'_> {
    /// Starts splitters if the cell has some, opens connections on healthy paths, then impairs or fills them, then
    /// measures. The paths are healed at the end, and splitters are gone.
    ///
    /// # Errors
    /// When something could not be set up or taken away, or `cancel` was called; the rig may not be as it was then. A
    /// message that fails is no error.
    pub fn measure(&self, cancel: &CancellationToken) -> Result<Measurement> {
        self.rig.impair(None)?;
        self.scheme.prepare(self.rig, self.cell.scenario)?;
        let borders = self.cell.scenario.borders(self.scheme.as_ref());
        let borders = borders.map(|options| self.rig.split(self.splitter, options, cancel));
        let borders = borders.transpose()?;
        let measured = self
            .measure_messages(cancel)
            .with_context(|| format!("cannot measure {} in {}", self.scheme.name(), self.cell));
        let removed = borders.map_or(Ok(()), Borders::remove);
        self.rig.impair(None)?;
        let measured = measured?;
        removed?;
        Ok(measured)
    }

    fn measure_messages(&self, cancel: &CancellationToken) -> Result<Measurement> {
        let servers = addresses::servers();
        let servers = servers.iter().take(workload::servers(self.cell.scenario));
        let servers = servers
            .map(|address| Server::start(self.scheme, &self.rig.server, *address))
            .collect::<Result<Vec<_>>>()?;
        self.rig.client.enter(|| {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    () = cancel.cancelled() => bail!("cancelled"),
                    measured = self.drive(&servers) => measured,
                }
            })
        })?
    }

    /// Runs in the client's namespace.
    async fn drive(&self, servers: &[Server]) -> Result<Measurement> {
        let addresses = addresses::servers();
        let connecting = addresses.iter().take(servers.len());
        let connecting = connecting.map(|address| self.scheme.connect(*address));
        let clients = try_join_all(connecting).await?;
        for client in &clients {
            warm_up(client.as_ref()).await?;
        }
        let bulk = self.start_bulk()?;
        let site = self.start_site_traffic();
        if bulk.is_some() || site.is_some() {
            sleep(self.lead()).await;
        }
        self.rig.impair(self.cell.scenario.impairment())?;

        let before = self.state(servers, bulk.as_ref()).await?;
        let messages = send_all(&clients, self.arrivals).await?;
        let after = self.state(servers, bulk.as_ref()).await?;

        let seconds = (after.at - before.at).as_secs_f64();
        let bulk_bytes = after.bulk_bytes - before.bulk_bytes;
        let bulk_mbit = bulk.map(|_| bulk_bytes as f64 * 8.0 / 1e6 / seconds);
        let site = match site {
            Some(site) => Some(site.end().await?),
            None => None,
        };
        Ok(Measurement {
            messages,
            server_cpu: after.server_cpu.saturating_sub(before.server_cpu),
            wire: after.wire.since(before.wire),
            bulk_mbit_per_s: bulk_mbit.or(site.as_ref().map(|it| it.bulk_mbit_per_s)),
            short_flows: site.map(|it| it.short),
        })
    }

    fn start_bulk(&self) -> Result<Option<Bulk>, NamespaceError> {
        let bulk = self.cell.scenario.bulk();
        bulk.map(|(paths, directions)| Bulk::start(self.rig, paths, directions))
            .transpose()
    }

    fn start_site_traffic(&self) -> Option<SiteTraffic> {
        self.cell.load_percent.map(|load_percent| {
            self.rig.start_site_traffic(SiteTrafficOptions {
                load_percent,
                lead: self.lead(),
                length: self.length,
                drain: LIMIT,
                seed: self.seed,
            })
        })
    }

    /// How long other traffic flows before messages do.
    fn lead(&self) -> Duration {
        BULK_LEAD + self.cell.rtt * BULK_LEAD_ROUND_TRIPS
    }

    async fn state(&self, servers: &[Server], bulk: Option<&Bulk>) -> Result<State> {
        let mut server_cpu = Duration::ZERO;
        for server in servers {
            server_cpu += server.cpu_time().await?;
        }
        let traffic = |direction| self.rig.message_traffic(direction);
        let wire = WireBytes {
            to_server: traffic(Direction::ToServer)?.bytes,
            to_client: traffic(Direction::ToClient)?.bytes,
        };
        Ok(State {
            at: Instant::now(),
            server_cpu,
            wire,
            bulk_bytes: bulk.map_or(0, Bulk::received_bytes),
        })
    }
}

/// The counters of the rig at one time.
struct State {
    at: Instant,
    server_cpu: Duration,
    wire: WireBytes,
    bulk_bytes: u64,
}

async fn warm_up(client: &dyn Client) -> Result<()> {
    let requests = (0..WARM_UP_MESSAGES).map(|_| Ok(client.request(WARM_UP_BYTES)));
    stream::iter(requests)
        .try_for_each_concurrent(WARM_UP_AT_ONCE, |request: LocalBoxFuture<'_, _>| async {
            let answer: Result<Answer> = timeout(LIMIT, request).await?;
            answer.map(|_| ())
        })
        .await
        .context("messages fail also when nothing impairs them")
}

/// Sends every request when it is due, whatever became of those before it, and waits for all.
async fn send_all(clients: &[Rc<dyn Client>], arrivals: &[Arrival]) -> Result<Vec<Message>> {
    let epoch = Instant::now() + LEAD;
    let mut clock = clock(arrivals.iter().map(|it| epoch + it.at).collect())?;
    let mut under_way = Vec::with_capacity(arrivals.len());
    for arrival in arrivals {
        let due = clock.recv().await.context("the clock has stopped")?;
        let client = Rc::clone(&clients[arrival.server]);
        under_way.push(spawn_local(send(client, due, arrival.bytes)));
    }
    let mut messages = Vec::with_capacity(under_way.len());
    for message in under_way {
        messages.push(message.await?);
    }
    Ok(messages)
}

async fn send(client: Rc<dyn Client>, due: Instant, bytes: u32) -> Message {
    let left = LIMIT.saturating_sub(due.elapsed());
    let answer = timeout(left, client.request(bytes)).await;
    let completion = due.elapsed();
    match answer {
        Ok(Ok(answer)) => Message {
            bytes,
            completion: Some(completion),
            coding: answer.coding,
        },
        // Too late, or refused: a failure is a failure.
        Ok(Err(_)) | Err(_) => Message {
            bytes,
            completion: None,
            coding: None,
        },
    }
}

/// Tells each of `times` when it has come. Tokio's own clock ticks in milliseconds, which is longer
/// than a message takes.
fn clock(times: Vec<Instant>) -> Result<mpsc::UnboundedReceiver<Instant>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::Builder::new()
        .name("clock".to_owned())
        .spawn(move || {
            // Else the kernel wakes this thread up to 50 us late, to save power. It works without.
            let _ = prctl::set_timerslack(1);
            for time in times {
                thread::sleep(time.saturating_duration_since(Instant::now()));
                if sender.send(time).is_err() {
                    return;
                }
            }
        })
        .context("cannot start the clock's thread")?;
    Ok(receiver)
}
