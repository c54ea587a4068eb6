//! What there is to probe at a border: interfaces of the site, families, classes, destinations.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use splitter_config::{Config, SiteName, SteeringMode};
use splitter_datapath::{AttachedMode, KernelError, Pins};
use splitter_instance::{AttachedInterface, Instance, InstanceError};
use splitter_netlink::{Address, Family, InterfaceName, Interfaces, Netlink, NetlinkError};
use splitter_policy::config::Unit;
use splitter_policy::flow::Class;
use splitter_policy::fwmark::MarkBits;

use crate::marks::Marks;
use crate::tunnels::{FarAgent, TunnelFacts, tunnels};

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
    pub(crate) tunnels: Vec<TunnelFacts>,
    /// What will not be probed, in words.
    pub(crate) not_covered: Vec<String>,
}

/// What all paths of a border have in common.
#[derive(Debug)]
pub(crate) struct Border {
    pub(crate) name: String,
    /// The marks of all sites' tunnels.
    pub(crate) marks: Marks,
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

/// A host at a remote site that is probed.
#[derive(Debug, Clone)]
struct Host {
    address: IpAddr,
    threshold: Threshold,
    site: Option<SiteName>,
    marks: Marks,
    has_far_agent: bool,
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
    /// The site that it lies at, where sites are listed.
    pub(crate) site: Option<SiteName>,
    /// The marks of that site's tunnels.
    pub(crate) marks: Marks,
    /// Whether an agent of ours answers at the other end of one of them.
    pub(crate) has_far_agent: bool,
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
    let placements = instance.placements()?;
    let destinations = instance.destinations_in_place().await?;
    let tunnels = tunnels(config);
    let mut hosts = Vec::new();
    let mut not_covered = Vec::new();
    for address in targets.addresses.iter().copied() {
        let site = destinations.site_name_at(config, address);
        if site.is_none() && !config.sites.is_empty() {
            not_covered.push(format!("{address}: it lies at none of the sites"));
            continue;
        }
        let name = site.clone().unwrap_or_else(|| config.site_name());
        let Some(alone) = config.of_site(&name) else {
            continue;
        };
        let count = dataplane.threshold_of(address)?;
        hosts.push(Host {
            address,
            threshold: match policy.unit == Unit::BYTES {
                true => Threshold::Bytes(count),
                false => Threshold::Packets(count),
            },
            marks: Marks::of(&alone, placements.of(&name)),
            has_far_agent: { tunnels.iter() }
                .any(|it| it.site == name.as_str() && it.far_agent == FarAgent::Answers),
            site,
        });
    }
    let attached = instance.attached(dataplane.program_id()?).await?;
    let netlink = Netlink::connect()?;
    let interfaces = netlink.interfaces().await?;
    let mut addresses = netlink.addresses(Family::V4).await?;
    addresses.extend(netlink.addresses(Family::V6).await?);
    let sites = config.by_site();
    let marks = { sites.iter() }.map(|it| Marks::of(it, placements.of(&it.site_name())));
    let tunnel_devices = config.tunnels().map(|(_, it)| it.device.to_string());
    let border = Border {
        name: config.name.to_string(),
        marks: Marks::of_all(marks),
        fwmark: config.mark_bits(),
        steering: dataplane.steering(),
        pins: instance.pins().clone(),
        is_shared: config.is_shared() && config.balancers().is_none(),
        max_wait: Duration::from_nanos(policy.max_wait_ns),
        devices: devices(&interfaces),
        tunnel_devices: tunnel_devices.collect(),
    };
    let mut plan = Planner {
        config,
        targets,
        hosts: &hosts,
        interfaces: &interfaces,
        addresses: &addresses,
        paths: Vec::new(),
        not_covered,
    };
    plan.not_covered.extend(left_out(&border));
    if border.steering == SteeringMode::Redirect && config.balancers().is_some() {
        plan.not_covered.push(
            "which tunnels packets choose: what opens a connection takes one of its class by the network stack; see what \
             each tunnel was chosen for in `splitter status`"
                .to_owned(),
        );
    }
    plan.plan(&attached);
    let (paths, not_covered) = (plan.paths, plan.not_covered);
    Ok(Survey {
        border,
        paths,
        tunnels,
        not_covered,
    })
}

/// What probes cannot tell, in words.
fn left_out(border: &Border) -> Vec<String> {
    let mut left_out = Vec::new();
    if border.fwmark.is_some() {
        left_out.push(
            "the class of answers: their marks stay at the border that set them; run `splitter verify` \
             there, too"
                .to_owned(),
        );
    }
    if border.steering == SteeringMode::Redirect {
        left_out.push(
            "packets that are redirected: probes open connections, which the network stack forwards, \
             by the same rules; what is put into its device without it cannot be seen there"
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
    hosts: &'a [Host],
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
            let hosts: Vec<_> = { self.hosts.iter() }
                .filter(|it| family_of(it.address) == family)
                .collect();
            if hosts.is_empty() {
                self.not_covered
                    .push(format!("{family}: name a host of the other site with --to"));
            }
            for host in hosts {
                for lan in &lans {
                    self.add(lan, family, host);
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

    fn add(&mut self, lan: &Lan, family: Family, host: &Host) {
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
                destination: host.address,
                threshold: host.threshold,
                site: host.site.clone(),
                marks: host.marks.clone(),
                has_far_agent: host.has_far_agent,
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
