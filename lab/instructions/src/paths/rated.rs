//! Tunnels of stated rates, whose queues are modelled.

use anyhow::{Result, ensure};
use flow_balance::ServiceTime;
use splitter_policy::config::PolicyConfig;
use splitter_policy::thresholds::Thresholds;

use super::{FAMILIES, LONG, Path, SHORT, Segment, eager};
use crate::border::{Border, Measured};

pub(super) fn gigabit() -> ServiceTime {
    ServiceTime::from_bits_per_second(1_000_000_000)
}

/// Full packets that take longer than a tick of 4 ms at that rate: 12 us each.
const QUEUE: usize = 600;

pub(super) fn paths() -> Vec<Path> {
    FAMILIES.into_iter().flat_map(of_family).collect()
}

fn of_family((family, frame): (&'static str, Segment)) -> [Path; 4] {
    let rated = PolicyConfig {
        short_service: gigabit(),
        long_service: gigabit(),
        ..eager()
    };
    let never_long = PolicyConfig {
        thresholds: Thresholds::uniform(u64::MAX),
        ..rated
    };
    let short = ["pass", "Short on Short", "dscp 4"];
    [
        Path::new(
            format!("rated_known_short_{family}_idle"),
            "split",
            rated,
            &short,
            move |border| {
                border.send_times(&frame(1), SHORT)?;
                border.pass_ticks(100);
                let measured = border.measure(&frame(1))?;
                is_queued(border, frame, false)?;
                Ok(measured)
            },
        ),
        Path::new(
            format!("rated_known_short_{family}_queued"),
            "split",
            PolicyConfig {
                thresholds: Thresholds::uniform(QUEUE as u64 + 100),
                ..rated
            },
            &short,
            move |border| {
                border.send_times(&frame(1), QUEUE)?;
                let measured = border.measure(&frame(1))?;
                is_queued(border, frame, true)?;
                Ok(measured)
            },
        ),
        Path::new(
            format!("rated_known_long_{family}"),
            "split",
            rated,
            &["pass", "Long on Long", "dscp 2"],
            move |border| {
                for _ in 0..LONG {
                    border.send(&frame(1))?;
                    border.pass_ticks(1);
                }
                border.measure(&frame(1))
            },
        ),
        Path::new(
            format!("rated_insertion_{family}"),
            "split",
            never_long,
            &["pass", "Short on Short", "Started", "dscp 4"],
            move |border| border.measure(&frame(1)),
        ),
    ]
}

/// Makes sure that the queue of the short tunnel is as the path's name says: a flow that becomes long
/// there leaves it at once if, and only if, that is empty for it.
fn is_queued(border: &mut Border, frame: Segment, expected: bool) -> Result<()> {
    let other = frame(2);
    let became_long = |it: &Measured| it.done.iter().any(|done| done == "BecameLong");
    if !expected {
        // Each packet has left before the next one comes.
        border.pass_ticks(1);
    }
    for _ in 0..2 * QUEUE {
        let measured = border.measure(&other)?;
        if became_long(&measured) {
            let has_left = measured.done.iter().any(|it| it == "HandedOverDrained");
            ensure!(
                has_left != expected,
                "the short tunnel's queue is not as the path's name says"
            );
            return Ok(());
        }
        if !expected {
            border.pass_ticks(1);
        }
    }
    anyhow::bail!("no flow becomes long")
}
