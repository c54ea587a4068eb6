//! Packets that are put into queues: as before each was put there in one step, and what is full was told by its sum.

use super::*;

/// As it was.
fn sent_in_two_steps(paths: &LivePaths<'_, Cell<u64>>, path: PathId, bytes: u32) -> bool {
    let add = |queue: &Cell<u64>, free_at_ns: u64, now_ns: u64, service_ns: u64| {
        if free_at_ns < now_ns {
            queue.exchange(free_at_ns, now_ns);
        }
        queue.add(service_ns);
    };
    let index = path.index();
    let (tunnel, now_ns) = (&paths.site.tunnels[index], paths.now_ns);
    let (first, all) = (&paths.queues.of[FIRST][index], &paths.queues.of[ALL][index]);
    let (first_ns, all_ns) = (first.get(), all.get());
    let is_full = if paths.waits_for == FIRST {
        first_ns > now_ns.saturating_add(tunnel.queue_ns)
    } else {
        all_ns > first_ns.max(now_ns).saturating_add(tunnel.queue_ns)
    };
    if is_full {
        return false;
    }
    let service_ns = tunnel.service.of(bytes.into());
    add(all, all_ns, now_ns, service_ns);
    if paths.waits_for == FIRST {
        add(first, first_ns, now_ns, service_ns);
    }
    true
}

/// Times that are often the same, or just beside each other.
fn time() -> impl Strategy<Value = u64> {
    let near =
        (0u64..5, 0u64..3).prop_map(|(ms, beside)| (ms * 1_000_000 + beside).wrapping_sub(1));
    prop_oneof![4 => near, 1 => any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn queue_takes_bit_for_bit_what_it_took_in_two_steps(
        [now_ns, queue_ns, first_ns, all_ns] in [time(), time(), time(), time()],
        bytes: u32,
        rate in prop_oneof![Just(0), Just(MBIT), any::<u64>()],
        is_short: bool,
        has_priority: bool,
    ) {
        let mut site = site(&[(rate, 0)], has_priority);
        site.tunnels[0].queue_ns = queue_ns;
        let class = if is_short { Class::Short } else { Class::Long };
        let outcome = |send: &dyn Fn(&LivePaths<'_, Cell<u64>>) -> bool| {
            let queues = TunnelQueues::<Cell<u64>>::default();
            queues.of[FIRST][0].set(first_ns);
            queues.of[ALL][0].set(all_ns);
            let is_taken = send(&LivePaths::new(&site, &queues, Some(class), now_ns));
            (is_taken, queues.of.map(|it| it[0].get()))
        };
        prop_assert_eq!(
            outcome(&|paths| paths.send(path(0), bytes)),
            outcome(&|paths| sent_in_two_steps(paths, path(0), bytes))
        );
    }

    #[test]
    fn bytes_on_the_wire_are_those_of_one_sum(bytes: u32, segments in prop_oneof![0u32..4, any::<u32>()], is_v6: bool, spared: u32) {
        let headers = if is_v6 { HEADERS_V6 } else { HEADERS_V4 };
        let more = segments.saturating_sub(1);
        let sum = bytes
            .wrapping_sub(spared)
            .wrapping_add(more.wrapping_mul(headers.wrapping_sub(spared)));
        prop_assert_eq!(wire_bytes(bytes, segments, is_v6, spared), sum);
    }
}

/// Another processor adds to a queue between the look at it and the exchange.
#[test]
fn what_another_processor_adds_meanwhile_is_kept() {
    struct Contended(Cell<u64>);
    impl SharedWord for Contended {
        fn get(&self) -> u64 {
            self.0.get()
        }
        fn exchange(&self, old: u64, new: u64) -> bool {
            // Just before.
            self.0.set(7_000);
            self.0.exchange(old, new)
        }
        fn add(&self, amount: u64) -> u64 {
            self.0.add(amount)
        }
    }
    let queue = Contended(Cell::new(1_000));
    super::super::sending::add(&queue, 1_000, 5_000, 300);
    assert_eq!(queue.get(), 7_300);
}
