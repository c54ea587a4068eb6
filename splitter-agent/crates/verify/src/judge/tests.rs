use std::net::IpAddr;

use splitter_config::SteeringMode;
use splitter_datapath::{AttachedMode, Pins};
use splitter_netlink::{Family, InterfaceName};

use super::*;
use crate::marks::{Mark, Marks};
use crate::survey::{Lan, Threshold};

fn marks() -> Marks {
    let mark = |number, class, device: &str| Mark {
        number,
        class,
        devices: vec![device.to_owned()],
        weights: vec![1],
    };
    Marks(vec![
        mark(4, Class::Short, "wan0"),
        mark(2, Class::Long, "wan1"),
    ])
}

pub(crate) fn border() -> Border {
    Border {
        name: "test".to_owned(),
        marks: marks(),
        fwmark: None,
        steering: SteeringMode::Dscp,
        pins: Pins::new("/nowhere".as_ref(), "/nowhere/test".as_ref()),
        is_shared: false,
        max_wait: Duration::from_millis(12),
        devices: BTreeMap::new(),
        tunnel_devices: vec!["wan0".to_owned(), "wan1".to_owned()],
    }
}

pub(crate) fn plan(class: Class) -> PathPlan {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    PathPlan {
        lan: Lan {
            name: InterfaceName::try_from("lan0".to_owned()).unwrap(),
            index: 2,
            address: [2; 6],
            mtu: 1_500,
            mode: AttachedMode::Native,
        },
        family: Family::V4,
        class,
        source: address("10.1.1.1"),
        destination: address("10.2.1.2"),
        threshold: Threshold::Packets(40),
        site: None,
        marks: marks(),
        has_far_agent: true,
        port: 9,
        may_echo: true,
        count: 10,
    }
}

/// Probes that left one after the other by a device with a mark, each answered after so many
/// milliseconds, or not.
fn observed(device: &str, mark: Option<u8>, answers_ms: &[Option<u64>]) -> Observed {
    let mut observed = Observed {
        answered_by: answers_ms.iter().any(Option::is_some).then_some("tcp"),
        ..Observed::default()
    };
    for (number, answer_ms) in (0_u16..).zip(answers_ms) {
        let at = Duration::from_secs(number.into());
        let device = device.to_owned();
        observed.left.insert(number, Left { device, mark, at });
        if let Some(ms) = answer_ms {
            let answer = Answer {
                device: "wan0".to_owned(),
                dscp: 0,
                at: at + Duration::from_millis(*ms),
            };
            observed.answers.insert(number, answer);
        }
        observed.asked.push(number);
        observed.judged.push(number);
    }
    observed
}

/// Two probes that left as they should and were answered by a device with a DSCP.
pub(crate) fn answered(device: &str, dscp: u8) -> Observed {
    let mut observed = observed("wan1", Some(2), &[Some(1), Some(1)]);
    for answer in observed.answers.values_mut() {
        (answer.device, answer.dscp) = (device.to_owned(), dscp);
    }
    observed
}

#[test]
fn way_back_that_is_not_as_marked_is_no_ok() {
    let verdict = |device, dscp| verdict(Class::Long, &answered(device, dscp));
    assert_eq!(verdict("wan1", 2).0, Verdict::Ok);
    assert_eq!(verdict("wan0", 0).0, Verdict::Ok, "nobody splits there");
    assert_eq!(verdict("wan0", 2).0, Verdict::Ok, "nor there, perhaps");
    let (unknown, why) = verdict("wan1", 4);
    assert_eq!(unknown, Verdict::Unknown);
    assert!(why.contains("came back by wan1"), "{why}");
}

fn verdict(class: Class, observed: &Observed) -> (Verdict, String) {
    let report = judge(&border(), &plan(class), observed);
    (report.verdict, report.why)
}

#[test]
fn path_that_was_taken_and_answered_is_ok_with_its_figures() {
    let observed = observed("wan1", Some(2), &[Some(10), Some(20), None, Some(30)]);
    let report = judge(&border(), &plan(Class::Long), &observed);
    assert_eq!(report.verdict, Verdict::Ok);
    assert_eq!((report.sent, report.answered), (4, 3));
    assert_eq!(report.loss_percent, Some(25.0));
    let delay = report.delay_ms.unwrap();
    assert!((delay.mean - 20.0).abs() < 1e-9, "{delay:?}");
    assert_eq!(report.taken, [("wan1".to_owned(), 4)].into());
    assert_eq!(report.marked, [("2".to_owned(), 4)].into());
    assert_eq!(report.came_back_by, [("wan0".to_owned(), 3)].into());
    assert!(report.why.contains("1 of 4"), "{}", report.why);
}

#[test]
fn mark_that_leaves_by_another_device_is_wrong_although_it_is_answered() {
    let observed = observed("wan0", Some(2), &[Some(1), Some(1)]);
    let (verdict, why) = verdict(Class::Long, &observed);
    assert_eq!(verdict, Verdict::Wrong);
    assert!(why.contains("2 of 2 packets left by wan0"), "{why}");
}

#[test]
fn single_packet_that_strays_is_wrong() {
    let mut observed = observed("wan1", Some(2), &[Some(1), Some(1)]);
    observed.left.get_mut(&1).unwrap().device = "wan0".to_owned();
    let (verdict, why) = verdict(Class::Long, &observed);
    assert_eq!(verdict, Verdict::Wrong);
    assert!(why.contains("1 of 2"), "{why}");
}

#[test]
fn mark_that_was_taken_away_is_wrong_where_the_path_is() {
    let mut stray = observed("wan0", Some(0), &[]);
    stray.judged.push(0);
    let left = Left {
        device: "wan0".to_owned(),
        mark: Some(0),
        at: Duration::ZERO,
    };
    stray.left.insert(0, left);
    stray.class = ClassReached::No(50);
    let (wrong, why) = verdict(Class::Long, &stray);
    assert_eq!(wrong, Verdict::Wrong);
    assert!(why.contains("with DSCP 0, which is none of ours"), "{why}");
    // Behind the rules nobody needs it any more.
    let right = observed("wan1", Some(0), &[Some(1)]);
    let (ok, why) = verdict(Class::Long, &right);
    assert_eq!(ok, Verdict::Ok);
    assert!(why.contains("mark was changed"), "{why}");
}

#[test]
fn silence_is_unknown_and_nothing_that_leaves_is_wrong() {
    let silent = observed("wan1", Some(2), &[None, None, None]);
    assert_eq!(verdict(Class::Long, &silent).0, Verdict::Unknown);
    let nothing = Observed {
        class: ClassReached::NothingLeft(44),
        ..Observed::default()
    };
    let (wrong, why) = verdict(Class::Long, &nothing);
    assert_eq!(wrong, Verdict::Wrong);
    assert!(why.contains("none of 44"), "{why}");
}

#[test]
fn what_takes_too_many_packets_is_unknown() {
    let observed = Observed {
        class: ClassReached::TooMany(100_000),
        answered_by: Some("tcp"),
        ..Observed::default()
    };
    assert_eq!(verdict(Class::Long, &observed).0, Verdict::Unknown);
}

#[test]
fn class_that_is_not_reached_is_wrong_for_long_flows_alone() {
    let observed = Observed {
        class: ClassReached::No(80),
        ..Observed::default()
    };
    assert_eq!(verdict(Class::Long, &observed).0, Verdict::Wrong);
    assert_eq!(verdict(Class::Short, &observed).0, Verdict::Unknown);
}

#[test]
fn class_without_a_tunnel_is_unknown() {
    let mut plan = plan(Class::Long);
    plan.marks.0[1].devices.clear();
    let observed = observed("eth9", Some(2), &[Some(1)]);
    let report = judge(&border(), &plan, &observed);
    assert_eq!(report.verdict, Verdict::Unknown);
}
