use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

use flow_balance::{EarliestArrival, EarliestFlow, Packet};
use proptest::prelude::*;

use super::*;

const MBIT: u64 = 1_000_000;

fn site(tunnels: &[(u64, u64)], has_priority: bool) -> SitePaths {
    let mut site = SitePaths {
        known: (1 << tunnels.len()) - 1,
        usable: (1 << tunnels.len()) - 1,
        has_priority: has_priority.into(),
        ..SitePaths::default()
    };
    for (path, (rate, propagation_ns)) in site.tunnels.iter_mut().zip(tunnels) {
        *path = TunnelPath {
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

    /// One flow over tunnels that are FIFOs of the stated rates and delays: each packet arrives after
    /// the one before, whatever else the tunnels carry. Behind shapers they do so whatever their length is, merged
    /// segments too.
    #[test]
    fn flow_stays_in_order_where_tunnels_are_as_stated(
        tunnels in proptest::collection::vec((1u64..100, 0u64..40), 1..6),
        packets in proptest::collection::vec((0u64..2_000_000, 60u32..15_150, any::<bool>()), 1..300),
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
        for (gap_ns, bytes, is_other) in packets {
            now_ns += gap_ns;
            let paths = LivePaths::new(&site, &queues, Some(Class::Long), now_ns);
            let packet = Packet { now_ns, bytes, flow_hash: is_other.into() };
            let of = usize::from(is_other);
            let (chosen, _) =
                paths.forward_in_order(&EarliestArrival::default(), &mut flow[of], &packet);
            let tunnel = &site.tunnels[chosen.index()];
            let Some(arrives_ns) = fifos.take(tunnel, chosen, now_ns, bytes) else {
                continue;
            };
            prop_assert!(arrives_ns >= last_ns[of], "{arrives_ns} after {}", last_ns[of]);
            last_ns[of] = arrives_ns;
        }
    }
}

/// A shaper with a queue: packets leave in order, each when its time begins, after a pause some ahead of that.
struct Shaper {
    tunnel: TunnelPath,
    /// Time and length of what has come, with when it leaves.
    packets: Vec<(u64, u64, u64)>,
    free_at_ns: u64,
}

impl Shaper {
    fn new(tunnel: TunnelPath) -> Self {
        Self {
            tunnel,
            packets: Vec::new(),
            free_at_ns: 0,
        }
    }

    fn take(&mut self, now_ns: u64, bytes: u64) {
        let leaves_ns = self
            .free_at_ns
            .saturating_sub(self.tunnel.burst_ns)
            .max(now_ns);
        self.packets.push((now_ns, bytes, leaves_ns));
        self.free_at_ns = self.free_at_ns.max(now_ns) + self.tunnel.service.of(bytes);
    }

    /// What a right model holds at a time.
    fn right_ns(&self, now_ns: u64) -> u64 {
        let come = self.packets.iter().filter(|it| it.0 <= now_ns);
        come.fold(0, |free_at_ns, it| {
            free_at_ns.max(it.0) + self.tunnel.service.of(it.1)
        })
    }

    /// A look while what should have left in the last `late_ns` is still there.
    fn look(&self, now_ns: u64, late_ns: u64) -> QueueLook {
        let waits = |it: &&(u64, u64, u64)| it.0 <= now_ns && it.2 > now_ns - late_ns;
        QueueLook {
            asked_ns: now_ns,
            answered_ns: now_ns,
            bytes: self.packets.iter().filter(waits).map(|it| it.1).sum(),
            packet_bytes: 1_514,
        }
    }
}

/// Packets of so many bytes each, one after the other as fast as the tunnel is, and a look every `every_ns` from
/// when they have begun to wait; by how much the model is wrong after that, which was so much in the beginning.
fn error_after_looks(
    tunnel: TunnelPath,
    (bytes, every_ns): (u64, u64),
    error_ns: i64,
    late_ns: impl Fn(u64) -> u64,
) -> i64 {
    let (mut shaper, mut comparison) = (Shaper::new(tunnel), Comparison::default());
    let begin_ns = 1_000_000_000;
    // Ten, and as many as leave, so that some wait all the time.
    (0..10).for_each(|_| shaper.take(begin_ns, bytes));
    let gap_ns = tunnel.service.of(bytes);
    for number in 1..2_300_000_000 / gap_ns {
        shaper.take(begin_ns + number * gap_ns, bytes);
    }
    let mut wrong_ns = error_ns;
    for number in 1..200 {
        let at_ns = begin_ns + number * every_ns;
        let right_ns = shaper.right_ns(at_ns);
        let model_ns = right_ns.saturating_add_signed(wrong_ns);
        let look = shaper.look(at_ns, late_ns(number));
        wrong_ns += comparison.look(&tunnel, model_ns, model_ns, &look);
    }
    wrong_ns
}

proptest! {
    /// Whatever the error is, and where now and then a timer is late so that more waits than should.
    #[test]
    fn model_comes_to_within_a_part_of_a_packet_of_its_queue(
        error_ns in -30_000_000i64..30_000_000,
        every_ns in 9_100_000u64..11_000_000,
        bytes in 400u64..1_515,
        bursts: bool,
        is_late: bool,
    ) {
        let mut site = site(&[(8 * MBIT, 0)], false);
        if bursts {
            site = bursting(site);
        }
        let tunnel = site.tunnels[0];
        let late_ns = |number| if is_late && number % 7 == 0 { 6_000_000 } else { 0 };
        let wrong_ns = error_after_looks(tunnel, (bytes, every_ns), error_ns, late_ns);
        // The looks take the longest packet there may be for the one in front.
        let most_ns = tunnel.service.of(1_514) * 3 / 4;
        prop_assert!(wrong_ns.unsigned_abs() < most_ns, "{wrong_ns}");
    }
}

/// Packets and looks that nearly keep step: what is certain says a little more each time, and never all.
#[test]
fn model_comes_to_its_queue_where_looks_nearly_keep_step_with_packets() {
    let tunnel = site(&[(8 * MBIT, 0)], false).tunnels[0];
    let wrong_ns = error_after_looks(tunnel, (535, 10_163_098), 1_500_561, |_| 0);
    assert!(wrong_ns.unsigned_abs() < 600_000, "{wrong_ns}");
    let late_ns = |number| if number % 7 == 0 { 6_000_000 } else { 0 };
    let wrong_ns = error_after_looks(tunnel, (1_000, 10_999_999), 27_751_086, late_ns);
    assert!(wrong_ns.unsigned_abs() < 1_000_000, "{wrong_ns}");
}

#[test]
fn empty_queue_tells_that_a_model_is_too_full_and_not_that_it_is_too_empty() {
    let site = bursting(site(&[(8 * MBIT, 0)], false));
    let (tunnel, now_ns) = (site.tunnels[0], 1_000_000_000);
    let empty = QueueLook {
        asked_ns: now_ns,
        answered_ns: now_ns,
        bytes: 0,
        packet_bytes: 1_514,
    };
    let mut comparison = Comparison::default();
    let mut correct = |model_ns| comparison.look(&tunnel, model_ns, model_ns, &empty);
    for _ in 0..40 {
        assert_eq!(correct(now_ns - 50_000_000), 0);
    }
    // A burst may have gone, and the packet behind it has its time.
    let latest_ns = now_ns + tunnel.service.of(3 * 1_514);
    assert_eq!(correct(latest_ns), 0);
    assert_eq!(correct(latest_ns + 7_000), -7_000);
}

#[test]
fn queue_that_fills_without_packets_that_choose_is_no_longer_than_what_waits() {
    let tunnel = site(&[(8 * MBIT, 0)], false).tunnels[0];
    let queues = TunnelQueues::<Cell<u64>>::default();
    let mut comparison = Comparison::default();
    let hour_ns = 3_600_000_000_000;
    for number in 0..200 {
        let now_ns = hour_ns + number * 10_000_000;
        let look = QueueLook {
            asked_ns: now_ns,
            answered_ns: now_ns,
            bytes: 10_000,
            packet_bytes: 1_514,
        };
        let model_ns = queues.free_at_ns(path(0));
        let correction_ns = comparison.look(&tunnel, model_ns, model_ns, &look);
        queues.correct(path(0), correction_ns, now_ns);
        let holds_ns = queues.free_at_ns(path(0)).saturating_sub(now_ns);
        assert!(holds_ns <= tunnel.service.of(10_000 + 1_514), "{holds_ns}");
        let is_filled = correction_ns <= 0 || holds_ns >= tunnel.service.of(10_000);
        assert!(is_filled, "what waits is in the model: {holds_ns}");
    }
    let (_, wrong_ns) = queues.compared(path(0));
    // Each judgement finds the queue of then.
    assert!(
        wrong_ns <= 200 / 16 * tunnel.service.of(10_000 + 1_514),
        "{wrong_ns}"
    );
    assert!(wrong_ns > 0);
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
