//! Path manager: the paths to each peer, their validation, probes, failure detection and rotation.

mod care;
mod deliveries;
mod local_address;
mod notices;
mod rotation;

use core::time::Duration;
use std::collections::VecDeque;

use cloudburst_congestion::{
    CongestionControl, LossEstimator, PathChoice, PathRates, PortRotation, RotationBudget,
    RoundTripEstimator, SharedBottleneckDetector, Totals,
};
use cloudburst_security::{Absence, Inbound};

pub use self::notices::RETURN_WITHIN;
pub(super) use self::notices::Suspects;
use super::{
    config::{Datagrams, TransportConfig},
    event::{Ecn, Event, FourTuple, Health, PathReport, PeerId, SocketId},
    packet::{Header, Report, Stamp},
    path::Path,
    paths::{OfMessage, Paths},
    peer_map::PeerMap,
    time::Time,
};

/// Rate that paths are compared at while nothing is known of them, if none is stated: 1 Gbit/s.
const UNSTATED_BYTES_PER_S: f64 = 1.25e8;
/// How long nothing may be heard of a path before it counts as dead: longer
/// than the queues of most routers.
const LEAST_SILENCE: Duration = Duration::from_millis(20);
/// The least silence of a dead path while no round trip to its peer is known (RFC 6298 §2.1): what is assumed says
/// nothing of it, and paths that are taken for dead take with them what is in flight, and with that the growth of the first window.
const INITIAL_SILENCE: Duration = Duration::from_secs(1);

/// Manages the paths to all peers: path validation, probes, failover and port rotation.
#[derive(Debug)]
pub(super) struct PathManager {
    link_bytes_per_s: f64,
    initial_round_trip: Duration,
    datagrams: Datagrams,
    rotates_ports: bool,
    path_choice: PathChoice,
    is_unprotected: bool,
    /// Marks slow down what is sent (RFC 8085 §3.1.7), which a reserved rate does not.
    heeds_marks: bool,
    rotation: PortRotation<SocketId>,
    peers: PeerMap<PeerPaths>,
    /// Peers that are new and paths whose health has changed, until the host hears of it. They are
    /// none of what the host has to have capacity for.
    changes: VecDeque<Event>,
}

/// The paths to a peer, and what came from it by each.
#[derive(Debug)]
struct PeerPaths {
    /// Whether we chose it ourselves: then it is for us to choose ports.
    is_ours: bool,
    paths: Paths,
    inbound: Inbound,
    round_trip: RoundTripEstimator,
    /// When the newest datagram was sent that it has answered, by any path.
    answered_sent_at: Option<Time>,
    detector: SharedBottleneckDetector,
    absence: Absence,
    /// How many pairs of ports may be abandoned for others.
    replacements: RotationBudget,
    /// Some of the paths get nothing until something comes from where they lead.
    has_capped: bool,
    /// It has said that it discarded what was sent, and reported nothing since.
    has_discarded: bool,
    totals: Totals,
    /// When the path MTU of the next path may be probed, and how long after that of another.
    mtu_probe_at: Time,
    mtu_probe_pause: Duration,
}

/// Statistics of all paths to a peer together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathStatistics {
    pub(super) loss: LossEstimator,
    pub(super) round_trip: RoundTripEstimator,
    /// The longest datagram that all paths carry, if there is any.
    pub(super) datagram_bytes: Option<usize>,
}

impl PathStatistics {
    /// How long an answer may take that was not lost.
    pub(super) fn ack_timeout(&self) -> Duration {
        self.round_trip.ack_timeout()
    }
}

/// A ping that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathPing {
    pub(super) four_tuple: FourTuple,
    pub(super) nonce: u64,
    /// Its length; as short as can be if that is 0.
    pub(super) datagram_bytes: usize,
}

/// A path that is chosen for a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChosenPath {
    index: usize,
    pub(super) id: u16,
    pub(super) group: usize,
    pub(super) four_tuple: FourTuple,
    /// How many of the datagrams asked for should go by it.
    pub(super) share: u32,
}

impl ChosenPath {
    /// The first path of all.
    #[cfg(test)]
    pub(super) const fn sample() -> Self {
        Self {
            index: 0,
            id: 1,
            group: 0,
            four_tuple: FourTuple::new(
                SocketId(0),
                core::net::SocketAddr::new(
                    core::net::IpAddr::V4(core::net::Ipv4Addr::LOCALHOST),
                    7,
                ),
            ),
            share: 1,
        }
    }
}

impl PathManager {
    pub(super) fn new(config: &TransportConfig, now: Time) -> Self {
        Self {
            link_bytes_per_s: config
                .congestion
                .bytes_per_s()
                .unwrap_or(UNSTATED_BYTES_PER_S),
            initial_round_trip: config.initial_round_trip,
            datagrams: config.datagrams,
            rotates_ports: config.rotate_ports,
            path_choice: config.path_choice,
            is_unprotected: config.security.is_unprotected(),
            heeds_marks: config.congestion == CongestionControl::Adaptive,
            rotation: PortRotation::new(now),
            peers: PeerMap::default(),
            changes: VecDeque::new(),
        }
    }

    /// Takes the next change of peers and paths.
    pub(super) fn next_change(&mut self) -> Option<Event> {
        self.changes.pop_front()
    }

    pub(super) fn add_peer(&mut self, now: Time, id: PeerId, is_ours: bool) {
        let peer = PeerPaths {
            is_ours,
            paths: Paths::chosen_by(self.path_choice),
            inbound: Inbound::default(),
            round_trip: RoundTripEstimator::assuming(self.initial_round_trip),
            answered_sent_at: None,
            detector: SharedBottleneckDetector::new(now),
            absence: Absence::default(),
            replacements: RotationBudget::new(now),
            has_capped: false,
            has_discarded: false,
            totals: Totals::default(),
            mtu_probe_at: now,
            mtu_probe_pause: Duration::ZERO,
        };
        self.peers.insert(id, peer);
        if !is_ours {
            self.changes.push_back(Event::PeerKnown { peer: id });
        }
    }

    pub(super) fn remove_peer(&mut self, id: PeerId) {
        self.peers.remove(id);
        self.changes.retain(|it| !is_of(it, id));
    }

    /// Whether the path is new, and there is capacity for it.
    pub(super) fn add_path(&mut self, now: Time, id: PeerId, four_tuple: FourTuple) -> bool {
        let datagrams = self.datagrams;
        let peer = self.peers.get_mut(id);
        peer.is_some_and(|peer| peer.paths.add(now, four_tuple, &datagrams))
    }

    pub(super) fn remove_socket(&mut self, now: Time, socket: SocketId) {
        for peer in self.peers.values_mut() {
            peer.paths.remove_socket(now, socket);
        }
        self.rotation.forget(socket);
    }

    /// Statistics of a peer's paths, if it is known.
    pub(super) fn statistics(&self, id: PeerId) -> Option<PathStatistics> {
        let peer = self.peers.get(id)?;
        Some(PathStatistics {
            loss: peer.paths.loss(),
            round_trip: peer.round_trip,
            datagram_bytes: peer.paths.datagram_bytes(),
        })
    }

    /// Measurements that the congestion controller follows.
    pub(super) fn rates(&self, id: PeerId) -> PathRates {
        let peer = self.peers.get(id);
        peer.map_or_else(PathRates::default, |peer| PathRates {
            bytes_per_s: peer.paths.rate(),
            own_queue: peer.paths.own_queue(),
            datagram_bytes: peer.paths.datagram_bytes().unwrap_or(0),
            ack_timeout: peer.round_trip.ack_timeout(),
            round_trip: peer.round_trip.smoothed(),
            bottlenecks: peer.paths.width(),
            shares: peer.paths.shares(),
        })
    }

    pub(super) fn reports(&self, now: Time, id: PeerId) -> impl Iterator<Item = PathReport> + '_ {
        let peer = self.peers.get(id).into_iter();
        peer.flat_map(move |peer| peer.paths.reports(now))
    }

    /// Whether a peer's datagram may be new. To be asked before it is opened.
    pub(super) fn may_be_new(&self, id: PeerId, header: &Header) -> bool {
        let peer = self.peers.get(id);
        peer.is_none_or(|peer| peer.inbound.may_be_new(header.path, header.sequence))
    }

    /// A peer says that it has discarded what was sent to it, and wants it with a token. Whether it is believed:
    /// once until it reports something, as anybody on the way can say so (RFC 9000 §17.2.5.2); without keys, of who
    /// has never reported anything.
    pub(super) fn discarded(&mut self, id: PeerId) -> bool {
        let Some(peer) = self.peers.get_mut(id) else {
            return false;
        };
        let is_first = !core::mem::replace(&mut peer.has_discarded, true);
        let may_be = !self.is_unprotected || peer.paths.iter().all(Path::is_unheard);
        let is_believed = is_first && may_be;
        if is_believed {
            peer.paths.iter_mut().for_each(Path::discarded);
        }
        is_believed
    }

    /// A peer was restarted, and counts its datagrams again, under other keys, and ours: what was in flight it
    /// `has_discarded`, if that went by keys that it does not have.
    pub(super) fn restarted(&mut self, id: PeerId, has_discarded: bool) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.inbound = Inbound::default();
            for path in peer.paths.iter_mut() {
                path.restarted(has_discarded);
            }
        }
    }

    /// A peer's datagram has come by a path, and was authentic.
    pub(super) fn arrived(
        &mut self,
        now: Time,
        id: PeerId,
        header: &Header,
        (four_tuple, ecn): (FourTuple, Ecn),
    ) {
        let datagrams = self.datagrams;
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        peer.inbound.take(now, header, ecn);
        if peer.has_capped {
            peer.uncap(four_tuple.remote, self.is_unprotected);
        }
        // What we send back goes by the paths that it comes by.
        if !peer.is_ours && peer.paths.arrived(now, four_tuple, &datagrams) {
            peer.detector.restart(now);
        }
    }

    /// The longest datagram that any path carries which is not dead.
    pub(super) fn widest(&self, id: PeerId) -> Option<usize> {
        let paths = &self.peers.get(id)?.paths;
        paths.live().map(Path::datagram_bytes).max()
    }

    /// No more may be sent to where a path leads, until something comes from there
    /// (anti-amplification limit).
    pub(super) fn cap(&mut self, id: PeerId, four_tuple: FourTuple) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.has_capped = true;
            for path in peer.paths.iter_mut() {
                path.is_capped |= path.four_tuple.remote == four_tuple.remote;
            }
        }
    }

    /// The path by which datagrams of this length are there first.
    pub(super) fn choose(
        &mut self,
        now: Time,
        id: PeerId,
        datagram_bytes: usize,
        count: u32,
        message: Option<OfMessage<'_>>,
    ) -> Option<ChosenPath> {
        let link = self.link_bytes_per_s;
        let peer = self.peers.get_mut(id)?;
        let ns_per_byte = peer.default_ns_per_byte(link);
        let paths = &mut peer.paths;
        let (index, share) = paths.choose(now, datagram_bytes, count, ns_per_byte, message)?;
        let path = paths.get(index);
        Some(ChosenPath {
            index,
            id: path.id,
            group: path.group,
            four_tuple: path.four_tuple,
            share,
        })
    }

    /// The paths for a short datagram that is to arrive: two at once, as either may be dead
    /// without our knowing it yet.
    pub(super) fn choose_two(&mut self, now: Time, id: PeerId) -> [Option<FourTuple>; 2] {
        let mut chosen = [None; 2];
        if let Some(peer) = self.peers.get_mut(id) {
            for four_tuple in &mut chosen {
                let index = peer.paths.choose(now, 0, 0, 0.0, None);
                *four_tuple = index.map(|(index, _)| peer.paths.get(index).four_tuple);
            }
        }
        chosen
    }

    /// A datagram is about to be sent by a path: its stamp, and when it will be there, compared
    /// with one by an empty path.
    pub(super) fn stamp(
        &mut self,
        now: Time,
        id: PeerId,
        path: &ChosenPath,
        bytes: usize,
    ) -> Option<(Stamp, Time)> {
        let link = self.link_bytes_per_s;
        let peer = self.peers.get_mut(id)?;
        peer.flies(now, path.index, bytes);
        Some(peer.stamp(now, path.index, bytes, link))
    }

    /// Stamps a question that is sent by a path which may be gone. One by a dead path is not in flight: as long
    /// as that is dead, nothing would ever take it out.
    pub(super) fn stamp_by(
        &mut self,
        now: Time,
        id: PeerId,
        four_tuple: FourTuple,
        bytes: usize,
    ) -> Option<Stamp> {
        let link = self.link_bytes_per_s;
        let peer = self.peers.get_mut(id)?;
        let index = peer.paths.position(four_tuple)?;
        if !peer.paths.get(index).is_dead() {
            peer.flies(now, index, bytes);
        }
        let (stamp, _) = peer.stamp(now, index, bytes, link);
        Some(stamp)
    }

    /// Whether there is such a path.
    pub(super) fn has_path(&self, id: PeerId, four_tuple: FourTuple) -> bool {
        let peer = self.peers.get(id);
        peer.is_some_and(|peer| peer.paths.position(four_tuple).is_some())
    }

    /// The stamp of an answer, of which the peer does not tell, and reports on what came by the
    /// path `answered` first. What goes where no path leads, for there is no capacity for another,
    /// is counted on any.
    pub(super) fn stamp_answer(
        &mut self,
        now: Time,
        id: PeerId,
        (four_tuple, is_anywhere): (FourTuple, bool),
        answered: u16,
    ) -> Option<(Stamp, impl Iterator<Item = Report> + '_)> {
        let peer = self.peers.get_mut(id)?;
        let any = (is_anywhere && peer.paths.iter().next().is_some()).then_some(0);
        let index = peer.paths.position(four_tuple).or(any)?;
        let path = peer.paths.get_mut(index);
        let stamp = Stamp {
            path: path.id,
            sent_us: now.as_wire_micros(),
            sequence: path.take_answer_sequence(),
        };
        Some((stamp, peer.inbound.reports(answered)))
    }

    /// Where an answer goes: where its question came from, unless that path is dead for what we
    /// send. Networks choose by a hash another path for each direction, and one of them may be
    /// dead.
    pub(super) fn return_path(
        &self,
        id: Option<PeerId>,
        four_tuple: FourTuple,
        path: u16,
    ) -> FourTuple {
        let Some(peer) = id.and_then(|id| self.peers.get(id)) else {
            return four_tuple;
        };
        let paths = &peer.paths;
        let is_dead = |index| paths.get(index).is_dead();
        if !paths.position(four_tuple).is_some_and(is_dead) {
            return four_tuple;
        }
        // To the same address: what it may be sent is counted by address.
        let ip = four_tuple.remote.ip();
        let good = |path: &&Path| path.is_good() && path.four_tuple.remote.ip() == ip;
        let count = paths.iter().filter(good).count();
        let chosen = usize::from(path).checked_rem(count);
        let path = chosen.and_then(|chosen| paths.iter().filter(good).nth(chosen));
        path.map_or(four_tuple, |path| path.four_tuple)
    }
}

impl PeerPaths {
    /// Something came from there, so that something may be sent there again. Without keys that is
    /// counted by address.
    fn uncap(&mut self, remote: core::net::SocketAddr, is_by_address: bool) {
        self.has_capped = false;
        for path in self.paths.iter_mut() {
            let other = path.four_tuple.remote;
            let is_same = other == remote || is_by_address && other.ip() == remote.ip();
            path.is_capped &= !is_same;
            self.has_capped |= path.is_capped;
        }
    }

    /// Time that a byte takes on one of the paths if nothing is known of it, in ns.
    fn default_ns_per_byte(&self, link_bytes_per_s: f64) -> f64 {
        1e9 / link_bytes_per_s * self.paths.width() as f64
    }

    /// How long nothing may be heard of a path that is not dead.
    fn silence(&self) -> Duration {
        let silence = self.round_trip.ack_timeout().saturating_mul(2);
        silence.max(LEAST_SILENCE)
    }

    /// How long nothing may be heard of a path before it counts as dead.
    fn dead_after(&self) -> Duration {
        match self.round_trip.smoothed() {
            Some(_) => self.silence(),
            None => INITIAL_SILENCE,
        }
    }

    /// The next datagram by a path is in flight from now on.
    fn flies(&mut self, now: Time, index: usize, bytes: usize) {
        let before = self.totals;
        self.totals.sent = before.sent.saturating_add(bytes as u64);
        self.paths.get_mut(index).flies(now, bytes, before);
    }

    fn stamp(&mut self, now: Time, index: usize, bytes: usize, link: f64) -> (Stamp, Time) {
        let ns_per_byte = self.default_ns_per_byte(link);
        let expected = self.paths.sending(now, index, bytes, ns_per_byte);
        let path = self.paths.get_mut(index);
        let stamp = Stamp {
            path: path.id,
            sent_us: now.as_wire_micros(),
            sequence: path.take_sequence(now),
        };
        (stamp, expected)
    }
}

/// Whether a change is of a peer, or of one of its paths.
fn is_of(change: &Event, id: PeerId) -> bool {
    matches!(change, Event::PathHealth { peer, .. } | Event::PeerKnown { peer } if *peer == id)
}

fn path_health(peer: PeerId, four_tuple: FourTuple, health: Health) -> Event {
    Event::PathHealth {
        peer,
        four_tuple,
        health,
    }
}

#[cfg(test)]
mod tests;
