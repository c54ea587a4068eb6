//! Making sure that marked packets really take the intended tunnel.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use ipnet::IpNet;
use netlink_packet_route::route::RouteHeader;
use serde::Serialize;
use splitter_config::{Config, Dscp, SiteName, Tunnel};
use splitter_netlink::{
    Address, Family, Interface, InterfaceName, Interfaces, Netlink, NetlinkError, NoSuchInterface,
    list_names,
};

use super::apply::Applied;
use super::destinations::{Cover, Destinations};
use super::plan::{Plan, PlanError, plan_move_with, plan_with};
use super::probe::{Answer, Carried, Question, ask, inside};
use super::regions::{self, Region};
use super::wanted::tunnels_of;
use crate::Placement;

const TABLE_MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;
const TABLE_LOCAL: u32 = 255;

/// Counts what was asked and found to be right.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// The questions that were answered as they should be.
    pub probes: Vec<Probe>,
    /// What could not be asked, and why.
    pub skipped: Vec<String>,
}

/// One question: which way would this packet go?
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Where it arrives.
    pub interface: InterfaceName,
    /// Its source, an address of the site.
    pub source: IpAddr,
    /// Its destination, behind the tunnels.
    pub destination: IpAddr,
    /// Its mark, in its DSCP or its fwmark.
    pub dscp: Dscp,
    /// The devices that it may leave by.
    pub devices: Vec<InterfaceName>,
}

/// Why packets would not go where they should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The kernel refuses a request.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// An interface has gone.
    #[error(transparent)]
    NoSuchInterface(#[from] NoSuchInterface),
    /// What the kernel has cannot be compared any more.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The kernel took the plan but does not have what it says.
    #[error("the kernel does not show what was just added; still to be done are:\n{0}")]
    NotInPlace(Box<Plan>),
    /// The packet would leave by other devices.
    #[error(
        "a packet from {} to {} with the mark {} that arrives at {} would leave by {actual} (table \
         {table}) and not by {}; look for a rule in front of ours with `ip rule`, or for what has \
         taken the device's route away",
        .probe.source, .probe.destination, .probe.dscp, .probe.interface, list_names(&.probe.devices)
    )]
    WrongWay {
        /// The question, with the devices that it should leave by.
        probe: Probe,
        /// The devices that it would leave by.
        actual: String,
        /// The table that decided so.
        table: u32,
    },
    /// The packet would not be forwarded at all.
    #[error(
        "a packet from {} to {} with the mark {} that arrives at {} would be dropped and not leave by \
         {}: {source}; look for an `unreachable` or `blackhole` route or a rule in front of ours, \
         and at rp_filter",
        .probe.source, .probe.destination, .probe.dscp, .probe.interface, list_names(&.probe.devices)
    )]
    Dropped {
        /// The question, with the devices that it should leave by.
        probe: Probe,
        /// What the kernel said.
        source: Box<NetlinkError>,
    },
    /// This host is not a router.
    #[error(
        "{family} forwarding is off on {interface}, so nothing would be routed; switch it on with \
         `sysctl {key}=1`"
    )]
    NotForwarding {
        /// The interface.
        interface: InterfaceName,
        /// The family.
        family: Family,
        /// The kernel parameter.
        key: &'static str,
    },
}

impl Applied {
    /// Checks that the kernel has all that was planned, and asks it for each LAN interface and
    /// destination which way it would send packets with each mark of ours and with none. Does
    /// not roll back by itself: the caller then calls [`roll_back`](Self::roll_back).
    ///
    /// # Errors
    /// With the first packet that would go the wrong way.
    pub async fn verify(
        &self,
        netlink: &Netlink,
        config: &Config,
    ) -> Result<Verification, VerifyError> {
        let Plan {
            placements,
            destinations,
            ..
        } = &self.plan;
        let now = plan_with(netlink, config, placements, &[], destinations.clone()).await?;
        if !now.is_in_place() {
            return Err(VerifyError::NotInPlace(now.into()));
        }
        let sites = config.by_site();
        self.ask_about(netlink, config, destinations, &sites).await
    }

    /// Checks what was planned for one of several sites alone, as [`verify`](Self::verify) does for
    /// all: what is wrong elsewhere is no matter of it. `whole` is what leads into the tunnels of all
    /// sites.
    ///
    /// # Errors
    /// With the first packet to the site that would go the wrong way.
    pub async fn verify_site(
        &self,
        netlink: &Netlink,
        config: &Config,
        site: &SiteName,
        whole: &Destinations,
    ) -> Result<Verification, VerifyError> {
        let Some(alone) = config.of_site(site).filter(|_| config.has_several_sites()) else {
            return self.verify(netlink, config).await;
        };
        let placement = self.plan.placements.of(site);
        let destinations = Arc::clone(&self.plan.destinations);
        let now = plan_move_with(netlink, &alone, placement, destinations).await?;
        if !now.is_in_place() {
            return Err(VerifyError::NotInPlace(now.into()));
        }
        self.ask_about(netlink, config, whole, &[alone]).await
    }

    /// Asks about the destinations of these sites.
    async fn ask_about(
        &self,
        netlink: &Netlink,
        config: &Config,
        destinations: &Destinations,
        sites: &[Cow<'_, Config>],
    ) -> Result<Verification, VerifyError> {
        let mut verification = Verification::default();
        let interfaces = netlink.interfaces().await?;
        for family in config.families() {
            let addresses = netlink.addresses(family).await?;
            let cover = &Cover::of(destinations.split(family));
            let nets = asked(config, destinations.split(family));
            let regions = regions::of(nets.into_iter().copied().collect());
            for name in &config.lan {
                // Nothing arrives where nothing is.
                let Ok(interface) = interfaces.named(name) else {
                    continue;
                };
                let lan = Lan {
                    name,
                    interface,
                    family,
                    cover,
                };
                if regions.is_empty() || !lan.forwards(config, &mut verification)? {
                    continue;
                }
                let Some(source) = site_address(&addresses, lan.interface.index) else {
                    let reason = format!("{family} from {name}: it has no {family} address");
                    verification.skipped.push(reason);
                    continue;
                };
                for site in sites {
                    let asked = Asked {
                        netlink,
                        config,
                        site,
                        placement: self.plan.placements.of(&site.site_name()),
                        interfaces: &interfaces,
                        source,
                    };
                    let own = destinations.of_site(config, site);
                    let own = Cover::of(own.split(family));
                    let is_carried = site.families().any(|it| it == family);
                    let of_site = |it: &&Region| is_carried && own.has(&it.net);
                    for region in regions.iter().filter(of_site) {
                        lan.probe(&asked, region, &mut verification).await?;
                    }
                }
            }
        }
        Ok(verification)
    }
}

struct Lan<'a> {
    name: &'a InterfaceName,
    interface: &'a Interface,
    family: Family,
    cover: &'a Cover,
}

/// All that a question about a destination is made of, and its answer judged by.
struct Asked<'a> {
    netlink: &'a Netlink,
    config: &'a Config,
    /// As it would be for the site alone that the destination lies at.
    site: &'a Config,
    placement: &'a Placement,
    interfaces: &'a Interfaces,
    /// An address of the own site.
    source: IpAddr,
}

impl Lan<'_> {
    /// Whether packets that arrive here are forwarded. They must be where the configuration names
    /// next hops of the family; a point-to-point tunnel may well be used for one family only.
    fn forwards(
        &self,
        config: &Config,
        verification: &mut Verification,
    ) -> Result<bool, VerifyError> {
        let (directory, key) = match self.family {
            Family::V4 => ("ipv4", "net.ipv4.ip_forward"),
            Family::V6 => ("ipv6", "net.ipv6.conf.all.forwarding"),
        };
        let path = Path::new("/proc/sys/net")
            .join(directory)
            .join("conf")
            .join(self.name.as_str())
            .join("forwarding");
        let is_off = std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0");
        if !is_off {
            return Ok(true);
        }
        let (interface, family) = (self.name.clone(), self.family);
        if config.names_next_hops(family) || family == Family::V4 {
            return Err(VerifyError::NotForwarding {
                interface,
                family,
                key,
            });
        }
        verification
            .skipped
            .push(format!("{family} from {interface}: {key} is off"));
        Ok(false)
    }

    /// Asks with each mark for the first address of a region that our rules are meant to decide on.
    async fn probe(
        &self,
        asked: &Asked<'_>,
        region: &Region,
        verification: &mut Verification,
    ) -> Result<(), VerifyError> {
        let Asked {
            netlink,
            config,
            source,
            ..
        } = *asked;
        for &destination in &region.candidates {
            let longest = self.cover.length_for(destination).unwrap_or(0);
            let question = |dscp: Dscp| Question {
                arrives_at: self.interface.index,
                source,
                destination,
                mark: match config.mark_bits() {
                    Some(bits) => Carried::Beside(bits.of(dscp.policy())),
                    None => Carried::Dscp(dscp),
                },
                transport: None,
            };
            let first = ask(netlink, question(config.marks.short)).await;
            if first
                .as_ref()
                .is_ok_and(|answer| is_none_of_ours(answer, longest))
            {
                continue;
            }
            for (dscp, tunnels) in expectations(asked.site, asked.placement) {
                let probe = Probe {
                    interface: self.name.clone(),
                    source,
                    destination,
                    dscp,
                    devices: tunnels.iter().map(|it| it.device.clone()).collect(),
                };
                let answer = ask(netlink, question(dscp)).await;
                verification
                    .probes
                    .push(judge(probe, answer, asked.interfaces)?);
            }
            return Ok(());
        }
        verification.skipped.push(format!(
            "{} from {}: the main table has a more specific route for each address tried",
            region.net, self.name
        ));
        Ok(())
    }
}

/// Which mark should leave by which tunnels: those of ours, and none. Where no tunnel is alive
/// the main table decides, and what that says is not ours to judge.
fn expectations<'c>(config: &'c Config, placement: &Placement) -> Vec<(Dscp, Vec<&'c Tunnel>)> {
    let marks = config.marks;
    let mut list = vec![(marks.short, placement.short), (marks.long, placement.long)];
    if config.is_shared() {
        list.extend([
            (marks.short_on_long, placement.long),
            (marks.long_on_short, placement.short),
        ]);
    }
    if let Ok(none) = Dscp::try_from(0)
        && list.iter().all(|(dscp, _)| *dscp != none)
    {
        list.push((none, placement.short));
    }
    let tunnels = |(dscp, egress)| (dscp, tunnels_of(config, placement, egress));
    let all = list.into_iter().map(tunnels);
    all.filter(|(_, tunnels)| !tunnels.is_empty()).collect()
}

/// All that is stated, and a part of what follows the main table, which all leads one way: the
/// audit of an agent asks for the rest.
fn asked<'n>(config: &Config, nets: &'n [IpNet]) -> Vec<&'n IpNet> {
    const OF_FOLLOWED: usize = 50;
    let step = match config.routes.follow {
        true => nets.len().div_ceil(OF_FOLLOWED).max(1),
        false => 1,
    };
    nets.iter().step_by(step).collect()
}

/// Whether an address is the router's own, or has a route that is meant to win: one that is more
/// specific than the destination it lies in.
fn is_none_of_ours(answer: &Answer, destination: u8) -> bool {
    let specific = answer.table == TABLE_MAIN && answer.prefix_length > destination;
    answer.table == TABLE_LOCAL || specific
}

fn judge(
    probe: Probe,
    answer: Result<Answer, NetlinkError>,
    interfaces: &Interfaces,
) -> Result<Probe, VerifyError> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(source @ NetlinkError::Refused { .. }) => {
            return Err(VerifyError::Dropped {
                probe,
                source: source.into(),
            });
        }
        Err(error) => return Err(error.into()),
    };
    let devices = answer.devices();
    let mut names: Vec<_> = devices.filter_map(|it| interfaces.name_of(it)).collect();
    let mut wanted: Vec<_> = probe.devices.iter().map(InterfaceName::as_str).collect();
    names.sort_unstable();
    wanted.sort_unstable();
    if names == wanted {
        return Ok(probe);
    }
    let actual = match names.is_empty() {
        true => "no device".to_owned(),
        false => names.join(" and "),
    };
    Err(VerifyError::WrongWay {
        probe,
        actual,
        table: answer.table,
    })
}

/// An address in the site's subnet that is not one of the router's own, which the kernel would
/// refuse as a source.
pub(super) fn site_address(addresses: &[Address], interface: u32) -> Option<IpAddr> {
    let is_own = |address: &IpAddr| addresses.iter().any(|own| own.address == *address);
    addresses
        .iter()
        .filter(|own| own.interface == interface && !is_link_local(own.address))
        .filter_map(|own| IpNet::new(own.address, own.prefix_length).ok())
        .flat_map(|net| inside(&net))
        .find(|address| !is_own(address))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
