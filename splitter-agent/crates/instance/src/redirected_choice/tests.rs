//! Which packets choose, by maps as the agent fills them and answers of routing as the kernel gives them.

use splitter_config::Balance;
use splitter_policy::next_hop::TunnelHop;

use super::*;

/// The devices of both tunnels.
const DEVICES: [u32; 2] = [7, 9];

fn name(device: u32) -> InterfaceName {
    format!("tun{device}").try_into().unwrap()
}

/// Hops of both tunnels, with the MTU of the smaller one.
fn hops() -> TunnelHops {
    let mut hops = TunnelHops {
        mtu: 1_420,
        ..TunnelHops::default()
    };
    for (hop, device) in hops.hops.iter_mut().zip(DEVICES) {
        hop.device = device;
    }
    hops
}

fn targets(of: &[(u32, TunnelRole)]) -> Targets {
    let mut tunnels: Vec<_> = of
        .iter()
        .map(|(device, role)| target(*device, *role))
        .collect();
    tunnels.sort_unstable();
    Targets {
        tunnels,
        ..Targets::default()
    }
}

/// As where each class has a tunnel, both are alive, and an agent has told the programs all of it.
fn choice_with(hops: [TunnelHops; 2], targets: Targets) -> RedirectedChoice {
    let site = SitePaths {
        known: 0b11,
        usable: 0b11,
        ..SitePaths::default()
    };
    let mut choice = RedirectedChoice::new(&site, &hops, targets);
    for (number, device) in PathId::all().zip(DEVICES) {
        choice.tunnels.push(RedirectedTunnel {
            device: name(device),
            usable: true,
            next_hop_known: hops.each_ref().map(|it| Some(it.of(number).is_some())),
        });
    }
    choice
}

fn both() -> Targets {
    targets(&[(7, TunnelRole::Short), (9, TunnelRole::Long)])
}

/// Routing leads a class by these devices.
fn trace(class: &'static str, devices: &[u32]) -> Trace {
    let next_hop = |device: &u32| NextHop {
        gateway: None,
        device: name(*device).to_string(),
        device_index: *device,
        weight: 1,
    };
    Trace {
        class,
        tunnel: class,
        lan: "lan".to_owned().try_into().unwrap(),
        source: [10, 1, 0, 2].into(),
        dscp: Some(2),
        fwmark: None,
        rule: None,
        table: None,
        prefix: None,
        balance: Some(Balance::Drb),
        tunnels: DEVICES.map(|it| name(it).to_string()).into(),
        not_taken: Vec::new(),
        longest_bytes: None,
        no_choice: None,
        next_hops: devices.iter().map(next_hop).collect(),
        chosen: None,
        is_split: true,
        reason: None,
        problem: None,
        remedy: None,
    }
}

/// Why nobody chooses by these answers for short flows and for long ones; the same for both of them.
fn no_choice(choice: &RedirectedChoice, short: &[u32], long: &[u32]) -> Option<String> {
    let told = choice.applied_to(&[trace("short", short), trace("long", long)], None);
    assert_eq!(told[0].no_choice.is_some(), told[1].no_choice.is_some());
    for it in &told {
        assert_eq!(it.balance.is_none(), it.no_choice.is_some());
        assert_eq!(it.tunnels.is_empty(), it.no_choice.is_some());
    }
    told[0].no_choice.clone()
}

#[test]
fn nobody_chooses_where_programs_are_led_past_the_tunnels() {
    let choice = choice_with([hops(); 2], both());
    let traces = [trace("short", &[7]), trace("long", &[9])];
    for told in choice.applied_to(&traces, Some("the main table leads it elsewhere")) {
        assert_eq!(
            told.no_choice.as_deref(),
            Some("the main table leads it elsewhere")
        );
        assert!(
            told.balance.is_none() && told.tunnels.is_empty(),
            "{told:?}"
        );
    }
}

#[test]
fn packets_choose_where_routing_parts_the_classes_and_say_up_to_which_length() {
    let choice = choice_with([hops(); 2], both());
    assert_eq!(no_choice(&choice, &[7], &[9]), None);
    let told = choice.applied_to(&[trace("short", &[7]), trace("long", &[9])], None);
    assert_eq!(told[1].tunnels, ["tun7", "tun9"]);
    assert_eq!(told[1].longest_bytes, Some(1_420));
    let words = told[1].choice_in_words().unwrap();
    assert!(words.contains("by drb among tun7, tun9"), "{words}");
    assert!(words.contains("at most 1420 bytes"), "{words}");
    assert!(
        choice.notes()[0].contains("1420 bytes"),
        "{:?}",
        choice.notes()
    );
}

#[test]
fn one_answer_for_both_classes_or_one_without_a_target_leaves_no_choice() {
    let choice = choice_with([hops(); 2], both());
    let because = |short, long| no_choice(&choice, short, long).unwrap();
    let foreign = because(&[7], &[8]);
    assert!(
        foreign.contains("leads long packets to no device"),
        "{foreign}"
    );
    let foreign = because(&[8], &[9]);
    assert!(foreign.contains("leads it to no device"), "{foreign}");
    // Each device takes either class, and a route of somebody's leads both there.
    let all = [
        (7, TunnelRole::Short),
        (7, TunnelRole::Long),
        (9, TunnelRole::Long),
    ];
    let choice = choice_with([hops(); 2], targets(&all));
    assert_eq!(no_choice(&choice, &[7], &[9]), None);
    let same = no_choice(&choice, &[7], &[7]).unwrap();
    assert!(same.contains("same answer for both"), "{same}");
}

#[test]
fn classes_in_one_tunnel_or_without_one_that_takes_packets_leave_no_choice_anywhere() {
    let one = [(7, TunnelRole::Short), (7, TunnelRole::Long)];
    for (targets, words) in [
        (targets(&one), "in the same tunnel"),
        (targets(&one[..1]), "no tunnel that packets can be put into"),
        (Targets::default(), "no tunnel that packets can be put into"),
    ] {
        let choice = choice_with([hops(); 2], targets);
        let reason = no_choice(&choice, &[7], &[9]).unwrap();
        assert!(reason.contains(words), "{reason}");
        assert!(choice.notes()[0].contains(words), "{:?}", choice.notes());
    }
    let untold = RedirectedChoice::new(&SitePaths::default(), &[hops(); 2], both());
    assert!(untold.nobody_because.is_some());
}

#[test]
fn tunnel_whose_next_hop_is_unknown_or_that_is_not_usable_is_not_taken_and_says_why() {
    let mut unknown = hops();
    unknown.hops[1] = TunnelHop::default();
    // Of a class that has another tunnel, too.
    let targets = targets(&[
        (7, TunnelRole::Short),
        (8, TunnelRole::Long),
        (9, TunnelRole::Long),
    ]);
    let mut choice = choice_with([unknown, hops()], targets);
    let not_taken = |choice: &RedirectedChoice, source: IpAddr| {
        let traces = [("short", 7), ("long", 8)].map(|(class, device)| Trace {
            source,
            ..trace(class, &[device])
        });
        let told = choice.applied_to(&traces, None);
        let why = told[1].not_taken.iter().map(|it| it.why.clone());
        (told[1].tunnels.clone(), why.collect::<Vec<_>>())
    };
    let v4: IpAddr = [10, 1, 0, 2].into();
    let v6: IpAddr = "fd00::2".parse().unwrap();
    let (tunnels, why) = not_taken(&choice, v4);
    assert_eq!(tunnels, ["tun7"]);
    assert!(why[0].contains("IPv4 next hop is not known"), "{why:?}");
    assert_eq!(not_taken(&choice, v6).0, ["tun7", "tun9"]);
    let notes = choice.notes().join("\n");
    assert!(
        notes.contains("IPv4 next hop of tun9 is not known"),
        "{notes}"
    );
    assert!(!notes.contains("IPv6 next hop"), "{notes}");
    // Routing knows no better.
    let own = no_choice(&choice, &[7], &[9]).unwrap();
    assert!(own.contains("or to a next hop that is not known"), "{own}");
    choice.tunnels[1].usable = false;
    let (tunnels, why) = not_taken(&choice, v6);
    assert_eq!(tunnels, ["tun7"]);
    assert!(why[0].contains("cannot be put into it"), "{why:?}");
}

#[test]
fn class_that_does_not_choose_is_left_as_it_was_traced() {
    let choice = choice_with([hops(); 2], both());
    let own = Trace {
        balance: None,
        tunnels: Vec::new(),
        ..trace("short", &[7])
    };
    assert_eq!(choice.applied_to(std::slice::from_ref(&own), None), [own]);
}
