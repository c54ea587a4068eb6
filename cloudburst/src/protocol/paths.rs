//! All ways to a peer: which is the next datagram's.

use core::time::Duration;

use super::{
    config::Datagrams,
    event::{PathReport, Route, SocketId},
    path::Path,
    time::Time,
};

/// Ways to a peer that are kept, at most.
pub(super) const MAX_PATHS: usize = 64;
/// Half of what was learnt of a queue is forgotten after this: it may have run
/// empty by then, and only traffic will tell.
const LAG_HALF_LIFE: Duration = Duration::from_millis(100);
/// How long the least delay of all paths is remembered: clocks drift.
const LEAST_AGE: Duration = Duration::from_secs(5);

/// The ways to a peer.
#[derive(Debug, Default)]
pub(super) struct Paths {
    list: Vec<Path>,
    next_id: u16,
    /// What delays are counted from.
    reference: Option<u32>,
    /// The least delay of this age and of the one before.
    least: [Option<i32>; 2],
    least_since: Time,
    /// With which path a choice among equals begins.
    turn: usize,
}

impl Paths {
    /// Adds a way, if it is new and there is room.
    pub(super) fn add(&mut self, now: Time, route: Route, datagrams: &Datagrams) -> bool {
        let known = self.list.iter().any(|path| path.route == route);
        if known || self.list.len() == MAX_PATHS || self.next_id == u16::MAX {
            return false;
        }
        // Number 0 is that of datagrams that belong to no way.
        self.next_id += 1;
        let path = Path::new(self.next_id, route, now, datagrams);
        self.list.push(path);
        true
    }

    pub(super) fn remove_socket(&mut self, socket: SocketId) {
        self.list.retain(|path| path.route.socket != socket);
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

    pub(super) fn position(&self, route: Route) -> Option<usize> {
        self.list.iter().position(|path| path.route == route)
    }

    pub(super) fn by_id(&mut self, id: u16) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.id == id)
    }

    /// Whether the network says of every way that nobody is there.
    pub(super) fn all_unreachable(&self) -> bool {
        self.list.iter().all(|path| path.unreachable)
    }

    /// Ways that are not dead; all, if all are.
    pub(super) fn live(&self) -> impl Iterator<Item = &Path> {
        let all_dead = self.list.iter().all(Path::is_dead);
        self.list
            .iter()
            .filter(move |path| all_dead || !path.is_dead())
    }

    /// The share of datagrams that is lost, over the ways in use.
    pub(super) fn loss(&self) -> f64 {
        let (sum, count) = self.live().fold((0.0, 0), |(sum, count), path| {
            (sum + path.loss(), count + 1)
        });
        if count == 0 {
            0.0
        } else {
            sum / f64::from(count)
        }
    }

    /// The longest datagram that all ways in use carry.
    pub(super) fn datagram_bytes(&self) -> Option<usize> {
        self.live().map(Path::datagram_bytes).min()
    }

    /// The way by which something that takes `time` on a path is there first,
    /// of those that carry datagrams of `bytes`.
    pub(super) fn choose(&mut self, now: Time, bytes: usize, time: Duration) -> Option<usize> {
        let all_dead = self.list.iter().all(Path::is_dead);
        let least = self.least();
        let count = self.list.len();
        let mut best: Option<(Time, usize)> = None;
        for step in 0..count {
            let index = (self.turn + step) % count;
            let path = &self.list[index];
            if (path.is_dead() && !all_dead) || path.datagram_bytes() < bytes {
                continue;
            }
            let arrival = path.busy_until.max(now) + lag(path, now, least);
            if best.is_none_or(|(earliest, _)| arrival < earliest) {
                best = Some((arrival, index));
            }
        }
        let (_, index) = best?;
        self.turn = (index + 1) % count;
        let path = &mut self.list[index];
        path.busy_until = path.busy_until.max(now) + time;
        Some(index)
    }

    /// A datagram of a path took so long, by the difference of two clocks.
    pub(super) fn delayed(&mut self, now: Time, id: u16, delay_us: u32) {
        let reference = *self.reference.get_or_insert(delay_us);
        let delay = delay_us.wrapping_sub(reference).cast_signed();
        if now.since(self.least_since) > LEAST_AGE {
            self.least = [None, self.least[0]];
            self.least_since = now;
        }
        self.least[0] = Some(self.least[0].map_or(delay, |least| least.min(delay)));
        if let Some(path) = self.by_id(id) {
            path.delay = Some((delay, now));
        }
    }

    fn least(&self) -> Option<i32> {
        match self.least {
            [Some(one), Some(other)] => Some(one.min(other)),
            [one, other] => one.or(other),
        }
    }

    pub(super) fn reports(&self, now: Time) -> impl Iterator<Item = PathReport> + '_ {
        let least = self.least();
        self.list.iter().map(move |path| {
            let lag = path.delay.map(|_| lag(path, now, least));
            path.report(lag)
        })
    }
}

/// How much later than by the fastest way a datagram arrives.
fn lag(path: &Path, now: Time, least: Option<i32>) -> Duration {
    let (Some((delay, at)), Some(least)) = (path.delay, least) else {
        return Duration::ZERO;
    };
    let micros = delay.saturating_sub(least).max(0).unsigned_abs();
    let halvings = now.since(at).as_nanos() / LAG_HALF_LIFE.as_nanos();
    Duration::from_micros(micros.checked_shr(halvings as u32).unwrap_or(0).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_micros(100);

    fn paths(count: u16) -> Paths {
        let mut paths = Paths::default();
        for socket in 0..count {
            let route = Route {
                socket: SocketId(socket),
                remote: "192.0.2.1:7".parse().unwrap(),
            };
            assert!(paths.add(Time::ZERO, route, &Datagrams::default()));
            assert!(!paths.add(Time::ZERO, route, &Datagrams::default()));
        }
        paths
    }

    fn chosen(paths: &mut Paths, count: usize) -> Vec<usize> {
        (0..count)
            .map(|_| paths.choose(Time::ZERO, 1_200, TIME).unwrap())
            .collect()
    }

    #[test]
    fn equal_ways_take_turns() {
        assert_eq!(chosen(&mut paths(3), 7), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn slow_way_is_left_out_until_the_others_are_as_slow() {
        let mut paths = paths(2);
        paths.delayed(Time::ZERO, 1, 5_000);
        paths.delayed(Time::ZERO, 2, 4_700);
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
    fn way_dies_when_nothing_is_heard() {
        let mut paths = paths(1);
        let path = paths.get_mut(0);
        let patience = Duration::from_millis(1);
        for _ in 0..3 {
            path.take_sequence(Time::ZERO);
        }
        assert!(!path.judge(Time::ZERO + patience, patience));
        assert!(path.judge(Time::ZERO + patience * 2, patience));
        assert!(path.hear(Time::ZERO + patience * 3, 3, 2));
        assert!(!path.is_dead());
    }
}
