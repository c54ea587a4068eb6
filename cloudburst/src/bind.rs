//! All sockets of an endpoint.

use std::net::SocketAddr;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::sync::Arc;

#[cfg(any(target_os = "linux", target_os = "android"))]
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    BindError, EndpointConfig, datagram_socket::DatagramSocket, memory::MemoryNetwork,
    socket::Socket,
};
#[cfg(any(target_os = "linux", target_os = "android"))]
use super::{icmp, watched::WatchedSocket};
#[cfg(any(target_os = "linux", target_os = "android"))]
use cloudburst_proto::SocketId;

/// Binds all sockets that are configured.
pub(super) fn bind_sockets(config: &EndpointConfig) -> Result<Vec<DatagramSocket>, BindError> {
    let mut sockets = Vec::new();
    let mut failed = None;
    for &address in &config.local {
        for port in config.ports.iter() {
            let address = SocketAddr::new(address, port);
            match Socket::bind(address, config.dscp, config.socket_buffer_bytes) {
                Ok(socket) => sockets.push(socket),
                // A machine without IPv6 (or without IPv4) still has all its addresses.
                Err(BindError::Socket { source, .. })
                    if address.ip().is_unspecified() && is_no_family(&source) =>
                {
                    failed = Some(BindError::at(address, "bind", source));
                    break;
                }
                Err(BindError::NotLocal { .. }) if address.ip().is_unspecified() => {
                    failed = Some(BindError::NotLocal { address });
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    match failed {
        Some(error) if sockets.is_empty() => return Err(error),
        _ => warn_of_small_buffers(&sockets, config.socket_buffer_bytes),
    }
    Ok(sockets.into_iter().map(DatagramSocket::Udp).collect())
}

/// Binds all sockets that are configured, in a network in memory.
pub(super) fn bind_in_memory(
    config: &EndpointConfig,
    network: &MemoryNetwork,
) -> Result<Vec<DatagramSocket>, BindError> {
    let addresses = config.local.iter();
    let addresses = addresses.flat_map(|&ip| config.ports.iter().map(move |it| (ip, it).into()));
    let bind = |it| network.bind_socket(it, config.socket_buffer_bytes);
    addresses
        .map(|address| Ok(DatagramSocket::Memory(bind(address)?)))
        .collect()
}

fn is_no_family(error: &std::io::Error) -> bool {
    // EAFNOSUPPORT has no kind of its own.
    matches!(error.raw_os_error(), Some(97 | 47 | 10_047))
}

/// Names the system's own limit of what a socket may ask for.
const LARGEST_BUFFERS: &str = if cfg!(any(target_os = "linux", target_os = "android")) {
    "net.core.rmem_max and net.core.wmem_max"
} else if cfg!(unix) {
    "kern.ipc.maxsockbuf"
} else {
    "the system's limit"
};

fn warn_of_small_buffers(sockets: &[Socket], wanted: usize) {
    let given = sockets.iter().filter_map(|it| it.buffer_bytes().ok()).min();
    if let Some(given) = given.filter(|given| *given < wanted) {
        tracing::warn!(
            event = "small_buffers",
            wanted_bytes = wanted,
            given_bytes = given,
            "the kernel gives sockets smaller buffers than wanted, so bursts may be lost; \
             raise {LARGEST_BUFFERS}, or lower socket_buffer_bytes"
        );
    }
}

/// Tasks that hear of what the network cannot deliver, one for each socket.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
pub(super) struct Watchers {
    tasks: Vec<Watcher>,
    reported: mpsc::Sender<icmp::Notice>,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Watchers {
    pub(super) fn start(sockets: &[DatagramSocket]) -> (Self, mpsc::Receiver<icmp::Notice>) {
        let (reported, notices) = mpsc::channel(64);
        let sockets = (0..).map(SocketId).zip(sockets);
        let sockets = sockets.filter_map(|(id, socket)| Some((id, socket.udp()?)));
        let tasks = sockets.map(|(id, socket)| Watcher::start(id, socket, &reported));
        let tasks = tasks.collect();
        (Self { tasks, reported }, notices)
    }

    /// Listens to a socket that has taken another's place.
    pub(super) fn replace(&mut self, id: SocketId, io: &Arc<WatchedSocket>) {
        if let Some(watcher) = self.tasks.get_mut(usize::from(id.0)) {
            *watcher = Watcher::start(id, io, &self.reported);
        }
    }
}

/// A task that ends with this.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
struct Watcher(JoinHandle<()>);

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Watcher {
    fn start(id: SocketId, io: &Arc<WatchedSocket>, reported: &mpsc::Sender<icmp::Notice>) -> Self {
        Self(tokio::spawn(icmp::watch(
            id,
            Arc::clone(io),
            reported.clone(),
        )))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}
