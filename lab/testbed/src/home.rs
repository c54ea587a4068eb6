//! A client at home, behind an address translator and a stateful firewall, and a server on the Internet.
//!
//! ```text
//! client ── lan0 ┐ router ┌ wan0 ── server
//! 192.168.7.2    └────────┘         198.51.100.7, 198.51.100.9
//! ```

use crate::namespace::{Namespace, NamespaceError};

/// The server's first address, which its system chooses by itself.
pub const SERVER: &str = "198.51.100.7";
/// An address of the server that its system does not choose by itself.
pub const SECONDARY: &str = "198.51.100.9";

/// A client at home, its router, and a server on the Internet.
#[derive(Debug)]
pub struct Home {
    /// The client's machine, on the inside.
    pub client: Namespace,
    /// The router, which translates addresses and lets in what was asked for.
    pub router: Namespace,
    /// The server's machine, on the Internet.
    pub server: Namespace,
}

impl Home {
    /// Makes the three machines.
    ///
    /// # Errors
    ///
    /// Those of the system; also if the kernel translates no addresses.
    pub fn new() -> Result<Self, NamespaceError> {
        let client = Namespace::new("client")?;
        let router = Namespace::new("router")?;
        let server = Namespace::new("server")?;
        client.connect("eth0", &router, "lan0")?;
        server.connect("eth0", &router, "wan0")?;
        for (host, device, addresses) in [
            (&client, "eth0", &["192.168.7.2"][..]),
            (&router, "lan0", &["192.168.7.1"]),
            (&router, "wan0", &["198.51.100.1"]),
            (&server, "eth0", &[SERVER, SECONDARY]),
        ] {
            for address in addresses {
                host.run(&format!("ip address add {address}/24 dev {device}"))?;
            }
            host.run(&format!("ip link set {device} up"))?;
        }
        client.run("ip route add default via 192.168.7.1")?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        let rules = "table ip home {
             chain translation {
                 type nat hook postrouting priority srcnat;
                 oifname wan0 masquerade
             }
             chain firewall {
                 type filter hook forward priority 0; policy drop;
                 iifname lan0 accept
                 ct state established,related accept
             }
         }\n";
        router.run_with_input("nft -f -", rules)?;
        Ok(Self {
            client,
            router,
            server,
        })
    }

    /// Limits both directions by a queueing discipline, in front of the client.
    ///
    /// # Errors
    ///
    /// If the kernel does not have it.
    pub fn limit(&self, discipline: &str) -> Result<(), NamespaceError> {
        for device in ["lan0", "wan0"] {
            let line = format!("tc qdisc add dev {device} root {discipline}");
            self.router.run(&line)?;
        }
        Ok(())
    }

    /// Has the server's machine let in no datagram but those for these ports, and out none but answers.
    ///
    /// # Errors
    ///
    /// If the kernel tracks no connections.
    pub fn guard_server(&self, ports: &str) -> Result<(), NamespaceError> {
        let rules = format!(
            "table inet guard {{
                 chain incoming {{
                     type filter hook input priority 0; policy drop;
                     udp dport {ports} accept
                     ct state established,related accept
                 }}
                 chain outgoing {{
                     type filter hook output priority 0; policy drop;
                     ct state established,related accept
                 }}
             }}\n"
        );
        self.server.run_with_input("nft -f -", &rules)?;
        Ok(())
    }

    /// Returns true if a socket of UDP is bound to a port of the server's machine.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn listens(&self, port: u16) -> Result<bool, NamespaceError> {
        let sockets = self.server.run("cat /proc/net/udp /proc/net/udp6")?;
        Ok(sockets.contains(&format!(":{port:04X} ")))
    }
}
