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

/// A file with these bytes in the place of so many flows, and a checksum that fits.
fn made_up(header: &Header, flows: &[u8]) -> Vec<u8> {
    let text = serde_json::to_vec(header).unwrap();
    let mut bytes = b"flowrec\0\x01\0".to_vec();
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text);
    bytes.extend(flows);
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
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

    #[test]
    fn flows_of_any_bytes_are_refused_or_can_be_written(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..0x80u8, 0x80..=0xffu8], 0..200),
        flows in 0..20u64,
    ) {
        let header = Header { flows, ..header() };
        let made_up = made_up(&header, &bytes);
        // All those before the first that is refused.
        let reader = Reader::new(&made_up[..]).unwrap();
        let before: Vec<FlowRecord> = reader.map_while(Result::ok).collect();
        prop_assert!(before.len() as u64 <= flows);
        prop_assert_eq!(read(&written(&before)).unwrap().1, before);
    }

    #[test]
    fn what_no_reader_takes_is_written_as_the_nearest(
        numbers in any::<[u64; 6]>(),
        duration_us in any::<u64>(),
        blind_us in any::<u64>(),
        rates in prop::option::of([0..2u32, 0..2u32]),
    ) {
        let [start_us, took_us, out_packets, out_bytes, packets, bytes] = numbers;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("day.flows");
        let mut writer = Writer::create(&path, false).unwrap();
        let flow = FlowRecord {
            duration_us: took_us,
            out: Count { packets: out_packets, bytes: out_bytes },
            back: Some(Count { packets, bytes }),
            ..flow(start_us)
        };
        prop_assert!(writer.add(&flow).unwrap());
        let header = Header {
            duration_us,
            rates_mbit: rates,
            unseen: Unseen { blind_us, ..Unseen::default() },
            ..header()
        };
        let header = writer.finish(header).unwrap();
        let (found, flows) = read(&std::fs::read(&path).unwrap()).unwrap();
        prop_assert_eq!(found, header);
        prop_assert_eq!(flows.len(), 1);
        prop_assert_eq!(flows[0].out.bytes, out_bytes.min(1 << 48));
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
fn header_with_numbers_of_no_recording_is_refused() {
    let blind = |blind_us| Unseen {
        blind_us,
        ..Unseen::default()
    };
    let day_us = 86_400_000_000;
    for (duration_us, unseen, rates_mbit, expected) in [
        (0, blind(0), None, "a recording of no time"),
        (day_us * 367, blind(0), None, "more than a year"),
        (day_us, blind(day_us + 1), None, "more time without a look"),
        (day_us, blind(0), Some([0, 5]), "without a rate"),
        (day_us, blind(0), Some([5, 0]), "without a rate"),
    ] {
        let header = Header {
            duration_us,
            unseen,
            rates_mbit,
            ..header()
        };
        let error = read(&made_up(&header, &[])).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let header = Header {
        unseen: blind(day_us),
        ..header()
    };
    assert!(read(&made_up(&header, &[])).is_ok());
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
    let WriteError::Place { kept, .. } = &error else {
        panic!("{error}");
    };
    assert!(error.to_string().contains(&kept.display().to_string()));
    assert_eq!(Reader::open(kept).unwrap().count(), 0, "it is whole");
    let error = Writer::create(&path, false).unwrap_err();
    assert!(matches!(error, WriteError::Exists { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody else's");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);

    let writer = Writer::create(&path, true).unwrap();
    writer.finish(header()).unwrap();
    assert_eq!(Reader::open(&path).unwrap().count(), 0);
    let missing = directory.path().join("missing").join("day.flows");
    let error = Writer::create(&missing, false).unwrap_err();
    assert!(matches!(error, WriteError::Create { .. }), "{error}");
}

#[cfg(unix)]
#[test]
fn what_cannot_become_the_file_is_refused_at_once() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path("directory")).unwrap();
    symlink(path("nowhere"), path("link")).unwrap();
    for may_replace in [false, true] {
        for name in ["directory", "new/", "directory/..", "link"] {
            let error = Writer::create(&path(name), may_replace).unwrap_err();
            let is_named = match name {
                "link" if !may_replace => matches!(error, WriteError::Exists { .. }),
                _ => matches!(error, WriteError::NotAFile { .. }),
            };
            assert!(is_named, "{name}, {may_replace}: {error}");
        }
    }
    let writer = Writer::create(&path("day.flows"), false).unwrap();
    writer.finish(header()).unwrap();
    let mode = path("day.flows").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn payload_is_what_headers_leave() {
    let mut it = flow(0);
    // A SYN has eight bytes of options more.
    assert_eq!((it.payload_out(), it.payload_back()), (900 - 6 * 66 - 8, 0));
    it.is_ipv6 = true;
    it.transport = Transport::Udp;
    it.back = Some(Count {
        packets: 100,
        bytes: 6_000,
    });
    assert_eq!((it.payload_out(), it.payload_back()), (900 - 6 * 62, 0));
}
