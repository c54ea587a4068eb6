//! Flows on a shared tunnel, counted by how far they have come, so that those which start or turn
//! long at the same time see each other.

use crate::flow::FlowEntry;
use flow_balance::{ActiveFlows, Activity};

/// How far a flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// It ended, or only acknowledges: it takes nothing of its tunnel.
    Silent = 0,
    /// It has shaken hands, or said a few words.
    Starting = 1,
    /// It sends its first window.
    Growing = 2,
    /// It went on after that.
    Lasting = 3,
}

impl Stage {
    /// A flow with no more than this has shaken hands, and perhaps said who it is.
    const GREETING_BYTES: u64 = 1_200;
    /// What a handshake and a first window (RFC 6928) come to.
    const FIRST_WINDOW_PACKETS: u64 = 13;

    /// The stage of a flow that has sent so much.
    #[inline(always)]
    pub const fn of(packets: u64, bytes: u64) -> Self {
        if bytes <= Self::GREETING_BYTES {
            Self::Starting
        } else if packets <= Self::FIRST_WINDOW_PACKETS {
            Self::Growing
        } else {
            Self::Lasting
        }
    }

    /// Tells if both are the same stage.
    #[inline(always)]
    pub(crate) const fn is(self, other: Self) -> bool {
        self as u8 == other as u8
    }

    /// The stage whose number this is.
    #[inline(always)]
    pub const fn numbered(number: u64) -> Self {
        match number {
            0 => Self::Silent,
            1 => Self::Starting,
            2 => Self::Growing,
            _ => Self::Lasting,
        }
    }
}

impl FlowEntry {
    /// The stage as which a short flow counts in its tunnel now (shared tunnels). One that is
    /// long counts as [`Stage::Lasting`].
    #[inline(always)]
    pub const fn stage(&self) -> Stage {
        Stage::numbered((self.flags & Self::STAGE) >> Self::STAGE_SHIFT)
    }

    /// Sets the stage as which a short flow counts in its tunnel.
    #[inline(always)]
    pub const fn set_stage(&mut self, stage: Stage) {
        self.flags = self.flags & !Self::STAGE | (stage as u64) << Self::STAGE_SHIFT;
    }
}

/// The flows on one tunnel that sent lately, by their stage.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crowd {
    starting: ActiveFlows,
    growing: ActiveFlows,
    pub(crate) lasting: ActiveFlows,
}

impl Crowd {
    /// Notes what a packet says of a flow in this stage.
    #[inline(always)]
    pub(crate) const fn note(&mut self, stage: Stage, activity: Activity, now_ns: u64) {
        if let Some(flows) = self.flows(stage) {
            flows.note(activity, now_ns);
        }
    }

    /// Notes that a flow that was in this stage is there no more; its last packet before was at
    /// `last_seen_ns`.
    #[inline(always)]
    pub(crate) const fn leave(&mut self, stage: Stage, last_seen_ns: u64, now_ns: u64) {
        if let Some(flows) = self.flows(stage) {
            flows.leave(last_seen_ns, now_ns);
        }
    }

    #[inline(always)]
    const fn flows(&mut self, stage: Stage) -> Option<&mut ActiveFlows> {
        match stage {
            Stage::Silent => None,
            Stage::Starting => Some(&mut self.starting),
            Stage::Growing => Some(&mut self.growing),
            Stage::Lasting => Some(&mut self.lasting),
        }
    }

    /// What a flow that starts competes with, in eighths of a flow: one that starts, too, counts
    /// for seven, as it may say little, all others for eight, and the tunnel itself for four.
    ///
    /// So the tunnel for the next flow is that of Sainte-Laguë's method, which divides by 1, 3, 5,
    /// and gives a slower tunnel its first flow earlier than one by 1, 2, 3: of two flows it has
    /// one if its rate is more than a third of the other's, and their sum is the greater.
    #[inline(always)]
    pub(crate) const fn competition(&self, now_ns: u64) -> u64 {
        let others = self.growing.count(now_ns) as u64 + self.lasting.count(now_ns) as u64;
        8 * others + 7 * self.starting.count(now_ns) as u64 + 4
    }

    /// What a flow that lasts competes with, by the same method: those that start will most likely
    /// have ended soon.
    #[inline(always)]
    pub(crate) const fn lasting_competition(&self, now_ns: u64) -> u64 {
        2 * self.lasting.count(now_ns) as u64 + 1
    }
}

/// Tells if one of `competition` has more where it would be than where it is, in proportion to the
/// rates; each without itself, in any unit.
#[inline(always)]
pub(crate) const fn has_more(there: (u64, u32), here: (u64, u32)) -> bool {
    /// More flows than this do not count: times a rate they do not overflow.
    const MOST: u64 = 1 << 30;
    let (there_competition, there_rate) = there;
    let (here_competition, here_rate) = here;
    if there_competition > MOST || here_competition > MOST {
        return false;
    }
    there_competition * (here_rate as u64) < here_competition * (there_rate as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where flows that start one after the other go, if each stays.
    fn filled(rates: [u32; 2], count: usize) -> std::vec::Vec<usize> {
        let mut crowds = [Crowd::default(); 2];
        (0..count)
            .map(|_| {
                let [first, second] =
                    [0, 1].map(|it: usize| (crowds[it].competition(0), rates[it]));
                let chosen = usize::from(has_more(second, first));
                crowds[chosen].note(Stage::Growing, Activity::ENTERS, 0);
                chosen
            })
            .collect()
    }

    #[test]
    fn slower_tunnel_has_one_of_two_flows_if_it_has_more_than_a_third_of_the_rate() {
        assert_eq!(filled([100, 100], 4), [0, 1, 0, 1]);
        assert_eq!(filled([100, 40], 7), [0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(filled([100, 34], 2), [0, 1]);
        assert_eq!(filled([100, 33], 3), [0, 0, 1]);
    }

    #[test]
    fn flow_comes_further_by_what_it_has_sent() {
        let of = |packets, bytes| Stage::of(packets, bytes) as u8;
        assert_eq!([of(2, 140), of(3, 240), of(9, 1_200)], [1; 3]);
        assert_eq!([of(3, 1_654), of(13, 16_000)], [2; 2]);
        assert_eq!([of(14, 17_000), of(1_000_000, 1 << 30)], [3; 2]);
        for stage in [
            Stage::Silent,
            Stage::Starting,
            Stage::Growing,
            Stage::Lasting,
        ] {
            assert!(Stage::numbered(stage as u64).is(stage));
        }
    }

    #[test]
    fn flow_that_says_little_counts_for_less_than_one_that_sends() {
        let mut crowds = [Crowd::default(); 2];
        crowds[0].note(Stage::Starting, Activity::ENTERS, 0);
        crowds[1].note(Stage::Growing, Activity::ENTERS, 0);
        assert!(crowds[0].competition(0) < crowds[1].competition(0));
        assert!(has_more(
            (crowds[0].competition(0), 1),
            (crowds[1].competition(0), 1)
        ));
        assert!(!has_more((u64::MAX, 1), (1, u32::MAX)));
    }
}
