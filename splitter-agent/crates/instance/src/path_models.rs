//! The models of the queues in front of the tunnels that packets choose among, held against the queues.

use std::io;

use splitter_datapath::PathQueues;
use splitter_datapath::clock::monotonic_ns;
use splitter_netlink::root_queues;
use splitter_policy::paths::{PathId, SitePaths};

use crate::{Instance, InstanceError};

mod comparison;

use comparison::{Comparison, QueueLook};

/// A full frame of 1,500 bytes.
const FRAME_BYTES: u64 = 1_514;
/// The longest packet of merged segments. A shaper may have let one go whose time is not over.
const MERGED_BYTES: u64 = 14 + 65_535;

/// The models of the queues in front of an instance's tunnels.
#[derive(Debug)]
pub struct PathModels {
    queues: PathQueues,
    site: SitePaths,
    /// The tunnels' devices by their numbers; none where there is none.
    devices: Vec<Option<u32>>,
    comparisons: Vec<Comparison>,
}

impl Instance {
    /// Opens the models by which packets choose, to hold them against the queues that the agent has set up; none
    /// where packets do not choose, or what is in front of the tunnels is not the agent's.
    ///
    /// # Errors
    /// When the kernel cannot be asked, or the maps cannot be read.
    pub async fn path_models(&self) -> Result<Option<PathModels>, InstanceError> {
        if self.config.balancers().is_none() || !self.config.is_shared() || self.config.shadow {
            return Ok(None);
        }
        let Some(dataplane) = self.open()? else {
            return Ok(None);
        };
        let (Some(queues), Some(site)) = (dataplane.path_queues()?, dataplane.site_paths()?) else {
            return Ok(None);
        };
        let interfaces = self.netlink.interfaces().await?;
        let device = |it| Some(interfaces.named(it).ok()?.index);
        let tunnels = self.config.tunnels();
        let devices: Vec<_> = tunnels.map(|(_, it)| device(&it.device)).collect();
        Ok(Some(PathModels::new(queues, site, devices)))
    }
}

impl PathModels {
    /// The models of tunnels, or of other paths, of those devices: none where there is none.
    #[must_use]
    pub fn new(queues: PathQueues, site: SitePaths, devices: Vec<Option<u32>>) -> Self {
        Self {
            queues,
            site,
            comparisons: vec![Comparison::default(); devices.len()],
            devices,
        }
    }

    /// Goes on with the judgements of earlier models, if those were of the same tunnels.
    #[must_use]
    pub fn after(mut self, earlier: Option<Self>) -> Self {
        let queues_of = |it: &Self| {
            it.site
                .tunnels
                .map(|tunnel| (tunnel.service, tunnel.burst_ns))
        };
        if let Some(earlier) = earlier
            && earlier.devices == self.devices
            && queues_of(&earlier) == queues_of(&self)
        {
            self.comparisons = earlier.comparisons;
        }
        self
    }

    /// Looks at each queue, and mends the models that looks have shown to be wrong. Returns true if something
    /// waits somewhere.
    ///
    /// # Errors
    /// When the kernel does not say what waits.
    pub fn compare(&mut self) -> io::Result<bool> {
        let paths = || PathId::all().zip(&self.devices).zip(&self.site.tunnels);
        let models = self.queues.queues();
        let before: Vec<_> = paths()
            .map(|((path, _), _)| models.free_at_ns(path))
            .collect();
        let asked_ns = monotonic_ns();
        let queues = root_queues()?;
        let answered_ns = monotonic_ns();
        let mut waits = false;
        let comparisons = self.comparisons.iter_mut();
        for ((((path, device), tunnel), before_ns), comparison) in
            paths().zip(before).zip(comparisons)
        {
            let queue = queues.iter().find(|it| Some(it.interface) == *device);
            let Some(queue) = queue.filter(|_| tunnel.service.is_known()) else {
                continue;
            };
            let bytes = u64::from(queue.backlog_bytes);
            let packet_bytes = match u64::from(queue.backlog_packets) {
                0 => MERGED_BYTES,
                packets => FRAME_BYTES.max(bytes / packets),
            };
            let look = QueueLook {
                asked_ns,
                answered_ns,
                bytes,
                packet_bytes,
            };
            let after_ns = models.free_at_ns(path);
            let correction_ns = comparison.look(tunnel, before_ns, after_ns, &look);
            models.correct(path, correction_ns, answered_ns);
            waits |= bytes > 0;
        }
        Ok(waits)
    }
}
