//! What there is to probe at a border: interfaces of the site, families, classes, destinations.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use splitter_config::{Config, SteeringMode};
use splitter_datapath::{AttachedMode, KernelError, Pins};
use splitter_instance::{AttachedInterface, Instance, InstanceError};
use splitter_netlink::{Address, Family, InterfaceName, Interfaces, Netlink, NetlinkError};
use splitter_policy::config::Unit;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::fwmark::MarkBits;
use splitter_steering::Placements;
use splitter_steering::routes::tunnels_of;

/// The port that is probed where none is named: "discard", which hardly any host listens on.
const DEFAULT_PORT: u16 = 9;

/// Says what to probe, and how thoroughly.
#[derive(Debug, Clone)]
pub struct Targets {
    /// Hosts at the other site.
    pub addresses: Vec<IpAddr>,
    /// The port of TCP that they answer; any, if none is named, for then echoes count as answers, too.
    pub port: Option<u16>,
    /// Probes whose answers are waited for on each path.
    pub count: u16,
}

/// Lists the paths of a border that there are to probe.
#[derive(Debug)]
pub struct Survey {
    pub(crate) border: Border,
    pub(crate) paths: Vec<PathPlan>,
    /// What will not be probed, in words.
    pub(crate) not_covered: Vec<String>,
}

/// What all paths of a border have in common.
#[derive(Debug)]
pub(crate) struct Border {
    pub(crate) name: String,
    pub(crate) marks: Vec<Mark>,
    /// The bits of the fwmark in which marks are, where they are there.
    pub(crate) fwmark: Option<MarkBits>,
    pub(crate) steering: SteeringMode,
    pub(crate) pins: Pins,
    pub(crate) is_shared: bool,
    /// By then a flow that is long has changed tunnels.
    pub(crate) max_wait: Duration,
    pub(crate) devices: BTreeMap<u32, Device>,
    /// The devices of all tunnels.
    pub(crate) tunnel_devices: Vec<String>,
}

/// A mark of ours, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Its number, wherever it is written.
    pub(crate) number: u8,
    /// The class that it is queued as.
    pub(crate) class: Class,
    /// The devices of the tunnels that carry it now.
    pub(crate) devices: Vec<String>,
}

/// When a flow is long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threshold {
    /// After so many packets.
    Packets(u64),
    /// After so many bytes, Ethernet headers included.
    Bytes(u64),
}

/// A device of the border.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) mtu: u32,
}

/// A path to probe.
#[derive(Debug, Clone)]
pub(crate) struct PathPlan {
    pub(crate) lan: Lan,
    pub(crate) family: Family,
    pub(crate) class: Class,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) threshold: Threshold,
    pub(crate) port: u16,
    /// Whether an echo may answer for the flow.
    pub(crate) may_echo: bool,
    pub(crate) count: u16,
}

/// An interface of the site.
#[derive(Debug, Clone)]
pub(crate) struct Lan {
    pub(crate) name: InterfaceName,
    pub(crate) index: u32,
    pub(crate) address: [u8; 6],
    pub(crate) mtu: u32,
    pub(crate) mode: AttachedMode,
}

/// It could not be looked what there is to probe.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// Nothing is in place.
    #[error(
        "the instance `{0}` is down, so there is nothing to verify; bring it up with `splitter run` or `splitter up`"
    )]
    Down(String),
    /// Nothing is marked.
    #[error(
        "the instance `{0}` is a shadow: it marks and routes nothing; take `shadow` out of the configuration"
    )]
    Shadow(String),
    /// The instance does not tell how it is.
    #[error("cannot look at the instance")]
    Instance(#[from] InstanceError),
    /// Its programs cannot be read.
    #[error("cannot look at the kernel programs")]
    Kernel(#[from] KernelError),
    /// The kernel does not tell of its interfaces.
    #[error("cannot look at the interfaces")]
    Netlink(#[from] NetlinkError),
}

/// Looks what there is to probe. Changes nothing.
///
/// # Errors
/// [`SurveyError`].
pub async fn survey(instance: &Instance, targets: &Targets) -> Result<Survey, SurveyError> {
    let config = instance.config();
    if config.shadow {
        return Err(SurveyError::Shadow(config.name.to_string()));
    }
    let Some(dataplane) = instance.open()? else {
        return Err(SurveyError::Down(config.name.to_string()));
    };
    let policy = dataplane.policy()?;
    let mut thresholds = BTreeMap::new();
    for address in &targets.addresses {
        let count = dataplane.threshold_of(*address)?;
        let threshold = match policy.unit == Unit::BYTES {
            true => Threshold::Bytes(count),
            false => Threshold::Packets(count),
        };
        thresholds.insert(*address, threshold);
    }
    let attached = instance.attached(dataplane.program_id()?).await?;
    let placements = instance.placements()?;
    let netlink = Netlink::connect()?;
    let interfaces = netlink.interfaces().await?;
    let mut addresses = netlink.addresses(Family::V4).await?;
    addresses.extend(netlink.addresses(Family::V6).await?);
    let tunnel_devices = config.tunnels().map(|(_, it)| it.device.to_string());
    let border = Border {
        name: config.name.to_string(),
        marks: marks(config, &placements),
        fwmark: config.mark_bits(),
        steering: dataplane.steering(),
        pins: instance.pins().clone(),
        is_shared: config.is_shared(),
        max_wait: Duration::from_nanos(policy.max_wait_ns),
        devices: devices(&interfaces),
        tunnel_devices: tunnel_devices.collect(),
    };
    let mut plan = Planner {
        config,
        targets,
        thresholds: &thresholds,
        interfaces: &interfaces,
        addresses: &addresses,
        paths: Vec::new(),
        not_covered: always_left_out(config, &border),
    };
    plan.plan(&attached);
    let (paths, not_covered) = (plan.paths, plan.not_covered);
    Ok(Survey {
        border,
        paths,
        not_covered,
    })
}

fn always_left_out(config: &Config, border: &Border) -> Vec<String> {
    let mut left_out =
        vec!["the other direction: run `splitter verify` at the other border, too".to_owned()];
    if border.steering == SteeringMode::Redirect {
        left_out.push(
            "packets that are redirected: probes open connections, which the network stack forwards, \
             by the same rules; what is put into its device without it cannot be seen there"
                .to_owned(),
        );
    }
    if config.has_several_sites() {
        left_out.push(
            "by which site's tunnel a packet leaves: any tunnel of its class counts as right"
                .to_owned(),
        );
    }
    if border.is_shared {
        left_out.push(
            "each class in each tunnel: a flow is placed where there is room, which cannot be chosen"
                .to_owned(),
        );
    }
    left_out
}

/// The marks in use: two, or four where the tunnels are shared.
fn marks(config: &Config, placements: &Placements) -> Vec<Mark> {
    let marks = &config.marks;
    let sites = config.by_site();
    let mark = |dscp: splitter_config::Dscp, class: Class, tunnel: TunnelRole| {
        let devices = sites.iter().flat_map(|site| {
            let placement = placements.of(&site.site_name());
            let tunnels = tunnels_of(site, placement, placement.of(tunnel.own_class()));
            tunnels.into_iter().map(|it| it.device.to_string())
        });
        Mark {
            number: dscp.get(),
            class,
            devices: devices.collect(),
        }
    };
    let mut all = vec![
        mark(marks.short, Class::Short, TunnelRole::Short),
        mark(marks.long, Class::Long, TunnelRole::Long),
    ];
    if config.is_shared() {
        all.push(mark(marks.short_on_long, Class::Short, TunnelRole::Long));
        all.push(mark(marks.long_on_short, Class::Long, TunnelRole::Short));
    }
    all
}

fn devices(interfaces: &Interfaces) -> BTreeMap<u32, Device> {
    let device = |it: &splitter_netlink::Interface| {
        let (name, mtu) = (it.name.clone(), it.mtu);
        (it.index, Device { name, mtu })
    };
    interfaces.iter().map(device).collect()
}

struct Planner<'a> {
    config: &'a Config,
    targets: &'a Targets,
    thresholds: &'a BTreeMap<IpAddr, Threshold>,
    interfaces: &'a Interfaces,
    addresses: &'a [Address],
    paths: Vec<PathPlan>,
    not_covered: Vec<String>,
}

impl Planner<'_> {
    fn plan(&mut self, attached: &[AttachedInterface]) {
        let mut lans = Vec::new();
        for name in &self.config.lan {
            match self.lan(name, attached) {
                Ok(lan) => lans.push(lan),
                Err(reason) => self.not_covered.push(format!("{name}: {reason}")),
            }
        }
        for family in [Family::V4, Family::V6] {
            if !self.config.families().any(|it| it == family) {
                self.not_covered.push(format!(
                    "{family}: it is not split, because not all tunnels have a next hop of it"
                ));
                continue;
            }
            let targets = self.thresholds.iter().map(|(address, it)| (*address, *it));
            let targets: Vec<_> = targets.filter(|(it, _)| family_of(*it) == family).collect();
            if targets.is_empty() {
                self.not_covered
                    .push(format!("{family}: name a host of the other site with --to"));
            }
            for (destination, threshold) in targets {
                for lan in &lans {
                    self.add(lan, family, destination, threshold);
                }
            }
        }
    }

    fn lan(&self, name: &InterfaceName, attached: &[AttachedInterface]) -> Result<Lan, String> {
        let interface = self
            .interfaces
            .named(name)
            .map_err(|_| "there is no such interface".to_owned())?;
        let attached = attached.iter().find(|it| it.interface == *name);
        let attached = attached.ok_or("no program of this instance is attached to it")?;
        let address = interface.address.ok_or("it has no Ethernet address")?;
        if !interface.is_up {
            return Err("it is down".to_owned());
        }
        Ok(Lan {
            name: name.clone(),
            index: interface.index,
            address,
            mtu: interface.mtu,
            mode: attached.mode,
        })
    }

    fn add(&mut self, lan: &Lan, family: Family, destination: IpAddr, threshold: Threshold) {
        let mut own = self.addresses.iter().filter(|it| {
            it.interface == lan.index
                && family_of(it.address) == family
                && !is_link_local(it.address)
        });
        let Some(source) = own.next().map(|it| it.address) else {
            let name = &lan.name;
            self.not_covered.push(format!(
                "{family} from {name}: it has no address of this family, to which answers would come"
            ));
            return;
        };
        for class in Class::ALL {
            self.paths.push(PathPlan {
                lan: lan.clone(),
                family,
                class,
                source,
                destination,
                threshold,
                port: self.targets.port.unwrap_or(DEFAULT_PORT),
                may_echo: self.targets.port.is_none(),
                count: self.targets.count,
            });
        }
    }
}

fn family_of(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

impl Border {
    /// The devices that packets of a class are to leave by.
    pub(crate) fn intended(&self, class: Class) -> Vec<String> {
        let of_class = self.marks.iter().filter(|it| it.class == class);
        let mut devices: Vec<_> = of_class.flat_map(|it| it.devices.clone()).collect();
        devices.sort();
        devices.dedup();
        devices
    }

    /// The mark with that number, if it is one of ours.
    pub(crate) fn mark(&self, number: Option<u8>) -> Option<&Mark> {
        let number = number?;
        self.marks.iter().find(|it| it.number == number)
    }

    /// The mark that packets of a class have in its own tunnel.
    pub(crate) fn own_mark(&self, class: Class) -> u8 {
        let mut marks = self.marks.iter();
        marks.find(|it| it.class == class).map_or(0, |it| it.number)
    }
}
