//! The program that chooses a tunnel for each packet, run by the kernel (`BPF_PROG_TEST_RUN`) with the maps of a
//! fabric's programs in its own: by what spines report of their ports.

use std::time::Duration;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, ArrayOfMaps, MapData, PerCpuArray};
use aya::{Ebpf, EbpfLoader, Pod};
use flow_balance::{PathId, RemoteBacklogs, ServiceTime};
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use splitter_config::PacketLog;
use splitter_datapath::clock::monotonic_ns;
use splitter_datapath::{Object, fabric_object};
use splitter_policy::config::PolicyConfig;
use splitter_policy::fwmark::MarkBits;
use splitter_policy::paths::{PathCounters, SitePaths, TunnelPath, UplinkNumbers};
use splitter_policy::sites::SiteKey;

use crate::policy as support;
use crate::support::loaded::Loaded;
use support::packet::{Packet as Frame, Upper};

const PROGRAM: &str = "mark_balanced";
const TUNNEL_BITS: u32 = 0xf80;
/// Of all IPv4, and of all IPv6.
const LEAVES: [u32; 2] = [3, 15];
/// The first tunnel, which is the nearest, and the second.
const UPLINKS: [usize; 2] = [2, 0];
const LONG: Duration = Duration::from_secs(10);

/// A value that is shared with the kernel programs.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Plain<T>(T);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Plain<SitePaths> {}
// SAFETY: as above.
unsafe impl Pod for Plain<UplinkNumbers> {}
// SAFETY: as above.
unsafe impl Pod for Plain<RemoteBacklogs> {}
// SAFETY: as above.
unsafe impl Pod for Plain<PathCounters> {}

fn path(number: usize) -> PathId {
    PathId::new(number).expect("there are 16")
}

/// Three tunnels of 1 Gbit/s, of which the last is no uplink and the farthest.
fn site(hears: bool) -> SitePaths {
    let mut site = SitePaths {
        known: 0b111,
        usable: 0b111,
        mark_mask: TUNNEL_BITS,
        hears: hears.into(),
        ..SitePaths::default()
    };
    for (tunnel, number) in site.tunnels.iter_mut().zip(1..4u32) {
        *tunnel = TunnelPath {
            propagation_ns: u64::from(number) * 2_000_000,
            service: ServiceTime::from_bits_per_second(1_000_000_000),
            own_service: ServiceTime::from_bits_per_second(1_000_000_000),
            queue_ns: 25_000_000,
            mark: number << TUNNEL_BITS.trailing_zeros(),
            ..TunnelPath::default()
        };
    }
    site
}

/// A kernel with the program, and with a fabric's maps.
struct Kernel {
    loaded: Loaded,
    fabric: Ebpf,
    flows: u16,
}

impl Kernel {
    fn new() -> Self {
        let object = Object::for_level(PacketLog::Off).expect("is embedded");
        let mut loaded = Loaded::new(object.bytes(), 4_096);
        loaded.load_classifier(PROGRAM);
        loaded.set(PolicyConfig {
            mark_bits: MarkBits::new(0x7e).expect("one run"),
            ..PolicyConfig::default()
        });
        let object = fabric_object().expect("is embedded");
        let mut fabric = EbpfLoader::new().load(&object).expect("the object loads");
        let map = fabric.map_mut("LEAVES").expect("is in the object");
        let mut leaves: LpmTrie<_, [u32; 5], u32> = map.try_into().expect("is a trie");
        for (everything, leaf) in ["0.0.0.0", "::"].into_iter().zip(LEAVES) {
            let key = SiteKey::of_prefix(everything.parse().expect("an address"), 0);
            let inserted = leaves.insert(&Key::new(key.bits, key.words), leaf, 0);
            inserted.expect("can be written");
        }
        let mut kernel = Self {
            loaded,
            fabric,
            flows: 0,
        };
        kernel.set("SITE_PATHS", Plain(site(true)));
        kernel
    }

    fn set<T: Pod>(&mut self, name: &str, value: T) {
        let mut map: Array<_, T> = self.loaded.map(name).try_into().expect("is an array");
        map.set(0, value, 0).expect("can be written");
    }

    /// As the agent does when a leaf's role is in place.
    fn give(&mut self, place: &str, name: &str) {
        let map = self.fabric.map(name).expect("is in the object");
        let map = match map {
            aya::maps::Map::Array(map) | aya::maps::Map::LpmTrie(map) => map,
            other => panic!("{name} is {other:?}"),
        };
        let outer = self.loaded.map(place).try_into();
        let mut outer: ArrayOfMaps<_, MapData> = outer.expect("is an array of maps");
        outer.set(0, map, 0).expect("it has that shape");
    }

    fn set_uplinks(&mut self) {
        let mut uplinks = UplinkNumbers::default();
        for (tunnel, uplink) in UPLINKS.into_iter().enumerate() {
            uplinks.set(path(tunnel), path(uplink));
        }
        self.set("HEARD_UPLINKS", Plain(uplinks));
    }

    /// A spine reports, so long ago, how full its port to a leaf was.
    fn report(&mut self, leaf: u32, uplink: usize, backlog: Duration, ago: Duration) {
        let map = self.fabric.map_mut("REMOTE").expect("is in the object");
        let mut remote: Array<_, Plain<RemoteBacklogs>> = map.try_into().expect("is an array");
        let mut reports = remote.get(&leaf, 0).expect("is there").0;
        let heard_ns = monotonic_ns() - ago.as_nanos() as u64;
        let behind = reports.behind_mut(path(uplink));
        behind.report(backlog.as_nanos() as u64, heard_ns);
        remote.set(leaf, Plain(reports), 0).expect("is there");
    }

    /// The tunnels that first packets of new flows take, of IPv4 and of IPv6.
    fn chosen(&mut self) -> [usize; 2] {
        self.flows += 1;
        let port = 3_000 + self.flows;
        [Frame::tcp_v4(), Frame::tcp_v6()].map(|frame| self.choose(frame, port))
    }

    fn choose(&mut self, mut frame: Frame, port: u16) -> usize {
        frame.upper = Upper::Tcp {
            ports: (port, 443),
            flags: 0x10,
            option_bytes: 0,
        };
        let (_, mark, _) = self.loaded.run_marked(PROGRAM, &frame.bytes(), 0);
        ((mark & TUNNEL_BITS) >> TUNNEL_BITS.trailing_zeros()) as usize - 1
    }

    fn packets(&mut self) -> u64 {
        let map = self.loaded.map("PATH_COUNTERS").try_into();
        let counters: PerCpuArray<_, Plain<PathCounters>> = map.expect("is per CPU");
        let of_cpus = counters.get(&0, 0).expect("can be read");
        let all = |it: &Plain<PathCounters>| -> u64 { it.0.short_packets.iter().sum() };
        of_cpus.iter().map(all).sum()
    }

    /// How many packets have chosen each of the first tunnels by reports.
    fn by_reports(&mut self) -> [u64; 3] {
        let map = self.loaded.map("HEARD_CHOICES").try_into();
        let choices: PerCpuArray<_, [u64; 16]> = map.expect("is per CPU");
        let of_cpus = choices.get(&0, 0).expect("can be read");
        [0, 1, 2].map(|tunnel| of_cpus.iter().map(|it| it[tunnel]).sum())
    }
}

#[test]
fn full_spine_is_left_for_another_until_its_report_has_aged() {
    require!(Root);
    let mut kernel = Kernel::new();
    let ms = Duration::from_millis;
    // As long as not all is given, packets choose by the queues here, each once.
    assert_eq!(kernel.chosen(), [0, 0]);
    kernel.report(LEAVES[0], UPLINKS[0], LONG, ms(0));
    kernel.set_uplinks();
    assert_eq!(kernel.chosen(), [0, 0]);
    kernel.give("HEARD_LEAVES", "LEAVES");
    assert_eq!(kernel.chosen(), [0, 0]);
    assert_eq!(kernel.packets(), 6);
    assert_eq!(kernel.by_reports(), [0; 3]);
    kernel.give("HEARD", "REMOTE");
    // To the leaf that it was reported of; to another that port may be empty.
    assert_eq!(kernel.chosen(), [1, 0]);
    kernel.report(LEAVES[1], UPLINKS[0], LONG, ms(0));
    assert_eq!(kernel.chosen(), [1, 1]);
    // What no spine reports of is farther than both are full.
    kernel.report(LEAVES[0], UPLINKS[1], LONG, ms(0));
    assert_eq!(kernel.chosen(), [2, 1]);
    assert_eq!(kernel.by_reports(), [1, 4, 1]);
    // Heard too long ago, or less than the tunnels differ by.
    kernel.report(LEAVES[0], UPLINKS[0], LONG, LONG + ms(1));
    kernel.report(LEAVES[1], UPLINKS[0], ms(1), ms(0));
    assert_eq!(kernel.chosen(), [0, 0]);
    // It ages while nothing else happens.
    kernel.report(LEAVES[0], UPLINKS[1], ms(0), ms(0));
    kernel.report(LEAVES[0], UPLINKS[0], ms(80), ms(0));
    assert_eq!(kernel.chosen(), [1, 0]);
    std::thread::sleep(ms(90));
    assert_eq!(kernel.chosen(), [0, 0]);
    // Without the key, and without a leaf in place.
    kernel.report(LEAVES[0], UPLINKS[0], LONG, ms(0));
    kernel.set("SITE_PATHS", Plain(site(false)));
    assert_eq!(kernel.chosen(), [0, 0]);
    kernel.set("SITE_PATHS", Plain(site(true)));
    assert_eq!(kernel.chosen(), [1, 0]);
    kernel.set("HEARD_UPLINKS", Plain(UplinkNumbers::default()));
    assert_eq!(kernel.chosen(), [0, 0]);
    // Each of them was sent once, and counted.
    assert_eq!(kernel.packets(), 2 * u64::from(kernel.flows));
}

#[test]
fn flow_looks_its_leaf_up_once_a_second() {
    require!(Root);
    let mut kernel = Kernel::new();
    kernel.set_uplinks();
    kernel.give("HEARD_LEAVES", "LEAVES");
    kernel.give("HEARD", "REMOTE");
    let (first, second) = (1_000, 2_000);
    assert_eq!(kernel.choose(Frame::tcp_v4(), first), 0);
    // The hosts move to a leaf to which the nearest spine is full.
    let map = kernel.fabric.map_mut("LEAVES").expect("is in the object");
    let mut leaves: LpmTrie<_, [u32; 5], u32> = map.try_into().expect("is a trie");
    let key = SiteKey::of_prefix([0, 0, 0, 0].into(), 0);
    let inserted = leaves.insert(&Key::new(key.bits, key.words), LEAVES[1], 0);
    inserted.expect("can be written");
    kernel.report(LEAVES[1], UPLINKS[0], LONG, Duration::ZERO);
    assert_eq!(kernel.choose(Frame::tcp_v4(), second), 1);
    assert_eq!(kernel.choose(Frame::tcp_v4(), first), 0);
    std::thread::sleep(Duration::from_millis(1_050));
    assert_eq!(kernel.choose(Frame::tcp_v4(), first), 1);
}
