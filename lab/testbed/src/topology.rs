//! Two sites joined by two tunnels.
//!
//! ```text
//! client ── lan0 ┐          ┌── tun0 ──┐          ┌ lan0 ── server
//!                ├ border A ┤          ├ border B ┤
//! generator ─ gen0 ┘        └── tun1 ──┘          └ gen0 ── generator
//! ```
//!
//! Every box is a [`Namespace`]. The tunnels are shaped at both ends to a rate with a short FIFO;
//! neighbours are entered by hand, so that no packet waits for address resolution. Border routers
//! send all that is not local into `tun0` until a [scheme](crate::scheme) says otherwise.

mod link;

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use self::link::{End, Link};
use crate::namespace::{DelayLine, Namespace, NamespaceError, Strand};

/// Bytes that the FIFO in front of each tunnel holds: 20 ms at 100 Mbit/s.
pub const TUNNEL_QUEUE_BYTES: u32 = 250_000;

/// The border's device towards its client or server.
pub const LAN: &str = "lan0";
/// The border's device towards its traffic generator.
pub const GENERATOR: &str = "gen0";
/// The borders' devices of the two tunnels; the first one is for short flows.
pub const TUNNELS: [&str; 2] = ["tun0", "tun1"];
/// Describes what the testbed looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyOptions {
    /// Rate of each tunnel in Mbit/s. Default 100 and 100, which one core can carry.
    pub rates_mbit: [u32; 2],
    /// Whether client and server send at no more than the faster tunnel's rate. Without it a
    /// scheme that sprays packets gives one flow the bandwidth of both tunnels, which flatters it.
    /// The generators, which stand for many hosts, are never shaped. Default true.
    pub shape_access: bool,
    /// Whether the tunnels' FIFOs lie behind the borders' devices, as in a modem or a provider's
    /// router, and not in them. Default false.
    pub queue_behind_border: bool,
    /// The time that a packet takes in each tunnel, one way, without queues. Tunnels with a delay are TUN
    /// devices, which carry bare IP packets: their rates do not count Ethernet headers, and their queues
    /// lie in them, whatever `queue_behind_border` says. Default none.
    pub delays: Option<[Duration; 2]>,
}

impl Default for TopologyOptions {
    fn default() -> Self {
        Self {
            rates_mbit: [100, 100],
            shape_access: true,
            queue_behind_border: false,
            delays: None,
        }
    }
}

impl TopologyOptions {
    /// The device below a tunnel's that has its queue, if it is another.
    fn wire(&self, device: &str) -> Option<String> {
        let is_behind = self.queue_behind_border && self.delays.is_none();
        is_behind.then(|| format!("wire-{device}"))
    }
}

/// A machine that sends and receives.
#[derive(Clone, Debug)]
pub struct Host {
    /// Where it lives.
    pub namespace: Namespace,
    /// Its IPv4 address.
    pub ipv4: Ipv4Addr,
    /// Its IPv6 address, where the kernel has IPv6.
    pub ipv6: Option<Ipv6Addr>,
}

/// The router at a site's edge.
#[derive(Clone, Debug)]
pub struct Border {
    /// Where it lives.
    pub namespace: Namespace,
    /// The far end of each tunnel: the next hop for what goes into it.
    pub gateways: [Ipv4Addr; 2],
    /// The same for IPv6, where the kernel has it.
    pub gateways_ipv6: Option<[Ipv6Addr; 2]>,
}

impl Border {
    /// The far end of a tunnel in all address families.
    pub fn gateway_addresses(&self, tunnel: usize) -> Vec<String> {
        let ipv6 = self
            .gateways_ipv6
            .map(|gateways| gateways[tunnel].to_string());
        std::iter::once(self.gateways[tunnel].to_string())
            .chain(ipv6)
            .collect()
    }
}

/// Two sites, alive as long as this value.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The host of site A that opens short flows.
    pub client: Host,
    /// The host of site B that answers it.
    pub server: Host,
    /// The background's host at site A and at site B.
    pub generators: [Host; 2],
    /// The border router of site A and of site B.
    pub borders: [Border; 2],
    /// What it was built from.
    pub options: TopologyOptions,
    /// Carries the tunnels' packets where they take time.
    _line: Option<Arc<DelayLine>>,
}

impl Topology {
    /// Builds the testbed in namespaces of its own.
    ///
    /// # Errors
    /// The first command that failed; all that was made until then is gone.
    pub fn build(options: &TopologyOptions) -> Result<Self, NamespaceError> {
        let ipv6 = Path::new("/proc/sys/net/ipv6").exists();
        let namespaces = Namespaces::new(ipv6)?;
        let access = namespaces.access_links(options);
        let tunnels = namespaces.tunnels(options);
        for link in &access {
            link.make(ipv6)?;
        }
        let line = match options.delays {
            None => {
                tunnels.iter().try_for_each(|it| it.make(ipv6))?;
                None
            }
            Some(delays) => {
                let line = namespaces.delay_tunnels(delays)?;
                tunnels.iter().try_for_each(|it| it.set_up_delayed(ipv6))?;
                Some(Arc::new(line))
            }
        };

        for link in &access {
            let [_, host] = &link.ends;
            link.add_default_route(host.namespace, 0, "congctl cubic", ipv6)?;
        }
        let [first_tunnel, _] = &tunnels;
        first_tunnel.add_default_route(&namespaces.border_a, 1, "", ipv6)?;
        first_tunnel.add_default_route(&namespaces.border_b, 0, "", ipv6)?;

        let [client, server, generator_a, generator_b] = access.map(|link| Host {
            namespace: link.ends[1].namespace.clone(),
            ipv4: link.ipv4(1),
            ipv6: ipv6.then(|| link.ipv6(1)),
        });
        let border = |namespace: &Namespace, far: usize| Border {
            namespace: namespace.clone(),
            gateways: tunnels.each_ref().map(|tunnel| tunnel.ipv4(far)),
            gateways_ipv6: ipv6.then(|| tunnels.each_ref().map(|tunnel| tunnel.ipv6(far))),
        };
        Ok(Self {
            client,
            server,
            generators: [generator_a, generator_b],
            borders: [
                border(&namespaces.border_a, 1),
                border(&namespaces.border_b, 0),
            ],
            options: options.clone(),
            _line: line,
        })
    }

    /// The devices of a border that have the tunnels' queues, with their rates in Mbit/s.
    pub(crate) fn shaped_tunnels(&self) -> Vec<(String, u32)> {
        let tunnels = TUNNELS.into_iter().zip(self.options.rates_mbit);
        let shaped = |device: &str| self.options.wire(device).unwrap_or(device.to_owned());
        tunnels.map(|(it, mbit)| (shaped(it), mbit)).collect()
    }

    /// The hosts at the ends of all connections.
    pub fn hosts(&self) -> [&Host; 4] {
        [
            &self.client,
            &self.server,
            &self.generators[0],
            &self.generators[1],
        ]
    }
}

/// All boxes, not connected yet.
struct Namespaces {
    client: Namespace,
    server: Namespace,
    generator_a: Namespace,
    generator_b: Namespace,
    border_a: Namespace,
    border_b: Namespace,
}

impl Namespaces {
    fn new(ipv6: bool) -> Result<Self, NamespaceError> {
        let new = |name| {
            let namespace = Namespace::new(name)?;
            set_parameters(&namespace, ipv6)?;
            Ok::<_, NamespaceError>(namespace)
        };
        Ok(Self {
            client: new("client")?,
            server: new("server")?,
            generator_a: new("generator-a")?,
            generator_b: new("generator-b")?,
            border_a: new("border-a")?,
            border_b: new("border-b")?,
        })
    }

    /// From each border to its hosts, in the order of [`Topology::hosts`].
    fn access_links(&self, options: &TopologyOptions) -> [Link<'_>; 4] {
        let [one, two] = options.rates_mbit;
        let rate = options.shape_access.then_some(one.max(two));
        [
            Link::access([1, 1], (&self.border_a, LAN), &self.client, rate),
            Link::access([2, 1], (&self.border_b, LAN), &self.server, rate),
            Link::access([1, 2], (&self.border_a, GENERATOR), &self.generator_a, None),
            Link::access([2, 2], (&self.border_b, GENERATOR), &self.generator_b, None),
        ]
    }

    fn tunnels(&self, options: &TopologyOptions) -> [Link<'_>; 2] {
        let tunnel = |subnet, device, rate| Link {
            subnet: [9, subnet],
            ends: [&self.border_a, &self.border_b].map(|namespace| End {
                namespace,
                device,
                rate_mbit: Some(rate),
                wire: options.wire(device),
            }),
        };
        let [first, second] = TUNNELS;
        let [first_rate, second_rate] = options.rates_mbit;
        [tunnel(0, first, first_rate), tunnel(1, second, second_rate)]
    }
}

impl Namespaces {
    fn delay_tunnels(&self, delays: [Duration; 2]) -> Result<DelayLine, NamespaceError> {
        let strands = [0, 1].map(|it| Strand {
            device: TUNNELS[it].to_owned(),
            delay: delays[it],
            jitter: Duration::ZERO,
            loss: 0.0,
        });
        // Nothing is left to chance, so any seed will do.
        self.border_a.connect_bundle(&self.border_b, &strands, 0)
    }
}

fn set_parameters(namespace: &Namespace, ipv6: bool) -> Result<(), NamespaceError> {
    // `default` is what a device starts from, so this comes before there is any.
    let mut parameters = vec![
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.ip_forward", "1"),
        // Else a connection would start from what an earlier one learned.
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ];
    if ipv6 {
        parameters.extend([
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv6.conf.default.router_solicitations", "0"),
        ]);
    }
    parameters
        .iter()
        .try_for_each(|(key, value)| namespace.sysctl(key, value))
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        net::{IpAddr, TcpListener, TcpStream},
        time::Duration,
    };

    use super::*;
    use crate::{require, require::Requirement::*};

    #[test]
    fn tunnels_take_the_time_that_they_are_to() -> Result<(), Box<dyn Error>> {
        require!(Root, Program("ip"), Program("tc"), Program("ethtool") => Ok(()));
        require!(QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000") => Ok(()));
        require!(CongestionControl("cubic"), File(crate::namespace::TUN) => Ok(()));
        let delay = Duration::from_millis(20);
        let topology = Topology::build(&TopologyOptions {
            delays: Some([delay; 2]),
            ..TopologyOptions::default()
        })?;
        let to = &topology.server;
        let _listener = to.namespace.enter(|| TcpListener::bind((to.ipv4, 7)))??;
        let begun = std::time::Instant::now();
        let client = &topology.client.namespace;
        client.enter(|| TcpStream::connect((to.ipv4, 7)))??;
        let took = begun.elapsed();
        assert!((2 * delay..40 * delay).contains(&took), "{took:?}");
        Ok(())
    }

    #[test]
    fn every_host_reaches_every_host() -> Result<(), Box<dyn Error>> {
        require!(Root, Program("ip"), Program("tc"), Program("ethtool") => Ok(()));
        require!(QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000") => Ok(()));
        require!(CongestionControl("cubic") => Ok(()));
        let topology = Topology::build(&TopologyOptions::default())?;
        let limit = Duration::from_secs(1);
        for to in topology.hosts() {
            let ipv6 = to.ipv6.map(IpAddr::from);
            for address in std::iter::once(IpAddr::from(to.ipv4)).chain(ipv6) {
                // Listens once for all: a process that another test is just starting
                // may hold a copy of a closed listener until it has started.
                let _listener = to.namespace.enter(|| TcpListener::bind((address, 7)))??;
                for from in topology.hosts() {
                    from.namespace
                        .enter(|| TcpStream::connect_timeout(&(address, 7).into(), limit))?
                        .map_err(|error| format!("{from:?} to {address}: {error}"))?;
                }
            }
        }
        Ok(())
    }
}
