//! Notices of the network (ICMP): a path, or an address, that nobody is said to be at.
//!
//! Anybody can send such a notice. It counts if it quotes what was sent not long ago, and then it is
//! a hint: what it says is tried before it is believed (RFC 5927 §4.1, RFC 8899 §4.6.1).

use core::time::Duration;

use cloudburst_security::Absence;

use super::{PathManager, PeerPaths};
use crate::{
    event::{FourTuple, IcmpKind, PeerId},
    packet::Header,
    time::Time,
};

/// How long a path may be silent of which nobody is said to be at the end, to a peer that nothing was
/// heard of: longer than the round trip of most paths, so that a notice that is forged ends nothing.
pub(super) const FIRST_SILENCE: Duration = Duration::from_millis(60);

/// How long a peer that was heard of, or has closed, may be absent before messages to it are abandoned:
/// longer than it takes to start a service again, and shorter than a user waits for a mistake to be named.
pub const RETURN_WITHIN: Duration = Duration::from_secs(2);
/// Paths that a new message has probed again, to a peer that was not there before.
const TRIED_AGAIN: usize = 4;

/// The paths that a notice of the network is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspects {
    /// This one alone.
    Path,
    /// All to the same address: routers and hosts limit how many notices they send
    /// (RFC 1812 §4.3.2.8, RFC 4443 §2.4).
    Address,
}

impl PathManager {
    /// Takes a notice that quotes this header. Returns false for one that quotes what was not sent.
    pub(crate) fn take_notice(
        &mut self,
        now: Time,
        (id, four_tuple): (PeerId, FourTuple),
        kind: IcmpKind,
        header: &Header,
    ) -> bool {
        let is_ours = self.has_sent(id, four_tuple, header);
        match kind {
            _ if !is_ours => {}
            IcmpKind::Unreachable => self.suspect(now, id, four_tuple, Suspects::Address),
            IcmpKind::TooBig { longest } => {
                self.too_big(now, id, four_tuple, longest.saturating_add(1));
            }
        }
        is_ours
    }

    /// A datagram of this length was too long for a path.
    pub(crate) fn too_big(&mut self, now: Time, id: PeerId, four_tuple: FourTuple, bytes: usize) {
        let datagrams = self.datagrams;
        if let Some(peer) = self.peers.get_mut(id)
            && let Some(index) = peer.paths.position(four_tuple)
        {
            let path = peer.paths.get_mut(index);
            path.mtu.refute(now, bytes, datagrams.initial);
        }
    }

    /// Whether a datagram was sent by a path, by what somebody quotes of its header: not long ago,
    /// for a notice takes no longer than an answer.
    fn has_sent(&self, id: PeerId, four_tuple: FourTuple, header: &Header) -> bool {
        let paths = self.peers.get(id).map(|peer| peer.paths.iter());
        paths.into_iter().flatten().any(|path| {
            path.four_tuple.may_be(&four_tuple)
                && path.id == header.path
                && path.has_sent(header.sequence)
        })
    }

    /// Somebody says that nobody is at the end of a path: it is probed, and others to the same
    /// address if they are suspects, too.
    pub(crate) fn suspect(
        &mut self,
        now: Time,
        id: PeerId,
        four_tuple: FourTuple,
        suspects: Suspects,
    ) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let mut wait = peer.silence();
        if peer.round_trip.smoothed().is_none() {
            wait = wait.max(FIRST_SILENCE);
        }
        let ip = four_tuple.remote.ip();
        for path in peer.paths.iter_mut() {
            let is_alike = suspects == Suspects::Address && path.four_tuple.remote.ip() == ip;
            if path.four_tuple.may_be(&four_tuple) || is_alike {
                path.suspect(now, wait);
            }
        }
    }

    /// A message is sent to a peer. If that was not there before, it is found out at once whether it
    /// is by now: the notices that would say so are limited.
    pub(crate) fn try_again(&mut self, now: Time, id: PeerId) {
        let peer = self.peers.get_mut(id);
        if let Some(peer) = peer.filter(|peer| peer.absence.is_announced()) {
            let wait = peer.silence().max(FIRST_SILENCE);
            let paths = peer.paths.iter_mut().take(TRIED_AGAIN);
            paths.for_each(|path| path.suspect(now, wait));
        }
    }

    /// Whether messages to a peer are to be abandoned: probes have confirmed that no path leads to it.
    pub(crate) fn take_unreachable(&mut self, id: PeerId) -> bool {
        let peer = self.peers.get_mut(id);
        peer.is_some_and(|peer| peer.absence.take_due())
    }
}

impl PeerPaths {
    /// Takes note of whether anybody is there; it was confirmed anew that nobody is, or not.
    pub(super) fn note_absence(&mut self, now: Time, is_confirmed: bool) {
        if !self.paths.all_unreachable() {
            self.absence = Absence::default();
        } else if is_confirmed || self.absence.is_noted() {
            let after = self.return_within();
            self.absence.note(now, is_confirmed, after);
        }
    }

    /// When an absence is to be announced.
    pub(super) fn absence_due(&self) -> Option<Time> {
        self.absence.next_due(self.return_within())
    }

    /// Who was never heard of has nothing to return from.
    fn return_within(&self) -> Duration {
        let round_trip = self.round_trip.smoothed();
        round_trip.map_or(Duration::ZERO, |_| RETURN_WITHIN)
    }
}
