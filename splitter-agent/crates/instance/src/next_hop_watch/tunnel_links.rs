//! The next hops of the tunnels that packets choose among, as the kernel knows them.

use std::io;
use std::time::{Duration, Instant};

use splitter_config::Tunnel;
use splitter_datapath::{NextHops, TunnelLink};
use splitter_netlink::{Family, Interfaces, StaleNeighbour, link_address};

use super::{LookError, Tunnels};

/// Pause between two times that all is read, however much changes: routers of others, and who scans the site's addresses, make
/// the kernel tell of changes as often as they like. So much longer an old next hop may be taken.
const PAUSE: Duration = Duration::from_millis(20);

/// What was read last, and for which tunnels.
pub(super) struct TunnelLinks {
    chosen_among: Tunnels,
    read_for: Vec<Tunnel>,
    /// None of one that is absent or down.
    links: Vec<Option<TunnelLink>>,
    /// Next hops among them that were stale then. The kernel tells of those alone that turn stale while somebody listens.
    stale: Vec<StaleNeighbour>,
    /// When that was.
    read_at: Option<Instant>,
    /// Something has changed since.
    is_forgotten: bool,
}

impl TunnelLinks {
    pub(super) fn new(chosen_among: Tunnels) -> Self {
        Self {
            chosen_among,
            read_for: Vec::new(),
            links: Vec::new(),
            stale: Vec::new(),
            read_at: None,
            is_forgotten: true,
        }
    }

    /// What was read may not be right any more.
    pub(super) const fn forget(&mut self) {
        self.is_forgotten = true;
    }

    /// Has the programs know what the kernel knows now, where that may have changed or is due. Returns how long it has to wait
    /// with that, if it has.
    pub(super) fn keep(
        &mut self,
        next_hops: &mut NextHops,
        is_due: bool,
    ) -> Result<Option<Duration>, LookError> {
        let tunnels = self.chosen_among.locked().clone();
        let is_other = tunnels != self.read_for;
        if !(self.is_forgotten || is_due || is_other) {
            return Ok(None);
        }
        let left = self.read_at.and_then(|it| PAUSE.checked_sub(it.elapsed()));
        if let Some(left) = left.filter(|it| !is_other && !it.is_zero()) {
            self.is_forgotten = true;
            return Ok(Some(left));
        }
        self.read_at = Some(Instant::now());
        if !(tunnels.is_empty() && self.read_for.is_empty()) {
            (self.links, self.stale) = read(&tunnels)?;
            next_hops.write_tunnels(&self.links)?;
        }
        self.read_for = tunnels;
        self.is_forgotten = false;
        Ok(None)
    }

    /// Takes the next hops that were stale when all was read, to be asked: packets may choose them at any time, and the stack
    /// sees none of those.
    pub(super) fn take_stale(&mut self) -> Vec<StaleNeighbour> {
        std::mem::take(&mut self.stale)
    }

    /// Tells if it is the next hop of one of them: packets may choose it at any time.
    pub(super) fn have(&self, interface: u32, address: [u8; 6]) -> bool {
        let mut known = self.links.iter().flatten();
        known.any(|it| it.device == interface && it.next_hops.contains(&Some(address)))
    }
}

/// The tunnels' links, and those of their next hops that are stale.
type Read = (Vec<Option<TunnelLink>>, Vec<StaleNeighbour>);

fn read(tunnels: &[Tunnel]) -> io::Result<Read> {
    if tunnels.is_empty() {
        return Ok(Read::default());
    }
    let interfaces = Interfaces::now()?;
    let mut stale = Vec::new();
    let links = tunnels.iter().map(|it| link(&interfaces, it, &mut stale));
    Ok((links.collect::<io::Result<_>>()?, stale))
}

fn link(
    interfaces: &Interfaces,
    tunnel: &Tunnel,
    stale: &mut Vec<StaleNeighbour>,
) -> io::Result<Option<TunnelLink>> {
    let interface = interfaces.named(&tunnel.device).ok();
    let Some(interface) = interface.filter(|it| it.is_up && it.has_carrier) else {
        return Ok(None);
    };
    let Some(own_address) = interface.address else {
        return Ok(None);
    };
    let mut next_hops = [None; 2];
    for (next_hop, family) in next_hops.iter_mut().zip([Family::V4, Family::V6]) {
        let Some(address) = tunnel.gateway.of(family) else {
            continue;
        };
        let Some(known) = link_address(interface.index, address)? else {
            continue;
        };
        *next_hop = Some(known.bytes);
        if known.is_stale {
            stale.push(StaleNeighbour {
                interface: interface.index,
                address,
                link_address: known.bytes,
            });
        }
    }
    Ok(Some(TunnelLink {
        device: interface.index,
        mtu: interface.mtu,
        address: own_address,
        next_hops,
    }))
}
