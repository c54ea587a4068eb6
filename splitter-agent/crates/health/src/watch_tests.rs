//! Which evidence decides, in virtual time.

use std::net::IpAddr;

use super::super::key::KeyRing;
use super::super::link_state::LinkKind;
use super::super::machine::Condition;
use super::super::responder::Responder;
use super::super::wire::Nonce;
use super::*;

const TIMING: Timing = Timing {
    interval: ms(100),
    dead_after: ms(700),
    hold_down: ms(5_000),
    max_hold_down: ms(60_000),
};
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A tunnel with its peer and next hop, each of which answers or does not.
struct World {
    watch: TunnelWatch,
    responder: Responder,
    presence: PeerPresence,
    now: Duration,
    peer: Peer,
    neighbour_answers: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Peer {
    Answers,
    Silent,
    Refuses,
}

impl World {
    fn new(has_peer: bool, has_neighbour: bool) -> Self {
        let prober = Prober::new(KeyRing::of(&[1]), 1, Nonce(1));
        let prober = has_peer.then_some(prober);
        let mut watch = TunnelWatch::new(TIMING, prober, has_neighbour, Start::Trusted, ms(0));
        watch.link(LinkState::Up(3), ms(0));
        Self {
            watch,
            responder: Responder::new(KeyRing::of(&[1]), Nonce(2)),
            presence: PeerPresence::Unconfirmed,
            now: ms(0),
            peer: Peer::Answers,
            neighbour_answers: true,
        }
    }

    /// Lives on for so long; the condition at the end.
    fn after(&mut self, time: Duration) -> Condition {
        let end = self.now + time;
        while self.now < end {
            if let Some(probe) = self.watch.due(self.now) {
                if let (Some(request), Peer::Answers) = (probe, self.peer) {
                    let reply = self.responder.answer(&request, PEER, self.now, || None);
                    let reply = reply.expect("an answer");
                    self.watch
                        .receive(&reply, self.now, self.now)
                        .expect("it counts");
                    self.presence = PeerPresence::Confirmed;
                }
                if self.peer == Peer::Refuses {
                    self.watch.refused(self.now);
                }
                let by_link = self.evidence() == Evidence::Link;
                if by_link || (self.neighbour_answers && self.evidence() == Evidence::Neighbour) {
                    self.watch.alive(self.presence, self.now);
                }
            }
            self.watch.tick(self.now);
            let next = self.watch.deadline(self.now);
            self.now = next.clamp(self.now + ms(1), end.max(self.now + ms(1)));
        }
        self.watch.machine().condition()
    }

    fn evidence(&self) -> Evidence {
        self.watch.evidence(self.presence, self.now)
    }
}

#[test]
fn silent_peer_that_was_there_means_a_dead_tunnel_whatever_the_neighbour_says() {
    let mut world = World::new(true, true);
    assert_eq!(world.after(ms(2_000)), Condition::Up);
    assert_eq!(world.evidence(), Evidence::Echo);
    world.peer = Peer::Silent;
    assert_eq!(world.after(ms(701)), Condition::Down);
    world.peer = Peer::Answers;
    assert_eq!(world.after(ms(4_900)), Condition::Returning);
    assert_eq!(world.after(ms(300)), Condition::Up);
}

#[test]
fn peer_that_never_answered_does_not_condemn_the_tunnel() {
    let mut world = World::new(true, true);
    world.peer = Peer::Silent;
    assert_eq!(world.after(ms(10_000)), Condition::Up);
    assert_eq!(world.evidence(), Evidence::Neighbour);
    world.neighbour_answers = false;
    assert_eq!(world.after(ms(800)), Condition::Down);
}

#[test]
fn answer_over_the_other_tunnel_makes_silence_count() {
    let mut world = World::new(true, true);
    world.peer = Peer::Silent;
    assert_eq!(world.after(ms(5_000)), Condition::Up);
    world.presence = PeerPresence::Confirmed;
    assert_eq!(world.after(ms(800)), Condition::Down);
}

#[test]
fn peer_whose_agent_ended_leaves_the_judgement_to_the_neighbour() {
    let mut world = World::new(true, true);
    assert_eq!(world.after(ms(2_000)), Condition::Up);
    world.peer = Peer::Refuses;
    assert_eq!(world.after(ms(60_000)), Condition::Up);
    assert_eq!(world.evidence(), Evidence::Neighbour);
    world.peer = Peer::Answers;
    assert_eq!(world.after(ms(200)), Condition::Up);
    assert_eq!(world.evidence(), Evidence::Echo);
    // A tunnel that dies while the peer is away is found out, only later.
    world.peer = Peer::Refuses;
    world.after(ms(1_000));
    world.peer = Peer::Silent;
    assert_eq!(world.after(ABSENT_AFTER_REFUSAL + ms(800)), Condition::Down);
}

#[test]
fn without_peer_and_neighbour_the_link_decides_at_once() {
    let mut world = World::new(false, false);
    assert_eq!(world.after(ms(5_000)), Condition::Up);
    let change = world
        .watch
        .link(LinkState::Down(3), world.now)
        .expect("down");
    assert_eq!(
        (change.to, change.cause),
        (Condition::Down, Cause::LinkDown)
    );
    assert_eq!(world.after(ms(20_000)), Condition::Down);
    world.watch.link(LinkState::Up(3), world.now);
    assert_eq!(world.after(ms(4_900)), Condition::Returning);
    assert_eq!(world.after(ms(400)), Condition::Up);
}

#[test]
fn device_that_goes_away_is_no_longer_probed() {
    let mut world = World::new(true, true);
    world.after(ms(1_000));
    let change = world
        .watch
        .link(LinkState::Absent, world.now)
        .expect("down");
    assert_eq!(change.cause, Cause::NoDevice);
    let later = world.now + ms(5_000);
    assert_eq!(world.watch.due(later), None);
    assert_eq!(world.watch.alive(PeerPresence::Unconfirmed, later), None);
}

#[test]
fn link_that_flaps_a_hundred_times_takes_one_turn() {
    let mut world = World::new(true, true);
    world.after(ms(1_000));
    for _ in 0..100 {
        world.watch.link(LinkState::Down(3), world.now);
        world.after(ms(50));
        world.watch.link(LinkState::Up(3), world.now);
        world.after(ms(300));
    }
    assert_eq!(world.watch.machine().downs(), 1);
    assert_eq!(world.after(ms(5_200)), Condition::Up);
}

#[test]
fn tunnel_without_an_address_is_down_and_not_probed_until_it_has_one() {
    let mut world = World::new(false, true);
    assert_eq!(world.after(ms(2_000)), Condition::Up);
    let change = world.watch.link(LinkState::NoAddress(3), world.now);
    let change = change.expect("down");
    assert_eq!(
        (change.to, change.cause),
        (Condition::Down, Cause::NoAddress)
    );
    let later = world.now + ms(5_000);
    assert_eq!(world.watch.due(later), None);
}

#[test]
fn tunnel_that_could_not_be_used_at_the_start_is_taken_at_its_first_sign_of_life() {
    for has_peer in [false, true] {
        for has_neighbour in [false, true] {
            let mut world = World::new(has_peer, has_neighbour);
            let absent = LinkState::Absent;
            world.watch.link(absent, ms(0));
            world.watch.restart(TIMING, Start::Unseen, ms(0));
            assert_eq!(world.after(ms(60_000)), Condition::Down);
            // None of these is a sign of life.
            for link in [LinkState::Down(3), LinkState::NoAddress(3), absent] {
                assert_eq!(world.watch.link(link, world.now), None);
                assert_eq!(world.after(ms(1_000)), Condition::Down);
            }
            world.watch.link(LinkState::Up(3), world.now);
            assert_eq!(world.after(ms(150)), Condition::Up);
            assert_eq!(world.watch.machine().downs(), 0);
            // From then on it is a tunnel like any other.
            world.watch.link(LinkState::Down(3), world.now);
            world.watch.link(LinkState::Up(3), world.now);
            assert_eq!(world.after(ms(4_000)), Condition::Returning);
        }
    }
}

#[test]
fn tunnel_that_an_earlier_agent_did_not_use_has_to_prove_itself_whatever_its_link_is() {
    for link in LinkKind::ALL {
        assert_eq!(Start::of(link, false), Start::GivenUp);
        let expected = match link {
            LinkKind::Up => Start::Trusted,
            _ => Start::Unseen,
        };
        assert_eq!(Start::of(link, true), expected);
    }
    let mut world = World::new(false, false);
    world.watch.restart(TIMING, Start::GivenUp, ms(0));
    assert_eq!(world.after(ms(4_000)), Condition::Returning);
    assert_eq!(world.after(ms(1_500)), Condition::Up);
}
