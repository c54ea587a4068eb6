//! The time has come for something.

use core::time::Duration;

use super::{
    super::{
        config::MAX_LIFETIME,
        event::{Event, FourTuple, PeerId, Reason, SendId},
        outgoing::Step,
        path,
        paths::MAX_PATHS,
        shared_bottleneck::{self, Phase},
        time::Time,
    },
    Native, TimerKey,
    control::Question,
};

/// How often a peer with incomplete messages is looked after.
const EXPIRY_PAUSE: Duration = Duration::from_secs(1);
/// After this long without a word a peer is forgotten: longer than a symbol may
/// be under way and its message be tried for.
const IDLE: Duration = Duration::from_secs(2 * MAX_LIFETIME.as_secs());
/// How often paths in use are looked after, at most.
const LEAST_CARE_PAUSE: Duration = Duration::from_millis(5);
/// How long nothing may be heard of a path before it counts as dead: longer
/// than the queues of most routers.
const LEAST_SILENCE: Duration = Duration::from_millis(20);

impl Native {
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        while let Some(due) = self.timers.pop(now) {
            match due {
                TimerKey::Message(id) => self.attend_message(now, id),
                TimerKey::Peer(id) => self.attend_peer(now, id),
            }
        }
    }

    fn attend_message(&mut self, now: Time, id: SendId) {
        let Some(outgoing) = self.outgoing.get_mut(&id) else {
            return;
        };
        if !outgoing
            .alarm
            .is_due(now, TimerKey::Message(id), &mut self.timers)
        {
            return;
        }
        match outgoing.attend(now) {
            Step::Send | Step::Wait => {}
            Step::Query => self.query_progress(now, id),
            Step::Abandon(reason) => return self.abandon(id, reason),
        }
        self.enqueue(now, id);
    }

    fn query_progress(&mut self, now: Time, id: SendId) {
        let Some(peer) = self.peers.get_mut(id.peer) else {
            return;
        };
        // By two ways at once: either may be dead without our knowing it yet.
        let mut four_tuples = [None; 2];
        for four_tuple in &mut four_tuples {
            let index = peer.paths.choose(now, 0, 0, 0.0, None);
            *four_tuple = index.map(|(index, _)| peer.paths.get_mut(index).four_tuple);
        }
        let message = id.message;
        for four_tuple in four_tuples.into_iter().flatten() {
            self.ask(id.peer, four_tuple, Question::Query { message });
        }
    }

    /// Sets the peer's alarm for what may be due next.
    pub(super) fn look_after(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let mut due = Time::NEVER;
        if peer.is_in_use(now) {
            let ack_timeout = peer.ack_timeout();
            let paths = peer
                .paths
                .iter()
                .map(|path| path.next_due(ack_timeout))
                .min();
            let earliest = now + LEAST_CARE_PAUSE;
            let paths = paths.unwrap_or(Time::NEVER);
            due = due.min(paths.min(peer.shared_bottleneck.next_due()).max(earliest));
        }
        if !peer.incoming.is_empty() {
            due = due.min(now + EXPIRY_PAUSE);
        }
        if !peer.is_ours {
            due = due.min((peer.heard_at + IDLE).max(now + EXPIRY_PAUSE));
        }
        peer.alarm.set(due, TimerKey::Peer(id), &mut self.timers);
    }

    fn attend_peer(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        if !peer.alarm.is_due(now, TimerKey::Peer(id), &mut self.timers) {
            return;
        }
        self.expire_incoming(now, id);
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        if !peer.is_ours && now.since(peer.heard_at) >= IDLE && peer.outgoing == 0 {
            return self.remove_peer(id);
        }
        if peer.is_in_use(now) {
            self.care_for_paths(now, id);
            self.detect_shared_bottlenecks(now, id);
        }
        self.look_after(now, id);
    }

    fn expire_incoming(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let incoming = peer.incoming.iter();
        let mut old: Vec<u64> = incoming
            .filter(|(_, incoming)| now.since(incoming.last_at) >= MAX_LIFETIME)
            .map(|(&message, _)| message)
            .collect();
        old.sort_unstable();
        for message in old {
            self.statistics.refused.expired += 1;
            self.drop_incoming(id, message);
        }
    }

    /// Forgets a peer and all that is under way to it and from it.
    pub(crate) fn forget_peer(&mut self, _now: Time, id: PeerId) {
        let messages = self.outgoing.keys().filter(|message| message.peer == id);
        let mut messages: Vec<SendId> = messages.copied().collect();
        messages.sort_unstable();
        for message in messages {
            self.abandon(message, Reason::Cancelled);
        }
        self.remove_peer(id);
    }

    /// Forgets a peer and all that is under way from it.
    fn remove_peer(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let mut incoming: Vec<u64> = peer.incoming.keys().copied().collect();
        incoming.sort_unstable();
        for message in incoming {
            self.drop_incoming(id, message);
        }
        self.peers.remove(id);
        self.events.push_back(Event::PeerGone { peer: id });
    }

    /// Finds out which paths are dead, and which carry longer datagrams.
    fn care_for_paths(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let ack_timeout = peer.ack_timeout();
        let doubt = (ack_timeout * 2).max(LEAST_SILENCE);
        let most = self.config.datagrams.most;
        let mut pings: [Option<(FourTuple, path::PathProbe)>; MAX_PATHS] = [None; MAX_PATHS];
        for (path, ping) in peer.paths.iter_mut().zip(&mut pings) {
            if path.judge(now, doubt) {
                self.statistics.paths_died += 1;
            }
            *ping = path
                .due(now, ack_timeout, most)
                .map(|due| (path.four_tuple, due));
        }
        self.replace_failed_paths(now, id, doubt);
        for (four_tuple, due) in pings.into_iter().flatten() {
            let datagram_bytes = match due {
                path::PathProbe::Probe => 0,
                path::PathProbe::MtuProbe(bytes) => bytes,
            };
            self.ping(id, four_tuple, now.as_nanos(), datagram_bytes);
        }
    }

    /// Finds out which paths share a bottleneck, while nothing waits to be sent.
    fn detect_shared_bottlenecks(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let mut live = [false; MAX_PATHS];
        let mut count = 0;
        for (path, live) in peer.paths.iter().zip(&mut live) {
            *live = path.is_good();
            count += 1;
        }
        if !peer.ready.is_empty() || count < 2 {
            return;
        }
        let loaded =
            match peer
                .shared_bottleneck
                .step(now, peer.round_trip.ack_timeout(), &live[..count])
            {
                shared_bottleneck::DetectorStep::Nothing => return,
                shared_bottleneck::DetectorStep::Done => {
                    let shared_bottleneck = &peer.shared_bottleneck;
                    return peer
                        .paths
                        .regroup(now, |path| shared_bottleneck.group(path));
                }
                shared_bottleneck::DetectorStep::SendTrain(loaded) => loaded,
            };
        let others: Vec<usize> = (0..count)
            .filter(|&path| live[path] && peer.shared_bottleneck.takes_part(path))
            .collect();
        let four_tuple = |path: usize| peer.paths.get(path).four_tuple;
        let [before, after] =
            [Phase::Before, Phase::After].map(|phase| peer.shared_bottleneck.nonce(phase));
        let short = |nonce| move |&path: &usize| (path, nonce, 0);
        let long = (loaded, after, self.config.datagrams.initial);
        let probe_train = core::iter::repeat_n(long, peer.shared_bottleneck.probe_train());
        let pings = others.iter().map(short(before)).chain(probe_train);
        let rest = others
            .iter()
            .filter(|path| **path != loaded)
            .map(short(after));
        let pings: Vec<_> = pings
            .chain(rest)
            .map(|(path, nonce, bytes)| (four_tuple(path), nonce, bytes))
            .collect();
        for (four_tuple, nonce, datagram_bytes) in pings {
            self.ping(id, four_tuple, nonce, datagram_bytes);
        }
    }

    pub(crate) fn handle_unreachable(&mut self, now: Time, four_tuple: FourTuple) {
        let Some(id) = self.peers.by_remote(four_tuple.remote) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        if let Some(index) = peer.paths.position(four_tuple) {
            let path = peer.paths.get_mut(index);
            path.die();
            path.unreachable = true;
        }
        if peer.paths.all_unreachable() {
            peer.is_abandoned = true;
            for message in peer.oldest_message..peer.next_message {
                self.abandon(SendId { peer: id, message }, Reason::Unreachable);
            }
        }
        self.look_after(now, id);
    }

    pub(crate) fn handle_too_big(&mut self, now: Time, four_tuple: FourTuple, bytes: usize) {
        let datagrams = self.config.datagrams;
        if let Some(id) = self.peers.by_remote(four_tuple.remote)
            && let Some(peer) = self.peers.get_mut(id)
            && let Some(index) = peer.paths.position(four_tuple)
        {
            peer.paths
                .get_mut(index)
                .mtu_refuted(now, bytes, &datagrams);
        }
    }
}
