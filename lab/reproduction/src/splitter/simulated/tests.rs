//! Rounds that are simulated in a tenth of a second or so.

use flow_twin::{Observer as _, Passage};

use super::*;

const NETWORK: Network = Network {
    rate_mbit: 100,
    size_factor: 1,
    length: Length {
        whole_s: 2.0,
        warm_up_s: 0.5,
    },
};

fn round(mode: Mode, load_percent: u32) -> Round {
    let cell = Cell::new(mode, load_percent);
    NETWORK.round(&cell, 1).expect("it is simulated")
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn background_is_what_was_asked_for_and_enters_where_the_scheme_has_it() {
    for mode in [
        Mode::EcmpFlow,
        Mode::EcmpPacket,
        Mode::Dedicated,
        Mode::Share,
    ] {
        let cell = Cell::new(mode, 40);
        let until = Duration::from_secs(2);
        let mut background = Background::new(100, &cell, 3, until);
        let packets: Vec<_> = background.by_ref().collect();
        let sent = background.sent_percent();
        // 13,210 messages are expected in each direction; five standard deviations are 4.4 %.
        assert!(sent.iter().all(|it| (38.2..41.8).contains(it)), "{sent:?}");
        assert!(packets.is_sorted_by_key(|it| it.at_ns));
        let of_long = packets.iter().filter(|it| it.uplink == 1).count();
        let share = of_long as f64 / packets.len() as f64;
        match mode {
            Mode::Dedicated => assert_eq!(share, 1.0),
            Mode::EcmpPacket => assert!((share - 0.5).abs() < 0.001, "{share}"),
            _ => assert!((0.2..0.8).contains(&share), "{share}"),
        }
    }
    let none = Background::new(100, &Cell::new(Mode::Share, 0), 3, Duration::from_secs(9));
    assert_eq!(none.count(), 0);
}

#[test]
fn listing_without_other_traffic_takes_its_packets_times_on_the_wire() {
    let cell = Cell {
        transfers: false,
        ..Cell::new(Mode::Dedicated, 0)
    };
    let round = NETWORK.round(&cell, 1).expect("it is simulated");
    assert_eq!((round.unanswered, round.transfer_mbit.len()), (0, 0));
    // Those of the warm-up do not count, and all others are answered.
    let requests = requests_at(Kind::per_second, &[Kind::List], Duration::from_secs(2), 1);
    let later = requests
        .iter()
        .filter(|it| it.at >= Duration::from_millis(500));
    assert_eq!(round.list_ms.len(), later.count());
    // A round trip after the SYN-ACK, five frames at 100 Mbit/s (0.606 ms) and half a round trip; the request.
    let least = round.list_ms.iter().copied().fold(f64::INFINITY, f64::min);
    assert!((0.75..0.95).contains(&least), "{least}");
}

#[test]
fn requests_take_the_same_share_of_a_tunnel_at_each_rate() {
    let fast = Network {
        rate_mbit: 1_000,
        size_factor: 100,
        ..NETWORK
    };
    assert_eq!(fast.per_second(Kind::List), 200.0);
    assert_eq!(fast.per_second(Kind::Upload), 0.1);
    // The paper's 5, 60,000 and 100,000 packets.
    assert_eq!(
        Kind::ALL.map(|it| fast.payload(it)),
        [7_240, 86_880_000, 144_800_000]
    );
    let share = |network: &Network, kind| {
        network.per_second(kind) * network.payload(kind) as f64 / f64::from(network.rate_mbit)
    };
    for kind in Kind::ALL {
        let ratio = share(&fast, kind) / share(&NETWORK, kind);
        assert!((ratio - 1.0).abs() < 1e-9, "{kind:?}: {ratio}");
    }
}

#[test]
fn requests_are_flows_in_order_with_their_payload_in_its_direction() {
    let at = Duration::from_millis(3);
    let requests = [Kind::List, Kind::Upload, Kind::Video].map(|kind| Request { at, kind });
    let records = NETWORK.records(&requests);
    // Each has a start of its own.
    let starts: Vec<u64> = records.iter().map(|it| it.start_us).collect();
    assert_eq!(starts, [3_000, 3_001, 3_002]);
    let counts =
        |it: &FlowRecord| [Some(it.out), it.back].map(|it| it.map(|it| (it.packets, it.bytes)));
    // A header of 66 bytes on each packet, and 8 of the SYN.
    assert_eq!(counts(&records[0]), [Some((1, 164)), Some((5, 7_578))]);
    assert_eq!(
        counts(&records[1]),
        [Some((1_000, 1_448_000 + 66_000 + 8)), Some((1, 224))]
    );
    assert_eq!(counts(&records[2])[1], Some((600, 868_800 + 39_600 + 8)));
}

#[test]
fn schemes_are_those_of_the_cells() {
    let of = |mode| {
        scheme(&Cell::new(mode, 10))
            .expect("it is simulated")
            .to_string()
    };
    let modes = [
        Mode::EcmpFlow,
        Mode::EcmpPacket,
        Mode::Dedicated,
        Mode::Share,
    ];
    assert_eq!(modes.map(of), ["ecmp", "spray", "dedicated@40", "share@40"]);
}

#[test]
fn watch_sees_what_taps_on_both_borders_see() {
    let at = Duration::from_millis(1);
    let requests = [Kind::List, Kind::Video].map(|kind| Request { at, kind });
    let records = NETWORK.records(&requests);
    let mut watch = Watch::new(&requests, &records);
    let mut pass = |flow, to_site, left_ns, arrived_ns| {
        watch.arrived(Passage {
            flow,
            to_site,
            left_ns,
            arrived_ns,
        });
    };
    // The client's own packets are none of the server's.
    pass(0, false, 1_000_000, 9_000_000);
    // Delays of 50, 80 and 70 us in the order of leaving; the second arrives last.
    pass(0, true, 2_000_000, 2_050_000);
    pass(0, true, 2_020_000, 2_090_000);
    pass(0, true, 2_010_000, 2_090_000);
    pass(1, true, 3_000_000, 3_500_000);
    pass(7, true, 1, 2);
    watch.completed(0, 2_100_000);
    watch.completed(0, 9_100_000);
    watch.completed(1, 8_000_000);
    assert_eq!(watch.jitter_us(), [30.0, 10.0], "of listings alone");
    let seen = watch.seen(Duration::from_millis(8));
    assert!((seen[0].completion_ms - 0.09).abs() < 1e-9);
    assert_eq!(seen[0].ended, Some(Duration::from_micros(1_100)));
    // Flows begin a microsecond apart.
    assert_eq!(seen[1].ended, Some(Duration::from_micros(6_999)));
    let seen = watch.seen(Duration::from_micros(7_999));
    assert_eq!(seen[1].ended, None, "it came too late");
}

#[test]
fn answers_have_as_long_as_the_round_within_bounds() {
    let drains = [1, 500, 30_000].map(|ms| drain(Duration::from_millis(ms)));
    assert_eq!(drains, [50, 500, 2_000].map(Duration::from_millis));
}

#[test]
fn splitter_takes_listings_out_of_the_queues_of_others() {
    let [ecmp, dedicated, share] =
        [Mode::EcmpFlow, Mode::Dedicated, Mode::Share].map(|it| round(it, 40));
    for it in [&dedicated, &share] {
        assert!(mean(&it.list_ms) < 0.8 * mean(&ecmp.list_ms), "{it:?}");
        assert!(mean(&it.jitter_us) < 0.8 * mean(&ecmp.jitter_us), "{it:?}");
    }
    // Both classes have both tunnels, or long flows one with all of the background.
    assert!(mean(&dedicated.transfer_mbit) < mean(&share.transfer_mbit));
    assert_eq!(ecmp.background_percent, share.background_percent);
}

#[test]
fn rounds_are_the_same_again_and_are_taken_from_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let cells = [Mode::EcmpPacket, Mode::Share].map(|it| Cell::new(it, 10));
    let order: Vec<_> = cells.iter().flat_map(|it| [(*it, 1), (*it, 2)]).collect();
    let network = Network {
        length: Length {
            whole_s: 0.5,
            warm_up_s: 0.1,
        },
        ..NETWORK
    };
    let rounds = |jobs| {
        network
            .rounds(&order, directory.path(), jobs)
            .expect("they are simulated")
    };
    let first = rounds(1);
    assert_eq!(
        first.iter().map(|it| it.seed).collect::<Vec<_>>(),
        [1, 1, 2, 2]
    );
    assert_eq!(first.len(), 4);
    let file = directory
        .path()
        .join("splitter-100mbit-1/share-10-40-all-seed2.json");
    let text = std::fs::read_to_string(&file).expect("it was written");
    std::fs::write(&file, text.replace("\"unanswered\":0", "\"unanswered\":7")).expect("space");
    let again = rounds(2);
    assert_eq!(again.iter().filter(|it| it.unanswered == 7).count(), 1);
    std::fs::remove_dir_all(directory.path()).expect("it is there");
    let mut anew = rounds(2);
    anew.sort_by_key(|it| (it.seed, it.cell.mode.name()));
    let mut first = first;
    first.sort_by_key(|it| (it.seed, it.cell.mode.name()));
    assert_eq!(anew, first);
}

#[test]
fn attach_modes_are_refused() {
    let error = NETWORK
        .round(&Cell::new(Mode::Generic, 0), 1)
        .expect_err("no such scheme");
    assert_eq!(error.to_string(), "generic is not simulated");
}
