use super::*;

/// One flow over 30 Mbit/s at 10 ms and 8 Mbit/s at 30 ms, as fast as both, while each is handed a probe of 100 bytes
/// and an answer every 100 ms, of which the model hears or not: how many of its packets arrive behind a later one.
fn late_beside_probes(is_heard: bool) -> usize {
    const PACKETS: u64 = 20_000;
    let site = bursting(site(
        &[(30 * MBIT, 10_000_000), (8 * MBIT, 30_000_000)],
        true,
    ));
    let (queues, mut fifos) = (TunnelQueues::<Cell<u64>>::default(), Fifos::default());
    let (mut flow, mut latest_ns, mut late) = (EarliestFlow::default(), 0, 0);
    let (mut now_ns, mut probed_ns) = (1_000_000_000, 0);
    for _ in 0..PACKETS {
        // 1,500 bytes at 38 Mbit/s, but for what the probes take.
        now_ns += 316_000;
        let paths = LivePaths::new(&site, &queues, Some(Class::Long), now_ns);
        if now_ns >= probed_ns + 50_000_000 {
            probed_ns = now_ns;
            for entered in [path(0), path(1)] {
                fifos.take(&site.tunnels[entered.index()], entered, now_ns, 100);
                if is_heard {
                    paths.enter(device(entered), 100);
                }
            }
        }
        let packet = Packet {
            now_ns,
            bytes: 1_500,
            flow_hash: 1,
        };
        let (chosen, _) = paths.forward_in_order(&EarliestArrival::default(), &mut flow, &packet);
        let tunnel = &site.tunnels[chosen.index()];
        if let Some(arrives_ns) = fifos.take(tunnel, chosen, now_ns, 1_500) {
            late += usize::from(arrives_ns < latest_ns);
            latest_ns = latest_ns.max(arrives_ns);
        }
    }
    late
}

#[test]
fn probes_that_no_model_hears_of_put_a_flow_out_of_order() {
    assert_eq!(late_beside_probes(true), 0);
    // What the test is worth.
    let late = late_beside_probes(false);
    assert!(late > 1_000, "{late}");
}

#[test]
fn packets_enter_the_tunnel_of_their_device_alone_and_none_where_nobody_chooses() {
    let queues = TunnelQueues::<Cell<u64>>::default();
    let mut site = site(&[(8 * MBIT, 0), (8 * MBIT, 0)], true);
    let entered =
        |site: &SitePaths, device| LivePaths::new(site, &queues, None, 5_000).enter(device, 1_000);
    for unknown in [0, 1, 99] {
        assert_eq!(entered(&site, unknown), None);
    }
    assert_eq!(entered(&site, device(path(1))), Some(path(1)));
    let of_all = |number: usize| queues.of[ALL][number].get();
    assert_eq!([of_all(0), of_all(1)], [0, 1_005_000]);
    assert_eq!(queues.of[FIRST][1].get(), 0);
    // In a shadow devices are known, and nobody chooses.
    site.known = 0;
    assert_eq!(entered(&site, device(path(1))), None);
    assert_eq!(of_all(1), 1_005_000);
}
