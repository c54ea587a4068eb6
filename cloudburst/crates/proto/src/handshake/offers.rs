//! Offers are read once each: what one says is remembered for its repeats, which cost no operation
//! with keys.
//!
//! Nothing that is decided is remembered, only what the offer says: a repeat is judged as the first
//! was, by what holds now. The offer is read a second time if it is to be accepted after all.

use core::{fmt, net::IpAddr};

use cloudburst_security::OfferCache;

use super::{
    Handshake,
    responder::{Candidate, Judged, responding},
};
use crate::{
    packet::{Clear, EPHEMERAL_BYTES, Hello, Offer, OfferId, PublicKey, Responder, Sealer},
    statistics::{TransportStatistics, tally},
    time::Time,
};

/// Offers that were read and not accepted.
pub(super) struct ReadOffers {
    /// Known to nobody, so that nobody can make two offers of one id.
    key: [u8; 32],
    cache: OfferCache<ReadOffer>,
}

/// Offer that was read and not accepted.
#[derive(Debug)]
struct ReadOffer {
    /// Nothing, if it is not authentic.
    reading: Option<Reading>,
    /// Seals answers that there is no capacity, once one was made.
    turned_away: Option<Sealer>,
}

/// What an offer says that is authentic.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) offer: Offer,
    /// Who made it, where key pairs tell.
    pub(super) key: Option<PublicKey>,
}

/// An offer as it arrived, to be read.
#[derive(Debug)]
pub(super) struct Unread {
    id: OfferId,
    ip: IpAddr,
    pub(super) clear: Clear,
    pub(super) ephemeral: [u8; EPHEMERAL_BYTES],
    message: Box<[u8]>,
}

impl ReadOffers {
    pub(super) fn new(key: [u8; 32], hash_seed: u64) -> Self {
        let cache = OfferCache::new(hash_seed);
        Self { key, cache }
    }

    /// Takes an offer out of its datagram.
    pub(super) fn unread(
        &self,
        ip: IpAddr,
        hello: &Hello<'_>,
        ephemeral: [u8; EPHEMERAL_BYTES],
    ) -> Unread {
        Unread {
            id: hello.id(&self.key, ip),
            ip,
            clear: hello.clear,
            ephemeral,
            message: hello.offer.into(),
        }
    }

    /// Forgets all: they were read with other keys.
    pub(super) fn clear(&mut self) {
        self.cache.clear();
    }

    /// Forgets an offer that was accepted.
    pub(super) fn accepted(&mut self, unread: &Unread) {
        self.cache.remove(&unread.id);
    }

    /// Remembers how who made this offer is told that there is no capacity for it.
    pub(super) fn turned_away(&mut self, now: Time, candidate: &Candidate, sealer: Sealer) {
        let reading = Some(candidate.reading.clone());
        let turned_away = Some(sealer);
        let read = ReadOffer {
            reading,
            turned_away,
        };
        self.cache.insert(now, candidate.unread.id, read);
    }

    /// Returns what seals an answer to this offer that there is no capacity, if it had one before.
    pub(super) fn sealer(&self, now: Time, unread: &Unread) -> Option<&Sealer> {
        self.cache.get(now, &unread.id)?.turned_away.as_ref()
    }
}

impl Handshake {
    #[cfg(test)]
    pub(crate) fn offers_remembered(&self) -> usize {
        self.offers.cache.len()
    }

    /// Returns what an offer says: as it was read before, or else by reading it, which the budget must
    /// have. Then there is who can accept it, too.
    pub(super) fn read(
        &mut self,
        now: Time,
        unread: &Unread,
        statistics: &mut TransportStatistics,
    ) -> Result<(Reading, Option<Responder>), Judged<'static>> {
        let known = self.offers.cache.get(now, &unread.id);
        let (reading, responder) = if let Some(known) = known {
            tally(&mut statistics.offers_repeated, 1);
            (known.reading.clone(), None)
        } else {
            let (reading, responder) = self.read_anew(now, unread, statistics)?.unzip();
            let read = ReadOffer {
                reading: reading.clone(),
                turned_away: None,
            };
            self.offers.cache.insert(now, unread.id, read);
            (reading, responder)
        };
        let Some(reading) = reading else {
            tally(&mut statistics.refused.not_authentic, 1);
            return Err(Judged::Refused);
        };
        Ok((reading, responder))
    }

    /// Returns who can accept an offer: one that was remembered is read a second time for that, if the
    /// budget has it.
    pub(crate) fn responder(
        &mut self,
        now: Time,
        candidate: &mut Candidate,
        statistics: &mut TransportStatistics,
    ) -> Option<Responder> {
        if let Some(responder) = candidate.responder.take() {
            return Some(responder);
        }
        let read = self.read_anew(now, &candidate.unread, statistics);
        Some(read.ok()??.1)
    }

    /// Reads an offer, if the budget has it. Nothing, if it is not authentic.
    fn read_anew(
        &mut self,
        now: Time,
        unread: &Unread,
        statistics: &mut TransportStatistics,
    ) -> Result<Option<(Reading, Responder)>, Judged<'static>> {
        let clear = &unread.clear;
        if unread.has_token() {
            if !self.offer_budgets.take_with_token(now, unread.ip) {
                tally(&mut statistics.refused.answers_capped, 1);
                return Err(Judged::Refused);
            }
        } else if !self.offer_budgets.take_without_token(now) {
            tally(&mut statistics.refused.not_validated, 1);
            return Err(Judged::NeedsToken);
        }
        let Some((_, credentials)) = responding(&self.security, clear) else {
            return Ok(None);
        };
        tally(&mut statistics.offers_read, 1);
        let ephemeral = self.secrets.draw();
        let read = Responder::read(credentials, clear, ephemeral, &unread.message);
        Ok(read
            .ok()
            .map(|(responder, offer, key)| (Reading { offer, key }, responder)))
    }
}

impl fmt::Debug for ReadOffers {
    /// Tells nothing of the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ReadOffers({})", self.cache.len())
    }
}

impl Unread {
    pub(super) fn has_token(&self) -> bool {
        self.clear.has_token()
    }
}
