use std::net::Ipv4Addr;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use splitter_agent::overview::{
    ChosenRates, ClassRow, Completion, Filter, LeftRates, ReverseFlow, Selection, TableRow,
    TunnelHealth, TunnelRow,
};
use splitter_datapath::connections::Reverse;
use splitter_datapath::flows::FlowRow;
use splitter_steering::Egress;

use super::*;

/// What a look could find, with so many flows.
pub(crate) fn overview(flows: u16) -> Overview {
    let class = |class, flows| ClassRow {
        class,
        tunnel: Some(Egress::Long),
        flows,
        packets: 10_000,
        bytes: 9_000_000,
        packets_per_s: Some(1_234.0),
        bits_per_s: Some(12_300_000.0),
    };
    let tunnel = |tunnel, device: &str, state| TunnelRow {
        tunnel,
        site: None,
        device: device.to_owned(),
        weight: 1,
        state,
        sent_bits_per_s: Some(42_000_000.0),
        received_bits_per_s: Some(7_000_000.0),
        sent_packets_per_s: Some(3_500.0),
        received_packets_per_s: Some(2_100.0),
        left: LeftRates::default(),
        chosen: ChosenRates::default(),
        rate_mbit: Some(100),
        share_used: Some(0.42),
        share_received: Some(0.07),
        backlog_bytes: None,
        health: TunnelHealth::default(),
    };
    let completion = |class| Completion {
        class,
        period: Period::Recent,
        window_s: Some(60.0),
        finished: 77,
        mean_s: Some(0.003),
        p50_s: Some(0.002),
        p90_s: Some(0.005),
        p99_s: Some(0.009),
    };
    Overview {
        name: "default".to_owned(),
        interval_s: Some(1.0),
        attached: Vec::new(),
        classes: vec![class("short", 12), class("long", 3)],
        tunnels: vec![
            tunnel("short", "wan0", LinkState::Up),
            tunnel("long", "wan1", LinkState::NoCarrier),
        ],
        completion: vec![completion("short"), completion("long")],
        table: vec![TableRow {
            family: "IPv4".to_owned(),
            entries: 15,
            capacity: 100,
            share_used: Some(0.15),
        }],
        flows_matching: flows.into(),
        flows: (0..flows).map(flow).collect(),
    }
}

fn flow(number: u16) -> Flow {
    Flow {
        row: FlowRow {
            source: Ipv4Addr::new(10, 1, 0, 2).into(),
            protocol: "tcp",
            source_port: Some(1_000 + number),
            destination: Ipv4Addr::new(10, 2, 0, 2).into(),
            destination_port: Some(443),
            identifier: None,
            class: "short",
            tunnel: "short",
            packets: number.into(),
            bytes: 1_000 * u64::from(number),
            age_s: 3.5,
            idle_s: 0.004,
            finished: false,
        },
        packets_per_s: Some(1.0),
        bits_per_s: Some(8_000.0),
        reverse: None,
        fills: None,
    }
}

/// A flow that is answered with more than it sends.
fn download(number: u16) -> Flow {
    Flow {
        reverse: Some(ReverseFlow {
            row: Reverse {
                packets: 1_000,
                bytes: 1_500_000,
                idle_s: 0.004,
                tunnel: Some("long"),
            },
            packets_per_s: Some(2_000.0),
            bits_per_s: Some(24_000_000.0),
        }),
        fills: Some(Direction::In),
        ..flow(number)
    }
}

/// The terminal as it is after one look, with so many flows to show.
pub(crate) fn app(flows: u16) -> App {
    let selection = Selection {
        sort: SortBy::Packets,
        reversed: false,
        filter: Filter::default(),
        limit: 1_000,
    };
    let mut app = App::new(selection, Duration::from_secs(1), "");
    app.seen(Ok(overview(flows)));
    app
}

fn drawn(app: &mut App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is memory");
    terminal
        .draw(|frame| draw(frame, app))
        .expect("it is memory");
    let buffer = terminal.backend().buffer().clone();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect();
    (0..height).map(line).collect()
}

#[track_caller]
fn assert_shows(lines: &[String], words: &[&str]) {
    for word in words {
        assert!(
            lines.iter().any(|line| line.contains(word)),
            "no {word} in {lines:#?}"
        );
    }
}

#[test]
fn shows_everything_on_an_ordinary_terminal() {
    let lines = drawn(&mut app(5), 80, 24);
    assert_shows(
        &lines,
        &[
            "5 flows, table 15 % full",
            "every 1.00 s",
            "CLASS",
            "12.3 Mbit/s",
            "1,234",
            "2.00 ms",
            "9.00 ms",
            "wan1",
            "no carrier",
            "42 %",
            "not probed",
            "vPACKETS",
            "10.1.0.2:1004 -> 10.2.0.2:443",
            "q quit",
        ],
    );
    let port = |number: u16| {
        let found = lines
            .iter()
            .position(|line| line.contains(&format!(":{number} ")));
        found.expect("it is listed")
    };
    assert!(port(1_004) < port(1_000), "most packets first");
    let row = lines[2].split_whitespace().take(2);
    assert!(row.eq(["short", "long"]), "{}", lines[2]);
}

#[test]
fn choices_among_tunnels_are_shown_where_packets_choose() {
    let lines = drawn(&mut app(5), 80, 24);
    assert!(!lines.concat().contains("CHANGED"), "{lines:#?}");
    let mut overview = overview(5);
    overview.tunnels[0].chosen = ChosenRates {
        chosen_packets_per_s: Some(2_345.0),
        chosen_changes_ratio: Some(0.36),
        chosen_refusals_ratio: Some(0.21),
        model_error_us: Some(170.0),
    };
    let mut app = app(0);
    app.seen(Ok(overview));
    let lines = drawn(&mut app, 80, 24);
    assert_shows(&lines, &["CHOSEN", "CHANGED", "HELD", "FLOW", ":1004"]);
    let row = lines.iter().find(|it| it.contains("2,345"));
    let words: Vec<_> = row
        .expect("a line of the tunnel")
        .split_whitespace()
        .collect();
    let expected = ["wan0", "2,345", "36", "%", "21", "%", "170", "µs"];
    assert_eq!(words, expected);
}

#[test]
fn leaves_out_what_has_no_room_and_never_fails() {
    for width in [1, 2, 23, 24, 25, 40, 60, 79, 80, 300] {
        for height in [1, 3, 4, 5, 8, 9, 13, 24, 90] {
            for flows in [0, 200] {
                let mut app = app(flows);
                drawn(&mut app, width, height);
                app.key(KeyCode::Char('?').into());
                drawn(&mut app, width, height);
            }
        }
    }
    let lines = drawn(&mut app(5), 40, 8);
    assert_shows(&lines, &["FLOW", "vPACKETS", ":1004"]);
    assert!(!lines.concat().contains("TUNNEL"), "{lines:#?}");
    assert_eq!(drawn(&mut app(5), 12, 3)[0].trim_end(), "too small");
}

#[test]
fn both_directions_of_a_connection_are_one_line_and_the_one_that_fills_has_a_mark() {
    let mut overview = overview(1);
    overview.flows.push(download(7));
    let mut app = app(0);
    app.seen(Ok(overview));
    let lines = drawn(&mut app, 80, 24);
    let line = |port: &str| {
        lines
            .iter()
            .find(|it| it.contains(port))
            .expect("it is listed")
    };
    assert_shows(&lines, &["RATE OUT", "RATE IN"]);
    assert!(
        line(":1007").contains("8.00 kbit/s *24.0 Mbit/s"),
        "{}",
        line(":1007")
    );
    // Of the other nothing came back that was seen.
    assert!(
        line(":1000").contains("8.00 kbit/s            –"),
        "{}",
        line(":1000")
    );
    let wide = drawn(&mut app, 130, 24);
    assert_shows(&wide, &["PACKETS/S", "2,001", "SENT/S", "3,500", "2,100"]);
}

#[test]
fn what_flows_are_ordered_by_is_seen_on_a_narrow_terminal() {
    for (keys, heading) in [
        ("", "vPACKETS"),
        ("s", "vBYTES"),
        ("ssss", "vCLASS"),
        ("S", "vRATE OUT"),
    ] {
        let mut app = app(5);
        for key in keys.chars() {
            app.key(KeyCode::Char(key).into());
        }
        assert_shows(&drawn(&mut app, 60, 24), &[heading]);
    }
}

#[test]
fn columns_go_by_their_rank() {
    let columns = [
        column("A", 10, false, 0),
        column("B", 10, true, 2),
        column("C", 10, true, 1),
    ];
    assert_eq!(fitting(&columns, 32), [0, 1, 2]);
    assert_eq!(fitting(&columns, 31), [0, 2]);
    assert_eq!(fitting(&columns, 20), [0]);
    assert_eq!(fitting(&columns, 1), [0], "cut rather than nothing");
    let columns = [column("A", 40, false, 0), column("B", 10, true, 1)];
    assert_eq!(fitting(&columns, 35), [0, 1], "its first one is cut short");
    assert_eq!(fitting(&columns, 34), [0]);
}

#[test]
fn shows_pause_filter_problem_and_help() {
    let mut app = app(5);
    app.key(KeyCode::Char('p').into());
    assert_shows(&drawn(&mut app, 80, 24), &["PAUSED"]);
    app.key(KeyCode::Char('p').into());
    for key in "/1003".chars() {
        app.key(KeyCode::Char(key).into());
    }
    let lines = drawn(&mut app, 80, 24);
    assert_shows(&lines, &["filter: 1003", "Enter keeps it", ":1003"]);
    assert!(!lines.concat().contains(":1004"));
    app.key(KeyCode::Enter.into());
    assert_shows(&drawn(&mut app, 80, 24), &["filter: 1003", "q quit"]);
    app.seen(Err("the instance `x` is down".to_owned()));
    assert_shows(
        &drawn(&mut app, 80, 24),
        &["the instance `x` is down", ":1003"],
    );
    app.key(KeyCode::Char('?').into());
    assert_shows(&drawn(&mut app, 80, 24), &["Any key leaves this."]);
}

#[test]
fn scrolls_to_the_last_flow() {
    let mut app = app(200);
    drawn(&mut app, 80, 24);
    app.key(KeyCode::End.into());
    let lines = drawn(&mut app, 80, 24);
    assert!(lines[22].contains(":1000 "), "{lines:#?}");
    assert!(!lines.concat().contains(":1199 "));
}

#[test]
fn what_came_before_anything_was_seen_is_drawn_as_well() {
    let selection = app(0).selection().clone();
    let mut empty = App::new(selection, Duration::from_secs(1), "");
    assert_shows(&drawn(&mut empty, 80, 24), &["splitter", "FLOW"]);
}
