//! The time has come for something.

use core::time::Duration;

use super::{
    super::{
        config::MAX_LIFETIME,
        event::{Event, PeerId, Reason, Route, SendId},
        outgoing::Step,
        path,
        paths::MAX_PATHS,
        survey::{self, Phase},
        time::Time,
    },
    Due, Native,
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
const LEAST_DOUBT: Duration = Duration::from_millis(20);

impl Native {
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        while let Some(due) = self.timers.pop(now) {
            match due {
                Due::Message(id) => self.attend_message(now, id),
                Due::Peer(id) => self.attend_peer(now, id),
            }
        }
    }

    fn attend_message(&mut self, now: Time, id: SendId) {
        let Some(outgoing) = self.outgoing.get_mut(&id) else {
            return;
        };
        if !outgoing
            .alarm
            .is_due(now, Due::Message(id), &mut self.timers)
        {
            return;
        }
        match outgoing.attend(now) {
            Step::Send | Step::Wait => {}
            Step::Ask => self.ask_what_it_has(now, id),
            Step::GiveUp(reason) => return self.give_up(id, reason),
        }
        self.enqueue(now, id);
    }

    fn ask_what_it_has(&mut self, now: Time, id: SendId) {
        let Some(peer) = self.peers.get_mut(id.peer) else {
            return;
        };
        // By two ways at once: either may be dead without our knowing it yet.
        let mut routes = [None; 2];
        for route in &mut routes {
            let index = peer.paths.choose(now, 0, 0, 0.0, None);
            *route = index.map(|(index, _)| peer.paths.get_mut(index).route);
        }
        let message = id.message;
        for route in routes.into_iter().flatten() {
            self.ask(id.peer, route, Question::Ask { message });
        }
    }

    /// Sets the peer's alarm for what may be due next.
    pub(super) fn look_after(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let mut due = Time::NEVER;
        if peer.is_in_use(now) {
            let patience = peer.patience();
            let paths = peer.paths.iter().map(|path| path.next_due(patience)).min();
            let soonest = now + LEAST_CARE_PAUSE;
            let paths = paths.unwrap_or(Time::NEVER);
            due = due.min(paths.min(peer.survey.next_due()).max(soonest));
        }
        if !peer.incoming.is_empty() {
            due = due.min(now + EXPIRY_PAUSE);
        }
        if !peer.is_ours {
            due = due.min((peer.heard_at + IDLE).max(now + EXPIRY_PAUSE));
        }
        peer.alarm.set(due, Due::Peer(id), &mut self.timers);
    }

    fn attend_peer(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        if !peer.alarm.is_due(now, Due::Peer(id), &mut self.timers) {
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
            self.survey_paths(now, id);
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
            self.give_up(message, Reason::Cancelled);
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
        let patience = peer.patience();
        let doubt = (patience * 2).max(LEAST_DOUBT);
        let most = self.config.datagrams.most;
        let mut pings: [Option<(Route, path::Due)>; MAX_PATHS] = [None; MAX_PATHS];
        for (path, ping) in peer.paths.iter_mut().zip(&mut pings) {
            if path.judge(now, doubt) {
                self.statistics.paths_died += 1;
            }
            *ping = path.due(now, patience, most).map(|due| (path.route, due));
        }
        self.renew_ways(now, id, doubt);
        for (route, due) in pings.into_iter().flatten() {
            let datagram_bytes = match due {
                path::Due::Probe => 0,
                path::Due::Length(bytes) => bytes,
            };
            self.ping(id, route, now.as_nanos(), datagram_bytes);
        }
    }

    /// Finds out which paths share a bottleneck, while nothing waits to be sent.
    fn survey_paths(&mut self, now: Time, id: PeerId) {
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
        let leader = match peer
            .survey
            .step(now, peer.round_trip.patience(), &live[..count])
        {
            survey::Next::Nothing => return,
            survey::Next::Done => {
                let survey = &peer.survey;
                return peer.paths.regroup(now, |path| survey.group(path));
            }
            survey::Next::Train(leader) => leader,
        };
        let others: Vec<usize> = (0..count)
            .filter(|&path| live[path] && peer.survey.takes_part(path))
            .collect();
        let route = |path: usize| peer.paths.get(path).route;
        let [before, after] = [Phase::Before, Phase::After].map(|phase| peer.survey.nonce(phase));
        let short = |nonce| move |&path: &usize| (path, nonce, 0);
        let long = (leader, after, self.config.datagrams.initial);
        let train = core::iter::repeat_n(long, peer.survey.train());
        let pings = others.iter().map(short(before)).chain(train);
        let rest = others
            .iter()
            .filter(|path| **path != leader)
            .map(short(after));
        let pings: Vec<_> = pings
            .chain(rest)
            .map(|(path, nonce, bytes)| (route(path), nonce, bytes))
            .collect();
        for (route, nonce, datagram_bytes) in pings {
            self.ping(id, route, nonce, datagram_bytes);
        }
    }

    pub(crate) fn handle_unreachable(&mut self, now: Time, route: Route) {
        let Some(id) = self.peers.by_remote(route.remote) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        if let Some(index) = peer.paths.position(route) {
            let path = peer.paths.get_mut(index);
            path.die();
            path.unreachable = true;
        }
        if peer.paths.all_unreachable() {
            peer.is_given_up = true;
            for message in peer.oldest_message..peer.next_message {
                self.give_up(SendId { peer: id, message }, Reason::Unreachable);
            }
        }
        self.look_after(now, id);
    }

    pub(crate) fn handle_too_big(&mut self, now: Time, route: Route, bytes: usize) {
        let datagrams = self.config.datagrams;
        if let Some(id) = self.peers.by_remote(route.remote)
            && let Some(peer) = self.peers.get_mut(id)
            && let Some(index) = peer.paths.position(route)
        {
            peer.paths
                .get_mut(index)
                .length_refuted(now, bytes, &datagrams);
        }
    }
}
