//! What is known of the tunnels' health. Where nothing watches them there are no samples of single
//! tunnels.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use splitter_config::SiteName;
use splitter_health::{Condition, LinkKind, OverloadReason, Refusal, Untimed};
use splitter_policy::flow::Class;
use splitter_policy::histogram::Histogram;
use splitter_steering::{Egress, Placement};

use super::completion::encode_histogram;
use super::{SplitterCollector, counters_by};
use splitter_instance::report::{ClassReport, Report, TunnelReport};

impl SplitterCollector {
    pub(super) fn encode_tunnels(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        report: &Report,
    ) -> fmt::Result {
        type Of<T> = fn(&TunnelReport) -> T;
        let families = &self.families;
        let labels = |it: &TunnelReport| {
            let (tunnel, device) = (it.tunnel.clone(), it.device.to_string());
            [
                ("tunnel", tunnel),
                ("device", device),
                ("site", it.site.to_string()),
            ]
        };
        let states: [(_, Of<bool>); 3] = [
            (&families.tunnel_up, |it| it.condition.is_usable()),
            (&families.tunnel_unknown, |it| {
                it.condition == Condition::Unknown
            }),
            (&families.tunnel_in_use, |it| it.in_use),
        ];
        for (family, of) in states {
            let mut family = family.encode(encoder)?;
            for tunnel in &report.tunnels {
                family
                    .encode_family(&labels(tunnel))?
                    .encode_gauge(&u64::from(of(tunnel)))?;
            }
        }
        let mut links = families.tunnel_link.encode(encoder)?;
        for tunnel in &report.tunnels {
            for link in LinkKind::ALL {
                let [role, device, site] = labels(tunnel);
                links
                    .encode_family(&[role, device, site, ("state", link.name().to_owned())])?
                    .encode_gauge(&u64::from(tunnel.link == link))?;
            }
        }
        let totals: [(_, Of<u64>); 3] = [
            (&families.tunnel_downs, |it| it.downs),
            (&families.probes_sent, |it| it.probes_sent),
            (&families.probes_lost, |it| it.probes_lost),
        ];
        for (family, of) in totals {
            let mut family = family.encode(encoder)?;
            for tunnel in &report.tunnels {
                family
                    .encode_family(&labels(tunnel))?
                    .encode_counter::<NoLabelSet, _, u64>(&of(tunnel), None)?;
            }
        }
        let mut untimed = families.untimed_answers.encode(encoder)?;
        for tunnel in &report.tunnels {
            for (part, count) in Untimed::ALL.iter().zip(tunnel.untimed_answers) {
                let [role, device, site] = labels(tunnel);
                untimed
                    .encode_family(&[role, device, site, ("part", part.name().to_owned())])?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let measures: [(_, Of<Option<f64>>); 3] = [
            (&families.loss, |it| it.loss),
            (&families.round_trip, |it| it.round_trip_s),
            (&families.jitter, |it| it.jitter_s),
        ];
        for (family, of) in measures {
            let mut family = family.encode(encoder)?;
            for tunnel in &report.tunnels {
                // What was not measured is no number: 0 would be a good value.
                let value = of(tunnel).unwrap_or(f64::NAN);
                family
                    .encode_family(&labels(tunnel))?
                    .encode_gauge(&value)?;
            }
        }
        let refused = Refusal::ALL.map(|it| (it.name(), report.refused[it as usize]));
        counters_by(encoder, &families.refused_probes, "reason", refused)?;
        let signs = OverloadReason::ALL.map(|it| (it.name(), report.overloads.0[it as usize]));
        counters_by(encoder, &families.overloads, "reason", signs)
    }

    pub(super) fn encode_classes(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        report: &Report,
    ) -> fmt::Result {
        // Where nothing watches the tunnels each class is in its own.
        let unwatched = Class::ALL.map(|class| ClassReport {
            site: SiteName::default(),
            class: class.name().to_owned(),
            tunnel: Placement::PRIMARY.of(class),
            moves: [0; Egress::ALL.len()],
            jitter: Histogram::EMPTY,
        });
        let classes = match &report.classes[..] {
            [] => &unwatched[..],
            classes => classes,
        };
        let labels = |it: &ClassReport, tunnel: Egress| {
            let (site, class) = (it.site.to_string(), it.class.clone());
            [
                ("class", class),
                ("tunnel", tunnel.name().to_owned()),
                ("site", site),
            ]
        };
        let mut placed = self.families.placed.encode(encoder)?;
        for class in classes {
            for tunnel in Egress::ALL {
                placed
                    .encode_family(&labels(class, tunnel))?
                    .encode_gauge(&u64::from(class.tunnel == tunnel))?;
            }
        }
        let mut moves = self.families.class_moves.encode(encoder)?;
        for class in classes {
            for tunnel in Egress::ALL {
                moves
                    .encode_family(&labels(class, tunnel))?
                    .encode_counter::<NoLabelSet, _, u64>(&class.moves[tunnel as usize], None)?;
            }
        }
        let mut jitter = self.families.class_jitter.encode(encoder)?;
        for class in classes {
            let labels = [("class", &*class.class), ("site", class.site.as_str())];
            encode_histogram(&mut jitter, &labels, &class.jitter)?;
        }
        Ok(())
    }
}
