//! All paths to a peer: which is the next datagram's.

mod replacement;

use core::time::Duration;
use std::collections::VecDeque;

pub(super) use cloudburst_congestion::Spread;
use cloudburst_congestion::{LossEstimator, ParallelPaths, RateEstimator};

use super::{
    config::Datagrams,
    event::{FourTuple, PathReport, SocketId},
    packet::Report,
    path::{DeliveryReport, Path},
    time::Time,
};

/// Paths to a peer that are kept, at most.
pub(super) use cloudburst_congestion::MAX_PATHS;
/// A path that loses so much gets no symbols while another loses half of that or
/// less. What it loses never queues, so that it seems the fastest.
const BLACK_HOLE_LOSS: f64 = 0.5;

/// The paths to a peer.
#[derive(Debug, Default)]
pub(super) struct Paths {
    list: Vec<Path>,
    /// Paths that there is no capacity for, and those that did not deliver: the latter come last.
    standby: VecDeque<FourTuple>,
    next_id: u16,
    /// What they lead through, several through one if that was found out.
    bottlenecks: Vec<RateEstimator>,
    /// What delays are counted from.
    reference: Option<u32>,
    /// What is lost, by whatever path it went.
    loss: LossEstimator,
    /// With which path a choice among equals begins.
    turn: usize,
}

impl Paths {
    /// Adds a path, if it is new and there is capacity; if there is none, it is kept for later.
    pub(super) fn add(&mut self, now: Time, four_tuple: FourTuple, datagrams: &Datagrams) -> bool {
        if self.position(four_tuple).is_some() {
            return false;
        }
        if self.list.len() == MAX_PATHS {
            self.keep_standby(four_tuple);
            return false;
        }
        let Some(id) = self.next_number() else {
            return false;
        };
        let group = self.fresh_group(now, None);
        self.list
            .push(Path::new(id, four_tuple, group, now, datagrams));
        true
    }

    pub(super) fn remove_socket(&mut self, now: Time, socket: SocketId) {
        self.list.retain(|path| path.four_tuple.socket != socket);
        self.standby
            .retain(|four_tuple| four_tuple.socket != socket);
        self.clear_unused(now);
    }

    pub(super) fn get(&self, index: usize) -> &Path {
        &self.list[index]
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Path {
        &mut self.list[index]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.list.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.list.iter_mut()
    }

    /// The path that datagrams come by which come so: one that leaves its local address to the
    /// system, if there is none with just this one.
    pub(super) fn position(&self, four_tuple: FourTuple) -> Option<usize> {
        let position = |is_it: &dyn Fn(&FourTuple) -> bool| {
            let mut paths = self.list.iter();
            paths.position(|path| is_it(&path.four_tuple))
        };
        position(&|known| *known == four_tuple)
            .or_else(|| position(&|known| known.may_be(&four_tuple)))
    }

    pub(super) fn by_id(&mut self, id: u16) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.id == id)
    }

    /// Whether the network says of every path that nobody is there.
    pub(super) fn all_unreachable(&self) -> bool {
        self.list.iter().all(Path::is_unreachable)
    }

    /// Ways that are not dead; all, if all are.
    pub(super) fn live(&self) -> impl Iterator<Item = &Path> {
        let all_dead = self.list.iter().all(Path::is_dead);
        self.list
            .iter()
            .filter(move |path| all_dead || !path.is_dead())
    }

    /// What is lost, by whatever path it went.
    pub(super) fn loss(&self) -> LossEstimator {
        self.loss
    }

    /// So many datagrams were sent, of which so many arrived, since it was last known.
    pub(super) fn account(&mut self, sent: u32, received: u32) {
        self.loss.sample(sent, sent.saturating_sub(received));
    }

    /// The longest datagram that all paths in use carry.
    pub(super) fn datagram_bytes(&self) -> Option<usize> {
        self.live().map(Path::datagram_bytes).min()
    }

    /// The path by which a datagram of `bytes` is there first, of those that carry such
    /// datagrams, and how many of `count` should go by it: as many as are there when the
    /// others are that go by other ways. `ns_per_byte` counts where it is not known better.
    /// `spread` makes those seem later that have carried much of the same message.
    pub(super) fn choose(
        &mut self,
        now: Time,
        bytes: usize,
        count: u32,
        ns_per_byte: f64,
        spread: Option<&Spread>,
    ) -> Option<(usize, u32)> {
        let all_dead = self.list.iter().all(Path::is_dead);
        let wide = self.live().filter(|path| path.datagram_bytes() >= bytes);
        let least_loss = wide.map(Path::loss).fold(1.0, f64::min);
        let fastest = self.fastest();
        let paths = self.list.len();
        let mut best: Option<(Time, usize)> = None;
        let mut parallel = ParallelPaths::new();
        for step in 0..paths {
            let index = self.turn.saturating_add(step).checked_rem(paths)?;
            let path = &self.list[index];
            if (path.is_dead() && !all_dead) || path.datagram_bytes() < bytes || path.is_capped {
                continue;
            }
            if path.loss() > BLACK_HOLE_LOSS && least_loss < path.loss() / 2.0 {
                continue;
            }
            let bottleneck = &self.bottlenecks[path.group];
            let late = spread.map_or(Duration::ZERO, |spread| spread.cost(path.group));
            let arrival = bottleneck.arrival(now, bytes, ns_per_byte, fastest);
            let arrival = arrival + path.silence(now) + late;
            let each = bottleneck.time_of(bytes, ns_per_byte);
            parallel.add(path.group, arrival.since(now), each);
            if best.is_none_or(|(earliest, _)| arrival < earliest) {
                best = Some((arrival, index));
            }
        }
        let (_, index) = best?;
        self.turn = index.saturating_add(1).checked_rem(paths)?;
        Some((index, parallel.share(self.list[index].group, count)))
    }

    /// A datagram with a symbol is about to be sent. When it will be there,
    /// compared with one by an empty path.
    pub(super) fn sending(
        &mut self,
        now: Time,
        index: usize,
        bytes: usize,
        ns_per_byte: f64,
    ) -> Time {
        let fastest = self.fastest();
        let path = &mut self.list[index];
        let bottleneck = &mut self.bottlenecks[path.group];
        path.remember(bottleneck.sent(now, bytes, ns_per_byte));
        bottleneck.arrival(now, 0, ns_per_byte, fastest)
    }

    /// The peer tells what came by a path, and how long the newest datagram took
    /// by the difference of two clocks. Returns what is news of that.
    pub(super) fn hear(&mut self, now: Time, report: &Report) -> Option<DeliveryReport> {
        let delay = self.delay(report.delay_us);
        let index = self.list.iter().position(|path| path.id == report.path)?;
        let path = &mut self.list[index];
        let (group, mut report) = (path.group, path.hear(now, report.received, report.highest)?);
        if self.bottlenecks[group].is_off(delay) {
            for bottleneck in &mut self.bottlenecks {
                bottleneck.forget_delays(now);
            }
            self.list.iter_mut().for_each(Path::forget_delays);
        }
        report.queue = self.list[index].one_way(now, delay);
        let through = f64::from(report.received) / f64::from(report.sent.max(1));
        self.bottlenecks[group].learn(now, delay, report.newest, through);
        Some(report)
    }

    /// Bytes by paths that are not dead, or by all if all are, that nothing was heard of yet.
    pub(super) fn in_flight(&self) -> u64 {
        self.live().map(Path::in_flight).sum()
    }

    /// Whether every path is dead.
    pub(super) fn all_dead(&self) -> bool {
        self.list.iter().all(Path::is_dead)
    }

    /// From our clock to the peer's, in microseconds from the reference.
    pub(super) fn delay(&mut self, delay_us: u32) -> i32 {
        let reference = *self.reference.get_or_insert(delay_us);
        delay_us.wrapping_sub(reference).cast_signed()
    }

    fn fastest(&self) -> Option<i32> {
        self.bottlenecks
            .iter()
            .filter_map(RateEstimator::least)
            .min()
    }

    /// Bottlenecks that are in use.
    pub(super) fn width(&self) -> usize {
        let mut groups = 0u64;
        for path in self.live() {
            groups |= 1_u64.wrapping_shl(path.group as u32);
        }
        groups.count_ones().max(1) as usize
    }

    /// What all paths together carry, in bytes per second, if that is known.
    pub(super) fn rate(&self) -> Option<f64> {
        let mut groups = 0u64;
        let mut sum = 0.0;
        for path in self.live() {
            if groups.wrapping_shr(path.group as u32) & 1 == 0 {
                groups |= 1_u64.wrapping_shl(path.group as u32);
                sum += self.bottlenecks[path.group].rate()?;
            }
        }
        (sum > 0.0).then_some(sum)
    }

    /// What we had in the emptiest queue when the peer last reported on it.
    pub(super) fn own_queue(&self) -> Duration {
        let queues = self
            .live()
            .map(|path| self.bottlenecks[path.group].own_queue());
        queues.min().unwrap_or_default()
    }

    /// Takes over which paths share a bottleneck. What was learnt of their rates
    /// begins again where that changes.
    pub(super) fn regroup(&mut self, now: Time, group: impl Fn(usize) -> Option<u16>) {
        let count = self.list.len();
        let same = (0..count).all(|one| {
            (0..count).all(|other| {
                let found = group(one).is_some() && group(one) == group(other);
                one == other || found == (self.list[one].group == self.list[other].group)
            })
        });
        if same {
            return;
        }
        let before =
            core::mem::replace(&mut self.bottlenecks, vec![RateEstimator::new(now); count]);
        for (index, path) in self.list.iter_mut().enumerate() {
            let joined = group(index).map_or(index, usize::from);
            self.bottlenecks[joined].inherit(&before[path.group]);
            path.group = joined;
        }
    }

    pub(super) fn reports(&self, now: Time) -> impl Iterator<Item = PathReport> + '_ {
        let fastest = self.fastest();
        self.list.iter().map(move |path| {
            let bottleneck = &self.bottlenecks[path.group];
            let lag = bottleneck.least().map(|_| bottleneck.lag(now, fastest));
            path.report(lag)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    /// A datagram takes 120 us.
    const NS_PER_BYTE: f64 = 100.0;
    const BYTES: usize = 1_200;

    fn paths(count: u16) -> Paths {
        let mut paths = Paths::default();
        for socket in 0..count {
            let four_tuple = FourTuple::new(SocketId(socket), "192.0.2.1:7".parse().unwrap());
            assert!(paths.add(Time::ZERO, four_tuple, &Datagrams::default()));
            assert!(!paths.add(Time::ZERO, four_tuple, &Datagrams::default()));
        }
        paths
    }

    fn chosen(paths: &mut Paths, count: usize) -> Vec<usize> {
        let choose = |_| {
            let (index, _) = paths
                .choose(Time::ZERO, BYTES, 1, NS_PER_BYTE, None)
                .expect("there is one");
            paths.sending(Time::ZERO, index, BYTES, NS_PER_BYTE);
            index
        };
        (0..count).map(choose).collect()
    }

    #[test]
    fn memory_is_as_documented() {
        let bytes = size_of::<Path>() + size_of::<RateEstimator>();
        assert!((512..=1_280).contains(&bytes), "{bytes} bytes for a path");
    }

    #[test]
    fn equal_ways_take_turns() {
        assert_eq!(chosen(&mut paths(3), 7), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn slow_way_is_left_out_until_the_others_are_as_slow() {
        let mut paths = paths(2);
        for (id, delay_us) in [(1, 5_300), (2, 5_000)] {
            paths.get_mut(usize::from(id) - 1).take_sequence(Time::ZERO);
            let report = Report {
                path: id,
                received: 1,
                highest: 0,
                delay_us,
            };
            let report = paths.hear(Time::ZERO, &report).expect("it is news");
            assert_eq!((report.sent, report.received), (1, 1));
        }
        let chosen = chosen(&mut paths, 7);
        assert_eq!(chosen[..3], [1, 1, 1]);
        assert_eq!(chosen.iter().filter(|&&index| index == 0).count(), 2);
    }

    #[test]
    fn dead_way_is_left_out_unless_all_are() {
        let mut paths = paths(2);
        paths.get_mut(0).die();
        assert_eq!(chosen(&mut paths, 2), [1, 1]);
        paths.get_mut(1).die();
        assert_eq!(chosen(&mut paths, 2), [0, 0], "the other is busy still");
    }

    #[test]
    fn way_that_an_answer_came_by_lives_and_may_die_again() {
        let mut paths = paths(1);
        let path = paths.get_mut(0);
        let ack_timeout = Duration::from_millis(1);
        for _ in 0..3 {
            path.take_sequence(Time::ZERO);
        }
        let mut now = Time::ZERO + ack_timeout * 2;
        assert!(path.judge(now, ack_timeout, None) && path.is_dead());
        path.echoed(now);
        assert!(path.is_good() && !path.is_dead());
        now = now + ack_timeout;
        assert!(!path.judge(now, ack_timeout, None), "it is young yet");
        now = now + ack_timeout;
        assert!(
            path.judge(now, ack_timeout, None),
            "nothing was heard since"
        );
    }

    #[test]
    fn way_dies_when_nothing_is_heard() {
        let mut paths = paths(1);
        let path = paths.get_mut(0);
        let ack_timeout = Duration::from_millis(1);
        for _ in 0..3 {
            path.take_sequence(Time::ZERO);
        }
        assert!(!path.judge(Time::ZERO + ack_timeout, ack_timeout, None));
        assert!(path.judge(Time::ZERO + ack_timeout * 2, ack_timeout, None));
        let report = path.hear(Time::ZERO + ack_timeout * 3, 3, 2);
        assert!(report.is_some_and(|report| (report.sent, report.received) == (3, 3)));
        assert!(!path.is_dead());
    }

    #[test]
    fn a_path_that_stays_dead_remembers_few_of_the_datagrams_that_go_by_it() {
        let mut paths = paths(1);
        let path = paths.get_mut(0);
        path.die();
        let mut at = Time::ZERO;
        for _ in 0..100_000 {
            at = at + Duration::from_millis(1);
            path.flies(at, BYTES, 0);
            path.take_sequence(at);
        }
        assert!(
            path.in_flight() <= 64 * BYTES as u64,
            "{}",
            path.in_flight()
        );
    }

    #[test]
    fn what_a_peer_has_discarded_is_neither_in_flight_nor_lost() {
        // The last was not discarded after all.
        for (received, sent, lost) in [(5, 5, 0), (3, 5, 2), (15, 15, 0)] {
            let mut paths = paths(1);
            let path = paths.get_mut(0);
            for sequence in 0..15 {
                if sequence == 10 {
                    path.discarded();
                    assert_eq!(path.in_flight(), 0);
                }
                path.flies(Time::ZERO, BYTES, 0);
                path.take_sequence(Time::ZERO);
            }
            let report = path.hear(Time::ZERO, received, 14).expect("it is new");
            let known = (report.sent, report.received, report.lost);
            assert_eq!(known, (sent, received, lost));
            // Ten losses later are losses, whatever was discarded.
            for _ in 0..11 {
                path.take_sequence(Time::ZERO);
            }
            let report = path.hear(Time::ZERO, received + 1, 25).expect("it is new");
            assert_eq!((report.sent, report.received, report.lost), (11, 1, 10));
        }
    }

    /// Of who has reported before: what it takes for discarded is neither in flight nor lost, whether it goes on with
    /// its count or begins again, and what is lost later is.
    #[test]
    fn what_a_peer_discards_later_is_neither_in_flight_nor_lost() {
        let send = |path: &mut Path, count| {
            for _ in 0..count {
                path.flies(Time::ZERO, BYTES, 0);
                path.take_sequence(Time::ZERO);
            }
            path.report(None).sent as u32 - 1
        };
        // So many were received before, and of the 15 that seem to be discarded.
        for (before, is_restarted, took) in
            [(6, true, 0), (6, false, 0), (300, true, 0), (6, false, 15)]
        {
            let mut paths = paths(1);
            let path = paths.get_mut(0);
            let hear = |path: &mut Path, received, highest| {
                let report = path.hear(Time::ZERO, received, highest);
                let report = report.expect("it is new");
                (report.sent, report.received, report.lost)
            };
            let highest = send(path, before + 1);
            assert_eq!(hear(path, before, highest), (before + 1, before, 1));
            send(path, 15);
            let counted = match is_restarted {
                true => {
                    path.restarted(true);
                    0
                }
                false => {
                    path.discarded();
                    before + took
                }
            };
            assert_eq!(path.in_flight(), 0);
            let highest = send(path, 5);
            assert_eq!(path.in_flight(), 5 * BYTES as u64);
            assert_eq!(hear(path, counted + 5, highest), (5, 5, 0));
            let highest = send(path, 11);
            assert_eq!(hear(path, counted + 6, highest), (11, 1, 10));
        }
    }

    /// Nobody can say what of it went to the peer before its restart, and what only to the one after it.
    #[test]
    fn what_went_to_a_peer_that_was_restarted_unnoticed_is_not_lost_to_the_network() {
        for (was_heard, has_retried) in [(true, false), (true, true), (false, false), (false, true)]
        {
            let mut paths = paths(1);
            let path = paths.get_mut(0);
            let send = |path: &mut Path, count: u32| {
                for _ in 0..count {
                    path.flies(Time::ZERO, BYTES, 0);
                    path.take_sequence(Time::ZERO);
                }
            };
            let hear = |path: &mut Path, received, highest| {
                let report = path.hear(Time::ZERO, received, highest);
                let report = report.expect("it is new");
                (report.sent, report.received, report.lost)
            };
            send(path, 10);
            if was_heard {
                assert_eq!(hear(path, 10, 9), (10, 10, 0));
            }
            send(path, 100);
            if has_retried {
                path.discarded();
                send(path, 20);
            }
            path.restarted(false);
            send(path, 3);
            let sent = if has_retried { 133 } else { 113 };
            assert_eq!(hear(path, 3, sent - 1), (3, 3, 0));
            send(path, 11);
            assert_eq!(hear(path, 4, sent + 10), (11, 1, 10));
        }
    }

    /// Answers come back by any path, so that a round trip may be longer without a queue.
    #[test]
    fn a_queue_is_told_by_the_delay_there_alone() {
        let mut paths = paths(1);
        let queues = [700, 200, 1_200].map(|delay_us| {
            let highest = paths.get_mut(0).take_sequence(Time::ZERO) as u32;
            let report = Report {
                path: 1,
                received: highest + 1,
                highest,
                delay_us,
            };
            let new = paths.hear(Time::ZERO, &report).expect("it is new");
            new.queue.as_micros()
        });
        assert_eq!(queues, [0, 0, 1_000]);
    }

    proptest! {
        /// Overflow checks are on in tests.
        #[test]
        fn no_report_overflows_and_none_counts_more_than_was_sent(
            reports in vec((extreme_u32(), extreme_u32(), any::<u32>(), 0u64..3), 1..60),
            discarded in 0usize..8,
            restarted in 0usize..8,
        ) {
            let mut paths = paths(1);
            let mut now = Time::ZERO;
            let (mut sent, mut reported) = (0, 0);
            for (turn, (received, highest, delay_us, more)) in reports.into_iter().enumerate() {
                if turn == discarded {
                    paths.iter_mut().for_each(Path::discarded);
                }
                if turn == restarted {
                    paths.iter_mut().for_each(|it| it.restarted(received % 2 == 0));
                }
                for _ in 0..more {
                    paths.sending(now, 0, BYTES, NS_PER_BYTE);
                    paths.get_mut(0).flies(now, BYTES, reported);
                    sent = paths.get_mut(0).take_sequence(now) + 1;
                }
                now = now + Duration::from_nanos(u64::from(delay_us) << 12);
                let report = Report { path: 1, received, highest, delay_us };
                if let Some(new) = paths.hear(now, &report) {
                    prop_assert!(new.received <= new.sent && new.lost <= new.sent);
                    reported += u64::from(new.sent);
                    paths.account(new.sent, new.received);
                }
                prop_assert!(paths.in_flight() <= sent * BYTES as u64);
                prop_assert!(reported <= sent, "{reported} of {sent}");
                paths.choose(now, BYTES, 1, NS_PER_BYTE, None);
            }
        }
    }

    /// Any number, and those next to the ends.
    fn extreme_u32() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), 0u32..100, (u32::MAX - 100)..=u32::MAX]
    }
}
