//! The program that chooses a tunnel for each packet, run by the kernel (`BPF_PROG_TEST_RUN`) next to the
//! same policy on the host: the same packets at the same times, over the same queues. What the host
//! cannot know, the kernel's time and its hash of a flow, the program has left in its scratch space.

mod host;

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use crate::policy as support;
use crate::support::loaded;
use aya::Pod;
use aya::maps::{Array, PerCpuArray};
use flow_balance::{Packet, ServiceTime};
use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use loaded::Loaded;
use splitter_config::PacketLog;
use splitter_datapath::Object;
use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::Class;
use splitter_policy::fwmark::MarkBits;
use splitter_policy::paths::{
    BalancerNumber, LivePaths, PathCounters, SitePaths, TunnelPath, TunnelQueues,
};
use splitter_policy::thresholds::Thresholds;
use support::host::Host;
use support::packet::{Packet as Frame, Upper};
use support::shapes::every_shape_with;

use host::{Choice, Choose, balancers, each_for_itself, place};

const PROGRAM: &str = "mark_balanced";
const TCX_NEXT: u32 = -1i32 as u32;
const TABLE_SIZE: u32 = 4_096;
/// The seed of the kernel's balancers.
const SEED: u64 = 0;
const GAP_NS: u64 = 300_000;
/// Some packets pay more for order.
const PATIENCE_NS: u64 = 6_000_000;
/// Tunnels without Ethernet headers.
const SPARED_BYTES: u32 = 14;
const MARK_BITS: u32 = 0x7e;
const TUNNEL_BITS: u32 = 0xf80;
/// The tunnels of short flows, and of long ones, that do not choose among all.
const OWN: [u64; 2] = [0b001, 0b110];
/// Bits of the kernel's mark that are nobody's here.
const CAME_WITH: u32 = 0xffff_f001;
const PACKETS: u16 = 400;
/// So many that each tunnel has some of them by hash.
const FLOWS: u16 = 60;
/// From here on every second packet is a full one of one flow, which has sent more than 100 KB at the end.
const FROM_ONE_FLOW: u16 = 100;

/// What each step of the program leaves for the next, as it lies in memory.
#[derive(Clone, Copy, Debug)]
struct Scratch {
    now_ns: u64,
    bytes: u64,
    hash: u64,
    class: u64,
    path: u64,
}

/// A value that is shared with the kernel program.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Plain<T>(T);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Plain<SitePaths> {}

/// Flows that the kernel program has places for: two in one place share what is noted.
const FLOW_PLACES: u32 = 65_536;

// SAFETY: as above.
unsafe impl Pod for Plain<PathCounters> {}

/// The silence that ends a flowlet; or that takes a short flow off its paths, so long that the packets of this
/// test are counted.
fn gap_ns(balancer: BalancerNumber) -> u64 {
    match balancer {
        BalancerNumber::TR_PAPER => 500_000_000,
        _ => GAP_NS,
    }
}

/// Three tunnels of unlike rates, delays and weights, with queues that some packets fill.
fn site() -> SitePaths {
    let mut site = SitePaths {
        known: 0b111,
        usable: 0b111,
        own: OWN,
        gap_ns: GAP_NS,
        patience_ns: PATIENCE_NS,
        mark_mask: TUNNEL_BITS,
        spared_bytes: SPARED_BYTES,
        has_priority: 1,
        ..SitePaths::default()
    };
    let tunnels = [
        (3_000, 1_000_000, 3),
        (800, 2_000_000, 1),
        (2_000, 400_000, 2),
    ];
    for ((path, (kbit, propagation_ns, weight)), number) in
        site.tunnels.iter_mut().zip(tunnels).zip(1..)
    {
        *path = TunnelPath {
            propagation_ns,
            service: ServiceTime::from_bits_per_second(kbit * 1_000),
            own_service: ServiceTime::from_bits_per_second(kbit * 1_000),
            queue_ns: 20_000_000,
            // Of two tunnels, one of them longer than a pause of this test.
            burst_ns: u64::from(number) % 3 * 3_000_000,
            weight,
            mark: number << TUNNEL_BITS.trailing_zeros(),
        };
    }
    site
}

fn config() -> PolicyConfig {
    PolicyConfig {
        mark_bits: MarkBits::new(MARK_BITS).expect("one run"),
        thresholds: Thresholds::uniform(2),
        ..PolicyConfig::default()
    }
}

fn frame(number: u16) -> Frame {
    let mut frame = match number % 4 {
        0 => Frame::tcp_v6(),
        _ => Frame::tcp_v4(),
    };
    // Every seventh is not split, and takes a tunnel all the same.
    frame.upper = match number % 7 {
        0 => Upper::Icmp,
        _ => Upper::Tcp {
            ports: (3_000 + number % FLOWS, 443),
            flags: 0x10,
            option_bytes: 0,
        },
    };
    frame.payload_bytes = usize::from(number) * 37 % 1_400;
    let is_tcp = matches!(frame.upper, Upper::Tcp { .. });
    if number >= FROM_ONE_FLOW && number % 2 == 1 && is_tcp {
        frame.upper = Upper::Tcp {
            ports: (2_999, 443),
            flags: 0x10,
            option_bytes: 0,
        };
        frame.payload_bytes = 1_400;
    }
    frame
}

/// A kernel with the program, and its maps as the host reads them.
struct Kernel(Loaded);

impl Kernel {
    fn new(balancers: [BalancerNumber; 2]) -> Self {
        let object = Object::for_level(PacketLog::Off).expect("is embedded");
        let mut loaded = Loaded::with_balancers(object.bytes(), TABLE_SIZE, balancers);
        loaded.load_classifier(PROGRAM);
        loaded.set(config());
        Self(loaded)
    }

    fn set_site(&mut self, site: SitePaths) {
        let map = self.0.map("SITE_PATHS").try_into();
        let mut paths: Array<_, Plain<SitePaths>> = map.expect("is an array");
        paths.set(0, Plain(site), 0).expect("can be written");
    }

    /// What was noted of the last packet, on whatever CPU.
    fn scratch(&mut self) -> Scratch {
        let map = self.0.map("PATH_SCRATCH").try_into();
        let scratch: PerCpuArray<_, [u64; 5]> = map.expect("is per CPU");
        let of_cpus = scratch.get(&0, 0).expect("can be read");
        let latest = of_cpus.iter().max_by_key(|[now_ns, ..]| *now_ns);
        let [now_ns, bytes, hash, class, path] = *latest.expect("there is a CPU");
        Scratch {
            now_ns,
            bytes,
            hash,
            class,
            path,
        }
    }

    fn queues(&mut self) -> [u64; 64] {
        let map = self.0.map("PATH_QUEUES").try_into();
        let queues: Array<_, [u64; 64]> = map.expect("is an array");
        queues.get(&0, 0).expect("can be read")
    }

    /// What was counted on all CPUs.
    fn counted(&mut self) -> PathCounters {
        let map = self.0.map("PATH_COUNTERS").try_into();
        let counters: PerCpuArray<_, Plain<PathCounters>> = map.expect("is per CPU");
        let of_cpus = counters.get(&0, 0).expect("can be read");
        let mut sum = PathCounters::default();
        of_cpus.iter().for_each(|it| sum.add(&it.0));
        sum
    }

    /// What a flow has noted.
    fn noted(&mut self, hash: u64) -> [u64; 2] {
        let map = self.0.map("PATH_FLOWS").try_into();
        let flows: Array<_, [u64; 8]> = map.expect("is an array");
        let [_seen_ns, first, second, ..] =
            flows.get(&(hash as u32 % 65_536), 0).expect("is there");
        [first, second]
    }
}

/// The words of the host's queues, in the order of the kernel's.
fn words(queues: &TunnelQueues<Cell<u64>>) -> [u64; 64] {
    const { assert!(size_of::<TunnelQueues<Cell<u64>>>() == 512) };
    // SAFETY: `repr(C)` and made of as many cells, which are as the integers in them.
    unsafe { std::ptr::from_ref(queues).cast::<[u64; 64]>().read() }
}

#[test]
fn every_balancer_chooses_in_the_kernel_what_it_chooses_on_the_host() {
    require!(Root);
    let mut held = 0;
    for (number, choose) in balancers() {
        let (counted, dropped) = choices_are_those_of_the_host([number; 2], choose);
        // Not vacuous: there were packets of every class, in every tunnel, and queues that were full.
        let PathCounters {
            short_packets,
            long_packets,
            other_packets,
            bytes,
            changes,
            refusals,
        } = counted;
        for of_class in [short_packets, long_packets, other_packets] {
            assert!(of_class.iter().sum::<u64>() > 10, "{of_class:?}");
        }
        // By hash a flow changes tunnels when its own fails, and when that returns.
        assert!(changes.iter().sum::<u64>() > 5, "{changes:?}");
        assert!(bytes[..3].iter().all(|it| *it > 0), "{bytes:?}");
        assert!(dropped > 10, "{dropped} of {PACKETS}");
        let is_any_held = refusals.iter().any(|it| *it > 0);
        assert!(!is_any_held || number == BalancerNumber::TR, "{refusals:?}");
        held += u32::from(is_any_held);
    }
    // On a machine that stands still for long, no packet follows another so soon that it has to be held.
    for round in 0.. {
        if held > 0 {
            return;
        }
        assert!(round < 10, "none is held for the sake of order");
        let of_tr = |(number, _): &(BalancerNumber, _)| *number == BalancerNumber::TR;
        let (number, choose) = { balancers().into_iter().find(of_tr) }.expect("it is one of them");
        let (counted, _) = choices_are_those_of_the_host([number; 2], choose);
        held += u32::from(counted.refusals.iter().any(|it| *it > 0));
    }
}

#[test]
fn classes_that_choose_differently_know_in_the_kernel_what_they_know_on_the_host() {
    use BalancerNumber as By;
    require!(Root);
    for balancers in [
        [By::PLACEMENT, By::PLACEMENT],
        [By::PLACEMENT, By::TR],
        [By::TR, By::PLACEMENT],
        [By::TR, By::LETFLOW],
        [By::LETFLOW, By::TR],
        [By::LETFLOW, By::PLACEMENT],
        [By::RPS, By::PRESTO],
        [By::PRESTO, By::RPS],
        [By::ECMP, By::TR],
    ] {
        let (counted, _) = choices_are_those_of_the_host(balancers, each_for_itself(balancers));
        let PathCounters {
            short_packets,
            long_packets,
            other_packets,
            ..
        } = counted;
        let of_classes = [short_packets, long_packets];
        for ((packets, balancer), own) in of_classes.into_iter().zip(balancers).zip(OWN) {
            let by_own = |is_own: bool| {
                let paths = (0..3).filter(|it| (own >> it & 1 == 1) == is_own);
                paths.map(|it| packets[it]).sum::<u64>()
            };
            assert!(by_own(true) > 10, "{balancers:?}: {counted:?}");
            // Those of the site's own besides only as long as they would overtake their flow.
            let elsewhere = by_own(false);
            match balancer {
                By::PLACEMENT => {
                    assert!(elsewhere < by_own(true) / 2, "{balancers:?}: {counted:?}")
                }
                _ => assert!(elsewhere > 10, "{balancers:?}: {counted:?}"),
            }
        }
        // What is not split goes with the short class.
        if balancers[0] == By::PLACEMENT {
            assert_eq!((other_packets[1], other_packets[2]), (0, 0));
            assert_eq!((short_packets[1], short_packets[2]), (0, 0));
        }
    }
}

/// The class as the XDP program writes it, shape by shape, and none of the fwmark's bits but those of the tunnel.
#[test]
fn by_dscp_the_class_is_written_into_the_packet_and_the_tunnel_into_the_mark() {
    const BY_DSCP: &str = "split_balanced";
    require!(Root);
    for level in [PacketLog::Off, PacketLog::Trace] {
        let object = Object::for_level(level).expect("is embedded");
        let mut loaded = Loaded::new(object.bytes(), TABLE_SIZE);
        loaded.load_classifier(BY_DSCP);
        // As the agent has it where packets choose.
        let config = PolicyConfig {
            max_wait_ns: 0,
            thresholds: Thresholds::uniform(2),
            ..PolicyConfig::default()
        };
        loaded.set(config);
        let (mut kernel, mut host) = (Kernel(loaded), Host::new(config, TABLE_SIZE));
        kernel.set_site(site());
        let (mut chosen, mut written) = (0, 0);
        for traffic_class in [0x00, 0x09, 0x12, 0x28, 0xbb] {
            for shape in every_shape_with(traffic_class) {
                let mut of_host = shape.frame.clone();
                host.now_ns += 1_000;
                let outcome = host.split(&mut of_host);
                let (run, mark, bytes) = kernel.0.run_marked(BY_DSCP, &shape.frame, CAME_WITH);
                assert_eq!(run, TCX_NEXT, "{}", shape.name);
                assert_eq!(bytes, of_host, "{}: {outcome:?}", shape.name);
                assert_eq!(mark & !TUNNEL_BITS, CAME_WITH & !TUNNEL_BITS);
                chosen += u32::from(mark != CAME_WITH);
                written += u32::from(bytes != shape.frame);
            }
        }
        println!("{chosen} have chosen, {written} were written to");
        assert!(chosen > 100 && written > 100, "{chosen} {written}");
        let PathCounters {
            short_packets,
            long_packets,
            ..
        } = kernel.counted();
        let sums = [short_packets, long_packets].map(|it| it.iter().sum::<u64>());
        // Of two flows, each of which is long from its third packet on.
        assert!(sums[0] == 4 && sums[1] > 100, "{sums:?}");
    }
}

/// Sends the same packets through the kernel's program and the host's choice. Returns what was counted, and how many
/// packets the host has dropped.
fn choices_are_those_of_the_host(
    balancers: [BalancerNumber; 2],
    mut choose: Choose,
) -> (PathCounters, u32) {
    let config = config();
    let mut kernel = Kernel::new(balancers);
    let (mut site, queues) = (site(), TunnelQueues::<Cell<u64>>::default());
    site.gap_ns = gap_ns(balancers[0]);
    let (mut counted, mut lasts) = (PathCounters::default(), HashMap::new());
    let mut dropped = 0;
    for packet_number in 0..PACKETS {
        // One tunnel fails, and returns; and what waits leaves while nothing comes.
        site.usable = match packet_number {
            120..180 => 0b101,
            _ => 0b111,
        };
        kernel.set_site(site);
        if packet_number % 50 == 0 {
            std::thread::sleep(Duration::from_millis(25));
        }
        let frame = frame(packet_number).bytes();
        let last_ns = kernel.scratch().now_ns;
        let (run, mark, out) = kernel.0.run_marked(PROGRAM, &frame, CAME_WITH);
        let seen = kernel.scratch();
        let about = format!("{balancers:?}, packet {packet_number}: {seen:?}");
        assert!(run == TCX_NEXT && out == frame, "{about}");
        assert!(seen.now_ns > last_ns, "{about}");
        assert_eq!(
            seen.bytes,
            frame.len() as u64 - u64::from(SPARED_BYTES),
            "{about}"
        );
        let class = [Some(Class::Short), Some(Class::Long), None][seen.class as usize];
        let packet = Packet {
            now_ns: seen.now_ns,
            bytes: seen.bytes as u32,
            flow_hash: seen.hash.wrapping_mul(0x9e37_79b9_0000_0001),
        };
        let before = words(&queues);
        let paths = LivePaths::new(&site, &queues, class, seen.now_ns);
        let Choice {
            path,
            noted,
            is_held,
        } = choose(&paths, &packet, class);
        assert_eq!(seen.path, path.index() as u64, "{about}");
        assert_eq!(kernel.queues(), words(&queues), "{about}");
        assert_eq!(mark, site.marked(marked(&config, class), path), "{about}");
        if let Some(noted) = noted {
            assert_eq!(kernel.noted(seen.hash), noted, "{about}");
        }
        dropped += u32::from(words(&queues) == before);
        let last = lasts.insert(place(&packet), path);
        counted.count(path, class, packet.bytes);
        let is_change = last.is_some_and(|it| it != path);
        counted.count_order(path, is_change.into(), is_held);
    }
    println!("{balancers:?}: {dropped} dropped of {counted:?}");
    assert_eq!(kernel.counted(), counted, "{balancers:?}");
    (counted, dropped)
}

fn marked(config: &PolicyConfig, class: Option<Class>) -> u32 {
    match class {
        Some(Class::Short) => config.mark_bits.applied_to(CAME_WITH, config.short_mark),
        Some(Class::Long) => config.mark_bits.applied_to(CAME_WITH, config.long_mark),
        None => CAME_WITH,
    }
}
