use std::time::Duration;

use flow_testbed::order::Arrivals;

use super::*;
use crate::{
    cell::{self, tests::SHAPE},
    measurement::FlowResult,
    schedule::Schedule,
    scheme::Balancer,
};

const TR: Scheme = Scheme::Splitter(Balancer::Tr);

fn cell() -> Cell {
    cell::chosen(SHAPE, Some("asym2.5-web_search-load0.6"), false)[0]
}

/// Two short flows, of which one has not finished, and a long one.
fn outcome() -> Outcome {
    let flow = |class, bytes, ms, is_finished| FlowResult {
        class,
        bytes,
        connected: Some(Duration::from_millis(ms / 5)),
        took: Duration::from_millis(ms),
        is_finished,
    };
    Outcome {
        schedule: Schedule::draw(&cell(), Duration::ZERO, 1).expect("it is built in"),
        warm_up: Duration::ZERO,
        flows: vec![
            flow(SizeClass::Short, 5_000, 10, true),
            flow(SizeClass::Short, 5_000, 30, false),
            flow(SizeClass::Long, 1_000_000, 400, true),
        ],
        arrivals: Arrivals {
            longest_stall: Duration::ZERO,
            packets: 2_000,
            out_of_order: 1,
        },
        retransmits: 3,
        path_share: vec![0.7, 0.3],
        ns_per_packet: Some(250.4),
        cpu_s: 1.25,
        memory_bytes: Some(12_500_000),
        prediction_error_us: Some(80.5),
    }
}

fn row(scheme: Scheme, seed: u64, class: SizeClass) -> Row {
    Row::new(&cell(), scheme, seed, class, &outcome(), Some(15.0))
}

#[test]
fn row_has_all_that_is_promised_of_it() {
    let row = row(TR, 2, SizeClass::Short);
    let json = serde_json::to_value(&row).expect("plain data");
    let expected = serde_json::json!({
        "scheme": "tr", "seed": 2, "case": "2x2-asym2.5-web_search", "load": 0.6,
        "size_class": "short", "flows": 2, "unfinished": 1,
        "mean_ms": 20.0, "p99_ms": row.p99_ms, "connect_ms": 4.0, "predicted_mean_ms": 15.0,
        "goodput": 1.0, "out_of_order": 0.0005, "retransmits": 3, "path_share": [0.7, 0.3],
        "ns_per_packet": 250.4, "cpu_s": 1.25, "memory_mb": 12.5,
        "prediction_error_us": 80.5,
    });
    assert_eq!(json, expected);
    assert!(row.p99_ms > Some(29.0), "{row:?}");
}

#[test]
fn class_without_a_flow_has_no_figures_and_is_read_back() {
    let row = row(TR, 1, SizeClass::Middle);
    assert_eq!((row.flows, row.mean_ms, row.goodput), (0, None, None));
    let text = serde_json::to_string(&row).expect("plain data");
    let again: Row = serde_json::from_str(&text).expect("as it was written");
    assert_eq!(again, row);
}

#[test]
fn table_has_a_line_for_each_class_and_for_what_was_not_available() {
    let mut rows = Vec::new();
    for scheme in [Scheme::EcmpFlow, TR] {
        for class in SizeClass::ALL {
            rows.push(row(scheme, 1, class));
        }
    }
    rows[3].mean_ms = Some(12.0);
    rows.push(row(TR, 2, SizeClass::Short));
    let skip = |case: &str, scheme| Skip {
        case: case.to_owned(),
        scheme,
        reason: String::new(),
    };
    let skips = [
        skip("2x2-asym2.5-web_search", "rps"),
        skip("2x2-sym-web_search", "letflow"),
    ];
    let text = table(&[cell()], &rows, &skips).to_text();
    let lines = |name: &str| text.lines().filter(|it| it.contains(name)).count();
    assert_eq!(
        (lines(" tr "), lines("ecmp_flow"), lines("rps")),
        (3, 3, 1),
        "{text}"
    );
    assert!(!text.contains("letflow"), "{text}");
    assert!(text.contains("16.00 [12.00, 20.00]"), "{text}");
    assert!(
        text.contains("4 short") && text.contains("70 : 30"),
        "{text}"
    );
}
