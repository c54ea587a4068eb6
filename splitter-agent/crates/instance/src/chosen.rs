//! What packets have chosen, where those of a site choose among all its tunnels.

use std::path::Path;

use serde::Serialize;
use splitter_config::SiteName;
use splitter_datapath::{Dataplane, HeardByTunnel, KernelError, PathQueues};
use splitter_netlink::InterfaceName;
use splitter_policy::paths::{PathCounters, PathId, SitePaths};

use crate::TunnelEgress;

/// What the program that chooses knows of its tunnels, and counts.
pub(crate) struct Choices {
    site: SitePaths,
    counters: PathCounters,
    queues: Option<PathQueues>,
    /// Where packets are to choose by what a fabric's spines report.
    heard: Option<HeardByTunnel>,
}

impl Choices {
    /// Reads them, and what packets hear of the leaf whose programs are pinned in `fabric`; none where no packet
    /// chooses.
    pub(crate) fn read(
        dataplane: &Dataplane,
        fabric: Option<&Path>,
    ) -> Result<Option<Self>, KernelError> {
        let (site, counters) = (dataplane.site_paths()?, dataplane.path_counters()?);
        let Some((site, counters)) = site.zip(counters) else {
            return Ok(None);
        };
        Ok(Some(Self {
            site,
            counters,
            queues: dataplane.path_queues()?,
            heard: match fabric {
                Some(directory) => dataplane.heard(directory)?,
                None => None,
            },
        }))
    }

    /// What goes for the tunnel of this number, in the order of the configuration.
    pub(crate) fn of(&self, number: usize) -> Option<Chosen> {
        let counters = &self.counters;
        let queues = self.queues.as_ref().map(PathQueues::queues);
        let compared = queues.zip(PathId::new(number));
        let (looks, wrong_ns) = compared.map_or((0, 0), |(queues, path)| queues.compared(path));
        Some(Chosen {
            is_usable: self.site.usable >> number & 1 == 1,
            delay_ns: self.site.tunnels.get(number)?.propagation_ns,
            packets: ByClass {
                short: *counters.short_packets.get(number)?,
                long: *counters.long_packets.get(number)?,
                other: *counters.other_packets.get(number)?,
            },
            bytes: *counters.bytes.get(number)?,
            changes: *counters.changes.get(number)?,
            refusals: *counters.refusals.get(number)?,
            looks,
            wrong_ns,
            heard: PathId::new(number).and_then(|path| {
                let heard = self.heard.as_ref()?;
                Some(Heard {
                    hears: heard.hears(path),
                    report_age_ns: heard.report_age_ns(path),
                    choices: heard.choices(path),
                })
            }),
        })
    }
}

/// How often packets have chosen a tunnel since the program was loaded, and what they go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Whether packets may choose it: it forwards them, as far as is known.
    pub is_usable: bool,
    /// From here to the other border while nothing waits, as it is stated or was measured, and what a
    /// shaper lets through at once; 0 where nobody knows.
    pub delay_ns: u64,
    /// Packets that chose it.
    pub packets: ByClass,
    /// Their bytes, as the tunnel's device counts them.
    pub bytes: u64,
    /// Those of which the packet before in their flow had taken another tunnel.
    pub changes: u64,
    /// Those that would have arrived earlier by another tunnel, where they would have overtaken their flow; only
    /// with `balance = "tr"`.
    pub refusals: u64,
    /// How often the model of the queue in front of it was held against the queue.
    pub looks: u64,
    /// By how much the model was found wrong then, and mended, in sum.
    pub wrong_ns: u64,
    /// What packets hear of the spine behind it; none where the configuration names no fabric.
    pub heard: Option<Heard>,
}

/// Describes what packets hear of the spine behind a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The tunnel is an uplink of a leaf in place, and packets go by what is reported there.
    pub hears: bool,
    /// How long ago the spine reported last; none where it never has.
    pub report_age_ns: Option<u64>,
    /// Packets that chose the tunnel by reports.
    pub choices: u64,
}

impl Chosen {
    /// Reads what packets have chosen, in the order of the configuration's tunnels and beyond these; nothing where
    /// they do not choose.
    ///
    /// # Errors
    /// When the maps cannot be read.
    pub fn read_all(dataplane: &Dataplane) -> Result<Vec<Self>, KernelError> {
        let choices = Choices::read(dataplane, None)?;
        let all = |it: Choices| (0..).map_while(|number| it.of(number)).collect();
        Ok(choices.map(all).unwrap_or_default())
    }
}

/// Shows how packets chose a tunnel of late; nothing where they do not, or nothing is known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ChosenRates {
    /// Packets a second that chose it.
    pub chosen_packets_per_s: Option<f64>,
    /// The part of them, from 0 to 1, of which the packet before in their flow had taken another tunnel.
    pub chosen_changes_ratio: Option<f64>,
    /// The part of them, from 0 to 1, that would have arrived earlier by another tunnel, where they would have
    /// overtaken their flow.
    pub chosen_refusals_ratio: Option<f64>,
    /// By how much the model of the queue in front of it was found wrong, and mended, in the mean.
    pub model_error_us: Option<f64>,
}

impl ChosenRates {
    /// Returns what rose between two looks, `seconds` apart.
    #[must_use]
    pub fn new(before: &Chosen, now: &Chosen, seconds: f64) -> Self {
        // Programs that take the place of others count from zero.
        let rose = |count: fn(&Chosen) -> u64| Some(count(now).checked_sub(count(before))? as f64);
        let packets = rose(|it| it.packets.counts().iter().sum());
        let by = |of: Option<f64>, all: Option<f64>| Some(of? / all.filter(|it| *it > 0.0)?);
        let error_ns = by(rose(|it| it.wrong_ns), rose(|it| it.looks));
        Self {
            chosen_packets_per_s: by(packets, Some(seconds)),
            chosen_changes_ratio: by(rose(|it| it.changes), packets),
            chosen_refusals_ratio: by(rose(|it| it.refusals), packets),
            model_error_us: error_ns.map(|it| it / 1e3),
        }
    }
}

/// Packets by the class of their flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByClass {
    /// Of short flows.
    pub short: u64,
    /// Of long flows.
    pub long: u64,
    /// Of what is not split, such as UDP.
    pub other: u64,
}

impl ByClass {
    /// The values of a label or column that tells them apart.
    pub const NAMES: [&'static str; 3] = ["short", "long", "other"];

    /// Lists the counts in the order of [`Self::NAMES`].
    #[must_use]
    pub const fn counts(self) -> [u64; 3] {
        [self.short, self.long, self.other]
    }
}

/// A tunnel that packets choose, as `status` lists it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChosenRow {
    /// The site that it leads to.
    pub site: SiteName,
    /// The tunnel's device.
    pub device: InterfaceName,
    /// Whether packets may choose it.
    pub usable: bool,
    /// The delay that packets reckon with while nothing waits.
    pub delay_ms: f64,
    /// Packets that chose it since the program was loaded.
    pub packets: ByClass,
    /// Their bytes, as the tunnel's device counts them.
    pub bytes: u64,
    /// Packets of which the one before in their flow had taken another tunnel.
    pub changes: u64,
    /// Packets that would have arrived earlier by another tunnel, where they would have overtaken their flow; only
    /// with `balance = "tr"`.
    pub refusals: u64,
    /// By how much the model of the queue in front of it was found wrong, and mended, in the mean of all times that
    /// it was held against the queue; none before the first.
    pub model_error_us: Option<f64>,
    /// Their share of the bytes of all tunnels, from 0 to 1; none before the first packet.
    pub share: Option<f64>,
    /// Whether packets go by what the spine behind it reports; none where the configuration names no fabric.
    pub hears: Option<bool>,
    /// How long ago that reported last; none where it never has.
    pub report_age_ms: Option<f64>,
    /// Packets that chose it by what spines report.
    pub chosen_by_reports: u64,
}

impl ChosenRow {
    /// Lists the tunnels that packets choose among; none where they do not.
    #[must_use]
    pub fn of(tunnels: &[TunnelEgress]) -> Vec<Self> {
        let chosen = || tunnels.iter().filter_map(|it| Some((it, it.chosen?)));
        let all: u64 = chosen().map(|(_, it)| it.bytes).sum();
        chosen()
            .map(|(tunnel, it)| Self {
                site: tunnel.site.clone(),
                device: tunnel.device.clone(),
                usable: it.is_usable,
                delay_ms: it.delay_ns as f64 / 1e6,
                packets: it.packets,
                bytes: it.bytes,
                changes: it.changes,
                refusals: it.refusals,
                model_error_us: (it.looks > 0).then(|| it.wrong_ns as f64 / 1e3 / it.looks as f64),
                share: (all > 0).then(|| it.bytes as f64 / all as f64),
                hears: it.heard.map(|it| it.hears),
                report_age_ms: it.heard.and_then(|it| Some(it.report_age_ns? as f64 / 1e6)),
                chosen_by_reports: it.heard.map_or(0, |it| it.choices),
            })
            .collect()
    }

    /// Says what packets hear of a fabric, in a line; nothing where the configuration names none.
    #[must_use]
    pub fn heard_in_words(rows: &[Self]) -> Option<String> {
        let named: Vec<_> = rows.iter().filter(|it| it.hears.is_some()).collect();
        let choices: u64 = named.iter().map(|it| it.chosen_by_reports).sum();
        let heard = named.iter().filter(|it| it.hears == Some(true));
        let heard: Vec<_> = heard
            .map(|it| match it.report_age_ms {
                Some(age_ms) if age_ms < 1e3 => format!("{} {age_ms:.1} ms ago", it.device),
                Some(age_ms) => format!("{} {:.0} s ago", it.device, age_ms / 1e3),
                None => format!("{} never", it.device),
            })
            .collect();
        if named.is_empty() {
            return None;
        }
        Some(match heard.is_empty() {
            true => format!(
                "No tunnel is an uplink of a leaf in place, so that nothing is heard of spines; {choices} packets have chosen by their reports."
            ),
            false => format!(
                "Spines behind tunnels have reported last: {}; {choices} packets have chosen by their reports.",
                heard.join(", ")
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_is_heard_how_old_it_is_and_who_had_it() {
        let row = |device: &str, heard| TunnelEgress {
            site: SiteName::default(),
            tunnel: splitter_policy::flow::TunnelRole::Short,
            device: device.to_owned().try_into().unwrap(),
            index: 1,
            capacity_bps: None,
            chosen: Some(Chosen {
                heard,
                ..Chosen::default()
            }),
            counts: None,
        };
        let words = |heard: [Option<Heard>; 2]| {
            let rows = ChosenRow::of(&[row("up0", heard[0]), row("up1", heard[1])]);
            ChosenRow::heard_in_words(&rows)
        };
        let heard = |hears, report_age_ns, choices| {
            Some(Heard {
                hears,
                report_age_ns,
                choices,
            })
        };
        assert_eq!(words([None, None]), None);
        let nothing = words([heard(false, None, 3), heard(false, None, 0)]).unwrap();
        assert!(nothing.starts_with("No tunnel is an uplink") && nothing.contains(" 3 packets"));
        let some = words([heard(true, Some(1_500_000), 3), heard(true, None, 4)]).unwrap();
        assert!(
            some.contains("up0 1.5 ms ago, up1 never; 7 packets"),
            "{some}"
        );
        let old = words([heard(true, Some(70_000_000_000), 0), heard(false, None, 0)]).unwrap();
        assert!(old.contains("last: up0 70 s ago; 0 packets"), "{old}");
    }

    #[test]
    fn rates_are_of_what_rose_between_two_looks() {
        let looked = |packets, wrong_ns| Chosen {
            packets: ByClass {
                long: packets,
                ..ByClass::default()
            },
            changes: packets / 2,
            refusals: packets / 4,
            looks: 10,
            wrong_ns,
            ..Chosen::default()
        };
        let (before, mut now) = (looked(1_000, 7_000), looked(1_800, 31_000));
        let rates = ChosenRates::new(&before, &now, 2.0);
        let expected = ChosenRates {
            chosen_packets_per_s: Some(400.0),
            chosen_changes_ratio: Some(0.5),
            chosen_refusals_ratio: Some(0.25),
            // Nobody looked meanwhile.
            model_error_us: None,
        };
        assert_eq!(rates, expected);
        now.looks += 8;
        let rates = ChosenRates::new(&before, &now, 2.0);
        assert_eq!(rates.model_error_us, Some(3.0));
        // The other way round: by other programs.
        let rates = ChosenRates::new(&now, &before, 2.0);
        assert_eq!(rates, ChosenRates::default());
    }
}
