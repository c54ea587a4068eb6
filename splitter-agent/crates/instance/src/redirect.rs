//! Which tunnels packets can be put into without the network stack.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;
use splitter_config::SteeringMode;
use splitter_datapath::Targets;
use splitter_netlink::{InterfaceName, Interfaces, NetlinkError};
use splitter_policy::flow::TunnelRole;
use splitter_policy::forward::target;
use splitter_steering::redirection::hindrance;
use splitter_steering::{Placement, routes::tunnels_of};

use crate::{Instance, InstanceError, Loaded};

/// Says what is redirected, and what is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Redirect {
    /// Whether the programs know all of it already.
    pub in_place: bool,
    /// The tunnels' devices that packets are put into.
    pub into: Vec<InterfaceName>,
    /// The others, whose packets go by the network stack.
    pub by_stack: Vec<ByStack>,
    #[serde(skip)]
    pub(crate) targets: Targets,
}

/// A tunnel that packets cannot be put into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ByStack {
    /// Its device.
    pub device: InterfaceName,
    /// Why.
    pub problem: String,
}

impl Instance {
    /// What is to be redirected, where that is what the configuration asks for.
    pub(crate) async fn redirect(
        &self,
        interfaces: &Interfaces,
        placement: &Placement,
        loaded: &Loaded,
    ) -> Result<Option<Redirect>, InstanceError> {
        if self.config.steering.mode != SteeringMode::Redirect {
            return Ok(None);
        }
        let mut redirect = self.wanted_redirect(interfaces, placement).await;
        if let Loaded::Current(dataplane) = loaded {
            redirect.in_place = dataplane.targets()? == redirect.targets;
        }
        Ok(Some(redirect))
    }

    /// Tells the programs which tunnels the classes have moved to. Until then their packets go by the
    /// network stack.
    pub(crate) async fn follow(&self, placement: &Placement) -> Result<(), InstanceError> {
        let redirects = self.config.steering.mode == SteeringMode::Redirect;
        let Some(mut dataplane) = self.open()?.filter(|_| redirects) else {
            return Ok(());
        };
        let interfaces = self.netlink.interfaces().await?;
        let redirect = self.wanted_redirect(&interfaces, placement).await;
        dataplane.set_targets(&redirect.targets)?;
        // Among those that there are now.
        self.tell_paths(placement)
    }

    /// Has the kernel ask a neighbour that has turned stale.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn confirm_stale(&self, interface: u32, address: IpAddr) -> Result<(), NetlinkError> {
        self.netlink.confirm_stale(interface, address).await
    }

    async fn wanted_redirect(&self, interfaces: &Interfaces, placement: &Placement) -> Redirect {
        let config = &self.config;
        let mut redirect = Redirect {
            in_place: false,
            into: Vec::new(),
            by_stack: Vec::new(),
            targets: Targets::default(),
        };
        for (_, tunnel) in config.tunnels() {
            let problem = match interfaces.named(&tunnel.device) {
                Ok(interface) => hindrance(interface, config.attach.mode).await,
                Err(_) => Some("it is not there".to_owned()),
            };
            match problem {
                Some(problem) => redirect.by_stack.push(ByStack {
                    device: tunnel.device.clone(),
                    problem: match config.balancers() {
                        Some(_) => format!("{problem}; none chooses it"),
                        None => problem,
                    },
                }),
                None => redirect.into.push(tunnel.device.clone()),
            }
        }
        for class in TunnelRole::ALL {
            let egress = match class {
                TunnelRole::Short => placement.short,
                TunnelRole::Long => placement.long,
            };
            let tunnels = tunnels_of(config, placement, egress).into_iter();
            let devices = tunnels.map(|it| &it.device);
            let usable = devices.filter(|it| redirect.into.contains(it));
            let indices = usable.filter_map(|name| Some(interfaces.named(name).ok()?.index));
            let targets = indices.map(|index| target(index, class));
            redirect.targets.tunnels.extend(targets);
        }
        redirect.targets.tunnels.sort_unstable();
        let lan = config.lan.iter().filter_map(|name| {
            let interface = interfaces.named(name).ok()?;
            Some((interface.index, interface.address?))
        });
        redirect.targets.lan = lan.collect();
        redirect
    }
}

impl Redirect {
    /// What an operator should know of it.
    pub(crate) fn notes(&self) -> Vec<String> {
        let by_stack = self.by_stack.iter().map(ToString::to_string);
        let none = self.into.is_empty().then(|| {
            "no tunnel takes redirected packets, so all go by the network stack; set \
             steering.mode = \"dscp\", or use tunnels on Ethernet devices whose drivers have XDP"
                .to_owned()
        });
        by_stack.chain(none).collect()
    }
}

impl fmt::Display for ByStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, problem } = self;
        write!(f, "packets for {device} go by the network stack: {problem}")
    }
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.in_place { '=' } else { '+' };
        let names: Vec<_> = self.into.iter().map(InterfaceName::as_str).collect();
        match names.as_slice() {
            [] => write!(f, "{sign} redirect into no tunnel"),
            names => write!(f, "{sign} redirect into {}", names.join(", ")),
        }
    }
}
