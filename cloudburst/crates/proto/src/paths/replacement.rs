//! Which paths are kept, and which are abandoned for others.

use core::time::Duration;

use cloudburst_congestion::{OtherPaths, RateEstimator};

use super::{MAX_PATHS, Paths};
use crate::{
    config::Datagrams,
    event::{FourTuple, SocketId},
    path::Path,
    time::Time,
};

/// Paths that are kept for when others do not deliver.
pub(super) const MAX_STANDBY: usize = 192;
/// Nothing has come for so long by a path that makes capacity for one that something comes by,
const QUIET: Duration = Duration::from_secs(2);
/// and by one that is dead, and forgotten.
const GONE: Duration = Duration::from_secs(30);

impl Paths {
    /// A number for another way, as long as there are any: none is used twice.
    pub(super) fn next_number(&mut self) -> Option<u16> {
        self.next_id = self.next_id.checked_add(1)?;
        // Number 0 is that of datagrams that belong to no path.
        Some(self.next_id)
    }

    /// A bottleneck for a path of which nothing is known: at `index`, whose own it may take over,
    /// or at the end.
    pub(super) fn fresh_group(&mut self, now: Time, index: Option<usize>) -> usize {
        let others = self.list.iter().enumerate();
        let others = others.filter(|(other, _)| Some(*other) != index);
        let used = others.fold(0_u64, |used, (_, path)| {
            used | 1_u64.wrapping_shl(path.group as u32)
        });
        let own = index.map(|index| self.list[index].group);
        let own = own.filter(|group| used.wrapping_shr(*group as u32) & 1 == 0);
        // Others are fewer than there are bits.
        let group = own.unwrap_or(used.trailing_ones() as usize);
        match self.bottlenecks.get_mut(group) {
            Some(bottleneck) => *bottleneck = RateEstimator::new(now),
            None => self.bottlenecks.push(RateEstimator::new(now)),
        }
        group
    }

    /// Looks at what has become of each path lately. Whether any is to be abandoned.
    pub(crate) fn look(&mut self, now: Time, ack_timeout: Duration) -> bool {
        let mut any = false;
        for index in 0..self.list.len() {
            let path = &self.list[index];
            // Only of the dead it matters.
            let (others, loss) = if path.is_dead() {
                (self.others(now, index), self.loss_of_others(index))
            } else {
                (OtherPaths::Quiet, 0.0)
            };
            let black_hole = self.list[index].black_hole(now, others, loss);
            if black_hole.is_window_full(now) {
                let loss = self.loss_of_others(index);
                self.list[index]
                    .black_hole(now, others, loss)
                    .close_window(now, loss);
            }
            any |= self.list[index].has_failed(now, ack_timeout);
        }
        any
    }

    /// What becomes of datagrams that go to the same address by other ways.
    fn others(&self, now: Time, index: usize) -> OtherPaths {
        let ip = self.list[index].four_tuple.remote.ip();
        let others = self.list.iter().enumerate();
        let others =
            others.filter(|(other, path)| *other != index && path.four_tuple.remote.ip() == ip);
        let mut known = OtherPaths::Dead;
        for (_, path) in others {
            match path.as_other(now) {
                OtherPaths::Deliver => return OtherPaths::Deliver,
                OtherPaths::Quiet => known = OtherPaths::Quiet,
                OtherPaths::Dead => {}
            }
        }
        known
    }

    /// The share that the middle one of the others loses; all, if there is no other.
    fn loss_of_others(&self, index: usize) -> f64 {
        let ip = self.list[index].four_tuple.remote.ip();
        let mut shares = [1.0; MAX_PATHS];
        let mut count = 0;
        for (other, path) in self.list.iter().enumerate() {
            if other != index && path.is_good() && path.four_tuple.remote.ip() == ip {
                shares[count] = path.loss();
                count = usize::saturating_add(count, 1);
            }
        }
        shares[..count].sort_unstable_by(f64::total_cmp);
        shares[count / 2]
    }

    /// Keeps a path for later, if there is no capacity for it now.
    pub(super) fn keep_standby(&mut self, four_tuple: FourTuple) {
        if self.standby.len() < MAX_STANDBY && !self.standby.contains(&four_tuple) {
            self.standby.push_back(four_tuple);
        }
    }

    pub(crate) fn has_standby(&self) -> bool {
        !self.standby.is_empty()
    }

    /// Abandons a path for a path that is not in use; that one is kept in its place.
    pub(crate) fn replace_by_standby(
        &mut self,
        now: Time,
        index: usize,
        datagrams: &Datagrams,
    ) -> Option<FourTuple> {
        let four_tuple = self.standby.pop_front()?;
        self.standby.push_back(self.list[index].four_tuple);
        self.replace(now, index, four_tuple, datagrams);
        Some(four_tuple)
    }

    /// How many paths lead over a socket, and how many of them are to be abandoned; and whether
    /// some over another socket deliver to the same addresses.
    pub(crate) fn count_over_socket(
        &self,
        now: Time,
        socket: SocketId,
        ack_timeout: Duration,
    ) -> (usize, usize, bool) {
        let over = |path: &&Path| path.four_tuple.socket == socket;
        let paths = self.list.iter().filter(over);
        let bad = |path: &&Path| path.has_failed(now, ack_timeout);
        let is_same = |path: &Path| {
            let mut bad = self.list.iter().filter(over).filter(bad);
            bad.any(|bad| bad.four_tuple.remote.ip() == path.four_tuple.remote.ip())
        };
        let elsewhere = self.list.iter().any(|path| {
            path.four_tuple.socket != socket
                && path.as_other(now) == OtherPaths::Deliver
                && is_same(path)
        });
        (paths.clone().count(), paths.filter(bad).count(), elsewhere)
    }

    /// A socket has another port: paths over it begin again. Whether there are any.
    pub(crate) fn rotate_socket(
        &mut self,
        now: Time,
        socket: SocketId,
        datagrams: &Datagrams,
    ) -> bool {
        let mut any = false;
        for index in 0..self.list.len() {
            let four_tuple = self.list[index].four_tuple;
            if four_tuple.socket == socket {
                self.replace(now, index, four_tuple, datagrams);
                any = true;
            }
        }
        any
    }

    fn replace(&mut self, now: Time, index: usize, four_tuple: FourTuple, datagrams: &Datagrams) {
        let id = self.next_number();
        let group = self.fresh_group(now, Some(index));
        self.list[index] = self.list[index].replacement(id, four_tuple, group, now, datagrams);
    }

    /// A datagram of a peer that came by itself came by this way, which answers and messages
    /// take, too. Whether others have changed for that.
    pub(crate) fn arrived(
        &mut self,
        now: Time,
        four_tuple: FourTuple,
        datagrams: &Datagrams,
    ) -> bool {
        if let Some(index) = self.position(four_tuple) {
            self.list[index].arrived_at = now;
            return false;
        }
        if self.list.len() < MAX_PATHS {
            self.add(now, four_tuple, datagrams);
            return false;
        }
        // The peer may have abandoned ports of its own: then nothing comes by them any more.
        let quietest = (0..self.list.len()).min_by_key(|&index| self.list[index].arrived_at);
        let quietest = quietest.filter(|&it| now.since(self.list[it].arrived_at) >= QUIET);
        match (quietest, self.next_number()) {
            (Some(index), Some(id)) => {
                let group = self.fresh_group(now, Some(index));
                self.list[index] = Path::new(id, four_tuple, group, now, datagrams);
                true
            }
            _ => false,
        }
    }

    /// Forgets paths that nothing comes by and nothing gets through. Whether there were any.
    pub(crate) fn forget_gone(&mut self, now: Time) -> bool {
        let before = self.list.len();
        let is_gone = |path: &Path| path.is_dead() && now.since(path.arrived_at) >= GONE;
        if self.list.iter().all(is_gone) {
            return false;
        }
        self.list.retain(|path| !is_gone(path));
        self.clear_unused(now);
        self.list.len() < before
    }

    /// What was learnt of bottlenecks that no path leads through any more must not be compared
    /// with others.
    pub(super) fn clear_unused(&mut self, now: Time) {
        let used = self.list.iter().fold(0_u64, |used, path| {
            used | 1_u64.wrapping_shl(path.group as u32)
        });
        for (group, bottleneck) in self.bottlenecks.iter_mut().enumerate() {
            if used.wrapping_shr(group as u32) & 1 == 0 {
                *bottleneck = RateEstimator::new(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::packet::Report;

    const ACK_TIMEOUT: Duration = Duration::from_millis(20);

    fn four_tuple(socket: u16, port: u16) -> FourTuple {
        FourTuple::new(SocketId(socket), ([192, 0, 2, 1], port).into())
    }

    fn paths(sockets: u16, ports: u16) -> Paths {
        let mut paths = Paths::default();
        for socket in 0..sockets {
            for port in 0..ports {
                paths.add(
                    Time::ZERO,
                    four_tuple(socket, 7 + port),
                    &Datagrams::default(),
                );
            }
        }
        paths
    }

    /// A ping by each path that is due, of which those that `delivers` are told of at once.
    fn ping(paths: &mut Paths, now: Time, delivers: impl Fn(FourTuple) -> bool) {
        for index in 0..paths.list.len() {
            let path = paths.get_mut(index);
            if path.due(now, ACK_TIMEOUT, None, 1).is_none() {
                continue;
            }
            let sequence = path.take_sequence(now);
            if delivers(path.four_tuple) {
                let report = Report {
                    path: path.id,
                    received: sequence as u32 + 1,
                    highest: sequence as u32,
                    delay_us: 9,
                    ..Report::default()
                };
                paths.hear(now, &report);
            }
        }
        for path in paths.iter_mut() {
            path.judge(now, ACK_TIMEOUT, None);
        }
    }

    /// How many of the paths are to be abandoned after so long.
    fn failed(paths: &mut Paths, delivers: impl Fn(FourTuple) -> bool, millis: u64) -> usize {
        let mut now = Time::ZERO;
        for _ in 0..millis / 10 {
            now = now + Duration::from_millis(10);
            ping(paths, now, &delivers);
            paths.look(now, ACK_TIMEOUT);
        }
        let now = now + ACK_TIMEOUT;
        let paths = paths.iter();
        paths
            .filter(|path| path.has_failed(now, ACK_TIMEOUT))
            .count()
    }

    #[test]
    fn who_does_not_deliver_is_blamed_unless_nobody_does() {
        let odd = |four_tuple: FourTuple| four_tuple.socket.0 % 2 == 1;
        assert_eq!(failed(&mut paths(8, 1), odd, 3_000), 4);
        assert_eq!(failed(&mut paths(8, 1), odd, 900), 0, "it is too early");
        assert_eq!(failed(&mut paths(8, 1), |_| false, 30_000), 0);
        assert_eq!(failed(&mut paths(8, 1), |_| true, 30_000), 0);
    }

    #[test]
    fn one_address_says_nothing_of_another() {
        let mut paths = paths(2, 1);
        let mut other = four_tuple(2, 7);
        other.remote.set_ip([198, 51, 100, 1].into());
        assert!(paths.add(Time::ZERO, other, &Datagrams::default()));
        assert_eq!(
            failed(&mut paths, |four_tuple| four_tuple != other, 5_000),
            0
        );
    }

    #[test]
    fn routes_for_which_there_is_no_room_are_kept_for_later() {
        let mut paths = paths(16, 16);
        assert_eq!((paths.list.len(), paths.standby.len()), (64, MAX_STANDBY));
        let before = paths.list[5].four_tuple;
        let mut seen = HashSet::from([before]);
        for _ in 0..MAX_STANDBY {
            let new = paths.replace_by_standby(Time::ZERO, 5, &Datagrams::default());
            assert!(
                seen.insert(new.unwrap()),
                "all others come before the first"
            );
        }
        let new = paths.replace_by_standby(Time::ZERO, 5, &Datagrams::default());
        assert_eq!(new, Some(before));
        assert_eq!((paths.list.len(), paths.standby.len()), (64, MAX_STANDBY));
    }

    #[test]
    fn numbers_and_memory_outlast_any_number_of_ports() {
        let mut paths = paths(16, 4);
        let mut ids: HashSet<u16> = paths.iter().map(|path| path.id).collect();
        let mut numbers = HashSet::new();
        for round in 0..20_000_u64 {
            let now = Time::ZERO + Duration::from_secs(round);
            let socket = SocketId((round % 16) as u16);
            for path in paths.iter_mut().filter(|it| it.four_tuple.socket == socket) {
                // It is what datagrams are sealed with.
                assert!(numbers.insert((path.id, path.take_sequence(now))));
            }
            assert!(paths.rotate_socket(now, socket, &Datagrams::default()));
            let over = paths.iter().filter(|it| it.four_tuple.socket == socket);
            for path in over {
                // None is used twice, until there are no more: then counting goes on.
                assert!(ids.insert(path.id) || ids.len() == usize::from(u16::MAX));
            }
            assert!(paths.bottlenecks.len() <= MAX_PATHS);
            let groups: HashSet<usize> = paths.iter().map(|path| path.group).collect();
            assert_eq!(groups.len(), 64);
        }
        assert_eq!(ids.len(), usize::from(u16::MAX));
    }

    #[test]
    fn ports_that_a_peer_has_given_up_make_room() {
        let mut paths = Paths::default();
        let datagrams = Datagrams::default();
        for port in 0..2_000 {
            let now = Time::ZERO + Duration::from_millis(100 * u64::from(port));
            paths.arrived(now, four_tuple(0, port), &datagrams);
            assert_eq!(
                paths
                    .list
                    .iter()
                    .filter(|it| it.four_tuple.remote.port() == port)
                    .count(),
                1
            );
            assert!(paths.list.len() <= MAX_PATHS);
        }
        // Many at once displace none that something came by lately.
        let now = Time::ZERO + Duration::from_secs(1_000);
        for port in 10_000..20_000 {
            paths.arrived(now, four_tuple(0, port), &datagrams);
        }
        assert!(
            paths
                .list
                .iter()
                .all(|it| (10_000..10_064).contains(&it.four_tuple.remote.port()))
        );
        paths.list.iter_mut().skip(1).for_each(Path::die);
        assert!(!paths.forget_gone(now));
        assert!(paths.forget_gone(now + GONE));
        assert_eq!(paths.list.len(), 1);
    }
}
