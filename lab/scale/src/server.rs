//! The server: a process of its own, so that what it takes is its own.

use std::{
    io::{self, Read as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use anyhow::Result;
use cloudburst::{Endpoint, EndpointConfig, SecretKey, Security};
use flow_cli::print_json_line;

use crate::{process::Usage, worker::Worker};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The key of peer `number`; the server's is that of 0. They are for this machine and these minutes.
pub(crate) fn key(number: u32) -> SecretKey {
    let mut bytes = [0x5c; 32];
    // Not at the ends, of which bits are of no account (RFC 7748 §5).
    bytes[8..12].copy_from_slice(&number.to_le_bytes());
    SecretKey::new(bytes)
}

/// Takes what comes from peers 1 to `peers` until standard input ends.
pub(crate) fn run(peers: u32) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // A thread that only waits for the end, and is never woken before.
    std::thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    runtime.block_on(async {
        let allowed = (1..=peers).map(|number| key(number).public());
        let security = Security::with_allowed(key(0), allowed);
        let config = EndpointConfig::server(0, security).with_local([LOOPBACK])?;
        let endpoint = Endpoint::bind(config).await?;
        print_json_line(&endpoint.local_addrs()[0])?;
        loop {
            endpoint.recv().await?;
        }
    })
}

/// A server that runs, seen by who started it. It ends when this is dropped.
pub(crate) struct Server {
    process: Worker,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts one for so many peers.
    pub(crate) fn start(peers: u32) -> Result<Self> {
        let mut process = Worker::start(["--serve", &peers.to_string()])?;
        let address = process.hear()?;
        Ok(Self { process, address })
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        self.process.usage()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_peer_has_a_key_of_its_own() {
        let keys: BTreeSet<_> = (0..300).map(|number| key(number).public()).collect();
        assert_eq!(keys.len(), 300);
    }
}
