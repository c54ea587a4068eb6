//! Deliveries to a peer: what its answers tell of the paths and of what was sent by them.

use core::time::Duration;

use cloudburst_congestion::Acknowledged;

use super::{ChosenPath, PathManager, PeerPaths, path_health};
use crate::{
    event::{Ecn, Health, PeerId},
    packet::{Echo, Header, Pong, Reports},
    path::DeliveryReport,
    time::Time,
};

/// Answers to datagrams that were sent longer ago are not about us.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(60);

impl PathManager {
    /// What an answer says of the paths, and of the datagrams that were sent by them.
    pub(crate) fn acknowledged(
        &mut self,
        now: Time,
        id: PeerId,
        echo: &Echo,
        reports: Reports<'_>,
    ) -> Acknowledged {
        let mut news = Acknowledged::default();
        let Some(peer) = self.peers.get_mut(id) else {
            return news;
        };
        let elapsed = now.as_wire_micros().wrapping_sub(echo.sent_us);
        if let Some(micros) = elapsed.checked_sub(echo.hold_us) {
            let sample = Duration::from_micros(micros.into());
            if sample < MAX_ROUND_TRIP {
                let sent_at = now - Duration::from_micros(elapsed.into());
                peer.answered_sent_at = peer.answered_sent_at.max(Some(sent_at));
                peer.round_trip.sample(sample);
                if let Some(path) = peer.paths.by_id(echo.path) {
                    let least = path.round_trip(now, sample);
                    news.round_trip = Some((sample, least));
                }
            }
        }
        let mut is_counted = false;
        for report in reports {
            let heard = peer.paths.hear(now, &report);
            if report.path == echo.path {
                // What is not new delivers all the same, where it was taken for discarded.
                let path = peer.paths.by_id(echo.path);
                is_counted |=
                    heard.is_some() || !path.is_some_and(|it| it.deliveries.is_recounted());
            }
            if let Some(new) = heard {
                peer.has_discarded = false;
                peer.note(&new, &mut news);
                let changes = &mut self.changes;
                changes.extend(new.revived.map(|it| path_health(id, it, Health::Good)));
                if report.path == echo.path
                    && let Some((sample, least)) = &mut news.round_trip
                {
                    // Answers may come back by another path, which is longer.
                    *least = (*least).max(sample.saturating_sub(new.queue));
                }
            }
        }
        // Or a path that delivers pings alone so far would stay dead, and get no symbol that makes
        // us known.
        if !is_counted && let Some(path) = peer.paths.by_id(echo.path) {
            let revived = path.echoed(now);
            let changes = &mut self.changes;
            changes.extend(revived.map(|it| path_health(id, it, Health::Good)));
        }
        peer.paths.account(news.sent, news.received);
        news.in_flight = peer.paths.in_flight();
        news
    }

    /// Bytes to a peer that nothing was heard of yet, and whether all its paths are dead.
    pub(crate) fn in_flight(&self, id: PeerId) -> (u64, bool) {
        let peer = self.peers.get(id);
        peer.map_or((0, false), |peer| {
            (peer.paths.in_flight(), peer.paths.all_dead())
        })
    }

    /// Decides how a train of so many datagrams with symbols is marked, which are stamped.
    pub(crate) fn mark(&mut self, now: Time, id: PeerId, path: &ChosenPath, count: u32) -> Ecn {
        let peer = self.peers.get_mut(id).filter(|_| self.heeds_marks);
        let path = peer.map(|peer| peer.paths.get_mut(path.index));
        match path.is_some_and(|path| path.mark(now, count)) {
            true => Ecn::Capable,
            false => Ecn::NotCapable,
        }
    }

    /// A ping was answered: so long a datagram gets through, if it was a probe of that length.
    pub(crate) fn pong(&mut self, id: PeerId, header: &Header, pong: &Pong) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let path = pong.echo.path;
        let Some(index) = peer.paths.iter().position(|known| known.id == path) else {
            return;
        };
        let path = peer.paths.get_mut(index);
        path.mtu.confirm(pong.nonce, pong.datagram_bytes.into());
        // Reports tell of the newest datagrams, and the peer reads several before it answers.
        let arrived_us = header.sent_us.wrapping_sub(pong.echo.hold_us);
        let delay = peer.paths.delay(arrived_us.wrapping_sub(pong.echo.sent_us));
        peer.detector.take(pong.nonce, index, delay);
    }

    /// Nothing longer than the shortest datagrams gets through by any path.
    pub(crate) fn refute_mtu(&mut self, now: Time, id: PeerId) {
        let datagrams = self.datagrams;
        if let Some(peer) = self.peers.get_mut(id) {
            for path in peer.paths.iter_mut() {
                path.mtu.refute(now, datagrams.most, datagrams.initial);
            }
        }
    }
}

impl PeerPaths {
    /// Notes what a path's report says of datagrams in flight.
    fn note(&mut self, report: &DeliveryReport, news: &mut Acknowledged) {
        news.sent = news.sent.saturating_add(report.sent);
        news.received = news.received.saturating_add(report.received);
        news.lost = news.lost.saturating_add(report.lost);
        news.queues.insert(report.through);
        news.lossy.insert_if(report.lost > 0, report.through);
        if report.lost > 0 {
            let since = &mut news.lost_since[report.through];
            *since = (*since).max(report.resolved.oldest_at);
        }
        news.marked = news.marked.saturating_add(report.marked);
        news.marking.insert_if(report.marked > 0, report.through);
        let resolved = report.resolved;
        let lost = f64::from(report.lost) / f64::from(report.sent.max(1));
        let delivered = (resolved.bytes as f64 * (1.0 - lost)) as u64;
        self.totals.delivered = self.totals.delivered.saturating_add(delivered);
        news.resolved_bytes = news.resolved_bytes.saturating_add(resolved.bytes);
        if let Some((sent_at, before)) = resolved.newest
            && news.newest_sent_at.is_none_or(|newest| newest <= sent_at)
        {
            news.newest_sent_at = Some(sent_at);
            news.sent_before = before.sent;
            news.delivered_since = self.totals.delivered.saturating_sub(before.delivered);
        }
    }
}
