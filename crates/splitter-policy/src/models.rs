//! What a host models of its tunnels.
//!
//! The values may be shared by several CPUs, which overwrite each other's
//! updates now and then: they steer, and do not account.

use crate::config::Config;
use crate::dedicated::Tunnels;
use crate::egress::Ride;
use crate::flow::{FlowEntry, Tunnel};
use crate::flow_packet::FlowPacket;
use crate::share::{Sent, SharedTunnels, Sharing};

/// Where a host keeps the models, and how it asks them.
pub trait Models: Sharing {
    /// Of tunnels that have one class each. `None` only where a kernel program
    /// finds no map, which cannot be.
    fn dedicated(&mut self) -> Option<&mut Tunnels>;
}

/// Both models in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelModels {
    /// Of tunnels that have one class each.
    pub dedicated: Tunnels,
    /// Of tunnels that carry both.
    pub shared: SharedTunnels,
}

impl Models for TunnelModels {
    fn dedicated(&mut self) -> Option<&mut Tunnels> {
        Some(&mut self.dedicated)
    }
}

impl Sharing for TunnelModels {
    fn start(&mut self, config: &Config, now_ns: u64) -> Tunnel {
        self.shared.start(config, now_ns)
    }

    fn choose(&mut self, config: &Config, now_ns: u64) -> Tunnel {
        self.shared.choose(config, now_ns)
    }

    fn send(&mut self, config: &Config, entry: &mut FlowEntry, sent: &Sent) -> Ride {
        self.shared.send(config, entry, sent)
    }

    fn send_placed(
        &mut self,
        config: &Config,
        tunnel: Tunnel,
        packet: FlowPacket,
        is_first_of_window: bool,
        now_ns: u64,
    ) -> Ride {
        self.shared
            .send_placed(config, tunnel, packet, is_first_of_window, now_ns)
    }
}

impl<M: Models> Models for &mut M {
    #[inline(always)]
    fn dedicated(&mut self) -> Option<&mut Tunnels> {
        (**self).dedicated()
    }
}

impl<M: Sharing> Sharing for &mut M {
    #[inline(always)]
    fn start(&mut self, config: &Config, now_ns: u64) -> Tunnel {
        (**self).start(config, now_ns)
    }

    #[inline(always)]
    fn choose(&mut self, config: &Config, now_ns: u64) -> Tunnel {
        (**self).choose(config, now_ns)
    }

    #[inline(always)]
    fn send(&mut self, config: &Config, entry: &mut FlowEntry, sent: &Sent) -> Ride {
        (**self).send(config, entry, sent)
    }

    #[inline(always)]
    fn send_placed(
        &mut self,
        config: &Config,
        tunnel: Tunnel,
        packet: FlowPacket,
        is_first_of_window: bool,
        now_ns: u64,
    ) -> Ride {
        (**self).send_placed(config, tunnel, packet, is_first_of_window, now_ns)
    }
}
