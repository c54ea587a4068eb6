//! The tunnels that redirected packets can choose among, as the programs know them at the moment.
//!
//! What a program has to find so that a packet chooses is more than that tunnels are alive. It is read from the program's own
//! maps here, and not derived from the configuration, so that whoever is told is told what happens.

use std::net::IpAddr;

use serde::Serialize;
use splitter_datapath::{Dataplane, NextHops, Targets};
use splitter_netlink::{Family, InterfaceName};
use splitter_policy::flow::TunnelRole;
use splitter_policy::forward::target;
use splitter_policy::next_hop::TunnelHops;
use splitter_policy::paths::{PathId, SitePaths};
use splitter_steering::routes::{NextHop, NotTaken, Trace};

use crate::{Instance, InstanceError};

/// Tells which redirected packets choose, and among which tunnels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedirectedChoice {
    /// Why no packet chooses now, in words; null where packets do.
    pub nobody_because: Option<String>,
    /// The longest packet that chooses, of IPv4 and of IPv6, in bytes: the smallest MTU of the tunnels whose next hop is
    /// known. Null where none is.
    pub longest_bytes: [Option<u32>; 2],
    /// The tunnels, in the order of the configuration.
    pub tunnels: Vec<RedirectedTunnel>,
    #[serde(skip)]
    targets: Targets,
}

/// A tunnel that redirected packets may choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedirectedTunnel {
    /// Its device.
    pub device: InterfaceName,
    /// Whether it forwards packets, as far as is known, and packets can be put into its device.
    pub usable: bool,
    /// Whether the link addresses of its next hops of IPv4 and of IPv6 are known; null where the configuration names none.
    pub next_hop_known: [Option<bool>; 2],
}

const UNVOUCHED: &str =
    "no agent vouches for next hops, so packets are redirected into the tunnel of their class";
const ONE_TUNNEL: &str =
    "both classes are in the same tunnel, so that routing has one answer for both";
const NO_TARGET: &str = "a class has no tunnel that packets can be put into";

impl Instance {
    /// Reads which redirected packets choose, and among which tunnels; none where the programs do not redirect, or no packet
    /// chooses by the configuration.
    ///
    /// # Errors
    /// When the maps cannot be read.
    pub fn redirected_choice(
        &self,
        dataplane: &Dataplane,
    ) -> Result<Option<RedirectedChoice>, InstanceError> {
        if self.config.balancers().is_none() || self.config.shadow {
            return Ok(None);
        }
        let Some(next_hops) = NextHops::open(dataplane.pins())? else {
            return Ok(None);
        };
        let site = dataplane.site_paths()?.unwrap_or_default();
        let hops = next_hops.tunnels()?.unwrap_or_default();
        let mut choice = RedirectedChoice::new(&site, &hops, dataplane.targets()?);
        for ((number, path), (_, tunnel)) in PathId::all().enumerate().zip(self.config.tunnels()) {
            let known = |family: Family| {
                let gateway = tunnel.gateway.of(family);
                gateway.map(|_| of_family(&hops, family).of(path).is_some())
            };
            choice.tunnels.push(RedirectedTunnel {
                device: tunnel.device.clone(),
                usable: site.usable >> number & 1 == 1,
                next_hop_known: [known(Family::V4), known(Family::V6)],
            });
        }
        if !next_hops.are_vouched_for()? {
            choice.nobody_because = Some(UNVOUCHED.to_owned());
        }
        Ok(Some(choice))
    }
}

impl RedirectedChoice {
    fn new(site: &SitePaths, hops: &[TunnelHops; 2], targets: Targets) -> Self {
        let [short, long] = [TunnelRole::Short, TunnelRole::Long].map(|role| {
            let devices = targets.tunnels.iter().map(|it| it >> 1);
            let of_role = devices.filter(|it| targets.tunnels.contains(&target(*it, role)));
            let mut of_role: Vec<u32> = of_role.collect();
            of_role.dedup();
            of_role
        });
        let nobody_because = if site.known == 0 {
            Some("the programs have not been told of the tunnels yet")
        } else if short.is_empty() || long.is_empty() {
            Some(NO_TARGET)
        } else if short == long {
            Some(ONE_TUNNEL)
        } else {
            None
        };
        Self {
            nobody_because: nobody_because.map(str::to_owned),
            longest_bytes: hops.each_ref().map(|it| Some(it.mtu).filter(|it| *it > 0)),
            tunnels: Vec::new(),
            targets,
        }
    }

    /// Has what is traced of each class say which of its packets choose, and among which tunnels.
    ///
    /// `elsewhere` says why programs are led past the tunnels on the way there, where they are
    /// ([`other_way_to`](splitter_steering::redirection::other_way_to)).
    #[must_use]
    pub fn applied_to(&self, traces: &[Trace], elsewhere: Option<&str>) -> Vec<Trace> {
        let applied = |trace: &Trace| {
            let mut others = traces.iter();
            let other = others.find(|it| {
                (&it.lan, it.source) == (&trace.lan, trace.source) && it.class != trace.class
            });
            self.told(trace.clone(), other, elsewhere)
        };
        traces.iter().map(applied).collect()
    }

    fn told(&self, mut trace: Trace, other: Option<&Trace>, elsewhere: Option<&str>) -> Trace {
        if trace.balance.is_none() {
            return trace;
        }
        let nobody_chooses = self.nobody_chooses(&trace, other);
        if let Some(reason) = nobody_chooses.or_else(|| elsewhere.map(str::to_owned)) {
            trace.balance = None;
            trace.tunnels.clear();
            trace.no_choice = Some(reason);
            return trace;
        }
        let family = family_of(trace.source);
        let open = std::mem::take(&mut trace.tunnels);
        for tunnel in self
            .tunnels
            .iter()
            .filter(|it| open.contains(&it.device.to_string()))
        {
            let is_route = { trace.next_hops.iter() }.any(|it| tunnel.device.as_str() == it.device);
            match tunnel.not_taken(family) {
                None => trace.tunnels.push(tunnel.device.to_string()),
                Some(why) => trace.not_taken.push(NotTaken {
                    device: tunnel.device.to_string(),
                    why: match is_route {
                        true => why + "; flows that routing leads into it choose none",
                        false => why,
                    },
                }),
            }
        }
        trace.longest_bytes = *of_family(&self.longest_bytes, family);
        trace
    }

    /// Why packets of a class do not choose between these ends, in the order in which the program looks.
    fn nobody_chooses(&self, own: &Trace, other: Option<&Trace>) -> Option<String> {
        if self.nobody_because.is_some() {
            return self.nobody_because.clone();
        }
        if !self.leads_to_target(own) {
            return Some(
                "routing leads it to no device that its class is put into, or to a next hop that is not known"
                    .to_owned(),
            );
        }
        let other = other?;
        if !self.leads_to_target(other) {
            return Some(format!(
                "routing leads {} packets to no device that their class is put into, or to a next hop that is not known",
                other.class
            ));
        }
        if devices(&own.next_hops) == devices(&other.next_hops) {
            return Some("routing has the same answer for both classes".to_owned());
        }
        let family = family_of(own.source);
        let unknown = of_family(&self.longest_bytes, family).is_none();
        unknown.then(|| format!("no tunnel's {family} next hop is known"))
    }

    /// Tells if routing leads packets of a class to a device that they can be put into, and to a next hop that is known.
    fn leads_to_target(&self, trace: &Trace) -> bool {
        let role = match trace.tunnel == TunnelRole::Short.name() {
            true => TunnelRole::Short,
            false => TunnelRole::Long,
        };
        let family = family_of(trace.source);
        let is_unknown = |device: &str| {
            let mut own = self.tunnels.iter();
            own.any(|it| {
                it.device.as_str() == device
                    && *of_family(&it.next_hop_known, family) == Some(false)
            })
        };
        trace.next_hops.iter().any(|it| {
            self.targets
                .tunnels
                .contains(&target(it.device_index, role))
                && !is_unknown(&it.device)
        })
    }

    /// Says what an operator should know of it, in sentences.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        if let Some(reason) = &self.nobody_because {
            return vec![format!("No packet chooses now: {reason}.")];
        }
        let mut notes = Vec::new();
        for family in [Family::V4, Family::V6] {
            if let Some(longest) = of_family(&self.longest_bytes, family) {
                notes.push(format!(
                    "{family} packets of more than {longest} bytes do not choose."
                ));
            }
            let usable = self.tunnels.iter().filter(|it| it.usable);
            let unknown = usable.filter(|it| *of_family(&it.next_hop_known, family) == Some(false));
            let names: Vec<_> = unknown.map(|it| it.device.as_str()).collect();
            if !names.is_empty() {
                notes.push(format!(
                    "The {family} next hop of {} is not known: packets that choose such a tunnel go by the network stack.",
                    names.join(", ")
                ));
            }
        }
        notes
    }
}

impl RedirectedTunnel {
    /// Why no packet of a family is put into it by choice.
    fn not_taken(&self, family: Family) -> Option<String> {
        if !self.usable {
            return Some(
                "packets cannot be put into it now (`splitter doctor` says why)".to_owned(),
            );
        }
        let is_unknown = *of_family(&self.next_hop_known, family) != Some(true);
        is_unknown.then(|| {
            format!("its {family} next hop is not known, so that what chooses it goes by the network stack")
        })
    }
}

/// In order, each once.
fn devices(next_hops: &[NextHop]) -> Vec<u32> {
    let mut devices: Vec<_> = next_hops.iter().map(|it| it.device_index).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

fn of_family<T>([v4, v6]: &[T; 2], family: Family) -> &T {
    match family {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}

fn family_of(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

#[cfg(test)]
mod tests;
