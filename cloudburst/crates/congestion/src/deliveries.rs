//! Counts of one path's datagrams: what is new of a peer's report, and what of it is lost.

/// Counts of what arrived, as a peer reports them for one path, and of what is missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deliveries {
    reported: Option<Reported>,
    /// The most datagrams before the highest that had not arrived: some of them were only
    /// overtaken.
    most_missing: u32,
    /// They were reckoned, and the next report says how many there were at most.
    is_recounted: bool,
    /// The peer was restarted, and its next report counts nothing of before.
    counts_anew: bool,
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    received: u32,
    highest: u64,
}

/// News of a report: of the datagrams since the highest of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewDeliveries {
    /// Datagrams sent since then.
    pub sent: u32,
    /// Datagrams that arrived meanwhile; more than were sent where others were overtaken.
    pub received: u32,
    /// Datagrams that were lost, without those that were only overtaken.
    pub lost: u32,
    /// The highest number that arrived.
    pub highest: u64,
    /// The peer counts from 0 again.
    pub is_restarted: bool,
}

impl Deliveries {
    /// Takes a report of a path by which `sent` datagrams were sent so far: how many arrived and the highest of
    /// their numbers, both modulo 2^32. Returns what is new of it, if anything is.
    pub fn hear(&mut self, sent: u64, received: u32, highest: u32) -> Option<NewDeliveries> {
        let highest = whole_number(sent, highest)?;
        if self.reported.is_some_and(|it| highest <= it.highest) {
            return None;
        }
        // Both count modulo 2^32.
        let missing = (highest as u32).wrapping_add(1).wrapping_sub(received);
        if core::mem::take(&mut self.is_recounted) {
            // As many as arrived of what was taken for discarded could be lost later without being missed.
            self.most_missing = self.most_missing.min(missing);
        }
        let counts_anew = core::mem::take(&mut self.counts_anew);
        let (new_sent, new_received) = match self.reported {
            Some(before) => {
                let new_sent = highest.saturating_sub(before.highest);
                match received.checked_sub(before.received) {
                    Some(new_received @ 1..) if !counts_anew => (new_sent, new_received),
                    // A peer that was restarted counts again, from what was sent since.
                    _ => (new_sent.min(received.into()), received),
                }
            }
            None if counts_anew => (highest.saturating_add(1).min(received.into()), received),
            // What was discarded has been missing since then.
            None => {
                let sent = highest.saturating_add(1);
                (sent.saturating_sub(self.most_missing.into()), received)
            }
        };
        let new_sent = new_sent.min(u64::from(u32::MAX)) as u32;
        let counts_less = self.reported.is_some_and(|it| received <= it.received);
        let is_restarted = counts_anew || counts_less;
        let lost = self.lost(missing, is_restarted).min(new_sent);
        self.reported = Some(Reported { received, highest });
        Some(NewDeliveries {
            sent: new_sent,
            received: new_received,
            lost,
            highest,
            is_restarted,
        })
    }

    /// Datagrams that are missing for the first time: of those before the highest no more have been
    /// missing at once. A peer that was restarted counts again.
    fn lost(&mut self, missing: u32, is_restarted: bool) -> u32 {
        let more = missing.wrapping_sub(self.most_missing).cast_signed().max(0);
        if is_restarted || more > 0 {
            self.most_missing = missing;
        }
        if is_restarted { 0 } else { more.unsigned_abs() }
    }

    /// Notes that the peer has discarded all of the `sent` datagrams of which nothing is heard yet: none of
    /// them was lost to the network (RFC 9002 §6.3).
    pub fn discarded(&mut self, sent: u64) {
        let last = sent.saturating_sub(1);
        self.most_missing = match &mut self.reported {
            Some(reported) => {
                let before = core::mem::replace(&mut reported.highest, last);
                let discarded = last.saturating_sub(before) as u32;
                self.most_missing.wrapping_add(discarded)
            }
            None => sent as u32,
        };
        self.is_recounted = true;
    }

    /// Notes that the peer was restarted: what it counted before is missing of what it counts now. What was sent by keys
    /// that it does not have it `has_discarded`; else nobody can say which of it went to the one before.
    pub fn restarted(&mut self, has_discarded: bool) {
        if let Some(reported) = &mut self.reported {
            let counted = core::mem::take(&mut reported.received);
            self.most_missing = self.most_missing.wrapping_add(counted);
        }
        (self.is_recounted, self.counts_anew) = (true, !has_discarded);
    }

    /// Returns true if the peer has reported anything.
    pub const fn is_reported(&self) -> bool {
        self.reported.is_some()
    }

    /// Returns true if missing datagrams were reckoned, and nothing was reported since.
    pub const fn is_recounted(&self) -> bool {
        self.is_recounted
    }

    /// Returns how many datagrams arrived, as the peer has reported, modulo 2^32.
    pub fn received(&self) -> u32 {
        self.reported.map_or(0, |it| it.received)
    }

    /// Returns the counts without what is to come of a restart: those of another path that goes on with this one's
    /// numbers.
    #[must_use]
    pub fn carried_on(&self) -> Self {
        Self {
            reported: self.reported,
            ..Self::default()
        }
    }
}

/// A datagram's number from its lower half, if it is one of so many that were sent.
fn whole_number(sent: u64, low: u32) -> Option<u64> {
    let last = sent.checked_sub(1)?;
    let back = (last as u32).wrapping_sub(low);
    last.checked_sub(back.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(sent: u32, received: u32, lost: u32, highest: u64) -> Option<NewDeliveries> {
        Some(NewDeliveries {
            sent,
            received,
            lost,
            highest,
            is_restarted: false,
        })
    }

    #[test]
    fn what_is_missing_is_lost_once_and_what_was_overtaken_never() {
        let mut deliveries = Deliveries::default();
        assert_eq!(deliveries.hear(10, 3, 2), new(3, 3, 0, 2));
        assert_eq!(deliveries.hear(10, 3, 2), None, "nothing new");
        assert_eq!(deliveries.hear(10, 5, 5), new(3, 2, 1, 5));
        assert_eq!(deliveries.hear(10, 7, 6), new(1, 2, 0, 6), "it is late");
        assert_eq!(deliveries.hear(10, 8, 8), new(2, 1, 0, 8));
        assert_eq!(deliveries.hear(10, 9, 10), None, "nobody has sent it");
        assert_eq!(deliveries.received(), 8);
    }

    #[test]
    fn restarted_peer_counts_again_and_has_lost_nothing() {
        let mut deliveries = Deliveries::default();
        deliveries.hear(100, 80, 99);
        deliveries.restarted(false);
        let news = deliveries.hear(110, 6, 109).unwrap();
        assert_eq!((news.sent, news.received, news.lost), (6, 6, 0));
        assert!(news.is_restarted);
    }
}
