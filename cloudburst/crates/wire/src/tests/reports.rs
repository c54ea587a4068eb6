//! Reports at the end of answers, and the counts of marks in them.

use super::*;

#[test]
fn as_many_reports_are_written_as_fit() {
    let reports = [Report::default(); 9];
    let pong = Pong {
        nonce: 1,
        echo: Echo::default(),
        datagram_bytes: 2,
    };
    let mut out = [0; 1_500];
    for (available, fitting) in [(0, 0), (14, 0), (15, 1), (15 * 9 - 1, 8), (15 * 10, 9)] {
        let available = &mut out[..Pong::MIN_BYTES + available];
        let written = pong.write(ASKER, reports, available).unwrap();
        let parsed = Body::parse(PacketKind::Pong, &out[..written.bytes()], ASKER).unwrap();
        let Body::Pong(_, read) = parsed else {
            panic!("{parsed:?}");
        };
        assert_eq!(read.count(), fitting);
    }
}

/// The counts of one report in an answer that has capacity for so much, and how long the report is.
fn counts_in(available: usize, capable: u32, marked: u32) -> (Option<EcnCounts>, usize) {
    let report = Report {
        ecn: Some(EcnCounts { capable, marked }),
        ..Report::default()
    };
    let pong = Pong {
        nonce: 1,
        echo: Echo::default(),
        datagram_bytes: 2,
    };
    let mut out = vec![0; Pong::MIN_BYTES + available];
    let written = pong.write(ASKER, [report], &mut out).unwrap();
    let parsed = Body::parse(PacketKind::Pong, &out[..written.bytes()], ASKER).unwrap();
    let (_, mut reports) = parsed.acknowledgement().unwrap();
    let read = reports.next().unwrap();
    assert_eq!((read.path, reports.next()), (report.path, None));
    (read.ecn, written.bytes() - Pong::MIN_BYTES)
}

/// Counts cost a byte where nothing is capable, else no more than they take; short answers report on the path without them.
#[test]
fn counts_of_marks_are_as_short_as_they_can_be_and_left_out_where_they_do_not_fit() {
    for (capable, marked, bytes) in [
        (0, 0, 15),
        (63, 0, 17),
        (16_383, 64, 19),
        (1 << 20, 16_384, 23),
        (u32::MAX, u32::MAX, 31),
    ] {
        let counts = Some(EcnCounts { capable, marked });
        assert_eq!(counts_in(40, capable, marked), (counts, bytes));
        assert_eq!(counts_in(bytes, capable, marked), (counts, bytes));
        if bytes > 15 {
            assert_eq!(counts_in(bytes - 1, capable, marked), (None, 15));
        }
    }
}

/// Counts that are cut off, or do not fit, are none; nor is what is left of a report.
#[test]
fn reports_that_are_none_are_refused() {
    let start = [0; 8 + 8 + 10 + 2 + 14];
    for (counts, is_one) in [
        (&[0][..], true),
        (&[2], true),
        (&[3], false),
        (&[1, 1, 1], true),
        (&[1], false),
        (&[1, 1], false),
        (&[1, 0x40], false),
        // In more bytes than it takes, and nothing that is capable, which is said in fewer.
        (&[1, 0x40, 0x01, 0x01], false),
        (&[1, 0, 0], false),
        (&[1, 0x40, 0x40, 0x01], true),
        (&[1, 0xc0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1], true),
        (&[1, 0xc0, 0, 0, 1, 0, 0, 0, 0, 1], false),
        (&[0, 0], false),
        (&[1, 1, 1, 1], false),
    ] {
        let body = [&start[..], counts].concat();
        let parsed = Body::parse(PacketKind::Pong, &body, 0);
        assert_eq!(parsed.is_ok(), is_one, "{counts:?}: {parsed:?}");
    }
}
