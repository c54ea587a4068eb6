use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

use flow_balance::{EarliestArrival, EarliestFlow, Packet};
use proptest::prelude::*;

use super::*;

mod entering;
mod sending;

const MBIT: u64 = 1_000_000;

fn site(tunnels: &[(u64, u64)], has_priority: bool) -> SitePaths {
    let mut site = SitePaths {
        known: (1 << tunnels.len()) - 1,
        usable: (1 << tunnels.len()) - 1,
        has_priority: has_priority.into(),
        ..SitePaths::default()
    };
    for (number, (rate, propagation_ns)) in tunnels.iter().enumerate() {
        site.devices[number] = device(path(number));
        site.tunnels[number] = TunnelPath {
            propagation_ns: *propagation_ns,
            service: ServiceTime::from_bits_per_second(*rate),
            own_service: ServiceTime::from_bits_per_second(*rate),
            queue_ns: 50_000_000,
            burst_ns: 0,
            weight: 1,
            mark: 0,
        };
    }
    site
}

/// The same tunnels behind shapers, which let two full packets go at once, and each of them whole.
fn bursting(mut site: SitePaths) -> SitePaths {
    for tunnel in &mut site.tunnels {
        tunnel.burst_ns = tunnel.service.of(2 * 1_514);
        tunnel.own_service = ServiceTime::UNKNOWN;
    }
    site
}

fn path(number: usize) -> PathId {
    PathId::new(number).unwrap()
}

/// The number of a tunnel's device.
fn device(path: PathId) -> u32 {
    path.index() as u32 + 10
}

impl SharedWord for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    fn add(&self, amount: u64) -> u64 {
        self.fetch_add(amount, Ordering::Relaxed)
    }
}

#[test]
fn no_packet_of_another_processor_is_lost() {
    const EACH: u64 = 20_000;
    let mut site = site(&[(1_000 * MBIT, 0)], false);
    site.tunnels[0].queue_ns = u64::MAX / 2;
    let queues = TunnelQueues::<AtomicU64>::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    LivePaths::new(&site, &queues, Some(Class::Long), 1_000).send(path(0), 1_500);
                }
            });
        }
    });
    let sent_ns = 4 * EACH * site.tunnels[0].service.of(1_500);
    assert_eq!(queues.of[ALL][0].get(), 1_000 + sent_ns);
}

#[test]
fn short_flows_wait_for_each_other_alone_where_they_go_first() {
    let queues = TunnelQueues::<Cell<u64>>::default();
    for (has_priority, expected) in [(true, 0), (false, 12_000_000)] {
        let site = site(&[(MBIT, 0)], has_priority);
        if has_priority {
            LivePaths::new(&site, &queues, Some(Class::Long), 7).send(path(0), 1_500);
        }
        let seen = LivePaths::new(&site, &queues, Some(Class::Short), 7);
        let backlog_ns = seen.view(path(0)).local_backlog_ns;
        assert!(backlog_ns.abs_diff(expected) < 1_000, "{backlog_ns}");
        // What is not split waits with the long flows.
        let other = LivePaths::new(&site, &queues, None, 7);
        assert!(other.view(path(0)).local_backlog_ns.abs_diff(12_000_000) < 1_000);
    }
}

#[test]
fn what_a_full_queue_drops_is_not_counted() {
    let site = site(&[(8 * MBIT, 0)], true);
    let queues = TunnelQueues::<Cell<u64>>::default();
    for class in [Class::Long, Class::Short] {
        let before = queues.of[ALL][0].get();
        for _ in 0..1_000 {
            LivePaths::new(&site, &queues, Some(class), 5).send(path(0), 1_000);
        }
        let added_ns = queues.of[ALL][0].get() - before.max(5);
        assert!((50_000_000..52_000_000).contains(&added_ns), "{added_ns}");
    }
}

#[test]
fn merged_segments_have_headers_of_their_own() {
    assert_eq!(wire_bytes(1_514, 0, false, 0), 1_514);
    assert_eq!(wire_bytes(1_514, 1, false, 0), 1_514);
    assert_eq!(wire_bytes(66 + 3 * 1_448, 3, false, 0), 3 * 1_514);
    assert_eq!(wire_bytes(86 + 2 * 1_428, 2, true, 0), 2 * 1_514);
    // In tunnels without Ethernet headers.
    assert_eq!(wire_bytes(1_514, 0, false, 14), 1_500);
    assert_eq!(wire_bytes(66 + 3 * 1_448, 3, false, 14), 3 * 1_500);
}

#[test]
fn mark_of_a_tunnel_leaves_all_other_bits() {
    let mut site = site(&[(MBIT, 0), (MBIT, 0)], false);
    site.mark_mask = 0xf80;
    site.tunnels[1].mark = 2 << 7;
    assert_eq!(site.marked(0xffff_ffff, path(1)), 0xffff_f17f);
}

/// The tunnels without their short cut to a time of arrival.
struct Views<'a>(LivePaths<'a, Cell<u64>>);

impl Paths for Views<'_> {
    fn known(&self) -> PathSet {
        self.0.known()
    }

    fn usable(&self) -> PathSet {
        self.0.usable()
    }

    fn view(&self, path: PathId) -> PathView {
        self.0.view(path)
    }
}

/// The times when tunnels that are FIFOs would have sent what they hold by their rates, behind shapers that save
/// up for bursts; what does not fit is dropped.
#[derive(Default)]
struct Fifos([u64; MAX_PATHS]);

impl Fifos {
    /// Returns when a packet arrives at the other end.
    fn take(&mut self, tunnel: &TunnelPath, of: PathId, now_ns: u64, bytes: u32) -> Option<u64> {
        let free_at_ns = &mut self.0[of.index()];
        if *free_at_ns > now_ns + tunnel.queue_ns {
            return None;
        }
        let own_ns = tunnel.service.of(bytes.into());
        let leaves_ns = free_at_ns.saturating_sub(tunnel.burst_ns).max(now_ns);
        *free_at_ns = (*free_at_ns).max(now_ns) + own_ns;
        Some(leaves_ns + tunnel.own_service.of(bytes.into()) + tunnel.propagation_ns)
    }
}

#[test]
fn what_follows_a_dropped_packet_does_not_overtake_what_went_before_it() {
    let site = site(&[(MBIT, 3_000_000), (MBIT, 2_000_000)], false);
    let queues = TunnelQueues::<Cell<u64>>::default();
    let mut flow = EarliestFlow::default();
    let mut choose = |now_ns, bytes| {
        let paths = LivePaths::new(&site, &queues, Some(Class::Long), now_ns);
        let packet = Packet {
            now_ns,
            bytes,
            flow_hash: 1,
        };
        let (path, is_taken) =
            paths.forward_in_order(&EarliestArrival::default(), &mut flow, &packet);
        (path.index(), !is_taken)
    };
    let others = LivePaths::new(&site, &queues, Some(Class::Long), 1_000);
    others.send(path(0), 4_737);
    others.send(path(1), 6_263);
    // Arrives after 52.9 ms.
    assert_eq!(choose(1_000, 1_500), (0, false));
    // Would arrive after 64.1 ms.
    assert_eq!(choose(1_000, 1_500), (1, true));
    // By the second tunnel it would arrive after 52.6 ms.
    assert_eq!(choose(201_000, 60), (0, false));
}

proptest! {
    #[test]
    fn arrival_is_the_one_that_views_add_up_to(
        (rate, propagation_ns) in (1u64..1_000_000_000_000, 0u64..3_600_000_000_000),
        (sent_ns, now_ns) in (0u64..1 << 60, 0u64..1 << 60),
        bytes in 60u32..65_536,
        is_short: bool,
        has_priority: bool,
        bursts: bool,
    ) {
        let mut site = site(&[(rate, propagation_ns)], has_priority);
        if bursts {
            site = bursting(site);
        }
        let queues = TunnelQueues::<Cell<u64>>::default();
        let class = if is_short { Class::Short } else { Class::Long };
        LivePaths::new(&site, &queues, Some(class), sent_ns).send(path(0), 1_500);
        let of = || LivePaths::new(&site, &queues, Some(Class::Short), now_ns);
        let packet = Packet { now_ns, bytes, flow_hash: 1 };
        prop_assert_eq!(of().arrival_ns(path(0), &packet), Views(of()).arrival_ns(path(0), &packet));
    }

    /// Left off or not, by the numbers that the whole sum has.
    #[test]
    fn delay_is_told_where_it_is_within_what_was_asked(
        (propagation_ns, burst_ns, rate) in (0u64..4_000_000, 0u64..3_000_000, 1u64..1_000),
        (free_at_ns, now_ns) in (0u64..9_000_000, 0u64..9_000_000),
        most_ns in prop_oneof![0u64..9_000_000, Just(u64::MAX)],
        bytes in 60u32..65_536,
    ) {
        let mut site = site(&[(rate * MBIT, propagation_ns)], false);
        site.tunnels[0].burst_ns = burst_ns;
        let queues = TunnelQueues::<Cell<u64>>::default();
        queues.of[ALL][0].set(free_at_ns);
        let paths = LivePaths::new(&site, &queues, Some(Class::Long), now_ns);
        let packet = Packet { now_ns, bytes, flow_hash: 1 };
        let whole_ns = paths.arrival_ns(path(0), &packet) - now_ns;
        match paths.delay_within_ns(path(0), &packet, most_ns) {
            Some(delay_ns) => prop_assert_eq!(delay_ns, whole_ns),
            None => prop_assert!(whole_ns > most_ns),
        }
    }

    /// What of the tunnels is left off changes no choice.
    #[test]
    fn flow_takes_the_tunnel_that_whole_sums_have_it_take(
        tunnels in proptest::collection::vec((1u64..4, 0u64..4, 0u64..3, 0u64..5), 1..=MAX_PATHS),
        usable: u64,
        steps in proptest::collection::vec((0u64..3, 1u32..4), 1..40),
        patience_ns in prop_oneof![Just(u64::MAX), 0u64..4_000_000],
        is_short: bool,
        goes_whole: bool,
    ) {
        let stated: Vec<_> = tunnels.iter().map(|it| (it.0 * 12 * MBIT, it.1 * 1_000_000)).collect();
        let mut site = site(&stated, true);
        site.usable = usable;
        let queues = TunnelQueues::<Cell<u64>>::default();
        for (number, (_, _, burst_ms, queued_ms)) in tunnels.iter().enumerate() {
            site.tunnels[number].burst_ns = burst_ms * 1_000_000;
            if goes_whole {
                site.tunnels[number].own_service = ServiceTime::UNKNOWN;
            }
            queues.of[ALL][number].set(queued_ms * 1_000_000);
        }
        let class = if is_short { Class::Short } else { Class::Long };
        let balancer = EarliestArrival { patience_ns, seed: 0 };
        let (mut flow, mut now_ns) = (EarliestFlow::default(), 1_000_000);
        for (gap_ms, segments) in steps {
            now_ns += gap_ms * 500_000;
            let paths = || LivePaths::new(&site, &queues, Some(class), now_ns);
            let packet = Packet { now_ns, bytes: segments * 1_500, flow_hash: 7 };
            let found = balancer.find(&flow, &paths(), &packet);
            prop_assert_eq!(found, balancer.find(&flow, &Views(paths()), &packet));
            paths().send_in_order(found, packet.bytes, &mut flow);
        }
    }

    /// One flow over tunnels that are FIFOs of the stated rates and delays: each packet arrives after
    /// the one before, whatever else the tunnels carry, chosen or not. Behind shapers they do so whatever their length
    /// is, merged segments too.
    #[test]
    fn flow_stays_in_order_where_tunnels_are_as_stated(
        tunnels in proptest::collection::vec((1u64..100, 0u64..40), 1..6),
        packets in proptest::collection::vec((0u64..2_000_000, 60u32..15_150, 0usize..8), 1..300),
        bursts: bool,
    ) {
        let tunnels: Vec<_> = tunnels.iter().map(|(rate, ms)| (rate * MBIT, ms * 1_000_000)).collect();
        let mut site = site(&tunnels, false);
        if bursts {
            site = bursting(site);
        }
        let queues = TunnelQueues::<Cell<u64>>::default();
        let mut fifos = Fifos::default();
        let mut flow = [EarliestFlow::default(); 2];
        let (mut now_ns, mut last_ns) = (1_000u64, [0; 2]);
        for (gap_ns, bytes, of) in packets {
            now_ns += gap_ns;
            let paths = LivePaths::new(&site, &queues, Some(Class::Long), now_ns);
            let Some(flow) = flow.get_mut(of) else {
                // It has chosen none, and enters one all the same.
                let entered = path(of % tunnels.len());
                let taken = fifos.take(&site.tunnels[entered.index()], entered, now_ns, bytes);
                let counted = paths.enter(device(entered), bytes);
                prop_assert_eq!(counted, taken.map(|_| entered));
                continue;
            };
            let packet = Packet { now_ns, bytes, flow_hash: of as u64 };
            let (chosen, _) =
                paths.forward_in_order(&EarliestArrival::default(), flow, &packet);
            let tunnel = &site.tunnels[chosen.index()];
            let Some(arrives_ns) = fifos.take(tunnel, chosen, now_ns, bytes) else {
                continue;
            };
            prop_assert!(arrives_ns >= last_ns[of], "{arrives_ns} after {}", last_ns[of]);
            last_ns[of] = arrives_ns;
        }
    }
}

#[test]
fn correction_is_of_the_queue_of_all_and_loses_no_packet() {
    let (site, queues) = (
        site(&[(8 * MBIT, 0)], true),
        TunnelQueues::<Cell<u64>>::default(),
    );
    LivePaths::new(&site, &queues, Some(Class::Short), 5_000).send(path(0), 1_000);
    let before_ns = queues.free_at_ns(path(0));
    queues.correct(path(0), -3, 6_000);
    queues.correct(path(0), 1, 6_000);
    assert_eq!(queues.free_at_ns(path(0)), before_ns - 2);
    assert_eq!(queues.of[FIRST][0].get(), before_ns);
    queues.correct(path(0), 0, 6_000);
    assert_eq!(queues.compared(path(0)), (3, 4));
    assert_eq!(queues.compared(path(1)), (0, 0));
}
