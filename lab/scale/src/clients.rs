//! Some of a server's peers: endpoints with a socket and a key pair each, in a process of their own, which does
//! what it is told on its standard input.

use std::{
    collections::VecDeque,
    io::{self, BufRead as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use cloudburst::{Endpoint, EndpointConfig, PeerId, Ports, Security, Sending};
use flow_cli::print_json_line;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    process::{allow_open_files, monotonic},
    server::key,
};

/// Peers that connect at the same time.
const CONNECTING: usize = 64;
/// The lifetime of messages: none is given up on a machine that stands still for seconds, as how long they take is
/// what is measured.
const PATIENCE: Duration = Duration::from_secs(60);
/// What each sends at first, so that the server knows it.
const HELLO: &[u8] = b"here";
/// A message of those that follow one another.
const SHORT: &[u8] = &[7; 100];
/// Messages of a peer that are under way at the same time, where one follows the other.
const UNDER_WAY: usize = 64;
/// Bytes of a message of those that are sent at the same time.
const LONG_BYTES: usize = 5_000;

/// Clients of a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) server: SocketAddr,
    /// Files that they have open.
    pub(crate) open_files: u64,
    pub(crate) keepalive_s: Option<u64>,
}

/// Something that they do; what comes of it is a line of the standard output.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum Order {
    /// The first delivers so many messages.
    InARow { messages: u64 },
    /// Each sends a message at this time of the clock that all processes have.
    AtOnce { begin: Duration },
}

/// An endpoint, and the server as its peer.
#[derive(Clone, Debug)]
struct Client {
    endpoint: Endpoint,
    server: PeerId,
}

/// Connects the clients of this process, and obeys until standard input ends.
pub(crate) fn run(job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job)?;
    let told = listen();
    allow_open_files(job.open_files)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let clients = runtime.block_on(connect_all(&job))?;
    print_json_line(&())?;
    for line in told {
        match serde_json::from_str(&line)? {
            Order::InARow { messages } => {
                runtime.block_on(clients[0].send_in_a_row(messages))?;
                print_json_line(&())?;
            }
            Order::AtOnce { begin } => {
                print_json_line(&runtime.block_on(send_at_once(&clients, begin))?)?
            }
        }
    }
    Ok(())
}

/// Reads lines of standard input. Where it ends, so does this process, whatever it is about: who would hear
/// of it has ended, as has the server, and to connect or send to that takes until all has been tried.
fn listen() -> Receiver<String> {
    let (hand_over, told) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if hand_over.send(line).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    told
}

async fn connect_all(job: &Job) -> Result<Vec<Client>> {
    let mut connecting = JoinSet::new();
    let mut clients = Vec::new();
    for number in job.first..job.first + job.count {
        if connecting.len() == CONNECTING
            && let Some(client) = connecting.join_next().await
        {
            clients.push(client??);
        }
        let (server, keepalive) = (job.server, job.keepalive_s.map(Duration::from_secs));
        connecting.spawn(async move {
            let client = connect(number, server, keepalive).await;
            client.with_context(|| format!("peer {number}"))
        });
    }
    while let Some(client) = connecting.join_next().await {
        clients.push(client??);
    }
    Ok(clients)
}

async fn connect(number: u32, address: SocketAddr, keepalive: Option<Duration>) -> Result<Client> {
    let mut config = EndpointConfig::client(Security::key_pair(key(number)))
        .with_local([address_of(number)])?
        .with_ports(Ports::Any(1))?
        .with_lifetime(PATIENCE)?;
    if let Some(interval) = keepalive {
        config = config.with_keepalive(interval)?;
    }
    let endpoint = Endpoint::bind(config).await?;
    let server = endpoint.connect_to(key(0).public(), [address]).await?;
    endpoint.send(server, HELLO).await?;
    Ok(Client { endpoint, server })
}

/// An address of its own for each peer, of the 16 million that lead back to this machine: a server opens
/// at most 50 conversations a second with hosts of one address.
fn address_of(number: u32) -> IpAddr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + number).into()
}

impl Client {
    /// Delivers so many messages, some under way at the same time.
    async fn send_in_a_row(&self, messages: u64) -> Result<()> {
        let mut under_way: VecDeque<Sending> = VecDeque::with_capacity(UNDER_WAY);
        for _ in 0..messages {
            if under_way.len() == UNDER_WAY
                && let Some(first) = under_way.pop_front()
            {
                first.await?;
            }
            let sending = self.endpoint.enqueue(self.server, SHORT);
            under_way.push_back(sending.await?);
        }
        for sending in under_way {
            sending.await?;
        }
        Ok(())
    }
}

/// The time of each message from the common beginning, and nothing for one that was not delivered.
async fn send_at_once(clients: &[Client], begin: Duration) -> Result<Vec<Option<Duration>>> {
    let (start, _) = watch::channel(None);
    let mut sending = JoinSet::new();
    for client in clients {
        let client = client.clone();
        let mut started = start.subscribe();
        sending.spawn(async move {
            let started: Instant = (*started.wait_for(Option::is_some).await.ok()?)?;
            let message = vec![7; LONG_BYTES];
            let sent = client.endpoint.send(client.server, message).await;
            sent.is_ok().then(|| started.elapsed())
        });
    }
    let left = begin.checked_sub(monotonic()?);
    let left = left.context("the time at which all were to send was over before all knew of it")?;
    // This thread alone waits: the runtime's timers are in milliseconds.
    thread::sleep(left);
    let late = monotonic()?.saturating_sub(begin);
    start.send_replace(Instant::now().checked_sub(late));
    Ok(sending.join_all().await)
}
