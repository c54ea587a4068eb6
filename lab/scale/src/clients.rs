//! Peers of the server: endpoints with a socket and a key pair each, in this process.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result};
use cloudburst::{Endpoint, EndpointConfig, PeerId, Ports, PublicKey, Security, Sending};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    process::allow_open_files,
    server::{Server, key},
};

/// Peers that connect at the same time.
const CONNECTING: usize = 64;
/// What each sends at first, so that the server knows it.
const HELLO: &[u8] = b"here";
/// A message of those that follow one another.
const SHORT: &[u8] = &[7; 100];
/// Messages of a peer that are under way at the same time, where one follows the other.
const UNDER_WAY: usize = 64;

/// An endpoint, and the server as its peer.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) endpoint: Endpoint,
    pub(crate) server: PeerId,
}

/// A server and so many clients that it knows.
pub(crate) struct Crowd {
    pub(crate) clients: Vec<Client>,
    pub(crate) server: Server,
    pub(crate) runtime: Runtime,
}

impl Crowd {
    /// Starts a server, and clients that have delivered a message each.
    pub(crate) fn gather(peers: u32, keepalive: Option<Duration>) -> Result<Self> {
        // A socket and a timer for each, and what a process has open otherwise.
        allow_open_files(2 * u64::from(peers) + 256)?;
        let server = Server::start(peers)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let clients = runtime.block_on(connect_all(&server, peers, keepalive))?;
        Ok(Self {
            clients,
            server,
            runtime,
        })
    }
}

async fn connect_all(
    server: &Server,
    peers: u32,
    keepalive: Option<Duration>,
) -> Result<Vec<Client>> {
    let mut connecting = JoinSet::new();
    let mut clients = Vec::new();
    let (address, public) = (server.address, server.key);
    for number in 1..=peers {
        if connecting.len() == CONNECTING
            && let Some(client) = connecting.join_next().await
        {
            clients.push(client??);
        }
        connecting.spawn(async move {
            let client = connect(number, address, public, keepalive).await;
            client.with_context(|| format!("peer {number} of {peers}"))
        });
    }
    while let Some(client) = connecting.join_next().await {
        clients.push(client??);
    }
    Ok(clients)
}

async fn connect(
    number: u32,
    address: SocketAddr,
    public: PublicKey,
    keepalive: Option<Duration>,
) -> Result<Client> {
    let mut config = EndpointConfig::client(Security::key_pair(key(number)))
        .with_local([address_of(number)])?
        .with_ports(Ports::Any(1))?;
    if let Some(interval) = keepalive {
        config = config.with_keepalive(interval)?;
    }
    let endpoint = Endpoint::bind(config).await?;
    let server = endpoint.connect_to(public, [address]).await?;
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
    pub(crate) async fn send_in_a_row(&self, messages: u64) -> Result<()> {
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
