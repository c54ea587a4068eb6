//! Laws that hold on a processor that is always there.

use splitter_policy::classify::Verdict;
use splitter_policy::counters::FlowEvent;
use splitter_policy::flow::{Class, TunnelRole};

use crate::border::{Border, MICROSECOND, MILLISECOND, SECOND};
use crate::shaper::{Packet, Queue, Shaper};
use crate::traffic::{Flow, Random, run};

const SEEDS: u64 = 24;
const FLOWS: usize = 60;
const RATES_MBIT: [[u64; 2]; 3] = [[100, 100], [100, 40], [40, 100]];

/// Both policies in front of every pair of rates, on traffic of every seed.
fn each(mut law: impl FnMut(&str, Border, &[Flow])) {
    for seed in 0..SEEDS {
        let flows = Flow::mixed(&mut Random(seed), FLOWS, 4);
        let rates = RATES_MBIT[seed as usize % RATES_MBIT.len()];
        law(
            &format!("share, seed {seed}"),
            Border::shared(rates, FLOWS),
            &flows,
        );
        law(
            &format!("dedicated, seed {seed}"),
            Border::dedicated(rates, FLOWS),
            &flows,
        );
    }
}

#[test]
fn no_packet_reaches_the_far_border_out_of_order() {
    let mut moved = 0;
    each(|name, mut border, flows| {
        let seen = run(&mut border, flows);
        assert!(seen.overtaken.is_empty(), "{name}: {:?}", seen.overtaken);
        assert!(
            seen.completed_ns.iter().all(Option::is_some),
            "{name}: packets are lost"
        );
        moved += (0..FLOWS).filter(|flow| border.has_moved(*flow)).count();
    });
    assert!(moved > 100, "only {moved} flows changed tunnels");
}

#[test]
fn hand_over_happens_once_and_at_the_cap_at_the_latest() {
    each(|name, mut border, flows| {
        run(&mut border, flows);
        let mut own = vec![Vec::new(); flows.len()];
        for (at_ns, flow, verdict) in &border.verdicts {
            own[*flow].push((*at_ns, *verdict));
        }
        for (number, own) in own.iter().enumerate() {
            let name = format!("{name}, flow {number}");
            let tunnels = border.tunnels_of(number);
            let later =
                |it: &&(u64, Verdict)| it.1.hand_over == Some(FlowEvent::ChangedTunnelLater);
            let changes = own.iter().filter(later).count();
            let dropped = |it: &&(u64, Verdict)| it.1.hand_over == Some(FlowEvent::DroppedToDrain);
            let decided: Vec<_> = own
                .iter()
                .filter(|it| it.1.hand_over.is_some() && !later(it) && !dropped(it))
                .collect();
            assert!(decided.len() <= 1, "{name}: {decided:?}");
            let most = if border.config.is_shared() {
                // Of a short flow, between the round trips of its slow start.
                3 + 1 + changes
            } else {
                1
            };
            assert!(tunnels.len() <= most + 1, "{name}: {tunnels:?}");
            let Some(turned) = own.iter().find(|it| it.1.became_long) else {
                let is_shared = border.config.is_shared();
                assert!(
                    is_shared || tunnels.len() == 1,
                    "{name} is short and went {tunnels:?}"
                );
                continue;
            };
            // The first packet from then on that is not dropped is handed over or stays for good, if
            // none was before.
            let max_wait_ns = turned.0 + border.config.max_wait_ns;
            let from_then_on = own.iter().filter(|it| it.0 >= max_wait_ns);
            match (
                from_then_on.clone().find(|it| !dropped(it)),
                decided.first(),
            ) {
                (Some(first), Some(decided)) => {
                    assert!(decided.0 <= first.0, "{name}: {decided:?}")
                }
                // It started in the tunnel of its class, and has nowhere to go.
                (Some(_), None) => assert_eq!(tunnels, [TunnelRole::Long], "{name}"),
                (None, _) => {}
            }
        }
    });
}

#[test]
fn short_packets_wait_for_no_more_of_a_long_flow_than_it_may_send_before_its_hand_over() {
    let mut waited = 0;
    for seed in 0..SEEDS {
        let flows = Flow::mixed(&mut Random(seed), FLOWS, 4);
        let rates = RATES_MBIT[seed as usize % RATES_MBIT.len()];
        let mut border = Border::shared(rates, FLOWS);
        run(&mut border, &flows);
        for (index, it) in border.log.iter().enumerate() {
            if it.packet.class == Class::Long {
                continue;
            }
            let in_front = border.log[..index].iter().rev();
            let in_front = in_front.take_while(|before| before.left_ns >= it.packet.entered_ns);
            let of_long = in_front
                .filter(|before| before.tunnel == it.tunnel && before.packet.class == Class::Long);
            let mut packets = [0; FLOWS];
            let mut in_long_queue = 0;
            for before in of_long {
                packets[before.packet.flow] += u64::from(before.packet.queue == Queue::Short);
                in_long_queue += u64::from(before.packet.queue == Queue::Long);
                waited += 1;
            }
            assert!(
                in_long_queue <= 1,
                "seed {seed}: {it:?} waited for {in_long_queue}"
            );
            let most = border.config.thresholds.common() + 1;
            assert!(
                packets.iter().all(|it| *it <= most),
                "seed {seed}: {it:?}: {packets:?}"
            );
        }
    }
    assert!(waited > 100, "no short packet met a long flow: {waited}");
}

#[test]
fn long_flows_are_placed_by_rate_and_none_in_a_tunnel_that_is_down() {
    for (rates, expected) in [
        ([100, 100], 10..=10),
        ([100, 25], 15..=17),
        ([25, 100], 3..=5),
    ] {
        let in_first = place(&mut Border::shared(rates, 20));
        assert!(
            expected.contains(&in_first),
            "{rates:?}: {in_first} of 20 in the first"
        );
    }
    for (usable, expected) in [(0b01, 20), (0b10, 0)] {
        let mut border = Border::shared([100, 25], 20);
        border.config.usable = usable;
        assert_eq!(place(&mut border), expected, "usable {usable:b}");
    }
}

/// How many of twenty flows that turn long, one after the other, and go on are in the first tunnel.
fn place(border: &mut Border) -> usize {
    let mut now_ns = SECOND;
    let mut numbers = [0; 20];
    for flow in 0..20 {
        let mut burst = |border: &mut Border, flow: usize, packets: u64, now_ns: u64| {
            for _ in 0..packets {
                border.arrive(now_ns, flow, numbers[flow], 1_448);
                numbers[flow] += 1;
            }
            border.run_until(now_ns + 15 * MILLISECOND);
        };
        burst(border, flow, 45, now_ns);
        now_ns += 30 * MILLISECOND;
        burst(border, flow, 45, now_ns);
        now_ns += 20 * MILLISECOND;
        for earlier in 0..=flow {
            burst(border, earlier, 2, now_ns);
        }
        now_ns += 15 * MILLISECOND;
    }
    let last = |flow: usize| {
        border
            .verdicts
            .iter()
            .rfind(|it| it.1 == flow)
            .expect("it sent")
    };
    (0..20)
        .map(last)
        .inspect(|it| assert_eq!(it.2.class, Class::Long))
        .filter(|it| it.2.tunnel == TunnelRole::Short)
        .count()
}

/// Offers so much to each class of a tunnel for a second; what each has sent, in bytes.
fn offer(mbit: u64, offered_mbit: [u64; 3]) -> ([u64; 3], Shaper, u64) {
    let mut shaper = Shaper::new(mbit * 1_000_000, 18 * MILLISECOND);
    let mut longest_short_ns = 0;
    let step_ns = 10 * MICROSECOND;
    let mut owed = [0; 3];
    for step in 0..SECOND / step_ns {
        let now_ns = SECOND + step * step_ns;
        for (index, queue) in [Queue::Short, Queue::Long, Queue::Cloudburst]
            .into_iter()
            .enumerate()
        {
            owed[index] += offered_mbit[index] * step_ns / 8_000;
            while owed[index] >= 1_242 {
                owed[index] -= 1_242;
                shaper.enqueue(Packet {
                    flow: index,
                    number: 0,
                    bytes: 1_242,
                    entered_ns: now_ns,
                    class: Class::Short,
                    queue,
                });
            }
        }
        for packet in shaper.run(now_ns) {
            if packet.flow == Queue::Short as usize {
                longest_short_ns = longest_short_ns.max(now_ns - packet.entered_ns);
            }
        }
    }
    (shaper.sent_bytes, shaper, longest_short_ns)
}

#[test]
fn cloudburst_takes_its_quarter_at_most_and_nothing_of_other_classes() {
    let whole = 97_000_000 / 8;
    let ([short, long, own], shaper, waited_ns) = offer(97, [4, 200, 200]);
    assert!(own <= whole / 4 + 10_000, "{own} of {whole}");
    assert!(own >= whole / 4 * 98 / 100, "{own} of {whole}");
    assert!(long >= whole * 3 / 4 - short - 20_000, "{long} of {whole}");
    assert_eq!(shaper.dropped[Queue::Short as usize], 0);
    assert!(shaper.dropped[Queue::Cloudburst as usize] > 0);
    // Two packets of Cloudburst and one of a long flow may be in front of it.
    assert!(waited_ns < 400 * MICROSECOND, "{waited_ns}");
    let ([_, long, _], ..) = offer(97, [0, 200, 1]);
    assert!(
        long > whole * 95 / 100,
        "what it leaves others have: {long}"
    );
}
