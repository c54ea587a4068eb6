//! The server: a process of its own, so that what it takes is its own.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result};
use cloudburst::{Endpoint, EndpointConfig, PublicKey, SecretKey, Security};

use crate::process::Usage;

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
        let address = endpoint.local_addrs()[0];
        writeln!(io::stdout(), "{address}")?;
        loop {
            endpoint.recv().await?;
        }
    })
}

/// A server that runs, seen by who started it. It ends when this is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    pub(crate) key: PublicKey,
}

impl Server {
    /// Starts one for so many peers.
    pub(crate) fn start(peers: u32) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let mut process = Command::new(own)
            .args(["--serve", &peers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server")?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let address = line.trim().parse();
        Ok(Self {
            address: address.context("the server does not say where it listens")?,
            key: key(0).public(),
            process,
        })
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.process.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
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
