//! Packets of which each chooses among the tunnels of a site.

use flow_balance::{PathId, RemoteBacklogs};
use splitter_policy::config::PolicyConfig;
use splitter_policy::fwmark::MarkBits;
use splitter_policy::paths::{SitePaths, TunnelPath, UplinkNumbers};

use super::rated::gigabit;
use super::{FAMILIES, LONG, Path, Segment, eager};
use crate::border::TUNNEL;

pub(super) fn paths() -> Vec<Path> {
    let of = |(family, frame)| [4, 16].map(|tunnels| by_tr(tunnels, family, frame));
    let heard = |(family, frame)| by_reports(family, frame);
    let marked = |(family, frame)| by_dscp(family, frame);
    let all = FAMILIES.into_iter().flat_map(of);
    let redirected = |(family, frame)| past_stack(family, frame);
    let more = FAMILIES
        .into_iter()
        .flat_map(|it| [heard(it), marked(it), redirected(it)]);
    all.chain(more).collect()
}

/// A packet of a long flow by `balance = "tr"` that takes the next tunnel, for the nearest one's spine is full.
fn by_reports(family: &str, frame: Segment) -> Path {
    let marks = PolicyConfig {
        mark_bits: MarkBits::new(0x3f00).expect("one run"),
        ..eager()
    };
    let mark = "fwmark 0x200";
    Path::new(
        format!("tr_4_heard_long_{family}"),
        "mark_balanced",
        marks,
        &["next", "Long on Long", mark],
        move |border| {
            border.balance(&SitePaths {
                hears: 1,
                ..site(4)
            })?;
            let (mut uplinks, mut reports) = (UplinkNumbers::default(), RemoteBacklogs::default());
            for path in PathId::all().take(4) {
                uplinks.set(path, path);
            }
            let nearest = PathId::new(1).expect("there are 16");
            // Nothing of it has drained yet that would count.
            reports.behind_mut(nearest).report(u64::MAX / 4, 0);
            border.hear(&uplinks, &reports)?;
            border.send_times(&frame(1), LONG)?;
            border.pass_ticks(10);
            border.measure(&frame(1))
        },
    )
}

/// A packet of a long flow by `balance = "tr"`, the balancer that the object has without a loader.
fn by_tr(tunnels: usize, family: &str, frame: Segment) -> Path {
    let marks = PolicyConfig {
        mark_bits: MarkBits::new(0x3f00).expect("one run"),
        ..eager()
    };
    let mark = "fwmark 0x10200";
    Path::new(
        format!("tr_{tunnels}_known_long_{family}"),
        "mark_balanced",
        marks,
        &["next", "Long on Long", mark],
        move |border| {
            border.balance(&site(tunnels))?;
            border.send_times(&frame(1), LONG)?;
            // Nothing waits in front of any.
            border.pass_ticks(10);
            border.measure(&frame(1))
        },
    )
}

/// The same among four tunnels, where the class is in the packet's DSCP.
fn by_dscp(family: &str, frame: Segment) -> Path {
    Path::new(
        format!("dscp_tr_4_known_long_{family}"),
        "split_balanced",
        eager(),
        &["next", "Long on Long", "dscp 2", "fwmark 0x10000"],
        move |border| {
            border.balance(&site(4))?;
            border.send_times(&frame(1), LONG)?;
            // Nothing waits in front of any.
            border.pass_ticks(10);
            border.measure(&frame(1))
        },
    )
}

/// The traffic class of long packets, whose DSCP is 2.
const LONG_CLASS: u8 = 2 << 2;

/// The same where packets are redirected, and there are records of where routing leads each class.
fn past_stack(family: &str, frame: Segment) -> Path {
    Path::new(
        format!("redirect_tr_4_known_long_{family}"),
        "redir_balanced",
        eager(),
        &[
            "redirect",
            "Long on Long",
            "redirected",
            &format!("left Long {family}"),
            "dscp 2",
            "readdressed",
        ],
        move |border| {
            let mut site = site(4);
            site.devices = [TUNNEL; flow_balance::MAX_PATHS];
            border.balance(&site)?;
            border.redirect()?;
            border.part_ways(LONG_CLASS)?;
            border.keep_hops()?;
            border.vouch()?;
            border.send_times(&frame(1), LONG)?;
            // Nothing waits in front of any.
            border.pass_ticks(10);
            border.measure(&frame(1))
        },
    )
}

/// A site with so many tunnels, of which the second is the nearest.
pub(super) fn site(tunnels: usize) -> SitePaths {
    let all = (1 << tunnels) - 1;
    let mut site = SitePaths {
        known: all,
        usable: all,
        mark_mask: 0xf_0000,
        ..SitePaths::default()
    };
    for (number, tunnel) in (0..).zip(&mut site.tunnels[..tunnels]) {
        *tunnel = TunnelPath {
            propagation_ns: if number == 1 { 1_000_000 } else { 2_000_000 },
            service: gigabit(),
            own_service: gigabit(),
            queue_ns: 5_000_000,
            burst_ns: 0,
            weight: 1,
            mark: number << 16,
        };
    }
    site
}
