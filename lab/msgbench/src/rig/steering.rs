//! Which path a packet takes.
//!
//! As switches do, a router hashes addresses and ports of what comes from its site. It is done here
//! by hand: the kernel's own ECMP over virtual Ethernet hashes what the sending socket chose, not
//! the header, so that a connection changes paths with each of its timeouts, and TCP escapes a dead
//! path as it would not on real switches.
//!
//! What a splitter at the router has chosen a path for stays there.

use std::fmt::Write as _;

use flow_testbed::namespace::NamespaceError;

use super::{LAN, PATHS, Rig, addresses, bulk};

/// The client's UDP port of the first path that is named by its port.
const FIRST_EXPLICIT_PORT: u16 = 7_011;

/// Returns UDP ports of the client that are bound to one path each, in both directions, as path identifiers
/// that switches look at. What uses them need not guess paths.
pub fn explicit_ports() -> [u16; PATHS] {
    std::array::from_fn(|path| FIRST_EXPLICIT_PORT + path as u16)
}

/// The bits of the kernel's mark in which a splitter at a router says where a packet goes.
const SPLITTER_BITS: u32 = 0xfff;

/// The mark of packets for a path, beyond the splitter's bits.
pub(super) fn mark(path: usize) -> u32 {
    (path as u32 + 1) << 16
}

impl Rig {
    /// Makes the routers hash again: `seed` decides which ports lead to which path. The two directions
    /// of a connection are independent, as in real networks.
    ///
    /// # Errors
    /// When `nft` fails.
    pub fn steer(&self, seed: u32) -> Result<(), NamespaceError> {
        let pinned = addresses::pinned();
        let pinned = pinned
            .iter()
            .enumerate()
            .map(|(path, it)| format!("{it} : {}", mark(path)));
        let pinned: Vec<String> = pinned.collect();
        for (router, here, client_port, server_port, side) in [
            (&self.router_a, "saddr", "sport", "dport", 0),
            (&self.router_b, "daddr", "dport", "sport", 1),
        ] {
            let seed = seed.wrapping_mul(2).wrapping_add(side);
            let (mut bulk, mut explicit) = (String::new(), String::new());
            let mut hashed = String::new();
            for (path, port) in explicit_ports().into_iter().enumerate() {
                let _ = write!(bulk, "{} : {}, ", bulk::port(path), mark(path));
                let _ = write!(explicit, "{port} : {}, ", mark(path));
                let _ = write!(hashed, "{path} : {}, ", mark(path));
            }
            let rules = format!(
                "table ip steering
                 delete table ip steering
                 table ip steering {{
                   chain from-site {{
                     type filter hook prerouting priority mangle; policy accept;
                     iifname != {LAN} accept
                     meta mark and {SPLITTER_BITS:#x} != 0 accept
                     meta l4proto {{ tcp, udp }} meta mark set jhash ip saddr . ip daddr . th sport . th dport mod {PATHS} seed {seed:#x} map {{ {hashed} }}
                     meta mark set ip {here} map {{ {} }}
                     meta mark set tcp {server_port} map {{ {bulk} }}
                     meta mark set udp {client_port} map {{ {explicit} }}
                   }}
                 }}\n",
                pinned.join(", ")
            );
            router.run_with_input("nft -f -", &rules)?;
        }
        Ok(())
    }
}
