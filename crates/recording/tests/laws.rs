//! Laws of recordings: what was written is read, in order, and what was not written is an error.

use flow_recording::{
    Count, FlowEnd, FlowRecord, Header, ReadError, Reader, Transport, Unseen, WriteError, Writer,
};
use proptest::prelude::*;

fn flows() -> impl Strategy<Value = FlowRecord> {
    let count =
        || (1..1u64 << 37, 0..1u64 << 48).prop_map(|(packets, bytes)| Count { packets, bytes });
    let transport = prop_oneof![
        Just(Transport::Tcp),
        Just(Transport::Udp),
        Just(Transport::Tunnel)
    ];
    let end = prop_oneof![
        Just(FlowEnd::Finished),
        Just(FlowEnd::Idle),
        Just(FlowEnd::Open),
        Just(FlowEnd::Vanished)
    ];
    let times = (0..86_400_000_000u64, 0..86_400_000_000u64);
    let flags = any::<[bool; 3]>();
    (
        times,
        flags,
        transport,
        end,
        count(),
        prop::option::of(count()),
    )
        .prop_map(
            |(
                (start_us, duration_us),
                [is_long, is_ipv6, began_before],
                transport,
                end,
                out,
                back,
            )| {
                FlowRecord {
                    start_us,
                    duration_us,
                    is_long,
                    transport,
                    is_ipv6,
                    began_before,
                    end,
                    out,
                    back,
                }
            },
        )
}

fn header() -> Header {
    Header {
        written_by: "a test".to_owned(),
        duration_us: 86_400_000_000,
        threshold: 40,
        rates_mbit: Some([100, 50]),
        unseen: Unseen {
            missed: 3,
            ..Unseen::default()
        },
        ..Header::default()
    }
}

/// The bytes of a recording of these flows.
fn written(flows: &[FlowRecord]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("day.flows");
    let mut writer = Writer::create(&path, false).unwrap();
    for flow in flows {
        assert!(writer.add(flow).unwrap());
    }
    writer.finish(header()).unwrap();
    std::fs::read(path).unwrap()
}

fn read(bytes: &[u8]) -> Result<(Header, Vec<FlowRecord>), ReadError> {
    let reader = Reader::new(bytes)?;
    let header = reader.header().clone();
    Ok((header, reader.collect::<Result<_, _>>()?))
}

fn flow(start_us: u64) -> FlowRecord {
    FlowRecord {
        start_us,
        duration_us: 20_000,
        is_long: false,
        transport: Transport::Tcp,
        is_ipv6: false,
        began_before: false,
        end: FlowEnd::Finished,
        out: Count {
            packets: 6,
            bytes: 900,
        },
        back: None,
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read_in_order_of_starts(flows in prop::collection::vec(flows(), 0..50)) {
        let (header, read) = read(&written(&flows)).unwrap();
        prop_assert_eq!(header.flows, flows.len() as u64);
        let mut expected = flows;
        expected.sort_by_key(|it| it.start_us);
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn changed_byte_is_an_error(
        flows in prop::collection::vec(flows(), 1..5),
        at in any::<prop::sample::Index>(),
        bits in 1..=255u8,
    ) {
        let mut bytes = written(&flows);
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn any_bytes_end_in_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut made_up = b"flowrec\0\x01\0".to_vec();
        made_up.extend(&bytes);
        prop_assert!(read(&bytes).is_err());
        prop_assert!(read(&made_up).is_err());
    }
}

#[test]
fn cut_file_is_truncated_wherever_it_is_cut() {
    let bytes = written(&[flow(1), flow(2), flow(3)]);
    for length in 8..bytes.len() {
        let error = read(&bytes[..length]).unwrap_err();
        assert!(
            matches!(error, ReadError::Truncated { .. }),
            "{length}: {error}"
        );
    }
    assert!(matches!(read(&bytes[..5]), Err(ReadError::NotARecording)));
}

#[test]
fn each_mistake_has_its_name() {
    let whole = written(&[flow(1)]);
    let changed = |at: usize, bytes: &[u8]| {
        let mut all = whole.clone();
        all[at..at + bytes.len()].copy_from_slice(bytes);
        read(&all).unwrap_err()
    };
    let mut more = whole.clone();
    more.push(0);
    assert!(matches!(read(&more), Err(ReadError::Trailing)));
    assert!(matches!(changed(0, b"F"), ReadError::NotARecording));
    assert!(matches!(changed(8, &[2]), ReadError::Version { found: 2 }));
    let error = changed(10, &[0xff; 4]);
    assert!(matches!(
        error,
        ReadError::HeaderTooLong { bytes: u32::MAX }
    ));
    assert!(matches!(changed(14, b"["), ReadError::Header(_)));
    let last = whole.len() - 1;
    assert!(matches!(
        changed(last, &[whole[last] ^ 1]),
        ReadError::Checksum
    ));
    // 1 flag, 1 gap, 3 duration, 1 packets, 2 bytes and the checksum: the packets become none.
    let packets = whole.len() - 4 - 3;
    assert_eq!(whole[packets], 6);
    let error = changed(packets, &[0]);
    let expected = "flow 0 of the recording is wrong: no packets";
    assert_eq!(error.to_string(), expected);
    let error = changed(whole.len() - 4 - 8, &[3 << 1]);
    assert!(error.to_string().contains("a transport"), "{error}");
}

#[test]
fn flows_beyond_a_run_are_merged() {
    // Three runs of 65,536, from the last start to the first.
    let all: Vec<_> = (0..150_000u64).map(|it| flow((150_000 - it) * 7)).collect();
    let (_, read) = read(&written(&all)).unwrap();
    assert_eq!(read.len(), all.len());
    assert!(read.iter().rev().eq(&all));
}

#[test]
fn nothing_is_seen_before_the_end_and_nothing_is_left_without_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("day.flows");
    let mut writer = Writer::create(&path, false).unwrap();
    writer.add(&flow(1)).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

    let writer = Writer::create(&path, false).unwrap();
    std::fs::write(&path, "somebody else's").unwrap();
    let error = writer.finish(header()).unwrap_err();
    assert!(matches!(error, WriteError::Exists { .. }), "{error}");
    let error = Writer::create(&path, false).unwrap_err();
    assert!(matches!(error, WriteError::Exists { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody else's");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);

    let writer = Writer::create(&path, true).unwrap();
    writer.finish(header()).unwrap();
    assert_eq!(Reader::open(&path).unwrap().count(), 0);
    let missing = directory.path().join("missing").join("day.flows");
    let error = Writer::create(&missing, false).unwrap_err();
    assert!(matches!(error, WriteError::Create { .. }), "{error}");
}

#[test]
fn payload_is_what_headers_leave() {
    let mut it = flow(0);
    assert_eq!((it.payload_out(), it.payload_back()), (900 - 6 * 66, 0));
    it.is_ipv6 = true;
    it.transport = Transport::Udp;
    it.back = Some(Count {
        packets: 100,
        bytes: 6_000,
    });
    assert_eq!((it.payload_out(), it.payload_back()), (900 - 6 * 62, 0));
}
