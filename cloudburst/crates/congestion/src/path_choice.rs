//! Path choice: Cloudburst's own, or any balancer's in its place.

use core::{fmt, time::Duration};

use cloudburst_wire::Time;
use flow_balance::{
    Balancer, Drb, Ecmp, LetFlow, MAX_PATHS, Packet, PathId, PathSet, PathView, Rps, ShortFlows,
    Snapshot, Tr,
};

/// How the path of a message's next symbols is chosen.
///
/// The balancers are those of [`flow_balance`], as routers and switches have them. They are here to be compared: TR is
/// as fast as Cloudburst's own and takes more processor time, the others are slower. A message is what a flow is to them, and they choose
/// among the first 16 of the paths that may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathChoice {
    /// The path by which they arrive first, whatever the order; one that has carried much of the same message of
    /// which some was lost counts as later. The default.
    #[default]
    EarliestArrival,
    /// One path for each message, by its hash, whatever their rates ([`Ecmp`]).
    Ecmp,
    /// A path for each symbol at random, weighted by rate ([`Rps`]).
    Rps,
    /// A path for each symbol in turn ([`Drb`]).
    Drb,
    /// A path at random, weighted by rate, whenever the message has paused for 0.5 ms ([`LetFlow`]).
    LetFlow,
    /// The path by which a symbol arrives first of those that keep the message's symbols in order ([`Tr::bonding`]).
    Tr,
}

impl PathChoice {
    /// Returns the balancer with its state for one peer; nothing for Cloudburst's own choice.
    pub fn balanced(self) -> Option<BalancedPaths> {
        let balancer: Box<dyn Choose> = match self {
            Self::EarliestArrival => return None,
            Self::Ecmp => Hosted::boxed(Ecmp::default(), (), Train::Whole),
            Self::Rps => Hosted::boxed(Rps::default(), (), Train::One),
            Self::Drb => Hosted::boxed(Drb::default(), (), Train::One),
            Self::LetFlow => {
                let (gap_ns, seed) = (LETFLOW_GAP_NS, 0);
                Hosted::boxed(LetFlow { gap_ns, seed }, (), Train::Whole)
            }
            Self::Tr => {
                let flows = ShortFlows::new(SHORT_FLOW_TIMEOUT_NS);
                Hosted::boxed(Tr::bonding(), flows, Train::One)
            }
        };
        Some(BalancedPaths {
            balancer,
            is_weighted: self != Self::Ecmp,
        })
    }
}

/// The gap of a flowlet: LetFlow's paper has 0.5 ms in its testbed (section 5).
const LETFLOW_GAP_NS: u64 = 500_000;
/// After so long a silence a message is no longer counted among TR's short flows.
const SHORT_FLOW_TIMEOUT_NS: u64 = 10_000_000;
/// Messages whose state is kept: two that are under way at once and fall on one place begin anew each time.
const FLOWS: usize = 16;
const FLOWS_MASK: usize = 15;

/// A path that may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its place in the host's list.
    pub index: usize,
    /// Time at which the next datagram would be there by it.
    pub arrival: Time,
    /// How much later another one would be.
    pub each: Duration,
}

/// A balancer in the place of Cloudburst's own choice, with its state for one peer: up to 2 kB, of TR.
pub struct BalancedPaths {
    balancer: Box<dyn Choose>,
    /// True if it gives paths their shares by rate, which is measured and moves.
    is_weighted: bool,
}

impl BalancedPaths {
    /// Chooses the path of a message's next datagrams, and how many of `count` go by it at once. Of the host's list of
    /// so many `paths` those behind the first 16 are left out; without any candidate there is no choice.
    pub fn choose(
        &mut self,
        now: Time,
        message: u64,
        (bytes, count): (usize, u32),
        (paths, candidates): (usize, impl Iterator<Item = Candidate>),
    ) -> Option<(usize, u32)> {
        // Balancers remember paths by their places, so that these are the same however many are usable.
        let mut views = [PathView::default(); MAX_PATHS];
        let mut usable = PathSet::default();
        for candidate in candidates {
            let Some(path) = PathId::new(candidate.index) else {
                continue;
            };
            usable.insert(path);
            views[path.index()] = PathView {
                propagation_ns: candidate.arrival.since(now).as_nanos() as u64,
                weight: match self.is_weighted {
                    true => weight(bytes, candidate.each),
                    false => 1,
                },
                ..PathView::default()
            };
        }
        if usable.is_empty() {
            return None;
        }
        let mut snapshot = Snapshot::new(&views[..paths.min(MAX_PATHS)]);
        snapshot.usable = usable;
        let packet = Packet {
            now_ns: now.as_nanos(),
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            // Balancers want bits that are spread: an odd constant of the golden ratio spreads numbers in a row.
            flow_hash: message.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        let (path, most) = self.balancer.choose(message, &snapshot, &packet);
        Some((path, most.min(count.max(1))))
    }
}

impl fmt::Debug for BalancedPaths {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("BalancedPaths").finish()
    }
}

/// A path's share of what is spread by weight: its rate in Mbit/s, 1 at the least.
fn weight(bytes: usize, each: Duration) -> u32 {
    let each_ns = each.as_nanos() as u64;
    let bits = (bytes as u64).saturating_mul(8_000);
    let mbit_per_s = bits.checked_div(each_ns).unwrap_or(u64::MAX);
    u32::try_from(mbit_per_s)
        .unwrap_or(u32::MAX)
        .clamp(1, 1 << 24)
}

/// Datagrams that go by a path before it is chosen anew.
#[derive(Clone, Copy, Debug)]
enum Train {
    One,
    Whole,
}

trait Choose: Send + Sync {
    fn choose(&mut self, message: u64, paths: &Snapshot, packet: &Packet) -> (usize, u32);
}

/// A balancer, and what it remembers of messages.
struct Hosted<B: Balancer> {
    balancer: B,
    shared: B::Shared,
    flows: [(u64, B::Flow); FLOWS],
    train: Train,
}

impl<B> Hosted<B>
where
    B: Balancer + Send + Sync + 'static,
    B::Flow: Send + Sync,
    B::Shared: Send + Sync,
{
    fn boxed(balancer: B, shared: B::Shared, train: Train) -> Box<dyn Choose> {
        Box::new(Self {
            balancer,
            shared,
            flows: [(u64::MAX, B::Flow::default()); FLOWS],
            train,
        })
    }
}

impl<B> Choose for Hosted<B>
where
    B: Balancer + Send + Sync,
    B::Flow: Send + Sync,
    B::Shared: Send + Sync,
{
    fn choose(&mut self, message: u64, paths: &Snapshot, packet: &Packet) -> (usize, u32) {
        let place = message as usize & FLOWS_MASK;
        let (of, flow) = &mut self.flows[place];
        if *of != message {
            (*of, *flow) = (message, B::Flow::default());
        }
        let path = self.balancer.choose(&mut self.shared, flow, paths, packet);
        let most = match self.train {
            Train::One => 1,
            Train::Whole => u32::MAX,
        };
        (path.index(), most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1_250;

    /// Paths that are there after so many us, at 10 Mbit/s.
    fn candidates(delays_us: &[u64]) -> impl Iterator<Item = Candidate> {
        delays_us.iter().enumerate().map(|(index, us)| Candidate {
            index,
            arrival: Time::from_nanos(us * 1_000),
            each: Duration::from_millis(1),
        })
    }

    fn choose(paths: &mut BalancedPaths, message: u64, delays_us: &[u64]) -> Option<(usize, u32)> {
        let list = (delays_us.len(), candidates(delays_us));
        paths.choose(Time::ZERO, message, (BYTES, 8), list)
    }

    #[test]
    fn cloudbursts_own_choice_hosts_none() {
        assert!(PathChoice::default().balanced().is_none());
    }

    #[test]
    fn tr_takes_the_earliest_path_that_keeps_a_message_in_order() {
        let mut paths = PathChoice::Tr.balanced().unwrap();
        assert_eq!(choose(&mut paths, 1, &[30, 10, 20]), Some((1, 1)));
        // Earlier than the last one: out of order for this message, and not for another.
        assert_eq!(choose(&mut paths, 1, &[5, 40, 20]), Some((2, 1)));
        assert_eq!(choose(&mut paths, 2, &[5, 40, 20]), Some((0, 1)));
    }

    #[test]
    fn messages_keep_their_path_under_ecmp_and_take_turns_under_drb() {
        let mut ecmp = PathChoice::Ecmp.balanced().unwrap();
        let mut taken = [false; 4];
        for message in 0..64 {
            let first = choose(&mut ecmp, message, &[9, 9, 9, 9]).unwrap();
            assert_eq!(choose(&mut ecmp, message, &[9, 1, 1, 1]), Some(first));
            assert_eq!(first.1, 8, "all of what is wanted");
            // Also as long as others are not to be used, in whichever order they are told, and whatever rates become.
            let rest = candidates(&[9, 9, 9, 9]).filter(|it| it.index == first.0 || it.index == 2);
            let mut rest: Vec<_> = rest.collect();
            rest.reverse();
            rest[0].each = Duration::from_micros(1);
            let again = ecmp.choose(Time::ZERO, message, (BYTES, 8), (4, rest.into_iter()));
            assert_eq!(again, Some(first));
            taken[first.0] = true;
        }
        assert_eq!(taken, [true; 4]);
        let mut drb = PathChoice::Drb.balanced().unwrap();
        let mut turns: Vec<_> = (0..3)
            .map(|_| choose(&mut drb, 1, &[9, 9, 9]).unwrap())
            .collect();
        turns.sort_unstable();
        assert_eq!(turns, [(0, 1), (1, 1), (2, 1)]);
    }

    #[test]
    fn every_balancer_chooses_one_of_the_paths_whatever_they_are_like() {
        let choices = [
            PathChoice::Ecmp,
            PathChoice::Rps,
            PathChoice::Drb,
            PathChoice::LetFlow,
            PathChoice::Tr,
        ];
        for choice in choices {
            let mut paths = choice.balanced().unwrap();
            assert_eq!(choose(&mut paths, 1, &[]), None, "{choice:?}");
            for message in [0, 1, u64::MAX] {
                let (index, _) = choose(&mut paths, message, &[7; 40]).unwrap();
                assert!(index < 16, "{choice:?}: {index}");
            }
            // Too far behind, and one that is told twice.
            let odd = [(60, 0, Duration::ZERO), (3, 0, Duration::ZERO)];
            let odd = odd.into_iter().chain([(3, 1 << 60, Duration::MAX)]);
            let odd = odd.map(|(index, at, each)| Candidate {
                index,
                arrival: Time::from_nanos(at),
                each,
            });
            let chosen = paths.choose(Time::from_nanos(5), 9, (0, 0), (64, odd));
            assert_eq!(chosen, Some((3, 1)), "{choice:?}");
        }
    }
}
