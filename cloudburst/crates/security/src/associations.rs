//! Associations with a peer: the keys that are in use, those before, and those to come.
//!
//! ```text
//! initiator                                     responder
//!   offer ---- first flight ------------------>   next
//!   current <------------- with acceptance ----   next
//!   current -- data --------------------------->  current
//! ```
//!
//! The end that chose the other begins each handshake. Datagrams with an offer are sealed with the
//! early key; once the acceptance is there, all are sealed with keys that nobody can compute
//! later, whatever becomes known (forward secrecy). A handshake before the old keys are worn out
//! goes beside the messages, and none of them waits for it.

use core::time::Duration;

use cloudburst_wire::{
    ACCEPTANCE_BYTES, Acceptance, EPHEMERAL_BYTES, Form, Framing, Initiator, Offer, Opener, Sealer,
    Time, TrafficKeys,
};

/// After this time, or so many datagrams, keys are replaced (as in WireGuard, §6.1).
const REKEY_AFTER: Duration = Duration::from_secs(120);
const REKEY_AFTER_DATAGRAMS: u64 = 1 << 32;
/// After this time nothing is sealed with keys any more, and a little later nothing is opened.
const REJECT_AFTER: Duration = Duration::from_secs(180);
/// How long the keys before are kept for what is on its way.
const OVERLAP: Duration = Duration::from_secs(10);
/// After this time nothing is opened with keys any more.
const FORGET_AFTER: Duration = REJECT_AFTER.saturating_add(OVERLAP);
/// A peer of which nothing was heard for so long may have forgotten us: half of what it takes.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// How old an offer may become: its time must still be believed when it arrives.
const OFFER_LIFETIME: Duration = Duration::from_secs(5);
/// The pause before it is sent by itself again, at first.
const OFFER_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause before it is sent by itself again, unless answers take longer, and how often the pause doubles.
const MOST_OFFER_PAUSE: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u32 = 10;
/// How long a peer may leave datagrams unanswered until it may have lost its keys.
const SUSPECT_AFTER: Duration = Duration::from_millis(200);

/// Associations with a peer.
#[derive(Debug, Default)]
pub struct Associations {
    /// The offer of ours that is under way.
    pub pending: Option<Box<PendingOffer>>,
    current: Option<Association>,
    /// As responder: accepted, and not used by the initiator yet.
    next: Option<Association>,
    previous: Option<Association>,
    /// When the peer was heard of last, and the first datagram since then that asks for an answer
    /// was sent.
    heard_at: Option<Time>,
    asked_since: Option<Time>,
    /// The peer may have forgotten us: there is no use in sending anything but offers.
    pub is_in_doubt: bool,
    /// Somebody says in the peer's name that it has forgotten us.
    is_disowned: bool,
}

/// An offer of ours that is under way.
#[derive(Debug)]
pub struct PendingOffer {
    /// Under which we are answered.
    pub index: u64,
    initiator: Initiator,
    sealer: Sealer,
    made_at: Time,
    /// True if it brings a token.
    pub has_token: bool,
    /// When it was last sent without a message, and how often.
    sent_at: Option<Time>,
    times_sent: u32,
    is_hastened: bool,
}

/// Keys of both directions, and what they are known by.
#[derive(Debug)]
pub struct Association {
    /// Under which we are sent datagrams.
    pub index: u64,
    sealer: Sealer,
    opener: Opener,
    /// As responder: messages of the first flight may have been handed over by who ran here before,
    /// so that they have to come again.
    pub refuses_early: bool,
    /// As responder: opens the first flight of the offer with this ephemeral key.
    pub early: Option<([u8; EPHEMERAL_BYTES], Opener)>,
    began_at: Time,
    retired_at: Time,
    datagrams: u64,
}

/// Lack that a peer tells of, which says to have no keys for a datagram of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// A token in the offer that it was sent.
    Token,
    /// The offer that is under way, and waits for its next turn.
    Offer,
    /// The keys in use: it was restarted.
    Keys,
}

/// Which keys a datagram came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// In use.
    Current,
    /// Accepted by us, and not used by the initiator yet.
    Next,
    /// Replaced a moment ago.
    Previous,
}

impl PendingOffer {
    /// Takes an offer that was made now, and what its datagrams begin with.
    pub fn new(
        now: Time,
        (index, has_token): (u64, bool),
        initiator: Initiator,
        offer: &Offer,
        hello: Box<[u8]>,
    ) -> Self {
        let sealer = Sealer::sealed(index, &offer.early_key());
        Self {
            index,
            initiator,
            sealer: sealer.with_prefix(Form::Offer, hello),
            made_at: now,
            has_token,
            sent_at: None,
            times_sent: 0,
            is_hastened: false,
        }
    }

    /// Has it be sent at once, and with short pauses from then on: somebody says in the peer's name that it is awaited. Returns
    /// false if that was done before, for anybody on the way can say so.
    fn hasten(&mut self) -> bool {
        let is_first = !core::mem::replace(&mut self.is_hastened, true);
        if is_first {
            (self.sent_at, self.times_sent) = (None, 0);
        }
        is_first
    }

    /// Takes the turn to send it without a message, if the pause since the last time is over: `pause` at first, twice as long
    /// each time up to a second (RFC 8085 §3.1.1). Returns true if it is to be sent.
    fn take_turn(&mut self, now: Time, pause: Duration) -> bool {
        let doublings = self.times_sent.saturating_sub(1).min(MOST_DOUBLINGS);
        let longest = MOST_OFFER_PAUSE.max(pause);
        let pause = pause.saturating_mul(1 << doublings).min(longest);
        let is_due = self.sent_at.is_none_or(|at| now.since(at) >= pause);
        if is_due {
            self.sent_at = Some(now);
            self.times_sent = self.times_sent.saturating_add(1);
        }
        is_due
    }

    /// Returns true if its acceptance would still be taken in time.
    pub fn is_fresh(&self, now: Time) -> bool {
        now.since(self.made_at) < OFFER_LIFETIME
    }
}

impl Association {
    /// As initiator, by what the responder has chosen.
    fn initiated(now: Time, index: u64, acceptance: &Acceptance, keys: &TrafficKeys) -> Self {
        Self {
            index,
            sealer: Sealer::sealed(acceptance.index, &keys.to_responder),
            opener: Opener::sealed(&keys.to_initiator),
            refuses_early: false,
            early: None,
            began_at: now,
            retired_at: Time::NEVER,
            datagrams: 0,
        }
    }

    /// Makes the keys of a responder, which puts the acceptance into each datagram at first.
    pub fn accepted(
        now: Time,
        (index, initiator_index): (u64, u64),
        acceptance: &[u8; ACCEPTANCE_BYTES],
        keys: &TrafficKeys,
        early: ([u8; EPHEMERAL_BYTES], Opener),
    ) -> Self {
        let sealer = Sealer::sealed(initiator_index, &keys.to_initiator);
        Self {
            index,
            sealer: sealer.with_prefix(Form::Acceptance, acceptance.to_vec().into()),
            opener: Opener::sealed(&keys.to_responder),
            refuses_early: false,
            early: Some(early),
            began_at: now,
            retired_at: Time::NEVER,
            datagrams: 0,
        }
    }

    /// Returns the index under which the peer is sent datagrams.
    pub fn peer_index(&self) -> u64 {
        self.sealer.session()
    }

    fn seals(&self, now: Time) -> bool {
        now.since(self.began_at) < REJECT_AFTER
    }

    fn opens(&self, now: Time) -> bool {
        let is_young = now.since(self.began_at) < FORGET_AFTER;
        is_young && now <= self.retired_at + OVERLAP
    }
}

impl Associations {
    /// Returns all that there are, for who has to find them by what they are known by.
    pub fn iter(&self) -> impl Iterator<Item = &Association> {
        let slots = [&self.current, &self.next, &self.previous];
        slots.into_iter().flatten()
    }

    /// Returns what opens datagrams that state this index.
    pub fn opener(&self, now: Time, index: u64) -> Option<(Slot, &Opener)> {
        let (slot, found) = self.slots().find(|(_, it)| it.index == index)?;
        found.opens(now).then_some((slot, &found.opener))
    }

    /// Returns what opens the first flight of the offer with this ephemeral key, and the index under which
    /// it was accepted.
    pub fn early_opener(
        &self,
        now: Time,
        ephemeral: &[u8; EPHEMERAL_BYTES],
    ) -> Option<(u64, &Opener)> {
        self.slots().find_map(|(_, it)| {
            let (known, opener) = it.early.as_ref()?;
            (known == ephemeral && it.opens(now)).then_some((it.index, opener))
        })
    }

    fn slots(&self) -> impl Iterator<Item = (Slot, &Association)> {
        let slots = [
            (Slot::Current, &self.current),
            (Slot::Next, &self.next),
            (Slot::Previous, &self.previous),
        ];
        slots
            .into_iter()
            .filter_map(|(slot, it)| Some((slot, it.as_ref()?)))
    }

    /// Returns true if datagrams to the peer state this index.
    pub fn seals_for(&self, index: u64) -> bool {
        let offered = self.pending.as_ref().is_some_and(|it| it.index == index);
        offered || self.iter().any(|it| it.sealer.session() == index)
    }

    /// Returns true if datagrams to the peer state this index now.
    pub fn is_current(&self, index: u64) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|it| it.sealer.session() == index)
    }

    /// Returns what seals datagrams to the peer now: nothing, if a handshake has to be begun first.
    pub fn sealer(&self, now: Time) -> Option<&Sealer> {
        let usable = |it: &&Association| it.seals(now);
        let current = self.current.as_ref().filter(usable);
        let next = self.next.as_ref().filter(usable);
        let offer = self.pending.as_ref().map(|pending| &pending.sealer);
        match (self.is_in_doubt, offer) {
            (true, Some(offer)) => Some(offer),
            _ => current.or(next).map(|it| &it.sealer).or(offer),
        }
    }

    /// Returns true if the peer was heard of lately, and there are keys that it has: it takes what is
    /// sent without a handshake before.
    pub fn is_in_touch(&self, now: Time) -> bool {
        let is_recent = |at| now.since(at) <= FORGOTTEN_AFTER;
        let has_keys = self
            .current
            .iter()
            .chain(&self.next)
            .any(|it| it.seals(now));
        has_keys && !self.is_in_doubt && self.heard_at.is_some_and(is_recent)
    }

    /// Returns what seals the answer to a datagram that came by the keys of this index.
    pub fn answer_sealer(&self, now: Time, index: u64) -> Option<&Sealer> {
        let by_index = self.iter().find(|it| it.index == index);
        by_index.filter(|it| it.seals(now)).map(|it| &it.sealer)
    }

    /// Returns what seals an offer that goes without messages.
    pub fn offer_sealer(&self) -> Option<&Sealer> {
        self.pending.as_ref().map(|pending| &pending.sealer)
    }

    /// Returns what datagrams to the peer have besides their bodies now.
    pub fn framing(&self, now: Time) -> Framing {
        self.sealer(now).map_or(Framing::SEALED, Sealer::framing)
    }

    /// Counts datagrams that were sealed and ask for an answer.
    pub fn asked(&mut self, now: Time, datagrams: u64) {
        self.asked_since.get_or_insert(now);
        if let Some(current) = &mut self.current {
            current.datagrams = current.datagrams.saturating_add(datagrams);
        }
    }

    /// Notes that the peer was heard of: it has the keys that are in use.
    pub fn heard(&mut self, now: Time) {
        self.heard_at = Some(now);
        self.asked_since = None;
        self.is_in_doubt = false;
        self.is_disowned = false;
    }

    /// Takes out keys that open nothing any more; to be called until there are none.
    pub fn expire(&mut self, now: Time) -> Option<Association> {
        let slots = [&mut self.previous, &mut self.current, &mut self.next];
        slots
            .into_iter()
            .find_map(|slot| slot.take_if(|it| !it.opens(now)))
    }

    /// Returns true if messages of an initiator cannot go on under the keys that there are.
    pub fn needs_offer(&mut self, now: Time) -> bool {
        let is_worn = self.current.as_ref().is_none_or(|it| !it.seals(now));
        let is_silent = |at| now.since(at) > FORGOTTEN_AFTER;
        self.is_in_doubt = is_worn || self.heard_at.is_some_and(is_silent);
        self.is_in_doubt && !self.has_fresh_offer(now)
    }

    /// Returns true if an offer is under way whose acceptance would still be taken.
    pub fn has_fresh_offer(&self, now: Time) -> bool {
        let pending = self.pending.as_ref();
        pending.is_some_and(|pending| pending.is_fresh(now))
    }

    /// Returns true if an initiator is to agree upon other keys while messages go on under those that
    /// there are: they have been in use for long, or the peer may have lost them.
    pub fn is_rekey_due(&self, now: Time, ack_timeout: Duration) -> bool {
        if self.is_in_doubt {
            return false;
        }
        let patience = ack_timeout.saturating_mul(4).max(SUSPECT_AFTER);
        let is_unanswered = self
            .asked_since
            .is_some_and(|since| now.since(since) > patience);
        self.current.as_ref().is_some_and(|current| {
            is_unanswered
                || self.is_disowned
                || now.since(current.began_at) >= REKEY_AFTER
                || current.datagrams >= REKEY_AFTER_DATAGRAMS
        })
    }

    /// Takes the turn of the offer under way to be sent beside messages, where an answer takes so long at most. Returns true if it is
    /// to be sent now.
    pub fn take_turn(&mut self, now: Time, ack_timeout: Duration) -> bool {
        let pause = ack_timeout.saturating_mul(2).max(OFFER_PAUSE);
        let pending = self.pending.as_mut();
        pending.is_some_and(|pending| pending.take_turn(now, pause))
    }

    /// Returns what the peer lacks that says to have no keys of this index, if that is news. Anybody on the way can say so, too: what
    /// we have goes on in use until another handshake is complete, there is one at a time, and an offer gets a token, and its turn
    /// at once, no more than once.
    pub fn missed(&mut self, now: Time, index: u64) -> Option<Missed> {
        let (is_current, is_fresh) = (self.is_current(index), self.has_fresh_offer(now));
        match &mut self.pending {
            Some(offer) if offer.index == index => (!offer.has_token).then_some(Missed::Token),
            Some(offer) if is_current && is_fresh => {
                (!offer.has_token && offer.hasten()).then_some(Missed::Offer)
            }
            _ => {
                self.is_disowned |= is_current;
                is_current.then_some(Missed::Keys)
            }
        }
    }

    /// Returns the time when keys have to be taken out, so that nobody finds them in memory later.
    pub fn worn_at(&self) -> Option<Time> {
        let worn = |it: &Association| it.began_at + FORGET_AFTER;
        self.iter().map(worn).min()
    }

    /// Takes an acceptance, as initiator. Returns what it says, and the keys that
    /// were dropped for the new ones.
    pub fn accept(
        &mut self,
        now: Time,
        message: &[u8; ACCEPTANCE_BYTES],
    ) -> Option<(Acceptance, Option<Association>)> {
        let pending = self.pending.as_mut()?;
        let (acceptance, keys) = pending.initiator.accepted(message).ok()?;
        let new = Association::initiated(now, pending.index, &acceptance, &keys);
        self.pending = None;
        self.retire_current(now);
        let dropped = core::mem::replace(&mut self.previous, self.current.take());
        self.current = Some(new);
        Some((acceptance, dropped))
    }

    /// Takes out the keys before: the peer was restarted, and nothing of it comes by them any more.
    pub fn forget_previous(&mut self) -> Option<Association> {
        self.previous.take()
    }

    /// Takes out all keys.
    pub fn into_all(self) -> impl Iterator<Item = Association> {
        let slots = [self.current, self.next, self.previous];
        slots.into_iter().flatten()
    }

    /// Takes the keys that an offer has led to, as responder. Returns those that were dropped for them.
    pub fn accepted(&mut self, next: Association) -> Option<Association> {
        self.next.replace(next)
    }

    /// Takes the keys that the initiator uses now into use, as responder. Returns those that were
    /// dropped for them.
    pub fn confirm(&mut self, now: Time) -> Option<Association> {
        let mut next = self.next.take()?;
        next.sealer.drop_prefix();
        self.retire_current(now);
        let dropped = core::mem::replace(&mut self.previous, self.current.take());
        self.current = Some(next);
        dropped
    }

    fn retire_current(&mut self, now: Time) {
        if let Some(current) = &mut self.current {
            current.retired_at = now;
        }
    }
}
