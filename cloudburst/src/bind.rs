//! All sockets of an endpoint.

use std::net::SocketAddr;

use super::{
    BindError, EndpointConfig,
    runtime::{DatagramSocket, Runtime, SocketOptions},
};

/// Binds all sockets that are configured.
pub(super) fn bind_sockets<R: Runtime>(
    runtime: &R,
    config: &EndpointConfig,
) -> Result<Vec<R::Socket>, BindError> {
    let mut sockets = Vec::new();
    let mut failed = None;
    for &address in &config.local {
        for port in config.ports.iter() {
            let address = SocketAddr::new(address, port);
            match runtime.bind(&config.socket_options(address)) {
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
    Ok(sockets)
}

impl EndpointConfig {
    fn socket_options(&self, address: SocketAddr) -> SocketOptions {
        SocketOptions {
            address,
            dscp: self.dscp,
            buffer_bytes: self.socket_buffer_bytes,
            // Of those of one user that are shared, the system would choose one that is taken.
            shares_port: self.shares_port && address.port() != 0,
        }
    }
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

fn warn_of_small_buffers(sockets: &[impl DatagramSocket], wanted: usize) {
    let given = sockets.iter().filter_map(|it| it.buffer_bytes()).min();
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
