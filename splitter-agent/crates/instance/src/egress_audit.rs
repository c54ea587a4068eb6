//! Comparing what was marked for the tunnels of each class with what they were really handed.

use std::collections::BTreeMap;

use splitter_config::{Balancers, SiteName};
use splitter_datapath::Dataplane;
use splitter_health::misrouting::{Finding, MisroutingJudge, Stray, TunnelInterval};
use splitter_netlink::Family;
use splitter_policy::counters::Counters;
use splitter_policy::egress_counts::EgressCounts;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_steering::{Egress, Placements};

use crate::report::{Misrouted, class_of};
use crate::{Instance, TunnelEgress, family_label};

/// Holds what is known of packets that stray, from one look to the next.
#[derive(Debug, Default)]
pub struct EgressAudit {
    judge: MisroutingJudge,
    last: Option<Totals>,
    found: BTreeMap<Stray, Misrouted>,
}

/// What was marked and what has left, ever, and where the classes were by then.
#[derive(Debug)]
struct Totals {
    /// In the order of [`TunnelRole::ALL`].
    marked_bytes: [u64; 2],
    tunnels: Vec<TunnelEgress>,
    placements: Placements,
}

impl EgressAudit {
    /// Looks what was marked and what has left by now, and says in the log what has changed of
    /// packets that stray. Returns what has left; none where it cannot be read.
    pub async fn look(
        &mut self,
        instance: &Instance,
        dataplane: &Dataplane,
    ) -> Option<Vec<TunnelEgress>> {
        // First what was marked: what leaves meanwhile is not missing.
        let counters = dataplane.counters().ok()?;
        let tunnels = instance.egress(dataplane).await.ok()?;
        let now = Totals {
            marked_bytes: TunnelRole::ALL.map(|role| marked_bytes(&counters, role)),
            tunnels: tunnels.clone(),
            placements: instance.placements().ok()?,
        };
        match instance.config().shadow {
            // It marks nothing.
            true => *self = Self::default(),
            false => self.take(now, instance.config().balancers()),
        }
        Some(tunnels)
    }

    /// Lists the packets that stray.
    #[must_use]
    pub fn strays(&self) -> Vec<Misrouted> {
        self.found.values().cloned().collect()
    }

    fn take(&mut self, now: Totals, balancers: Option<Balancers>) {
        let Some(before) = self.last.take() else {
            self.last = Some(now);
            return;
        };
        // While a class moves, its packets are on their way by both.
        if before.placements == now.placements {
            let Some((marked_bytes, intervals)) = grown(&before, &now, balancers) else {
                // Programs or devices that are others count from the start.
                *self = Self::default();
                return;
            };
            for finding in self.judge.observe(marked_bytes, &intervals) {
                self.announce(finding, &now.tunnels);
            }
        }
        self.last = Some(now);
    }

    fn announce(&mut self, finding: Finding, tunnels: &[TunnelEgress]) {
        match finding {
            Finding::Misrouted(stray, packets) => {
                let tunnel = tunnels.iter().find(|it| it.device.as_str() == stray.device);
                let Some(tunnel) = tunnel else {
                    return;
                };
                let misrouted = describe(&stray, packets, tunnel);
                tracing::warn!(event = "misrouted", "misrouted: {}", misrouted.problem);
                self.found.insert(stray, misrouted);
            }
            Finding::Ended(stray) => {
                if let Some(Misrouted {
                    site,
                    tunnel,
                    family,
                    device,
                    ..
                }) = self.found.remove(&stray)
                {
                    tracing::info!(
                        event = "not_misrouted",
                        "no {family} packets of {} stray by {device} any more",
                        class_of(&site, &tunnel)
                    );
                }
            }
        }
    }
}

/// What was marked and what left by each tunnel between two looks; `None` where they are not of the
/// same devices and programs.
fn grown(
    before: &Totals,
    now: &Totals,
    balancers: Option<Balancers>,
) -> Option<([u64; 2], Vec<TunnelInterval>)> {
    let mut marked_bytes = now.marked_bytes;
    for (now, before) in marked_bytes.iter_mut().zip(before.marked_bytes) {
        *now = now.checked_sub(before)?;
    }
    let sites: Vec<&SiteName> = now.tunnels.iter().map(|it| &it.site).collect();
    let mut intervals = Vec::new();
    for tunnel in &now.tunnels {
        let is_same = |it: &&TunnelEgress| (&it.device, it.index) == (&tunnel.device, tunnel.index);
        let earlier = before.tunnels.iter().find(is_same);
        let left = match (earlier.map(|it| it.counts), tunnel.counts) {
            (Some(Some(before)), Some(now)) => now.since(&before)?,
            // It is counted from now on, or cannot be.
            _ => EgressCounts::ZERO,
        };
        let placement = now.placements.of(&tunnel.site);
        intervals.push(TunnelInterval {
            device: tunnel.device.to_string(),
            site: sites.iter().position(|it| **it == tunnel.site)?,
            carries: Class::ALL.map(|class| {
                match balancers.is_some_and(|it| it.may_be_in_any(class)) {
                    true => placement.uses(tunnel.tunnel, &tunnel.device),
                    false => placement.of(class) == Egress::of(tunnel.tunnel),
                }
            }),
            left,
        });
    }
    Some((marked_bytes, intervals))
}

fn describe(stray: &Stray, packets: u64, by: &TunnelEgress) -> Misrouted {
    let family = if stray.is_v6 { Family::V6 } else { Family::V4 };
    let (device, tunnels) = (&by.device, stray.role.name());
    let site = match by.site == SiteName::default() {
        true => String::new(),
        false => format!(" of {}", by.site),
    };
    let problem = match stray.is_unmarked {
        false => format!(
            "{packets} {family} packets that are marked for the {tunnels} tunnels{site} left by \
             {device} within seconds; look for what comes before the splitter's rules and routes \
             (`ip rule`, `splitter explain`)"
        ),
        true => format!(
            "{packets} {family} packets left by {device} without a mark within seconds, and what was \
             marked for the {tunnels} tunnels{site} did not leave by them; look for what takes marks \
             away (`nft list ruleset`)"
        ),
    };
    Misrouted {
        site: by.site.clone(),
        tunnel: tunnels.to_owned(),
        family: family_label(family).to_owned(),
        device: device.clone(),
        problem,
    }
}

fn marked_bytes(counters: &Counters, role: TunnelRole) -> u64 {
    let classes = Class::ALL.iter();
    classes.map(|class| counters.bytes(*class, role)).sum()
}

#[cfg(test)]
mod tests {
    use splitter_config::Balance::{Placement, Tr};
    use splitter_netlink::InterfaceName;

    use super::*;

    /// By which of two tunnels packets of the short and of the long class are to leave.
    fn carries(balancers: Option<Balancers>, disabled: &[&str]) -> Vec<[bool; 2]> {
        let device = |name: &str| InterfaceName::try_from(name.to_owned()).unwrap();
        let tunnels = TunnelRole::ALL.map(|tunnel| TunnelEgress {
            site: SiteName::default(),
            tunnel,
            device: device(tunnel.name()),
            index: 1,
            capacity_bps: None,
            chosen: None,
            counts: None,
        });
        let mut placements = Placements::default();
        if !disabled.is_empty() {
            let placement = splitter_steering::Placement {
                long: Egress::Short,
                disabled: disabled.iter().map(|it| device(it)).collect(),
                ..splitter_steering::Placement::PRIMARY
            };
            placements.set(SiteName::default(), placement);
        }
        let totals = Totals {
            marked_bytes: [0; 2],
            tunnels: tunnels.to_vec(),
            placements,
        };
        let (_, intervals) = grown(&totals, &totals, balancers).unwrap();
        intervals.iter().map(|it| it.carries).collect()
    }

    #[test]
    fn class_that_chooses_leaves_by_each_usable_tunnel() {
        let ways = |short, long| Some(Balancers { short, long });
        let own = [[true, false], [false, true]];
        assert_eq!(carries(None, &[]), own);
        assert_eq!(carries(ways(Tr, Tr), &[]), [[true; 2]; 2]);
        assert_eq!(
            carries(ways(Placement, Tr), &[]),
            [[true, true], [false, true]]
        );
        // What is long stays where it was short until that is in order.
        assert_eq!(
            carries(ways(Placement, Placement), &[]),
            [[true, true], [false, true]]
        );
        assert_eq!(carries(ways(Tr, Placement), &[]), [[true; 2]; 2]);
        let one_left = [[true; 2], [false; 2]];
        assert_eq!(carries(ways(Tr, Tr), &["long"]), one_left);
        assert_eq!(carries(None, &["long"]), one_left);
    }
}
