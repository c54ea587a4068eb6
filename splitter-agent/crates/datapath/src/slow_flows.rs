//! Flows that took long, each for a bucket of the completion times, under names that say nothing of them.
//!
//! The kernel counts a completion at a flow's first FIN or RST and keeps no time of it. A sweep that finds
//! a flow finished which was not so in the sweep before knows it between two bounds: the flow ended after
//! that sweep began, and no later than its last packet came. Where both lie in one bucket, it is the one that the
//! kernel has counted the flow in. Of quick flows they seldom do, of those that take longer than a few
//! sweeps nearly always.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, SystemTime};

use splitter_policy::flow::{Class, FlowEntry, FlowKey};
use splitter_policy::histogram::bucket;

/// Flows that took less are not looked at: most do, and sweeps are a second apart at the least.
const SLOW_NS: u64 = 1_000_000_000;

/// What times may be off: a last packet is noted up to 17 ms too early, and clocks differ by a tick.
const MARGIN_NS: u64 = 30_000_000;

/// Most flows that a sweep remembers for the next one, of 8 bytes each. Beyond that the next finds none.
const MOST: usize = 1 << 16;

/// A flow that took long, with what tells why.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowFlow {
    /// Its class when it ended.
    pub class: Class,
    /// The bucket of its class's completion times that it is counted in.
    pub bucket: usize,
    /// A hash of its addresses and its start under a secret of this process.
    pub name: u64,
    /// From its first packet to its last one, which is in the bucket, too.
    pub took: Duration,
    /// Packets that it has sent.
    pub packets: u64,
    /// Bytes that it has sent, Ethernet headers included.
    pub bytes: u64,
    /// The time of its last packet.
    pub ended: SystemTime,
}

/// The last slow flow of each class and bucket.
#[derive(Debug, Default)]
pub struct SlowFlows {
    names: RandomState,
    /// The sweep before, and when it began.
    before: Option<(u64, Look)>,
    found: BTreeMap<(Class, usize), SlowFlow>,
}

/// Flows that were slow or may be, as far as a sweep has seen them.
#[derive(Debug)]
pub struct Look {
    names: RandomState,
    /// Flows that stay in the table and are finished.
    finished: HashSet<u64>,
    /// Flows that stay, and are long and not finished.
    long: HashSet<u64>,
    /// Whether these are all.
    is_whole: bool,
    slow: Vec<(u64, FlowEntry)>,
}

impl SlowFlows {
    /// Begins a sweep, which is then given to [`SlowFlows::settle`].
    pub fn look(&self) -> Look {
        Look {
            names: self.names.clone(),
            finished: HashSet::new(),
            long: HashSet::new(),
            is_whole: true,
            slow: Vec::new(),
        }
    }

    /// Takes a sweep that began at `at_ns` of the kernel's clock, which is `now`.
    pub fn settle(&mut self, at_ns: u64, mut look: Look, now: SystemTime) {
        if let Some((before_ns, before)) = &self.before {
            let ended = look.slow.iter();
            let found = ended.filter_map(|(name, entry)| {
                let class = before.class_at_end(*name, entry)?;
                let (bucket, took) = only_bucket(entry, *before_ns)?;
                let ago = Duration::from_nanos(at_ns.saturating_sub(entry.last_seen_ns));
                let flow = SlowFlow {
                    class,
                    bucket,
                    name: *name,
                    took: Duration::from_nanos(took),
                    packets: entry.packets,
                    bytes: entry.bytes,
                    ended: now.checked_sub(ago)?,
                };
                Some(((class, bucket), flow))
            });
            self.found.extend(found);
        }
        look.slow = Vec::new();
        self.before = Some((at_ns, look));
    }

    /// Forgets all: the next sweep is of other tables, and counts may have begun again.
    pub fn begin_again(&mut self) {
        self.before = None;
        self.found.clear();
    }

    /// Returns the last one of each class and bucket.
    pub fn all(&self) -> Vec<SlowFlow> {
        self.found.values().cloned().collect()
    }
}

impl Look {
    /// Notes a flow of the table, and whether its slot was freed.
    pub fn see(&mut self, key: &FlowKey, entry: &FlowEntry, is_freed: bool) {
        let took_ns = entry.last_seen_ns.saturating_sub(entry.first_seen_ns);
        let is_slow = entry.is_finished() && took_ns >= SLOW_NS;
        let stays = !is_freed && (entry.is_finished() || entry.class() == Class::Long);
        if !is_slow && !stays {
            return;
        }
        let name = self.names.hash_one((key, entry.first_seen_ns));
        if is_slow && self.slow.len() < MOST {
            self.slow.push((name, *entry));
        }
        if stays && self.finished.len() + self.long.len() >= MOST {
            self.is_whole = false;
        } else if stays && entry.is_finished() {
            self.finished.insert(name);
        } else if stays {
            self.long.insert(name);
        }
    }

    /// The class of a flow when it ended, if it was not finished in this sweep and that is certain: packets may
    /// come after the FIN and make it long.
    fn class_at_end(&self, name: u64, entry: &FlowEntry) -> Option<Class> {
        let is_certain = entry.class() == Class::Short || self.long.contains(&name);
        let was_open = self.is_whole && !self.finished.contains(&name);
        (is_certain && was_open).then_some(entry.class())
    }
}

/// The bucket of a flow that ended after `before_ns`, if there is but one that it can be in, and a time in it.
fn only_bucket(entry: &FlowEntry, before_ns: u64) -> Option<(usize, u64)> {
    let since_start = |at_ns: u64| at_ns.saturating_sub(entry.first_seen_ns);
    let least = since_start(before_ns.saturating_sub(MARGIN_NS));
    let most = since_start(entry.last_seen_ns + MARGIN_NS);
    let is_one = least <= most && bucket(least) == bucket(most);
    is_one.then(|| (bucket(most), since_start(entry.last_seen_ns).max(least)))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use splitter_policy::flow::FlowKeyV4;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn key(ports: u32) -> FlowKey {
        FlowKey::V4(FlowKeyV4 {
            source: 1,
            destination: 2,
            ports,
            protocol: 6,
        })
    }

    /// A flow that began after a second and is finished.
    fn finished(last_seen_ns: u64) -> FlowEntry {
        FlowEntry {
            packets: 12,
            bytes: 9_000,
            first_seen_ns: SECOND,
            last_seen_ns,
            flags: FlowEntry::FINISHED,
            ..FlowEntry::default()
        }
    }

    fn open(entry: FlowEntry) -> FlowEntry {
        FlowEntry { flags: 0, ..entry }
    }

    fn long(entry: FlowEntry) -> FlowEntry {
        FlowEntry {
            long_since_ns: 1,
            ..entry
        }
    }

    /// Sweeps at these seconds, each with what it sees of one flow, and whether that is freed.
    fn after(sweeps: &[(u64, FlowEntry, bool)]) -> Vec<SlowFlow> {
        let mut flows = SlowFlows::default();
        for (at_s, entry, is_freed) in sweeps {
            let mut look = flows.look();
            look.see(&key(7), entry, *is_freed);
            let at_ns = at_s * SECOND;
            flows.settle(at_ns, look, UNIX_EPOCH + Duration::from_nanos(at_ns));
        }
        flows.all()
    }

    #[test]
    fn flow_that_ended_since_the_sweep_before_is_in_the_bucket_of_both_bounds() {
        // 39 to 40 s: between 34 and 51.
        let entry = finished(41 * SECOND);
        for is_freed in [false, true] {
            let found = after(&[(40, open(entry), false), (45, entry, is_freed)]);
            let [flow] = &found[..] else {
                panic!("{found:?}");
            };
            assert_eq!(
                (flow.class, flow.bucket),
                (Class::Short, bucket(40 * SECOND))
            );
            assert_eq!(flow.took, Duration::from_secs(40));
            assert_eq!((flow.packets, flow.bytes), (12, 9_000));
            assert_eq!(flow.ended, UNIX_EPOCH + Duration::from_secs(41));
        }
    }

    #[test]
    fn flow_that_may_be_in_two_buckets_is_left_out() {
        // The last packet came after 36 s, the sweep began after 33; a bound of a bucket is at 34.36 s.
        let entry = finished(37 * SECOND);
        assert_eq!(after(&[(34, open(entry), false), (40, entry, true)]), []);
    }

    #[test]
    fn flow_that_was_finished_before_is_not_taken_by_a_late_packet() {
        let (entry, later) = (finished(10 * SECOND), finished(41 * SECOND));
        let sweeps = [
            (10, open(entry), false),
            (40, entry, false),
            (45, later, true),
        ];
        let found = after(&sweeps);
        assert!(
            found.iter().all(|it| it.took < Duration::from_secs(20)),
            "{found:?}"
        );
    }

    #[test]
    fn flow_whose_last_packet_is_older_than_a_sweep_that_missed_it_is_left_out() {
        // Both would be in the bucket that ends after 51 s.
        let entry = finished(36 * SECOND);
        assert_eq!(
            after(&[(40, open(finished(2 * SECOND)), true), (45, entry, true)]),
            []
        );
    }

    #[test]
    fn first_sweep_and_one_of_other_tables_find_nothing() {
        let entry = finished(41 * SECOND);
        assert_eq!(after(&[(45, entry, true)]), []);
        let mut flows = SlowFlows::default();
        flows.settle(40 * SECOND, flows.look(), UNIX_EPOCH);
        flows.begin_again();
        let mut look = flows.look();
        look.see(&key(7), &entry, true);
        flows.settle(45 * SECOND, look, UNIX_EPOCH + Duration::from_secs(45));
        assert_eq!(flows.all(), []);
    }

    #[test]
    fn flow_is_long_that_was_so_before_it_ended() {
        let entry = long(finished(41 * SECOND));
        let found = after(&[(40, open(entry), false), (45, entry, true)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].class, Class::Long);
        // It may have turned long behind its FIN.
        let short = open(finished(41 * SECOND));
        assert_eq!(after(&[(40, short, false), (45, entry, true)]), []);
    }

    #[test]
    fn name_is_another_for_each_flow_start_and_process() {
        let name = |flows: &SlowFlows, ports, first_seen_ns| {
            let mut look = flows.look();
            let entry = FlowEntry {
                first_seen_ns,
                ..finished(41 * SECOND)
            };
            look.see(&key(ports), &entry, true);
            look.slow[0].0
        };
        let [one, other] = [SlowFlows::default(), SlowFlows::default()];
        let names = [
            name(&one, 7, SECOND),
            name(&one, 8, SECOND),
            name(&one, 7, 2 * SECOND),
            name(&other, 7, SECOND),
        ];
        assert_eq!(HashSet::from(names).len(), 4, "{names:?}");
        assert_eq!(names[0], name(&one, 7, SECOND));
    }

    #[test]
    fn too_many_flows_to_remember_leave_the_next_sweep_without() {
        let mut flows = SlowFlows::default();
        let entry = finished(41 * SECOND);
        let mut look = flows.look();
        for ports in 0..=MOST as u32 {
            look.see(&key(ports), &entry, false);
        }
        assert_eq!(look.finished.len(), MOST);
        flows.settle(40 * SECOND, look, UNIX_EPOCH);
        let mut look = flows.look();
        look.see(&key(MOST as u32), &entry, true);
        flows.settle(45 * SECOND, look, UNIX_EPOCH + Duration::from_secs(45));
        assert_eq!(flows.all(), []);
    }
}
