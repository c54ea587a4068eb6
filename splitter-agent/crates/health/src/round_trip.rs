//! A probe's round trip: who noted when it left and when its answer came, and how long the peer had it.
//!
//! A process learns of a datagram when it is woken up, tens of microseconds later and more on a machine that is busy. The
//! kernel notes when a datagram comes in and when a device takes one, behind the queue in front of it. What it does
//! not tell an agent puts in from its own clock, and the round trip is longer by as much: so the shortest of many
//! may be taken of both alike.

use std::time::Duration;

/// A time, and whether the kernel noted it or the agent when it came to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The time.
    pub at: Duration,
    /// True for the kernel's.
    pub is_kernels: bool,
}

impl Stamp {
    /// A time that the kernel noted.
    #[must_use]
    pub const fn kernels(at: Duration) -> Self {
        Self {
            at,
            is_kernels: true,
        }
    }
}

impl From<Duration> for Stamp {
    /// A time by the agent's own clock.
    fn from(at: Duration) -> Self {
        Self {
            at,
            is_kernels: false,
        }
    }
}

/// A part of a round trip that is not the path's, where nobody told how long it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Untimed {
    /// From the agent to the tunnel's device: the kernel did not tell when the probe left.
    Departure,
    /// From the tunnel's device to the agent: the kernel did not tell when the answer came.
    Arrival,
    /// With the peer, which did not tell for how long.
    Stay,
    /// With the peer, which said longer than the whole round trip took.
    ImpossibleStay,
}

impl Untimed {
    /// All of them, in the order of their metrics.
    pub const ALL: [Self; 4] = [
        Self::Departure,
        Self::Arrival,
        Self::Stay,
        Self::ImpossibleStay,
    ];

    /// The value of the `part` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Departure => "departure",
            Self::Arrival => "arrival",
            Self::Stay => "stay",
            Self::ImpossibleStay => "impossible_stay",
        }
    }
}

/// A round trip as what is known of it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RoundTrip {
    /// From when the agent sent the probe: with the queue in front of the tunnel.
    pub(super) whole: Duration,
    /// From when the tunnel's device took it: of the path alone.
    pub(super) path: Duration,
    /// The parts that are in it, for nobody told how long they were, by the order of [`Untimed::ALL`].
    pub(super) untimed: [bool; Untimed::ALL.len()],
}

impl RoundTrip {
    /// The round trip of a probe that the agent sent and that the kernel saw leave, if it told so.
    pub(super) fn new(
        sent: Duration,
        left: Option<Duration>,
        arrived: Stamp,
        stay: Option<Duration>,
    ) -> Self {
        // Both clocks are read one after the other: what left is never in front of what was sent.
        let since_left = arrived.at.saturating_sub(left.unwrap_or(sent).max(sent));
        let possible = stay.filter(|it| *it <= since_left);
        let stay_or_none = possible.unwrap_or_default();
        Self {
            whole: arrived.at.saturating_sub(sent).saturating_sub(stay_or_none),
            path: since_left.saturating_sub(stay_or_none),
            untimed: Untimed::ALL.map(|part| match part {
                Untimed::Departure => left.is_none(),
                Untimed::Arrival => !arrived.is_kernels,
                Untimed::Stay => stay.is_none(),
                Untimed::ImpossibleStay => stay.is_some() && possible.is_none(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn us(microseconds: u64) -> Duration {
        Duration::from_micros(microseconds)
    }

    fn untimed(trip: &RoundTrip) -> Vec<&'static str> {
        let each = Untimed::ALL.into_iter().zip(trip.untimed);
        each.filter_map(|(part, is_in)| is_in.then_some(part.name()))
            .collect()
    }

    #[test]
    fn path_has_neither_queue_nor_stay_where_the_kernel_and_the_peer_tell() {
        let trip = RoundTrip::new(
            us(100),
            Some(us(700)),
            Stamp::kernels(us(21_000)),
            Some(us(300)),
        );
        assert_eq!((trip.whole, trip.path), (us(20_600), us(20_000)));
        assert!(untimed(&trip).is_empty());
        let alone = RoundTrip::new(us(100), None, us(21_000).into(), None);
        assert_eq!((alone.whole, alone.path), (us(20_900), us(20_900)));
        assert_eq!(untimed(&alone), ["departure", "arrival", "stay"]);
    }

    #[test]
    fn stay_that_is_longer_than_the_round_trip_is_not_believed() {
        let trip =
            |stay| RoundTrip::new(us(0), Some(us(10)), Stamp::kernels(us(1_010)), Some(stay));
        assert_eq!(trip(us(1_000)).path, us(0));
        let impossible = trip(us(1_001));
        assert_eq!((impossible.path, impossible.whole), (us(1_000), us(1_010)));
        assert_eq!(untimed(&impossible), ["impossible_stay"]);
    }

    proptest! {
        /// What nobody told makes a round trip longer and never shorter, whatever clocks and the peer say.
        #[test]
        fn untold_part_never_shortens_a_path(
            times in any::<[u32; 4]>(),
            has_left: bool,
            has_arrived: bool,
            has_stay: bool,
        ) {
            let [sent, queued, path, woken] = times.map(|it| us(it.into()));
            let (left, stay) = (sent + queued, woken / 2);
            let noted = left + path + stay;
            let arrived = match has_arrived {
                true => Stamp::kernels(noted),
                false => (noted + woken).into(),
            };
            let trip = RoundTrip::new(
                sent,
                has_left.then_some(left),
                arrived,
                has_stay.then_some(stay),
            );
            prop_assert!(path <= trip.path && trip.path <= trip.whole);
            let is_exact = has_left && has_arrived && has_stay;
            prop_assert_eq!(is_exact, untimed(&trip).is_empty());
            if is_exact {
                prop_assert_eq!(trip.path, path);
            }
        }
    }
}
