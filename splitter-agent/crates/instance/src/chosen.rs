//! What packets have chosen, where those of a site choose among all its tunnels.

use serde::Serialize;
use splitter_config::SiteName;
use splitter_datapath::{Dataplane, KernelError, PathQueues};
use splitter_netlink::InterfaceName;
use splitter_policy::paths::{PathCounters, PathId, SitePaths};

use crate::TunnelEgress;

/// What the program that chooses knows of its tunnels, and counts.
pub(crate) struct Choices {
    site: SitePaths,
    counters: PathCounters,
    queues: Option<PathQueues>,
}

impl Choices {
    /// Reads them; none where no packet chooses.
    pub(crate) fn read(dataplane: &Dataplane) -> Result<Option<Self>, KernelError> {
        let (site, counters) = (dataplane.site_paths()?, dataplane.path_counters()?);
        let Some((site, counters)) = site.zip(counters) else {
            return Ok(None);
        };
        Ok(Some(Self {
            site,
            counters,
            queues: dataplane.path_queues()?,
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
            looks,
            wrong_ns,
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
    /// How often the model of the queue in front of it was held against the queue.
    pub looks: u64,
    /// By how much the model was found wrong then, and mended, in sum.
    pub wrong_ns: u64,
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
    /// By how much the model of the queue in front of it was found wrong, and mended, in the mean of all times that
    /// it was held against the queue; none before the first.
    pub model_error_us: Option<f64>,
    /// Their share of the bytes of all tunnels, from 0 to 1; none before the first packet.
    pub share: Option<f64>,
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
                model_error_us: (it.looks > 0).then(|| it.wrong_ns as f64 / 1e3 / it.looks as f64),
                share: (all > 0).then(|| it.bytes as f64 / all as f64),
            })
            .collect()
    }
}
