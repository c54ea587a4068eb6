//! A flow table by hand, looked at every second.

use splitter_policy::flow::FlowKeyV4;

use super::*;

const SECOND: u64 = 1_000_000_000;
const IDLE: u64 = 30 * SECOND;
/// The recording begins at this time.
const START: u64 = 1_000 * SECOND;

struct Recording {
    tracker: Tracker,
    written: Vec<FlowRecord>,
}

impl Recording {
    fn new(table: &[(u16, FlowEntry)]) -> Self {
        let mut it = Self {
            tracker: Tracker::new(START),
            written: Vec::new(),
        };
        it.look(0, table);
        it
    }

    /// Sees this table at so many seconds after the start; three packets came back for each that left.
    fn look(&mut self, second: u64, table: &[(u16, FlowEntry)]) {
        let written = &mut self.written;
        let mut write = |flow| {
            written.push(flow);
            true
        };
        let mut look = self.tracker.look(START + second * SECOND, IDLE);
        for (port, entry) in table {
            let back = || {
                Some(Count {
                    packets: 3 * entry.packets,
                    bytes: 3 * entry.bytes,
                })
            };
            look.see(&key(*port), entry, back, &mut write);
        }
        look.end(&mut write);
    }

    fn finish(self) -> (Vec<FlowRecord>, Unseen) {
        let mut written = self.written;
        let unseen = self.tracker.finish(|flow| {
            written.push(flow);
            true
        });
        (written, unseen)
    }
}

fn key(port: u16) -> FlowKey {
    FlowKey::V4(FlowKeyV4 {
        source: 1,
        destination: 2,
        ports: port.into(),
        protocol: protocol::TCP.into(),
    })
}

/// A flow with packets of 100 bytes, first and last seen at these milliseconds after the start.
fn entry(packets: u64, first_ms: i64, last_ms: i64) -> FlowEntry {
    let at = |ms: i64| START.saturating_add_signed(ms * 1_000_000);
    FlowEntry {
        packets,
        bytes: 100 * packets,
        first_seen_ns: at(first_ms),
        last_seen_ns: at(last_ms),
        ..FlowEntry::default()
    }
}

fn finished(entry: FlowEntry) -> FlowEntry {
    FlowEntry {
        flags: FlowEntry::FINISHED,
        ..entry
    }
}

#[test]
fn flow_is_written_once_when_it_has_ended() {
    let mut recording = Recording::new(&[]);
    recording.tracker.begun(1, 0);
    recording.look(1, &[(1, entry(3, 400, 900))]);
    let ended = finished(entry(7, 400, 1_600));
    recording.look(2, &[(1, ended)]);
    assert_eq!(recording.written, []);
    // It lingers for five seconds, and then for as long as nobody sweeps.
    for second in 3..20 {
        recording.look(second, &[(1, ended)]);
    }
    let (written, unseen) = recording.finish();
    let expected = FlowRecord {
        start_us: 400_000,
        duration_us: 1_200_000,
        is_long: false,
        transport: Transport::Tcp,
        is_ipv6: false,
        began_before: false,
        end: FlowEnd::Finished,
        out: Count {
            packets: 7,
            bytes: 700,
        },
        back: Some(Count {
            packets: 21,
            bytes: 2_100,
        }),
    };
    assert_eq!(written, [expected]);
    assert_eq!(unseen, Unseen::default());
}

#[test]
fn late_fin_does_not_write_a_flow_again() {
    let gone = finished(entry(4, -20_000, -10_000));
    let mut recording = Recording::new(&[(2, gone)]);
    recording.tracker.begun(1, 0);
    recording.look(1, &[(1, finished(entry(7, 100, 600))), (2, gone)]);
    recording.look(7, &[(1, finished(entry(7, 100, 600))), (2, gone)]);
    assert_eq!(recording.written.len(), 1, "it has lingered");
    // Nobody has swept, and a FIN comes again.
    recording.tracker.begun(1, 0);
    let touched = finished(entry(8, 100, 7_500));
    let gone = finished(entry(5, -20_000, 7_500));
    recording.look(8, &[(1, touched), (2, gone)]);
    let (written, unseen) = recording.finish();
    assert_eq!(written.len(), 1, "{written:?}");
    assert_eq!(unseen.missed, 1, "it does not count as seen again");
}

#[test]
fn flow_that_found_no_room_is_written_though_it_is_old() {
    let mut recording = Recording::new(&[]);
    recording.tracker.begun(1, 0);
    recording.look(7, &[]);
    recording.tracker.full_ns = Some(START + 7 * SECOND);
    recording.look(8, &[(1, finished(entry(7, 100, 7_500)))]);
    assert_eq!(recording.finish().0.len(), 1);
}

#[test]
fn flow_that_was_swept_has_the_end_that_was_seen() {
    let mut recording = Recording::new(&[]);
    recording.tracker.begun(3, 0);
    let flows = [
        (1, finished(entry(5, 100, 200))),
        (2, entry(6, 100, 200)),
        (3, entry(8, 100, 200)),
    ];
    recording.look(1, &flows);
    // The first was freed, the second evicted, the third is silent until it was freed.
    recording.look(7, &flows[2..]);
    recording.look(40, &[]);
    let (written, unseen) = recording.finish();
    let mut ends: Vec<_> = written.iter().map(|it| (it.out.packets, it.end)).collect();
    ends.sort_by_key(|it| it.0);
    assert_eq!(
        ends,
        [
            (5, FlowEnd::Finished),
            (6, FlowEnd::Vanished),
            (8, FlowEnd::Idle)
        ]
    );
    assert_eq!(unseen.vanished, 1);
}

#[test]
fn flow_that_began_before_has_what_it_counted_since() {
    let (long, silent) = (entry(1_000, -9_000, -100), entry(10, -9_000, -1_000));
    let gone = finished(entry(4, -20_000, -10_000));
    let mut recording = Recording::new(&[(1, long), (2, silent), (3, gone)]);
    recording.look(1, &[(1, entry(1_500, -9_000, 800)), (2, silent), (3, gone)]);
    let (written, unseen) = recording.finish();
    assert_eq!(written.len(), 1, "{written:?}");
    let flow = written[0];
    assert!(flow.began_before);
    assert_eq!((flow.start_us, flow.duration_us), (0, 800_000));
    assert_eq!((flow.out.packets, flow.back.unwrap().packets), (500, 1_500));
    assert_eq!((flow.end, unseen), (FlowEnd::Open, Unseen::default()));
}

#[test]
fn same_ports_again_are_another_flow() {
    let mut recording = Recording::new(&[]);
    recording.tracker.begun(1, 0);
    recording.look(1, &[(1, entry(9, 100, 900))]);
    // Three began under these ports, of which one was seen to.
    recording.tracker.begun(3, 2);
    recording.look(2, &[(1, entry(2, 1_500, 1_800))]);
    let (written, unseen) = recording.finish();
    let sizes: Vec<_> = written.iter().map(|it| (it.out.packets, it.end)).collect();
    assert_eq!(sizes, [(9, FlowEnd::Vanished), (2, FlowEnd::Open)]);
    assert_eq!((unseen.missed, unseen.untracked), (2, 2));
}

#[test]
fn flow_that_came_and_ended_between_two_looks_is_written() {
    let mut recording = Recording::new(&[]);
    recording.tracker.begun(1, 0);
    recording.look(1, &[]);
    recording.look(8, &[(1, finished(entry(5, 1_100, 1_200)))]);
    assert_eq!(recording.written.len(), 1);
    let (_, unseen) = recording.finish();
    assert_eq!(unseen.missed, 0);
}

#[test]
fn what_is_too_much_is_counted_and_memory_is_bounded() {
    let mut recording = Recording::new(&[]);
    let more = 10;
    recording.tracker.begun((MOST_FLOWS + more) as u64, 0);
    let mut look = recording.tracker.look(START + SECOND, IDLE);
    for number in 0..(MOST_FLOWS + more) as u32 {
        let key = FlowKey::V4(FlowKeyV4 {
            source: number,
            destination: 2,
            ports: 3,
            protocol: protocol::UDP.into(),
        });
        look.see(&key, &entry(1, 100, 200), || None, &mut |_| true);
    }
    look.end(&mut |_| true);
    assert_eq!(recording.tracker.watched.len(), MOST_FLOWS);
    assert_eq!(recording.tracker.full_ns, Some(START + SECOND));
    let unseen = recording.tracker.finish(|_| true);
    assert_eq!(unseen.missed, more as u64);
}
