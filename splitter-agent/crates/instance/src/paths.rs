//! The tunnels that packets choose among, as the kernel program is told of them.

use std::sync::Arc;
use std::time::Duration;

use splitter_config::{SteeringMode, Tunnel};
use splitter_datapath::{Dataplane, Targets, follow_delays, site_paths};
use splitter_netlink::{Interface, InterfaceName, Interfaces};
use splitter_policy::paths::SitePaths;
use splitter_steering::Placement;
use tokio::sync::watch;

use crate::{Instance, InstanceError, Lock};

impl Instance {
    /// Describes the tunnels for the program while they are placed so; none where it does not
    /// choose.
    pub(crate) fn site_paths(
        &self,
        placement: &Placement,
        interfaces: &Interfaces,
    ) -> Option<SitePaths> {
        let tunnels: Vec<_> = self.config.tunnels().collect();
        let is_usable = |index: usize| {
            let known = tunnels.get(index);
            known.is_some_and(|(role, it)| placement.uses(*role, &it.device))
        };
        self.described(is_usable, |_| None, interfaces)
    }

    fn described(
        &self,
        is_usable: impl Fn(usize) -> bool,
        delay_ns: impl Fn(usize) -> Option<u64>,
        interfaces: &Interfaces,
    ) -> Option<SitePaths> {
        let mut paths = site_paths(&self.config, is_usable, delay_ns)?;
        paths.spared_bytes = self.spared_bytes(interfaces);
        for (number, (_, tunnel)) in paths.devices.iter_mut().zip(self.config.tunnels()) {
            *number = interfaces.named(&tunnel.device).map_or(0, |it| it.index);
        }
        Some(paths)
    }

    /// The Ethernet header that packets have at the site, where no tunnel's device has one.
    fn spared_bytes(&self, interfaces: &Interfaces) -> u32 {
        const ETHERNET_HEADER: u32 = 14;
        let tunnels = self.config.tunnels();
        let mut present = tunnels.filter_map(|(_, it)| interfaces.named(&it.device).ok());
        let first = present.next();
        let is_bare = |it: &Interface| !it.is_ethernet;
        match first.is_some_and(is_bare) && present.all(is_bare) {
            true => ETHERNET_HEADER,
            false => 0,
        }
    }

    /// Adds the delays that an agent has measured, where none is stated: `plan` of another
    /// process has measured none.
    pub(crate) fn site_paths_as_measured(
        &self,
        placement: &Placement,
        dataplane: &Dataplane,
        interfaces: &Interfaces,
    ) -> Result<Option<SitePaths>, InstanceError> {
        let Some(mut paths) = self.site_paths(placement, interfaces) else {
            return Ok(None);
        };
        let present = dataplane.site_paths()?.unwrap_or_default();
        if paths.devices == SitePaths::default().devices {
            // The kernel did not say: devices are what they were.
            (paths.devices, paths.spared_bytes) = (present.devices, present.spared_bytes);
        }
        let known = paths.tunnels.iter_mut().zip(present.tunnels);
        for ((path, present), (_, tunnel)) in known.zip(self.config.tunnels()) {
            if tunnel.delay.is_none() && path.mark == present.mark {
                path.propagation_ns = present.propagation_ns;
            }
        }
        if paths.known != 0 {
            follow_delays(&self.config, &mut paths);
        }
        Ok(Some(paths))
    }

    /// Tells the program how long packets are on their way by each tunnel, known by its device, where that was measured and is
    /// not stated; and of devices that have been made again, by `interfaces`. It goes by the configuration that is in force. While
    /// somebody changes that, or anything else, nothing is told: who probes does not wait, and measures again. Nothing is told
    /// before all are known, nor what differs by less than 10 us: probes tell no less, and each change may put a flow out of
    /// order once, while a wrong difference does so all the time. The packets of a tunnel of 30 Mbit/s are 400 us apart.
    ///
    /// # Errors
    /// When the maps cannot be read or written.
    pub fn set_measured_delays(
        in_force: &watch::Receiver<Arc<Self>>,
        _lock: &Lock,
        delays: &[(InterfaceName, Option<Duration>)],
        interfaces: &Interfaces,
    ) -> Result<(), InstanceError> {
        let instance = Arc::clone(&in_force.borrow());
        match instance.changing.try_lock() {
            Ok(_changing) => instance.set_delays(delays, interfaces),
            Err(_) => Ok(()),
        }
    }

    fn set_delays(
        &self,
        delays: &[(InterfaceName, Option<Duration>)],
        interfaces: &Interfaces,
    ) -> Result<(), InstanceError> {
        const LEAST_NS: u64 = 10_000;
        let measured = |tunnel: &Tunnel| {
            let known = delays.iter().find(|(device, _)| *device == tunnel.device);
            known.and_then(|(_, delay)| *delay)
        };
        let delays: Vec<_> = self.config.tunnels().map(|(_, it)| measured(it)).collect();
        let mut known = self.config.tunnels().zip(&delays);
        let is_known = known.all(|((_, it), delay)| it.delay.is_some() || delay.is_some());
        if self.config.balancers().is_none() || self.config.shadow || !is_known {
            return Ok(());
        }
        let Some(mut dataplane) = self.open()? else {
            return Ok(());
        };
        let Some(before) = dataplane.site_paths()? else {
            return Ok(());
        };
        let is_usable = |index: usize| before.usable >> index & 1 != 0;
        let measured_ns = |index: usize| {
            let delay = delays.get(index).copied().flatten()?;
            u64::try_from(delay.as_nanos()).ok()
        };
        let Some(paths) = self.described(is_usable, measured_ns, interfaces) else {
            return Ok(());
        };
        let mut tunnels = paths.tunnels.iter().zip(&before.tunnels);
        let is_news = tunnels.any(|(now, before)| {
            let difference_ns = now.propagation_ns.abs_diff(before.propagation_ns);
            difference_ns > LEAST_NS
        });
        if is_news || paths.devices != before.devices {
            dataplane.set_site_paths(paths)?;
        }
        Ok(())
    }

    /// Leaves out tunnels that packets cannot be put into, where they are redirected: one that chose such a tunnel would go by
    /// the network stack, which knows no choice.
    pub(crate) fn redirectable(&self, mut paths: SitePaths, targets: &Targets) -> SitePaths {
        if self.config.steering.mode == SteeringMode::Redirect {
            for (number, device) in paths.devices.iter().enumerate() {
                if !targets.have(*device) {
                    paths.usable &= !(1 << number);
                }
            }
        }
        paths
    }

    /// Has packets choose among the tunnels that are used now.
    pub(crate) fn tell_paths(&self, placement: &Placement) -> Result<(), InstanceError> {
        if self.config.balancers().is_none() {
            return Ok(());
        }
        // Where the kernel does not say, packets are taken to be longer than they are, and nothing is known of what
        // enters tunnels without a choice.
        let interfaces = Interfaces::now().unwrap_or_default();
        if let Some(mut dataplane) = self.open()?
            && let Some(paths) = self.site_paths_as_measured(placement, &dataplane, &interfaces)?
        {
            let paths = self.redirectable(paths, &dataplane.targets()?);
            dataplane.set_site_paths(paths)?;
        }
        Ok(())
    }
}
