//! The tunnels of a site as one list, for the program that chooses among them.

use aya::maps::{Array, Map, MapData, MapInfo, PerCpuArray};
use flow_balance::ServiceTime;
use splitter_config::{Balance, Config, Tunnel};
use splitter_policy::paths::{PathCounters, SitePaths, TunnelPath};

use super::error::{map_error, typed};
use super::names::{PATH_COUNTERS, PATH_FLOWS, SITE_PATHS};
use super::shapes::Shape;
use super::{Dataplane, KernelError, Pins, TableSizes};

/// What the queue in front of a tunnel is taken to hold that the agent does not shape.
const UNKNOWN_QUEUE_NS: u64 = 200_000_000;
/// A silence that ends a flowlet: LetFlow's 500 us are for a fabric; tunnels differ by milliseconds.
const FLOWLET_GAP_NS: u64 = 50_000_000;
/// What the agent's shapers let go at once at the least: their timers are not set for less.
const LEAST_BURST_NS: u64 = 250_000;
/// However short round trips are: hosts that wait for a timer of their own are still there.
const LEAST_ROUND_TRIP_NS: u64 = 10_000_000;

/// Describes the tunnels of a configuration for the program; none where it does not choose.
/// `is_usable` is asked by the number of a tunnel, and `delay_ns` what was measured of it.
#[must_use]
pub fn site_paths(
    config: &Config,
    is_usable: impl Fn(usize) -> bool,
    delay_ns: impl Fn(usize) -> Option<u64>,
) -> Option<SitePaths> {
    config.balancers()?;
    let mut site = SitePaths {
        gap_ns: FLOWLET_GAP_NS,
        mark_mask: config.tunnel_mask(),
        has_priority: config.is_shared().into(),
        hears: config.fabric.is_some().into(),
        ..SitePaths::default()
    };
    // In a shadow nothing is chosen.
    if config.shadow {
        return Some(site);
    }
    let marked = config.tunnels().zip(config.tunnel_marks()).enumerate();
    for (path, (index, ((class, tunnel), mark))) in site.tunnels.iter_mut().zip(marked) {
        site.known |= 1 << index;
        site.own[class as usize] |= 1 << index;
        site.usable |= u64::from(is_usable(index)) << index;
        *path = TunnelPath {
            mark,
            ..described(config, tunnel, delay_ns(index))
        };
    }
    if config.is_shared() {
        allow_for_bursts(&mut site);
    }
    follow_delays(config, &mut site);
    Some(site)
}

/// Sets what follows from the delays of the tunnels, for a description whose delays have been changed.
pub fn follow_delays(config: &Config, site: &mut SitePaths) {
    site.patience_ns = patience_ns(site);
    if config
        .balancers()
        .is_some_and(|it| it.have(Balance::TrPaper))
    {
        site.gap_ns = slowest_round_trip_ns(site);
    }
}

/// What TCP bears: a quarter of the shortest round trip, and at least the time of two full frames in the slowest
/// tunnel, for a small packet arrives earlier than a large one in front of it.
fn patience_ns(site: &SitePaths) -> u64 {
    const TWO_FRAMES: u64 = 2 * 1_514;
    let known = || site.tunnels.iter().take(site.known.count_ones() as usize);
    let nearest_ns = known().map(|it| it.propagation_ns).min().unwrap_or(0);
    let frames_ns = known().map(|it| it.service.of(TWO_FRAMES)).max();
    frames_ns.unwrap_or(0).max(nearest_ns / 2)
}

/// The round trip of the slowest tunnel while nothing waits, after which the paper takes a silent short
/// flow off a path.
fn slowest_round_trip_ns(site: &SitePaths) -> u64 {
    let there_ns = site.tunnels.iter().map(|it| it.propagation_ns).max();
    there_ns
        .unwrap_or(0)
        .saturating_mul(2)
        .max(LEAST_ROUND_TRIP_NS)
}

/// A shaper lets two frames go at once, of 1,500 bytes and an Ethernet header, and what comes after them
/// when its time begins, not when it ends, and whole: segments that were merged arrive together.
fn allow_for_bursts(site: &mut SitePaths) {
    const FRAME_BYTES: u64 = 1_514;
    let known = site.known.count_ones() as usize;
    for path in site.tunnels.iter_mut().take(known) {
        path.own_service = ServiceTime::UNKNOWN;
        path.burst_ns = path.service.of(2 * FRAME_BYTES).max(LEAST_BURST_NS);
        path.queue_ns = path.queue_ns.saturating_add(path.burst_ns);
    }
}

fn described(config: &Config, tunnel: &Tunnel, measured_ns: Option<u64>) -> TunnelPath {
    let rate = config.bits_per_second(tunnel).unwrap_or(0);
    let queue_ns = match config.is_shared() {
        true => u64::try_from(config.share.queue.as_nanos()).unwrap_or(UNKNOWN_QUEUE_NS),
        false => UNKNOWN_QUEUE_NS,
    };
    let stated_ns = tunnel.delay.map(|it| it.as_nanos() as u64);
    let service = ServiceTime::from_bits_per_second(rate);
    TunnelPath {
        propagation_ns: stated_ns.or(measured_ns).unwrap_or(0),
        service,
        own_service: service,
        queue_ns,
        burst_ns: 0,
        weight: tunnel.weight.get().into(),
        mark: 0,
    }
}

/// The most flows whose path is remembered: 4 MiB.
const MOST_PLACES: u32 = 65_536;
/// However small the tables are.
const LEAST_PLACES: u32 = 1_024;

/// How many flows have a place for what a balancer remembers of them: the power of two that is next below
/// what both tables are made for, or what the pinned map has where programs go on with that. Flows whose
/// hashes share a place are kept in order together.
pub(super) fn flow_places(tables: TableSizes, pinned: Option<&Pins>) -> Result<u32, KernelError> {
    let Some(pins) = pinned else {
        let flows = tables.ipv4.saturating_add(tables.ipv6);
        return Ok(1 << flows.clamp(LEAST_PLACES, MOST_PLACES).ilog2());
    };
    let info = MapInfo::from_pin(pins.map(PATH_FLOWS)).map_err(|source| KernelError::Map {
        name: PATH_FLOWS,
        source,
    })?;
    Ok(info.max_entries())
}

/// The maps that only the program has that chooses.
pub(super) struct PathMaps {
    site: Array<MapData, Shape<SitePaths>>,
    counters: PerCpuArray<MapData, Shape<PathCounters>>,
}

impl PathMaps {
    /// Opens them where they are pinned.
    pub(super) fn open(pins: &Pins) -> Result<Option<Self>, KernelError> {
        if !pins.map(SITE_PATHS).exists() {
            return Ok(None);
        }
        let open = |name| {
            MapData::from_pin(pins.map(name)).map_err(|source| KernelError::Map { name, source })
        };
        Ok(Some(Self {
            site: typed(SITE_PATHS, Array::try_from(Map::Array(open(SITE_PATHS)?)))?,
            counters: typed(
                PATH_COUNTERS,
                PerCpuArray::try_from(Map::PerCpuArray(open(PATH_COUNTERS)?)),
            )?,
        }))
    }
}

impl Dataplane {
    /// Reads what the program knows of the tunnels that it chooses among; none where it does not.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn site_paths(&self) -> Result<Option<SitePaths>, KernelError> {
        let read = self.paths.as_ref().map(|maps| maps.site.get(&0, 0));
        let read = read.transpose().map_err(map_error(SITE_PATHS))?;
        Ok(read.map(|Shape(site)| site))
    }

    /// Has the program choose among these tunnels.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn set_site_paths(&mut self, site: SitePaths) -> Result<(), KernelError> {
        let written = self.paths.as_mut();
        let written = written.map(|maps| maps.site.set(0, Shape(site), 0));
        written.unwrap_or(Ok(())).map_err(map_error(SITE_PATHS))
    }

    /// Sums what was sent by each tunnel so far, in the order of the configuration, on all CPUs; none where
    /// the program does not choose.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn path_counters(&self) -> Result<Option<PathCounters>, KernelError> {
        let Some(maps) = &self.paths else {
            return Ok(None);
        };
        let per_cpu = maps.counters.get(&0, 0).map_err(map_error(PATH_COUNTERS))?;
        let mut sum = PathCounters::default();
        per_cpu.iter().for_each(|counters| sum.add(&counters.0));
        Ok(Some(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(policy: &str) -> SitePaths {
        paths_by("tr", policy)
    }

    fn paths_by(balance: &str, policy: &str) -> SitePaths {
        let text = format!(
            "lan = 'l'\nbalance = '{balance}'\npolicy = '{policy}'\n\
             [[tunnels]]\ndevice = 'a'\nrate_mbit = 40\ndelay_ms = 10\n\
             [[tunnels]]\ndevice = 'b'\nrate_mbit = 10\n\
             [short]\n[long]\n[steering]\nmode = 'mark'\n[share]\nshape_percent = 100\n"
        );
        let config = Config::parse(&text, "t").unwrap();
        site_paths(&config, |index| index == 1, |_| Some(3_000_000)).unwrap()
    }

    #[test]
    fn tunnels_are_described_in_their_order() {
        let site = paths("dedicated");
        assert_eq!(
            (site.known, site.usable, site.mark_mask),
            (0b11, 0b10, 0xf80)
        );
        assert_eq!(site.own, [0b01, 0b10]);
        let delays = [0, 1].map(|it| site.tunnels[it].propagation_ns);
        // Stated, and measured.
        assert_eq!(delays, [10_000_000, 3_000_000]);
        assert_eq!([0, 1].map(|it| site.tunnels[it].mark), [0x80, 0x100]);
        // Two frames at 10 Mbit/s are more than a half of 3 ms.
        assert_eq!(site.patience_ns / 1_000, 2_422);
        assert_eq!(site.has_priority, 0);
    }

    #[test]
    fn short_flow_of_the_paper_is_forgotten_after_the_slowest_round_trip() {
        assert_eq!(paths("share").gap_ns, FLOWLET_GAP_NS);
        // 10 ms and 3 ms, one way.
        assert_eq!(paths_by("tr-paper", "dedicated").gap_ns, 20_000_000);
        let near = SitePaths::default();
        assert_eq!(slowest_round_trip_ns(&near), LEAST_ROUND_TRIP_NS);
    }

    #[test]
    fn places_for_flows_follow_the_tables() {
        let places = |ipv4, ipv6| flow_places(TableSizes::new(ipv4, ipv6), None).unwrap();
        // Those of a router with 128 MB: 1 MiB.
        assert_eq!(places(13_624, 3_404), 16_384);
        assert_eq!(places(12_288, 4_092), 8_192);
        assert_eq!(places(16, 16), LEAST_PLACES);
        assert_eq!(places(1 << 24, 1 << 24), MOST_PLACES);
    }

    #[test]
    fn shaper_lets_packets_go_whole_and_two_of_them_at_once() {
        let site = paths("share");
        let delays = [0, 1].map(|it| site.tunnels[it].propagation_ns);
        assert_eq!(delays, [10_000_000, 3_000_000]);
        let own = site.tunnels.map(|it| it.own_service.of(1_514));
        assert_eq!(own, [0; 16]);
        let bursts = [0, 1].map(|it| site.tunnels[it].burst_ns / 1_000);
        assert_eq!(bursts, [605, 2_422]);
        assert_eq!(site.has_priority, 1);
    }
}
