//! Paths in use are looked after: keepalive, failure detection, path MTU and shared bottlenecks.

use core::time::Duration;
use std::collections::VecDeque;

use cloudburst_congestion::{DetectorStep, Phase, ProbeBudget};

use super::{PathManager, PathPing, path_health};
use crate::{
    event::{Event, Health, PeerId},
    packet::{Framing, question_datagram_bytes},
    path::{Path, PathProbe},
    paths::MAX_PATHS,
    statistics::{TransportStatistics, tally},
    time::Time,
};

/// A probe of a path, with keys.
const PROBE_BYTES: usize = question_datagram_bytes(Framing::SEALED);

/// How often paths in use are looked after, at most.
const LEAST_CARE_PAUSE: Duration = Duration::from_millis(5);

impl PathManager {
    /// When a peer's paths in use have to be looked after next.
    pub(crate) fn next_care(&self, now: Time, id: PeerId) -> Time {
        let Some(peer) = self.peers.get(id) else {
            return Time::NEVER;
        };
        let ack_timeout = peer.round_trip.ack_timeout();
        let (most, paths) = (self.datagrams.most, &peer.paths);
        let mtu = paths.iter().filter_map(|path| path.next_mtu_probe(most));
        let mtu = mtu.min().map(|due| due.max(peer.mtu_probe_at));
        let paths = paths.iter().map(|path| path.next_due(now, ack_timeout));
        let due = paths.chain(peer.absence_due()).chain(mtu).min();
        due.unwrap_or(Time::NEVER)
            .min(peer.detector.next_due())
            .max(now + LEAST_CARE_PAUSE)
    }

    /// Has a peer's paths probed as seldom as befits a rate at which it is sent to: those of which nothing
    /// else is heard, and those that may carry longer datagrams. Where nothing is heard by any path, probes
    /// are what finds the peer again, and not spared.
    pub(crate) fn budget_probes(&mut self, now: Time, id: PeerId, bytes_per_s: f64) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let budget = ProbeBudget::of(bytes_per_s);
        peer.mtu_probe_pause = budget.mtu_pause(self.datagrams.most);
        let is_heard = peer.paths.iter().any(|path| path.is_heard(now));
        let paths = peer.paths.live().count();
        let pause = budget.refresh_pause(paths, PROBE_BYTES, is_heard);
        for path in peer.paths.iter_mut() {
            path.refresh_after(pause);
        }
    }

    /// Looks after a peer's paths in use: probes them, replaces those that have failed, and, if
    /// nothing waits to be sent, finds out which share a bottleneck. Returns the pings that are
    /// due, and whether any path was replaced.
    pub(crate) fn care(
        &mut self,
        now: Time,
        id: PeerId,
        is_quiet: bool,
        (events, statistics): (&mut VecDeque<Event>, &mut TransportStatistics),
    ) -> (impl Iterator<Item = PathPing> + use<>, bool) {
        let probes = self.probe(now, id, &mut statistics.paths_died);
        let replaced = self.replace_failed(now, id, events);
        tally(&mut statistics.paths_replaced, replaced);
        let detector = is_quiet.then(|| self.detect_shared_bottlenecks(now, id));
        let detector = detector.into_iter().flatten();
        (probes.into_iter().flatten().chain(detector), replaced > 0)
    }

    /// Finds out which paths are dead, and which carry longer datagrams. Counts those that died,
    /// and returns the pings that are due.
    pub(super) fn probe(
        &mut self,
        now: Time,
        id: PeerId,
        died: &mut u64,
    ) -> [Option<PathPing>; MAX_PATHS] {
        let mut pings = [None; MAX_PATHS];
        let most = self.datagrams.most;
        let Some(peer) = self.peers.get_mut(id) else {
            return pings;
        };
        let (ack_timeout, silence) = (peer.round_trip.ack_timeout(), peer.dead_after());
        let answered = peer.answered_sent_at;
        let nonce = now.as_nanos();
        let mut longest = (now >= peer.mtu_probe_at).then_some(most);
        let mut confirmed = false;
        for (path, ping) in peer.paths.iter_mut().zip(&mut pings) {
            let was_good = path.is_good();
            tally(died, path.judge(now, silence, answered).into());
            confirmed |= path.confirm_suspicion(now);
            if was_good && !path.is_good() {
                let change = path_health(id, path.four_tuple, Health::Dead);
                self.changes.push_back(change);
            }
            let due = path.due(now, ack_timeout, longest, nonce);
            if matches!(due, Some(PathProbe::MtuProbe(_))) {
                longest = None;
                peer.mtu_probe_at = now + peer.mtu_probe_pause;
            }
            *ping = due.map(|probe| PathPing {
                four_tuple: path.four_tuple,
                nonce,
                datagram_bytes: match probe {
                    PathProbe::Probe => 0,
                    PathProbe::MtuProbe(bytes) => bytes,
                },
            });
        }
        peer.note_absence(now, confirmed);
        pings
    }

    /// Finds out which paths share a bottleneck (RFC 8382), to be called while nothing waits to
    /// be sent; returns the pings that are due.
    fn detect_shared_bottlenecks(&mut self, now: Time, id: PeerId) -> Vec<PathPing> {
        let long_bytes = self.datagrams.initial;
        let Some(peer) = self.peers.get_mut(id) else {
            return Vec::new();
        };
        let live: Vec<bool> = peer.paths.iter().map(Path::is_good).collect();
        if live.len() < 2 {
            return Vec::new();
        }
        let detector = &mut peer.detector;
        let loaded = match detector.step(now, peer.round_trip.ack_timeout(), &live) {
            DetectorStep::Nothing => return Vec::new(),
            DetectorStep::Done => {
                peer.paths.regroup(now, |path| detector.group(path));
                return Vec::new();
            }
            DetectorStep::SendTrain(loaded) => loaded,
        };
        let others = (0..live.len()).filter(|&path| live[path] && detector.takes_part(path));
        let [before, after] = [Phase::Before, Phase::After].map(|phase| detector.nonce(phase));
        let short = |nonce| move |path| (path, nonce, 0);
        let train = core::iter::repeat_n((loaded, after, long_bytes), detector.probe_train());
        let rest = others.clone().filter(|path| *path != loaded);
        let pings = others.map(short(before)).chain(train);
        pings
            .chain(rest.map(short(after)))
            .map(|(path, nonce, datagram_bytes)| PathPing {
                four_tuple: peer.paths.get(path).four_tuple,
                nonce,
                datagram_bytes,
            })
            .collect()
    }
}
