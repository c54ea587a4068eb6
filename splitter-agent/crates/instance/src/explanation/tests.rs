//! Explanations of facts as the kernel and the flow table report them.

use super::*;

const TUNNELS: &str = "lan = 'lan'\n[short]\ndevice = 'wan0'\n[long]\ndevice = 'wan1'\n";

const THRESHOLD: FlowThreshold = FlowThreshold {
    count: 40,
    unit: Unit::PACKETS,
};

fn config(first: &str, last: &str) -> Config {
    Config::parse(&format!("{first}\n{TUNNELS}{last}"), "test").unwrap()
}

fn end(text: &str) -> Endpoint {
    text.parse().unwrap()
}

fn lan() -> InterfaceName {
    "lan".to_owned().try_into().unwrap()
}

fn path(class: &'static str, problem: Option<&str>) -> Trace {
    Trace {
        class,
        tunnel: class,
        lan: lan(),
        source: [10, 1, 0, 2].into(),
        dscp: Some(2),
        fwmark: None,
        rule: None,
        table: None,
        prefix: None,
        balance: None,
        tunnels: Vec::new(),
        not_taken: Vec::new(),
        longest_bytes: None,
        no_choice: None,
        next_hops: Vec::new(),
        chosen: None,
        is_split: problem.is_none(),
        reason: problem.map(|_| "rule"),
        problem: problem.map(str::to_owned),
        remedy: problem.map(|_| "remove it".to_owned()),
    }
}

fn facts() -> Facts {
    Facts {
        is_up: true,
        attached: vec![lan()],
        site: None,
        placement: Placement::PRIMARY,
        threshold: Some(THRESHOLD),
        arrival: Some(Arrival::Lan(lan())),
        flows: Vec::new(),
        flows_matching: 0,
        has_other_direction: false,
        traces: vec![path("short", None), path("long", None)],
    }
}

fn flow(class: &'static str, tunnel: &'static str) -> FlowRow {
    FlowRow {
        source: [10, 1, 0, 2].into(),
        protocol: "tcp",
        source_port: Some(40_000),
        destination: [10, 2, 0, 5].into(),
        destination_port: Some(443),
        identifier: None,
        class,
        tunnel,
        packets: 7,
        bytes: 700,
        age_s: 1.0,
        idle_s: 0.5,
        finished: false,
    }
}

fn explained(config: &Config, facts: Facts) -> Explanation {
    explain(config, Some(end("10.1.0.2")), end("10.2.0.5:443"), facts)
}

#[test]
fn ends_are_read_in_every_usual_form() {
    let cases = [
        ("10.2.0.5", "10.2.0.5", None),
        ("10.2.0.5:443", "10.2.0.5", Some(443)),
        ("2001:db8::1", "2001:db8::1", None),
        ("[2001:db8::1]", "2001:db8::1", None),
        ("[2001:db8::1]:443", "2001:db8::1", Some(443)),
        ("::ffff:10.2.0.5", "10.2.0.5", None),
        ("[::ffff:10.2.0.5]:443", "10.2.0.5", Some(443)),
    ];
    for (text, address, port) in cases {
        let address = address.parse().unwrap();
        assert_eq!(end(text), Endpoint { address, port }, "{text}");
    }
    assert_eq!(end("[2001:db8::1]:443").to_string(), "[2001:db8::1]:443");
    assert_eq!(end("[2001:db8::1]").to_string(), "2001:db8::1");
}

#[test]
fn what_is_no_end_of_a_flow_is_refused() {
    let refusal = |text: &str| text.parse::<Endpoint>().unwrap_err();
    for text in [
        "",
        "host",
        "10.2.0",
        "10.2.0.0/24",
        "10.2.0.5:",
        "[::1",
        "10.2.0.5:99999",
        "[10.2.0.5]",
    ] {
        assert_eq!(refusal(text), EndpointError::NoAddress, "{text}");
    }
    for text in [
        "0.0.0.0",
        "127.0.0.1",
        "::1",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "fe80::1",
    ] {
        assert!(
            matches!(refusal(text), EndpointError::NotOfHost(_)),
            "{text}"
        );
    }
    assert_eq!(refusal("10.2.0.5:0"), EndpointError::NoPort);
}

#[test]
fn flow_that_both_classes_lead_right_is_split_and_says_what_changes_it() {
    let explanation = explained(&config("", ""), facts());
    assert_eq!(explanation.verdict, Verdict::Split);
    assert!(explanation.remedy.is_none());
    let changes = explanation.changes.join("\n");
    assert!(changes.contains("packet 41"), "{changes}");
}

#[test]
fn first_hindrance_decides_and_has_a_remedy() {
    let plain = config("", "");
    let shadow = config("shadow = true", "");
    let down = Facts {
        is_up: false,
        ..facts()
    };
    let from = |arrival| Facts {
        arrival: Some(arrival),
        ..facts()
    };
    let unattached = Facts {
        attached: Vec::new(),
        ..facts()
    };
    let mut moved = facts();
    moved.placement.long = splitter_steering::Egress::Short;
    let by_rule = Facts {
        traces: vec![
            path("short", None),
            path("long", Some("rule 500 sends it away")),
        ],
        ..facts()
    };
    let cases = [
        (&shadow, facts(), "a shadow"),
        (&plain, down, "is down"),
        (&plain, from(Arrival::Own), "the border's own address"),
        (
            &plain,
            from(Arrival::Tunnel("wan1".to_owned())),
            "behind wan1, a tunnel",
        ),
        (&plain, from(Arrival::Other("isp".to_owned())), "behind isp"),
        (&plain, unattached, "attached to lan"),
        (&plain, by_rule, "long flows go elsewhere: rule 500"),
        (&plain, moved, "a tunnel is dead"),
    ];
    for (config, facts, expected) in cases {
        let explanation = explained(config, facts);
        assert_eq!(explanation.verdict, Verdict::NotSplit, "{expected}");
        assert!(explanation.why.contains(expected), "{}", explanation.why);
        assert!(explanation.remedy.is_some(), "{expected}");
        assert!(explanation.changes.is_empty(), "{expected}");
    }
}

#[test]
fn flow_of_the_table_came_in_by_the_site_whatever_routes_say() {
    let facts = Facts {
        arrival: Some(Arrival::Tunnel("wan1".to_owned())),
        flows: vec![flow("long", "long")],
        flows_matching: 1,
        ..facts()
    };
    assert_eq!(explained(&config("", ""), facts).verdict, Verdict::Split);
}

#[test]
fn what_cannot_be_asked_is_unknown() {
    let facts = Facts {
        traces: Vec::new(),
        arrival: None,
        ..facts()
    };
    let explanation = explained(&config("", ""), facts);
    assert_eq!(explanation.verdict, Verdict::Unknown);
    assert!(explanation.remedy.is_some());
}

#[test]
fn flows_say_where_they_stand() {
    let plain = config("", "");
    let said = |row: &FlowRow| state(row, &plain, Some(THRESHOLD));
    assert!(said(&flow("short", "short")).ends_with("long from packet 41 on"));
    assert!(said(&flow("long", "short")).contains("until its packets there have left"));
    assert_eq!(said(&flow("long", "long")), "long, in the long tunnel");
    let ended = FlowRow {
        finished: true,
        ..flow("long", "long")
    };
    assert!(said(&ended).contains("has ended"));
    let idle = FlowRow {
        idle_s: 31.0,
        ..flow("long", "long")
    };
    assert!(said(&idle).contains("begins a new flow"));
}

#[test]
fn classes_that_choose_are_said_to_and_none_is_placed_by_load() {
    let rates = "lan = 'lan'\npolicy = 'share'\n[short]\ndevice = 'wan0'\nrate_mbit = 9\n\
        [long]\ndevice = 'wan1'\nrate_mbit = 9\nbalance = 'tr'\n[steering]\nmode = 'mark'\n";
    let config = Config::parse(rates, "test").unwrap();
    let facts = || Facts {
        flows: vec![flow("long", "short")],
        ..facts()
    };
    let explanation = explained(&config, facts());
    assert_eq!(
        explanation.why,
        "short flows and what is not split keep to the tunnels of their class, long flows choose by \
         tr among the tunnels that are alive"
    );
    assert_eq!(explanation.flows[0].state, "long");
    let changes = explanation.changes.join("\n");
    assert!(!changes.contains("placed"), "{changes}");
    assert!(!changes.contains("other class"), "{changes}");
    // With one tunnel left they choose that.
    let mut one_left = facts();
    one_left.placement.long = splitter_steering::Egress::Short;
    assert_eq!(explained(&config, one_left).verdict, Verdict::Split);
}
