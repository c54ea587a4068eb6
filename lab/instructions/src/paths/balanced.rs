//! Packets of which each chooses among the tunnels of a site.

use flow_balance::{PathId, RemoteBacklogs};
use splitter_policy::config::PolicyConfig;
use splitter_policy::fwmark::MarkBits;
use splitter_policy::paths::{SitePaths, TunnelPath, UplinkNumbers};

use super::rated::gigabit;
use super::{FAMILIES, LONG, Path, Segment, eager};

pub(super) fn paths() -> Vec<Path> {
    let of = |(family, frame)| [4, 16].map(|tunnels| by_tr(tunnels, family, frame));
    let heard = |(family, frame)| by_reports(family, frame);
    let all = FAMILIES.into_iter().flat_map(of);
    all.chain(FAMILIES.into_iter().map(heard)).collect()
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

/// A site with so many tunnels, of which the second is the nearest.
fn site(tunnels: usize) -> SitePaths {
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
