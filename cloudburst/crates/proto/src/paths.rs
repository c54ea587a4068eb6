//! All paths to a peer: which is the next datagram's.

mod replacement;

use core::time::Duration;
use std::collections::VecDeque;

pub(super) use cloudburst_congestion::Spread;
use cloudburst_congestion::{
    BalancedPaths, Candidate, LossEstimator, ParallelPaths, PathChoice, QueueShares, Queues,
    RateEstimator,
};

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
    /// Those of them that are known to be others than the rest.
    queues: Queues,
    /// What delays are counted from.
    reference: Option<u32>,
    /// What is lost, by whatever path it went.
    loss: LossEstimator,
    /// With which path a choice among equals begins.
    turn: usize,
    /// What chooses in place of [`choose`](Self::choose), if anything.
    balanced: Option<BalancedPaths>,
}

/// The number of a message whose symbols a path is chosen for, and where they went so far, if losses are uneven.
pub(super) type OfMessage<'m> = (u64, Option<&'m Spread>);

impl Paths {
    /// No paths yet, among which will be chosen in this way.
    pub(super) fn chosen_by(choice: PathChoice) -> Self {
        Self {
            balanced: choice.balanced(),
            ..Self::default()
        }
    }

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
    /// Those seem later that have carried much of the same `message`. If another balancer is to
    /// choose, messages go by that.
    pub(super) fn choose(
        &mut self,
        now: Time,
        bytes: usize,
        count: u32,
        ns_per_byte: f64,
        message: Option<OfMessage<'_>>,
    ) -> Option<(usize, u32)> {
        if let Some((message, _)) = message
            && let Some(mut balanced) = self.balanced.take()
        {
            let candidates = self.candidates(now, bytes, ns_per_byte, None);
            let list = (self.list.len(), candidates);
            let chosen = balanced.choose(now, message, (bytes, count), list);
            self.balanced = Some(balanced);
            return chosen;
        }
        let mut best: Option<Candidate> = None;
        let mut parallel = ParallelPaths::new();
        let spread = message.and_then(|(_, spread)| spread);
        for it in self.candidates(now, bytes, ns_per_byte, spread) {
            let group = self.list[it.index].group;
            parallel.add(group, it.arrival.since(now), it.each);
            if best.is_none_or(|best| it.arrival < best.arrival) {
                best = Some(it);
            }
        }
        let index = best?.index;
        self.turn = index.saturating_add(1).checked_rem(self.list.len())?;
        Some((index, parallel.share(self.list[index].group, count)))
    }

    /// Paths by which a datagram of `bytes` may be sent, and when it would be there.
    fn candidates(
        &self,
        now: Time,
        bytes: usize,
        ns_per_byte: f64,
        spread: Option<&Spread>,
    ) -> impl Iterator<Item = Candidate> {
        let all_dead = self.list.iter().all(Path::is_dead);
        let wide = self.live().filter(|path| path.datagram_bytes() >= bytes);
        let least_loss = wide.map(Path::loss).fold(1.0, f64::min);
        let fastest = self.fastest();
        let turn = self.turn.checked_rem(self.list.len()).unwrap_or_default();
        let (last, first) = self.list.split_at(turn);
        let paths = first.iter().zip(turn..).chain(last.iter().zip(0..));
        paths.filter_map(move |(path, index)| {
            if (path.is_dead() && !all_dead) || path.datagram_bytes() < bytes || path.is_capped {
                return None;
            }
            if path.loss() > BLACK_HOLE_LOSS && least_loss < path.loss() / 2.0 {
                return None;
            }
            let bottleneck = &self.bottlenecks[path.group];
            let late = spread.map_or(Duration::ZERO, |spread| spread.cost(path.group));
            let arrival = bottleneck.arrival(now, bytes, ns_per_byte, fastest);
            Some(Candidate {
                index,
                arrival: arrival + path.silence(now) + late,
                each: bottleneck.time_of(bytes, ns_per_byte),
            })
        })
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
        let (group, mut report) = (path.group, path.hear(now, report)?);
        if self.bottlenecks[group].is_off(delay) {
            for bottleneck in &mut self.bottlenecks {
                bottleneck.forget_delays(now);
            }
            self.list.iter_mut().for_each(Path::forget_delays);
            self.queues.forget_delays();
        }
        report.queue = self.list[index].one_way(now, delay);
        if self.list.len() > 1 {
            let path = self.list[index].id;
            report.through = self.queues.hear(now, path, delay, &report.resolved);
        }
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

    /// Parts of what is sent that go through queues that are known to be others than the rest.
    pub(super) const fn shares(&self) -> QueueShares {
        match self.list.len() {
            0 | 1 => QueueShares::NONE,
            _ => self.queues.shares(),
        }
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
mod tests;
