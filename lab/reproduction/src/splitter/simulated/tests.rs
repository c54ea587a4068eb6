//! Rounds that are simulated in a tenth of a second or so.

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
    assert!(
        (20..40).contains(&round.list_ms.len()),
        "{}",
        round.list_ms.len()
    );
    // A round trip after the SYN-ACK, five frames at 100 Mbit/s (0.606 ms) and half a round trip; the request.
    let least = round.list_ms.iter().copied().fold(f64::INFINITY, f64::min);
    assert!((0.75..0.95).contains(&least), "{least}");
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
