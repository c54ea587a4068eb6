//! What is known of the tunnels' health. Where nothing watches them there are no samples but zeros.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use splitter_common::flow::{Class, Tunnel};

use super::{SplitterCollector, counters_by, gauges};
use crate::health::{Placement, Refusal, Report, Seat, TunnelReport};

impl SplitterCollector {
    pub(super) fn encode_tunnels(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        report: &Report,
    ) -> fmt::Result {
        type Of<T> = fn(&TunnelReport) -> T;
        let families = &self.families;
        let tunnels = Tunnel::ALL.map(|tunnel| {
            let known = report.tunnels.iter().find(|it| it.tunnel == tunnel.name());
            (tunnel.name(), known)
        });
        let counts = |of: Of<u64>| tunnels.map(|(name, it)| (name, it.map_or(0, of)));
        let up = |it: &TunnelReport| u64::from(it.condition.is_usable());
        gauges(encoder, &families.tunnel_up, "tunnel", counts(up))?;
        let totals: [(_, Of<u64>); 3] = [
            (&families.tunnel_downs, |it| it.downs),
            (&families.probes_sent, |it| it.probes_sent),
            (&families.probes_lost, |it| it.probes_lost),
        ];
        for (family, of) in totals {
            counters_by(encoder, family, "tunnel", counts(of))?;
        }
        let measures: [(_, Of<Option<f64>>); 3] = [
            (&families.loss, |it| it.loss),
            (&families.round_trip, |it| it.round_trip_s),
            (&families.jitter, |it| it.jitter_s),
        ];
        for (family, of) in measures {
            let mut family = family.encode(encoder)?;
            for (name, known) in tunnels {
                // What was not measured is no number: 0 would be a good value.
                let value = known.and_then(of).unwrap_or(f64::NAN);
                family
                    .encode_family(&[("tunnel", name)])?
                    .encode_gauge(&value)?;
            }
        }
        let refused = Refusal::ALL.map(|it| (it.name(), report.refused[it as usize]));
        counters_by(encoder, &families.refused_probes, "reason", refused)
    }

    pub(super) fn encode_classes(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        report: &Report,
    ) -> fmt::Result {
        let of = |class: Class| report.classes.iter().find(|it| it.class == class.name());
        let mut placed = self.families.placed.encode(encoder)?;
        for class in Class::ALL {
            let seat = of(class).map_or(Placement::HOME.of(class), |it| it.tunnel);
            for tunnel in Seat::ALL {
                let labels = [("class", class.name()), ("tunnel", tunnel.name())];
                placed
                    .encode_family(&labels)?
                    .encode_gauge(&u64::from(seat == tunnel))?;
            }
        }
        let mut moves = self.families.class_moves.encode(encoder)?;
        for class in Class::ALL {
            let counts = of(class).map_or([0; Seat::ALL.len()], |it| it.moves);
            for tunnel in Seat::ALL {
                let labels = [("class", class.name()), ("tunnel", tunnel.name())];
                moves
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&counts[tunnel as usize], None)?;
            }
        }
        Ok(())
    }
}
