use splitter_instance::{ByClass, Chosen};
use splitter_netlink::InterfaceName;
use splitter_policy::counters::Counters;
use splitter_policy::egress_counts::{EgressCounts, Marked};

use super::*;

fn config() -> Config {
    let text = "lan = 'lan0'\n[short]\ndevice = 'tun0'\nrate_mbit = 100\n[long]\ndevice = 'tun1'\n";
    Config::parse(text, "test").expect("it is right")
}

fn found() -> Found {
    Found {
        attached: vec![AttachedInterface {
            interface: InterfaceName::try_from("lan0".to_owned()).expect("a name"),
            mode: splitter_datapath::AttachedMode::Native,
        }],
        totals: FlowTotals {
            short: 3,
            long: 1,
            entries_v4: 5,
            entries_v6: 0,
        },
        capacities: [(Family::V4, 20), (Family::V6, 20)],
        tunnels: [LinkState::Up, LinkState::NoCarrier]
            .map(|link| FoundTunnel {
                link,
                health: TunnelHealth::default(),
                backlog_bytes: None,
            })
            .into(),
        egresses: [Some(Egress::Main), None],
        flows_matching: 5,
        flows: Vec::new(),
    }
}

fn totals(at_ms: u64, packets: u64, sent_bytes: u64) -> Totals {
    let mut counters = Counters::ZERO;
    counters.count_sent(Class::Short, TunnelRole::Short, packets, packets * 500);
    counters.count_sent(Class::Long, TunnelRole::Short, packets, packets * 1_000);
    counters.count_sent(Class::Long, TunnelRole::Long, packets, packets * 1_000);
    for _ in 0..packets / 10 {
        counters.count_finished(Class::Short, 3_000_000);
    }
    let device = DeviceTraffic {
        sent_bytes,
        received_bytes: sent_bytes * 2,
        sent_packets: sent_bytes / 1_000,
        received_packets: sent_bytes / 500,
    };
    let mut left = EgressCounts::ZERO;
    left.count(Marked::LongOnShort, true, packets, packets * 1_000);
    left.count(Marked::Unmarked, false, packets, packets * 500);
    Totals {
        at_ns: at_ms * 1_000_000,
        program_id: 7,
        counters,
        devices: vec![Some(device), None],
        left: vec![Some(left), None],
        chosen: vec![Chosen {
            packets: ByClass {
                short: packets,
                ..ByClass::default()
            },
            changes: packets / 4,
            ..Chosen::default()
        }],
    }
}

#[test]
fn two_looks_make_rates_and_shares() {
    let mut history = History::default();
    history.add(totals(10_000, 100, 0));
    let now = totals(12_000, 300, 5_000_000);
    let overview = Overview::new(&config(), found(), &now, &history, 0);

    assert_eq!(overview.interval_s, Some(2.0));
    let [short, long] = &overview.classes[..] else {
        panic!("{overview:?}");
    };
    assert_eq!((short.class, short.flows, short.packets), ("short", 3, 300));
    assert_eq!(
        (short.packets_per_s, short.bits_per_s),
        (Some(100.0), Some(400_000.0))
    );
    // In whichever tunnel.
    assert_eq!((long.packets, long.bits_per_s), (600, Some(1_600_000.0)));

    let [short, long] = &overview.tunnels[..] else {
        panic!("{overview:?}");
    };
    assert_eq!(short.sent_bits_per_s, Some(20_000_000.0));
    assert_eq!(short.received_bits_per_s, Some(40_000_000.0));
    assert_eq!(
        (short.sent_packets_per_s, short.received_packets_per_s),
        (Some(2_500.0), Some(5_000.0))
    );
    assert_eq!((short.state, short.share_used), (LinkState::Up, Some(0.2)));
    assert_eq!((long.sent_bits_per_s, long.share_used), (None, None));
    let left = LeftRates {
        left_short_bits_per_s: Some(0.0),
        left_long_bits_per_s: Some(800_000.0),
        left_unmarked_bits_per_s: Some(400_000.0),
    };
    assert_eq!((short.left, long.left), (left, LeftRates::default()));
    let chosen = ChosenRates {
        chosen_packets_per_s: Some(100.0),
        chosen_changes_ratio: Some(0.25),
        chosen_refusals_ratio: Some(0.0),
        model_error_us: None,
    };
    assert_eq!(
        (short.chosen, long.chosen),
        (chosen, ChosenRates::default())
    );
    assert_eq!(
        (long.state, long.health.health),
        (LinkState::NoCarrier, Health::NotProbed)
    );

    let of_short: Vec<_> = overview
        .completion
        .iter()
        .filter(|it| it.class == "short")
        .collect();
    assert_eq!(
        (of_short[0].period, of_short[0].finished),
        (Period::Recent, 20)
    );
    assert_eq!(
        (of_short[1].period, of_short[1].finished),
        (Period::Total, 30)
    );
    assert_eq!(of_short[0].mean_s, Some(0.003));
    assert_eq!(overview.table[0].share_used, Some(0.25));
}

#[test]
fn the_first_look_knows_totals_alone() {
    let overview = Overview::new(
        &config(),
        found(),
        &totals(1_000, 50, 9),
        &History::default(),
        0,
    );
    assert_eq!(overview.interval_s, None);
    assert_eq!(overview.classes[0].packets, 50);
    assert!(overview.classes.iter().all(|it| it.bits_per_s.is_none()));
    assert!(overview.tunnels.iter().all(|it| it.share_used.is_none()));
}

#[test]
fn a_device_that_is_created_again_has_no_rate_at_first() {
    let mut history = History::default();
    history.add(totals(1_000, 1, 1_000_000));
    let overview = Overview::new(&config(), found(), &totals(2_000, 2, 10), &history, 0);
    assert_eq!(overview.tunnels[0].sent_bits_per_s, None);
}

#[test]
fn json_has_words_and_no_address_but_those_of_flows() {
    let overview = Overview::new(
        &config(),
        found(),
        &totals(1_000, 1, 0),
        &History::default(),
        0,
    );
    let json = serde_json::to_value(&overview).expect("it can be written");
    assert_eq!(json["tunnels"][1]["state"], "no carrier");
    assert_eq!(json["tunnels"][0]["health"], "not probed");
    assert_eq!(json["completion"][0]["period"], "recent");
    assert_eq!(json["attached"][0]["mode"], "native");
    assert_eq!(json["classes"][0]["tunnel"], "main");
    assert!(json["classes"][1]["tunnel"].is_null());
}
