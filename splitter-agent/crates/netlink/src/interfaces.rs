//! What the kernel knows about each interface.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp,
    State, VlanProtocol, XdpAttached,
};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::packet_core::{NLM_F_DUMP, Parseable as _};
use serde::Serialize;

use super::blocking::exchange;
use super::{Family, InterfaceName};
use super::{Netlink, NetlinkError};

/// Describes one network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its kind where it is virtual, such as `veth`, `vlan` or `wireguard`.
    pub kind: Option<String>,
    /// Largest packet it carries, in bytes.
    pub mtu: u32,
    /// Whether it has been set up.
    pub is_up: bool,
    /// Whether it sees its other end.
    pub has_carrier: bool,
    /// Operational state in the kernel's words, such as `UP` or `LOWERLAYERDOWN`.
    pub state: String,
    /// Whether it is the loopback device.
    pub is_loopback: bool,
    /// Whether its packets begin with an Ethernet header.
    pub is_ethernet: bool,
    /// Its address on an Ethernet link.
    pub address: Option<[u8; 6]>,
    /// The XDP program on it.
    pub xdp: Option<Xdp>,
    /// What it is a VLAN of, if it is one.
    pub vlan: Option<VlanDevice>,
    /// The number of the interface of the same network namespace that it is linked to: the one that a
    /// VLAN or macvlan lies on, or the other end of a veth device.
    pub lower: Option<u32>,
    /// The number of the interface that it belongs to, such as a bridge.
    pub controller: Option<u32>,
    /// The hardware behind it.
    pub parent: Option<ParentDevice>,
    /// What has passed through it, where the kernel counts that.
    pub traffic: Option<DeviceTraffic>,
}

/// Counts what has passed through an interface since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DeviceTraffic {
    /// Bytes that have left by it.
    pub sent_bytes: u64,
    /// Bytes that have come in by it.
    pub received_bytes: u64,
    /// Packets that have left by it; several segments may be one.
    pub sent_packets: u64,
    /// Packets that have come in by it.
    pub received_packets: u64,
}

/// A VLAN of another interface of the same network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VlanDevice {
    /// The number of the interface that carries it.
    pub carrier: u32,
    /// Whether its tags are those of a service VLAN (802.1ad).
    pub is_service: bool,
}

/// Names the bus on which a hardware interface sits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParentDevice {
    /// Such as `pci` or `virtio`.
    pub bus: String,
    /// Such as `0000:01:00.0`.
    pub device: String,
}

/// The XDP program on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Xdp {
    /// Where it runs.
    pub mode: XdpMode,
    /// The program's number, as `bpftool prog` shows it.
    pub program_id: u32,
}

/// Says where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In the network stack.
    Generic,
    /// In the hardware.
    Offloaded,
    /// Several programs in different places.
    Multiple,
}

impl std::fmt::Display for XdpMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offloaded => "offloaded",
            Self::Multiple => "multiple",
        })
    }
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The interface's number.
    pub interface: u32,
    /// The address.
    pub address: IpAddr,
    /// Length of the prefix on the link.
    pub prefix_length: u8,
}

/// All interfaces of a network namespace.
#[derive(Debug, Clone, Default)]
pub struct Interfaces(Vec<Interface>);

/// An interface that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no interface {name}; {}", list_present(.present))]
pub struct NoSuchInterface {
    /// The name that was looked for.
    pub name: InterfaceName,
    /// The names that there are.
    pub present: Vec<String>,
}

fn list_present(names: &[String]) -> String {
    if names.is_empty() {
        return "there are none but loopback (create the interface, or run this in the network \
                namespace that has it)"
            .to_owned();
    }
    format!(
        "there are: {} (correct the name or create the interface)",
        names.join(", ")
    )
}

/// What interfaces are reported with, as linux/rtnetlink.h has it.
const RTM_NEWLINK: u16 = 16;

impl Interfaces {
    /// Lists those of the network namespace of the calling thread, within this call.
    ///
    /// # Errors
    /// The kernel's, and `InvalidData` for an answer that is not understood.
    pub fn now() -> io::Result<Self> {
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = exchange(question, NLM_F_DUMP)?;
        let described = answers.iter().filter(|it| it.kind == RTM_NEWLINK);
        let links = described.map(|it| LinkMessage::parse(&it.payload));
        let links = links
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(links.into_iter().map(interface).collect())
    }

    /// The interface of that name.
    ///
    /// # Errors
    /// With the names that there are.
    pub fn named(&self, name: &InterfaceName) -> Result<&Interface, NoSuchInterface> {
        self.0
            .iter()
            .find(|interface| interface.name == name.as_str())
            .ok_or_else(|| {
                let others = self.0.iter().filter(|interface| !interface.is_loopback);
                let present = others.map(|interface| interface.name.clone()).collect();
                NoSuchInterface {
                    name: name.clone(),
                    present,
                }
            })
    }

    /// The name of an interface's number.
    #[must_use]
    pub fn name_of(&self, index: u32) -> Option<&str> {
        self.iter()
            .find(|interface| interface.index == index)
            .map(|it| it.name.as_str())
    }

    /// The interface by which the network stack takes the packets of another one to have come, where that is a port: its bridge,
    /// bond or the like.
    #[must_use]
    pub fn seen_as(&self, port: &Interface) -> Option<&Interface> {
        // Not `openvswitch`: its controller receives nothing, and what comes in has come by an interface of the bridge's own.
        const KINDS: [&str; 3] = ["bridge", "bond", "team"];
        let controller = self.iter().find(|it| Some(it.index) == port.controller)?;
        let kind = controller.kind.as_deref()?;
        KINDS.contains(&kind).then_some(controller)
    }

    /// Goes through all interfaces.
    pub fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.0.iter()
    }
}

impl FromIterator<Interface> for Interfaces {
    fn from_iter<T: IntoIterator<Item = Interface>>(interfaces: T) -> Self {
        Self(interfaces.into_iter().collect())
    }
}

impl Netlink {
    /// Lists all network interfaces.
    ///
    /// # Errors
    /// When the kernel refuses the request.
    pub async fn interfaces(&self) -> Result<Interfaces, NetlinkError> {
        let ask = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answer = self.list("list the interfaces", ask).await?;
        let links = answer.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(interface(link)),
            _ => None,
        });
        Ok(Interfaces(links.collect()))
    }

    /// The interface of that name; `None` if there is none.
    ///
    /// # Errors
    /// When the kernel refuses the request.
    pub async fn interface(&self, name: &InterfaceName) -> Result<Option<Interface>, NetlinkError> {
        let mut ask = LinkMessage::default();
        ask.attributes.push(LinkAttribute::IfName(name.to_string()));
        let request = format!("look at the interface {name}");
        match self.ask(&request, RouteNetlinkMessage::GetLink(ask)).await {
            Ok(RouteNetlinkMessage::NewLink(link)) => Ok(Some(interface(link))),
            Ok(_) => Err(NetlinkError::Unexpected {
                request,
                what: "not a link",
            }),
            Err(error) if error.os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds out whether what this host sends to an address has a route by this interface. The kernel takes
    /// an address for one on the link where it has no route at all, which does not count.
    ///
    /// # Errors
    /// When the kernel refuses the request.
    pub async fn has_route(&self, to: IpAddr, interface: u32) -> Result<bool, NetlinkError> {
        Ok(self.route(to, interface).await?.is_some())
    }

    /// The route of the tables by which this host sends to an address over this interface, if there is one.
    pub(crate) async fn route(
        &self,
        to: IpAddr,
        interface: u32,
    ) -> Result<Option<RouteMessage>, NetlinkError> {
        let mut ask = RouteMessage::default();
        (
            ask.header.address_family,
            ask.header.destination_prefix_length,
        ) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        ask.header.flags = RouteFlags::FibMatch;
        ask.attributes = vec![
            RouteAttribute::Destination(to.into()),
            RouteAttribute::Oif(interface),
        ];
        let request = format!("ask for the route to {to}");
        match self.ask(&request, RouteNetlinkMessage::GetRoute(ask)).await {
            Ok(RouteNetlinkMessage::NewRoute(route)) => Ok(Some(route)),
            Ok(_) => Err(NetlinkError::Unexpected {
                request,
                what: "not a route",
            }),
            Err(NetlinkError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists the addresses of all interfaces in one family.
    ///
    /// # Errors
    /// When the kernel refuses the request.
    pub async fn addresses(&self, family: Family) -> Result<Vec<Address>, NetlinkError> {
        let mut ask = AddressMessage::default();
        ask.header.family = address_family(family);
        let request = format!("list the {family} addresses");
        let answer = self
            .list(&request, RouteNetlinkMessage::GetAddress(ask))
            .await?;
        let addresses = answer.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(address) => own_address(&address),
            _ => None,
        });
        Ok(addresses.collect())
    }
}

/// The number that netlink has for a family.
pub fn address_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

const SERVICE_VLAN: InfoVlan = InfoVlan::Protocol(VlanProtocol::Ieee8021Ad);

fn interface(link: LinkMessage) -> Interface {
    let flags = link.header.flags;
    let mut interface = Interface {
        index: link.header.index,
        name: String::new(),
        kind: None,
        mtu: 0,
        is_up: flags.contains(LinkFlags::Up),
        has_carrier: flags.contains(LinkFlags::LowerUp),
        state: State::Unknown.to_string(),
        is_loopback: flags.contains(LinkFlags::Loopback),
        is_ethernet: matches!(
            link.header.link_layer_type,
            LinkLayerType::Ether | LinkLayerType::Loopback
        ),
        address: None,
        xdp: None,
        vlan: None,
        lower: None,
        controller: None,
        parent: None,
        traffic: None,
    };
    let (mut bus, mut device) = (None, None);
    let (mut carrier, mut is_elsewhere, mut is_service) = (None, false, None);
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name = name,
            LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
            LinkAttribute::OperState(state) => interface.state = state.to_string(),
            LinkAttribute::LinkInfo(info) => {
                for info in info {
                    match info {
                        LinkInfo::Kind(kind) => interface.kind = Some(kind.to_string()),
                        LinkInfo::Data(InfoData::Vlan(data)) => {
                            is_service = Some(data.contains(&SERVICE_VLAN));
                        }
                        _ => {}
                    }
                }
            }
            LinkAttribute::Stats64(counts) => {
                interface.traffic = Some(DeviceTraffic {
                    sent_bytes: counts.tx_bytes,
                    received_bytes: counts.rx_bytes,
                    sent_packets: counts.tx_packets,
                    received_packets: counts.rx_packets,
                });
            }
            LinkAttribute::Address(address) => interface.address = address.try_into().ok(),
            LinkAttribute::Xdp(attributes) => interface.xdp = xdp(&attributes),
            LinkAttribute::Link(index) => carrier = Some(index),
            LinkAttribute::Controller(index) => interface.controller = Some(index),
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::ParentDevName(name) => device = Some(name),
            LinkAttribute::ParentDevBusName(name) => bus = Some(name),
            _ => {}
        }
    }
    interface.lower = carrier.filter(|_| !is_elsewhere);
    interface.vlan = interface
        .lower
        .zip(is_service)
        .map(|(carrier, is_service)| VlanDevice {
            carrier,
            is_service,
        });
    interface.parent = bus
        .zip(device)
        .map(|(bus, device)| ParentDevice { bus, device });
    interface
}

fn xdp(attributes: &[LinkXdp]) -> Option<Xdp> {
    let mode = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::Attached(XdpAttached::Driver) => Some(XdpMode::Native),
        LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(XdpMode::Generic),
        LinkXdp::Attached(XdpAttached::Hardware) => Some(XdpMode::Offloaded),
        LinkXdp::Attached(XdpAttached::Multiple) => Some(XdpMode::Multiple),
        _ => None,
    })?;
    let program_id = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(id)
        | LinkXdp::DrvProgId(id)
        | LinkXdp::SkbProgId(id)
        | LinkXdp::HwProgId(id) => Some(*id),
        _ => None,
    });
    Some(Xdp {
        mode,
        program_id: program_id.unwrap_or(0),
    })
}

/// On a point-to-point link `Address` is the peer's and `Local` is our own.
fn own_address(message: &AddressMessage) -> Option<Address> {
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(local) => address = Some(*local),
            AddressAttribute::Address(peer) => address = address.or(Some(*peer)),
            _ => {}
        }
    }
    Some(Address {
        interface: message.header.index,
        address: address?,
        prefix_length: message.header.prefix_len,
    })
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::InfoKind;

    use super::*;

    #[test]
    fn a_vlan_is_known_with_its_carrier_where_that_is_here() {
        let link = |protocol, more: Option<LinkAttribute>| {
            let mut link = LinkMessage::default();
            let data = InfoData::Vlan(vec![InfoVlan::Id(7), InfoVlan::Protocol(protocol)]);
            link.attributes = vec![
                LinkAttribute::Link(3),
                LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Vlan), LinkInfo::Data(data)]),
            ];
            link.attributes.extend(more);
            interface(link)
        };
        let vlan = |is_service| VlanDevice {
            carrier: 3,
            is_service,
        };
        let found = link(VlanProtocol::Ieee8021Q, None);
        assert_eq!(
            (found.kind.as_deref(), found.vlan),
            (Some("vlan"), Some(vlan(false)))
        );
        assert_eq!(link(VlanProtocol::Ieee8021Ad, None).vlan, Some(vlan(true)));
        // The number is another interface's there.
        let elsewhere = link(VlanProtocol::Ieee8021Q, Some(LinkAttribute::LinkNetNsId(1)));
        assert_eq!(elsewhere.vlan, None);
    }

    #[test]
    fn the_other_end_of_a_pair_carries_no_vlan() {
        let mut link = LinkMessage::default();
        let kind = LinkInfo::Kind(InfoKind::Veth);
        link.attributes = vec![LinkAttribute::Link(3), LinkAttribute::LinkInfo(vec![kind])];
        assert_eq!(interface(link).vlan, None);
    }
}
