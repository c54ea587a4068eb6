//! Counting what really leaves by the tunnels, and what comes back to the site.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use splitter_config::{Config, SiteName};
use splitter_datapath::{Dataplane, KernelError};
use splitter_netlink::{Family, InterfaceName, Interfaces};
use splitter_policy::egress_counts::{EgressCounts, Marked};
use splitter_policy::flow::TunnelRole;
use tokio::task::spawn_blocking;

use crate::chosen::{Choices, Chosen};
use crate::loaded::Loaded;
use crate::{AttachmentAction, Instance, InstanceError};

/// The program that counts at the egress of a tunnel's device, or of an interface of the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EgressAttachment {
    /// The device.
    pub device: InterfaceName,
    /// What happens.
    pub action: AttachmentAction,
}

/// Devices, by name and number, whose egress the kernel does not let us count.
#[derive(Debug, Default)]
pub(crate) struct Uncounted(Mutex<BTreeSet<(InterfaceName, u32)>>);

impl Uncounted {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<(InterfaceName, u32)>> {
        // A panic elsewhere does not make plain values wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Instance {
    /// What is to change of the counting; nothing of devices that are not there, or whose egress
    /// cannot be counted.
    pub(crate) fn plan_egress(
        &self,
        interfaces: &Interfaces,
        loaded: &Loaded,
    ) -> Vec<EgressAttachment> {
        let counting = match loaded {
            Loaded::Current(_) => Dataplane::counting_program_id(&self.pins),
            // They are counted by a program of another build at most.
            Loaded::Nothing | Loaded::OtherBuild { .. } => None,
        };
        let mut plan: Vec<EgressAttachment> = Vec::new();
        for (device, index) in counted(&self.config, interfaces) {
            let is_refused = self.uncounted.lock().contains(&(device.clone(), index));
            let is_attached = counting.is_some_and(|id| {
                Dataplane::attached_egress(&self.pins, device.as_str(), index, id).is_some()
            });
            let action = match is_attached {
                true => AttachmentAction::Keep,
                false if is_refused => continue,
                false => AttachmentAction::Attach,
            };
            plan.push(EgressAttachment { device, action });
        }
        let linked = match loaded {
            Loaded::Nothing => Vec::new(),
            _ => self.pins.counted_devices().unwrap_or_default(),
        };
        let stale = linked
            .into_iter()
            .filter_map(|it| InterfaceName::try_from(it).ok());
        for device in stale.filter(|it| !is_counted(&self.config, it)) {
            let action = AttachmentAction::Detach;
            plan.push(EgressAttachment { device, action });
        }
        plan
    }

    /// Reads what has left by each tunnel whose device is there; nothing in a shadow.
    ///
    /// # Errors
    /// When the devices or their counts cannot be read.
    pub async fn egress(&self, dataplane: &Dataplane) -> Result<Vec<TunnelEgress>, InstanceError> {
        let interfaces = self.netlink.interfaces().await?;
        Ok(TunnelEgress::read_all(
            &self.config,
            &interfaces,
            dataplane,
        )?)
    }

    /// Has the egress of the tunnels counted, of those whose devices are there by now; what is
    /// counted already goes on, so that this may be called again at any time. That a device cannot
    /// be counted is no reason not to split: it is said once.
    ///
    /// The kernel takes some ten milliseconds for each device, so that this comes after whatever
    /// packets need, and lets others change the instance in between.
    ///
    /// # Errors
    /// When what is there cannot be read, or is not to be changed.
    pub async fn count_egress(&self) -> Result<(), InstanceError> {
        let interfaces = self.netlink.interfaces().await?;
        let Some(mut dataplane) = self.open()? else {
            return Ok(());
        };
        let index = |it| Some(interfaces.named(it).ok()?.index);
        let site: Vec<_> = self.config.lan.iter().filter_map(index).collect();
        let tunnels = tunnels(&self.config).filter_map(index);
        dataplane.set_egress_devices(&site, &tunnels.collect::<Vec<_>>())?;
        let loaded = Loaded::Current(Box::new(dataplane));
        for EgressAttachment { device, action } in self.plan_egress(&interfaces, &loaded) {
            let to_attach = match action {
                AttachmentAction::Keep => continue,
                AttachmentAction::Detach => None,
                AttachmentAction::Attach | AttachmentAction::Reattach => {
                    let Ok(interface) = interfaces.named(&device) else {
                        continue;
                    };
                    let counted = match self.config.lan.contains(&device) {
                        true => Counted::ByFlow,
                        false => Counted::ByMark {
                            has_ethernet_header: interface.is_ethernet,
                        },
                    };
                    Some((interface.index, counted))
                }
            };
            self.change_egress(device, to_attach).await?;
        }
        Ok(())
    }

    /// Attaches the program that counts to the device of that number, or takes it off.
    async fn change_egress(
        &self,
        device: InterfaceName,
        to_attach: Option<(u32, Counted)>,
    ) -> Result<(), InstanceError> {
        let changing = Arc::clone(&self.changing).lock_owned().await;
        let (pins, uncounted) = (self.pins.clone(), Arc::clone(&self.uncounted));
        let changed = spawn_blocking(move || {
            // Until the end, also where nobody waits for it any more.
            let _changing = changing;
            let Some(mut dataplane) = Dataplane::open(&pins)? else {
                return Ok(());
            };
            let Some((index, counted)) = to_attach else {
                return dataplane.detach_egress(device.as_str());
            };
            let name = device.as_str();
            let (attached, consequence) = match counted {
                Counted::ByMark {
                    has_ethernet_header,
                } => (
                    dataplane.attach_egress(name, index, has_ethernet_header),
                    "packets that stray are not noticed there, and what has not chosen it is in no model of its queue",
                ),
                Counted::ByFlow => (
                    dataplane.attach_reverse(name, index),
                    "connections are shown without what comes back to the site there",
                ),
            };
            if let Err(error) = attached {
                tracing::warn!(event = "egress_not_counted", %device, %error, "cannot count what leaves by a device: {consequence}");
                uncounted.lock().insert((device, index));
            }
            Ok(())
        });
        // A panic there has been reported.
        Ok(changed.await.unwrap_or(Ok(()))?)
    }
}

/// What is told apart of what leaves by a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// Marks and families, at a tunnel's device.
    ByMark { has_ethernet_header: bool },
    /// Flows, at an interface of the site.
    ByFlow,
}

/// The counts of a tunnel's device, since it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelEgress {
    /// The site that it leads to.
    pub site: SiteName,
    /// The class that it is for.
    pub tunnel: TunnelRole,
    /// Its device.
    pub device: InterfaceName,
    /// The device's number: another one's counts begin again.
    pub index: u32,
    /// What may leave by it, in bit/s; none where its rate is not stated.
    pub capacity_bps: Option<u64>,
    /// How often packets chose it; none where they do not choose.
    pub chosen: Option<Chosen>,
    /// What left; none where it is not counted.
    pub counts: Option<EgressCounts>,
}

/// The counts of a device and a family, by what the marks of packets say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EgressRow {
    /// The site that it leads to.
    pub site: SiteName,
    /// `short` or `long`: the class that the tunnel is for.
    pub tunnel: &'static str,
    /// The tunnel's device.
    pub device: InterfaceName,
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// Packets since the device is counted.
    pub packets: ByMark,
    /// Their bytes, with Ethernet headers.
    pub bytes: ByMark,
}

/// Counts by what the mark of packets says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByMark {
    /// It is that of short flows.
    pub short: u64,
    /// It is that of long flows.
    pub long: u64,
    /// There is none, although they came from the site and are of a protocol that is split.
    pub unmarked: u64,
    /// They are not split.
    pub other: u64,
}

impl ByMark {
    /// Names of the counts.
    pub const NAMES: [&'static str; 4] = ["short", "long", "unmarked", "other"];

    /// The counts, in the order of their names.
    #[must_use]
    pub const fn counts(&self) -> [u64; 4] {
        [self.short, self.long, self.unmarked, self.other]
    }

    fn sum(count: impl Fn(Marked) -> u64) -> Self {
        let mut sum = Self::default();
        for marked in Marked::ALL {
            let of_kind = match marked {
                Marked::Short | Marked::ShortOnLong => &mut sum.short,
                Marked::Long | Marked::LongOnShort => &mut sum.long,
                Marked::Unmarked => &mut sum.unmarked,
                Marked::Other => &mut sum.other,
            };
            *of_kind += count(marked);
        }
        sum
    }
}

/// The value of a label or key that names a family.
#[must_use]
pub const fn family_label(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

impl TunnelEgress {
    /// Reads what has left by each tunnel of a configuration whose device is there.
    ///
    /// # Errors
    /// When the counts cannot be read.
    pub fn read_all(
        config: &Config,
        interfaces: &Interfaces,
        dataplane: &Dataplane,
    ) -> Result<Vec<Self>, KernelError> {
        let choices = Choices::read(dataplane, config.heard_fabric().as_deref())?;
        let tunnels = config.tunnels().enumerate();
        let there = tunnels.filter_map(|(number, (tunnel, it))| {
            let index = interfaces.named(&it.device).ok()?.index;
            Some((number, tunnel, it, index))
        });
        let read = there.map(|(number, tunnel, it, index)| {
            Ok(Self {
                site: config.site_behind(&it.device).cloned().unwrap_or_default(),
                tunnel,
                device: it.device.clone(),
                index,
                capacity_bps: config.bits_per_second(it),
                chosen: choices.as_ref().and_then(|it| it.of(number)),
                counts: dataplane.egress_counts(index)?,
            })
        });
        read.collect()
    }

    /// Lists what left by family; nothing where it is not counted.
    #[must_use]
    pub fn rows(&self) -> Vec<EgressRow> {
        let row = |counts: &EgressCounts, family: Family| {
            let is_v6 = family == Family::V6;
            EgressRow {
                site: self.site.clone(),
                tunnel: self.tunnel.name(),
                device: self.device.clone(),
                family: family_label(family),
                packets: ByMark::sum(|marked| counts.packets(marked, is_v6)),
                bytes: ByMark::sum(|marked| counts.bytes(marked, is_v6)),
            }
        };
        let families = [Family::V4, Family::V6];
        let counts = self.counts.iter();
        counts
            .flat_map(|counts| families.map(|family| row(counts, family)))
            .collect()
    }
}

/// Shows what left by a tunnel of late; `None` where it is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LeftRates {
    /// With the mark of short flows.
    pub left_short_bits_per_s: Option<f64>,
    /// With the mark of long flows.
    pub left_long_bits_per_s: Option<f64>,
    /// Without a mark, although from the site and of a protocol that is split.
    pub left_unmarked_bits_per_s: Option<f64>,
}

impl LeftRates {
    /// Returns the rates between two totals of a device, `seconds` apart.
    #[must_use]
    pub fn new(before: &EgressCounts, now: &EgressCounts, seconds: f64) -> Self {
        // A device that was made again counts from zero.
        let since = now.since(before).filter(|_| seconds > 0.0);
        let rate = |marks: [Marked; 2]| {
            let bytes = |it: Marked| since.map(|of| of.bytes(it, false) + of.bytes(it, true));
            let [first, second] = marks.map(bytes);
            Some((first? + second?) as f64 * 8.0 / seconds)
        };
        let unmarked =
            |it: EgressCounts| it.bytes(Marked::Unmarked, false) + it.bytes(Marked::Unmarked, true);
        Self {
            left_short_bits_per_s: rate([Marked::Short, Marked::ShortOnLong]),
            left_long_bits_per_s: rate([Marked::Long, Marked::LongOnShort]),
            left_unmarked_bits_per_s: since.map(|it| unmarked(it) as f64 * 8.0 / seconds),
        }
    }
}

/// The devices that are there and are counted at, with their numbers.
fn counted<'a>(
    config: &'a Config,
    interfaces: &'a Interfaces,
) -> impl Iterator<Item = (InterfaceName, u32)> + 'a {
    devices(config).filter_map(|device| {
        let index = interfaces.named(device).ok()?.index;
        Some((device.clone(), index))
    })
}

fn is_counted(config: &Config, device: &InterfaceName) -> bool {
    devices(config).any(|it| it == device)
}

/// All that are counted at: the tunnels' and then those of the site, whose packets come back. None in
/// a shadow, which adds nothing to the path of packets that it does not need.
fn devices(config: &Config) -> impl Iterator<Item = &InterfaceName> {
    let lan = config.lan.iter().filter(|_| !config.shadow);
    tunnels(config).chain(lan)
}

fn tunnels(config: &Config) -> impl Iterator<Item = &InterfaceName> {
    let tunnels = config.tunnels().filter(|_| !config.shadow);
    tunnels.map(|(_, tunnel)| &tunnel.device)
}
