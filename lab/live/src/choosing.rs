//! Four tunnels among which redirected frames choose, as an agent describes them to the program: two by each device.

use anyhow::{Context as _, Result};
use aya::Pod;
use aya::maps::Array;
use flow_balance::ServiceTime;
use splitter_policy::forward::TARGET_SLOTS;
use splitter_policy::next_hop::{TunnelHop, TunnelHops};
use splitter_policy::paths::{SitePaths, TunnelPath};

use crate::loaded::Loaded;
use crate::rig::{self, Rig, SINKS, TUNNELS};

/// The program that ships, by which each frame chooses. Its balancer is TR without a loader that sets another.
pub(crate) const PROGRAM: &str = "redir_balanced";

const COUNT: usize = 4;

/// The one that all frames choose, as nothing waits in front of any. By the device of the short class, so that a long flow's
/// frames take it by choice alone.
const NEAREST: usize = 0;

/// A value as the kernel program has it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Plain<T>(T);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Plain<SitePaths> {}
// SAFETY: as above.
unsafe impl Pod for Plain<TunnelHops> {}

/// Tells the program of the tunnels, and of their next hops.
pub(crate) fn describe(shipped: &mut Loaded, rig: &Rig) -> Result<()> {
    let (mut site, mut hops) = (site(), TunnelHops::default());
    hops.mtu = 1_500;
    for number in 0..COUNT {
        let (tunnel, sink) = (TUNNELS[number % 2], SINKS[number % 2]);
        let device = rig::index(&rig.router, tunnel)?;
        site.devices[number] = device;
        let mut link = [0; 12];
        link[..6].copy_from_slice(&rig::link_address(&rig.sinks, sink)?);
        link[6..].copy_from_slice(&rig::link_address(&rig.router, tunnel)?);
        hops.hops[number] = TunnelHop {
            device,
            // As slots are given out here.
            slot: device % TARGET_SLOTS,
            link,
        };
    }
    let mut paths: Array<_, Plain<SitePaths>> = shipped.map("SITE_PATHS").try_into()?;
    paths
        .set(0, Plain(site), 0)
        .context("the tunnels cannot be told")?;
    let mut known: Array<_, Plain<TunnelHops>> = shipped.map("TUNNEL_HOPS").try_into()?;
    for family in 0..2 {
        known
            .set(family, Plain(hops), 0)
            .context("the next hops cannot be told")?;
    }
    Ok(())
}

/// Frames of both classes that have chosen the nearest tunnel, and were put into it.
pub(crate) fn chose_nearest(shipped: &Loaded) -> u64 {
    let chosen = shipped.chosen();
    chosen.short_packets[NEAREST] + chosen.long_packets[NEAREST]
}

/// Tunnels that carry more than comes.
fn site() -> SitePaths {
    let all = (1 << COUNT) - 1;
    let mut site = SitePaths {
        known: all,
        usable: all,
        ..SitePaths::default()
    };
    for (number, tunnel) in site.tunnels[..COUNT].iter_mut().enumerate() {
        *tunnel = TunnelPath {
            propagation_ns: match number {
                NEAREST => 1_000_000,
                _ => 2_000_000,
            },
            service: ServiceTime::from_bits_per_second(10_000_000_000_000),
            own_service: ServiceTime::from_bits_per_second(10_000_000_000_000),
            queue_ns: 5_000_000,
            weight: 1,
            ..TunnelPath::default()
        };
    }
    site
}
