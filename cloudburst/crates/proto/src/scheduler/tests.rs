//! The schedule, with messages that are made up.

use core::time::Duration;
use std::collections::BTreeMap;

use super::*;

/// Messages by their remaining symbols, and whether they are queued.
#[derive(Default)]
struct Messages(BTreeMap<SendId, (u32, bool)>);

impl Backlog for Messages {
    fn rank(&self, id: SendId) -> Option<Rank> {
        self.0.get(&id).map(|(remaining, _)| rank(id, *remaining))
    }

    fn dequeued(&mut self, id: SendId) {
        if let Some((_, is_queued)) = self.0.get_mut(&id) {
            *is_queued = false;
        }
    }
}

/// Messages from this number on are urgent, and from twice that on wait for all others.
const URGENT: u64 = 1 << 32;

fn rank(id: SendId, remaining: u32) -> Rank {
    let priority = match id.as_u64() / URGENT {
        0 => Priority::Normal,
        1 => Priority::Urgent,
        _ => Priority::Background,
    };
    Rank {
        priority: Reverse(priority),
        remaining,
    }
}

fn scheduler(peers: u32, link_bits_per_s: u64) -> (Scheduler, Vec<PeerId>) {
    let control = CongestionControl::reserved(link_bits_per_s);
    // The link's own pacer is not what is tested.
    let mut scheduler = Scheduler::new(Time::ZERO, None);
    let ids: Vec<_> = (0..peers).map(|index| PeerId::new(index, 0)).collect();
    for id in &ids {
        scheduler.add_peer(Time::ZERO, *id, &control, Duration::ZERO);
    }
    (scheduler, ids)
}

fn add(scheduler: &mut Scheduler, messages: &mut Messages, now: Time, id: SendId, n: u32) {
    messages.0.insert(id, (n, true));
    scheduler.enqueue(now, id, rank(id, n), true, messages);
}

/// Symbols of 1,200 bytes.
fn send(scheduler: &mut Scheduler, messages: &mut Messages, now: Time, id: SendId, n: u32) {
    let (remaining, _) = messages.0.get_mut(&id).expect("it is under way");
    let sent = n.min(*remaining);
    *remaining -= sent;
    scheduler.sent(now, id.peer, sent as usize * 1_200);
    scheduler.requeue(now, id.peer, messages);
}

/// What is left of the shortest message that may be sent, found the long way.
fn shortest(scheduler: &Scheduler, messages: &Messages, now: Time) -> Option<u32> {
    let all = messages.0.iter();
    let may =
        all.filter(|(id, (remaining, _))| *remaining > 0 && scheduler.credit(now, id.peer) > 0);
    may.map(|(_, (remaining, _))| *remaining).min()
}

#[test]
fn the_shortest_remaining_of_all_that_may_be_sent_is_chosen() {
    let (mut scheduler, ids) = scheduler(40, 50_000_000);
    let mut messages = Messages::default();
    let mut now = Time::ZERO;
    let mut draw = 1_u64;
    let mut chosen = 0;
    for step in 0..4_000 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let peer = ids[(draw >> 33) as usize % ids.len()];
        if step % 3 == 0 {
            let id = SendId::new(peer, step);
            let n = 1 + (draw >> 40) as u32 % 50;
            add(&mut scheduler, &mut messages, now, id, n);
            if draw >> 20 & 3 == 0 {
                messages.0.remove(&id);
            }
        }
        if draw >> 25 & 7 == 0 {
            // What a peer may be sent changes with what it reports.
            let queue = scheduler.peers.get_mut(peer).expect("it is known");
            let rate = 1e5 + (draw >> 30 & 0xff) as f64 * 2e4;
            queue.controller.set_rate(now, rate);
            scheduler.requeue_earlier(peer);
        }
        let best = shortest(&scheduler, &messages, now);
        let next = scheduler.next_message(now, &mut messages);
        let remaining = next
            .and_then(|id| messages.rank(id))
            .map(|rank| rank.remaining);
        assert_eq!(remaining, best, "step {step}");
        match next {
            Some(id) => {
                chosen += 1;
                send(&mut scheduler, &mut messages, now, id, 16);
            }
            None => {
                let wakes = scheduler.next_deadline().unwrap_or(now).max(now);
                now = wakes.min(now + Duration::from_millis(1)) + Duration::from_micros(1);
            }
        }
        assert!(scheduler.due.len() <= 2 * ids.len() + MOST_STALE);
        assert!(scheduler.waiting.len() <= 2 * ids.len() + MOST_STALE);
    }
    assert!(chosen > 500, "{chosen}");
}

#[test]
fn equals_alternate() {
    let (mut scheduler, ids) = scheduler(3, 1_000_000_000);
    let mut messages = Messages::default();
    for &peer in &ids {
        for message in 0..4 {
            let id = SendId::new(peer, message);
            add(&mut scheduler, &mut messages, Time::ZERO, id, 1);
        }
    }
    let mut order = Vec::new();
    while let Some(id) = scheduler.next_message(Time::ZERO, &mut messages) {
        send(&mut scheduler, &mut messages, Time::ZERO, id, 1);
        order.push(ids.iter().position(|it| *it == id.peer).expect("it is one"));
    }
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn priority_goes_before_length_and_length_before_age() {
    let (mut scheduler, ids) = scheduler(2, 1_000_000_000);
    let mut messages = Messages::default();
    let numbers = [
        (0, 2 * URGENT, 1),
        (1, 2 * URGENT + 1, 2),
        (0, 1, 3),
        (1, 2, 90),
        (0, 3, 90),
        (1, URGENT, 500),
        (0, URGENT + 1, 400),
    ];
    for (peer, number, symbols) in numbers {
        let id = SendId::new(ids[peer], number);
        add(&mut scheduler, &mut messages, Time::ZERO, id, symbols);
    }
    let mut order = Vec::new();
    let mut now = Time::ZERO;
    while order.len() < numbers.len() {
        now = now + Duration::from_secs(1);
        while let Some(id) = scheduler.next_message(now, &mut messages) {
            order.push(id.as_u64());
            send(&mut scheduler, &mut messages, now, id, u32::MAX);
        }
    }
    let first = [URGENT + 1, URGENT, 1, 2, 3, 2 * URGENT, 2 * URGENT + 1];
    assert_eq!(order, first);
}
