//! What really leaves by the tunnels, and what strays.

use std::collections::BTreeSet;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use splitter_instance::report::Report;
use splitter_instance::{ByClass, ByMark, Chosen, EgressRow, TunnelEgress, family_label};
use splitter_policy::flow::TunnelRole;

use super::{FAMILIES, SplitterCollector, labels_of};

impl SplitterCollector {
    pub(super) fn encode_egress(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        report: &Report,
    ) -> fmt::Result {
        let tunnels = self.egress.snapshot();
        let rows: Vec<_> = tunnels.iter().flat_map(TunnelEgress::rows).collect();
        type Count = fn(&EgressRow) -> &ByMark;
        let counts = [
            (&self.families.egress_packets, (|it| &it.packets) as Count),
            (&self.families.egress_bytes, |it| &it.bytes),
        ];
        for (family, count) in counts {
            let mut family = family.encode(encoder)?;
            for row in &rows {
                for (class, count) in ByMark::NAMES.into_iter().zip(count(row).counts()) {
                    let labels = [
                        ("tunnel", row.tunnel.to_owned()),
                        ("device", row.device.to_string()),
                        ("site", row.site.to_string()),
                        ("family", row.family.to_owned()),
                        ("class", class.to_owned()),
                    ];
                    family
                        .encode_family(&labels)?
                        .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
            }
        }
        let mut capacity = self.families.tunnel_capacity.encode(encoder)?;
        for tunnel in &tunnels {
            let Some(bits) = tunnel.capacity_bps else {
                continue;
            };
            capacity
                .encode_family(&labels_of(tunnel))?
                .encode_gauge(&(bits as f64 / 8.0))?;
        }
        self.encode_chosen(encoder, &tunnels)?;
        let mut misrouted = self.families.misrouted.encode(encoder)?;
        let sites: BTreeSet<_> = tunnels.iter().map(|it| &it.site).collect();
        for site in sites {
            for role in TunnelRole::ALL {
                for family in FAMILIES.map(family_label) {
                    let is_misrouted = report.strays.iter().any(|it| {
                        (&it.site, &*it.tunnel, &*it.family) == (site, role.name(), family)
                    });
                    let labels = [
                        ("tunnel", role.name().to_owned()),
                        ("site", site.to_string()),
                        ("family", family.to_owned()),
                    ];
                    misrouted
                        .encode_family(&labels)?
                        .encode_gauge(&u64::from(is_misrouted))?;
                }
            }
        }
        Ok(())
    }

    fn encode_chosen(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        tunnels: &[TunnelEgress],
    ) -> fmt::Result {
        let place = |tunnel: &TunnelEgress| {
            [
                ("device", tunnel.device.to_string()),
                ("site", tunnel.site.to_string()),
            ]
        };
        // Where packets do not choose, none has chosen.
        let chosen = tunnels.iter().map(|it| (it, it.chosen.unwrap_or_default()));
        let mut packets = self.families.chosen_packets.encode(encoder)?;
        for (tunnel, chosen) in chosen.clone() {
            for (class, count) in ByClass::NAMES.into_iter().zip(chosen.packets.counts()) {
                let [device, site] = place(tunnel);
                packets
                    .encode_family(&[device, site, ("class", class.to_owned())])?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        type Count = fn(&Chosen) -> u64;
        let counts = [
            (&self.families.chosen_bytes, (|it| it.bytes) as Count),
            (&self.families.chosen_changes, |it| it.changes),
            (&self.families.chosen_refusals, |it| it.refusals),
            (&self.families.model_looks, |it| it.looks),
        ];
        for (family, count) in counts {
            let mut family = family.encode(encoder)?;
            for (tunnel, chosen) in chosen.clone() {
                family
                    .encode_family(&place(tunnel))?
                    .encode_counter::<NoLabelSet, _, u64>(&count(&chosen), None)?;
            }
        }
        // Where the configuration names no fabric, nothing is heard.
        let heard = chosen.clone();
        let heard = heard.map(|(tunnel, it)| (place(tunnel), it.heard.unwrap_or_default()));
        let mut by_reports = self.families.chosen_by_reports.encode(encoder)?;
        for (place, heard) in heard.clone() {
            by_reports
                .encode_family(&place)?
                .encode_counter::<NoLabelSet, _, u64>(&heard.choices, None)?;
        }
        let mut hears = self.families.hears.encode(encoder)?;
        for (place, heard) in heard.clone() {
            hears
                .encode_family(&place)?
                .encode_gauge(&u64::from(heard.hears))?;
        }
        let mut age = self.families.report_age.encode(encoder)?;
        for (place, heard) in heard {
            if let Some(age_ns) = heard.report_age_ns {
                age.encode_family(&place)?
                    .encode_gauge(&(age_ns as f64 / 1e9))?;
            }
        }
        let mut error = self.families.model_error.encode(encoder)?;
        for (tunnel, chosen) in chosen {
            error
                .encode_family(&place(tunnel))?
                .encode_counter::<NoLabelSet, _, f64>(&(chosen.wrong_ns as f64 / 1e9), None)?;
        }
        Ok(())
    }
}
