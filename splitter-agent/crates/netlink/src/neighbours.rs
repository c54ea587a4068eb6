//! Next hops on a link: what the kernel knows of them, and having it ask them.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState as Nud,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, Parseable as _};

use super::blocking::exchange;
use super::{Netlink, NetlinkError};

/// Looks up what the kernel knows of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourState {
    /// It has answered lately.
    Reachable,
    /// Nobody asks it: its address was entered by hand, or the link needs none.
    Fixed,
    /// Its address is known, and it has not answered lately.
    Unconfirmed,
    /// Its address is not known.
    Unknown,
}

impl Netlink {
    /// Looks up what the kernel knows of a neighbour.
    ///
    /// # Errors
    /// When the kernel refuses the request.
    pub async fn neighbour(
        &self,
        interface: u32,
        address: IpAddr,
    ) -> Result<NeighbourState, NetlinkError> {
        let request = format!("look at the neighbour {address}");
        let ask = RouteNetlinkMessage::GetNeighbour(about(interface, address));
        match self.ask(&request, ask).await {
            Ok(RouteNetlinkMessage::NewNeighbour(known)) => Ok(state(known.header.state)),
            Ok(_) => Err(NetlinkError::Unexpected {
                request,
                what: "not a neighbour",
            }),
            Err(error) if error.os_error() == Some(libc::ENOENT) => Ok(NeighbourState::Unknown),
            Err(error) => Err(error),
        }
    }

    /// Has the kernel ask a neighbour at once whether it is there: by unicast if its address is
    /// known, which changes nothing for packets to it, else by resolving the address.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn solicit(
        &self,
        interface: u32,
        address: IpAddr,
        known: NeighbourState,
    ) -> Result<(), NetlinkError> {
        let request = format!("ask the neighbour {address}");
        match known {
            NeighbourState::Fixed => Ok(()),
            NeighbourState::Unknown => {
                let mut message = about(interface, address);
                message.header.flags = NeighbourFlags::Use;
                let message = RouteNetlinkMessage::NewNeighbour(message);
                self.change(&request, message, NLM_F_CREATE | NLM_F_REPLACE)
                    .await
            }
            NeighbourState::Reachable | NeighbourState::Unconfirmed => {
                // One that is being asked already is asked again only after leaving that state.
                for state in [Nud::Stale, Nud::Probe] {
                    self.set_state(&request, interface, address, state).await?;
                }
                Ok(())
            }
        }
    }

    /// Has the kernel ask a neighbour that has turned stale, and lets one be that it is asking already.
    ///
    /// Unlike [`solicit`](Self::solicit) it makes no neighbour stale, so that whoever asks when one
    /// turns stale is not called for his own question.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn confirm_stale(&self, interface: u32, address: IpAddr) -> Result<(), NetlinkError> {
        let request = format!("ask the neighbour {address}");
        self.set_state(&request, interface, address, Nud::Probe)
            .await
    }

    async fn set_state(
        &self,
        request: &str,
        interface: u32,
        address: IpAddr,
        state: Nud,
    ) -> Result<(), NetlinkError> {
        let mut message = about(interface, address);
        message.header.state = state;
        let message = RouteNetlinkMessage::NewNeighbour(message);
        match self.change(request, message, NLM_F_REPLACE).await {
            // Forgotten in between.
            Err(error) if error.os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        }
    }
}

/// The link address of a neighbour on Ethernet, as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkAddress {
    /// The address.
    pub bytes: [u8; 6],
    /// It has not been confirmed for a while, and nobody will ask before somebody uses it.
    pub is_stale: bool,
}

/// Looks up the link address that packets to a neighbour on Ethernet get; none where the kernel has none to use. Blocks for
/// the microseconds that it takes.
///
/// # Errors
/// When the kernel refuses the request.
pub fn link_address(interface: u32, address: IpAddr) -> io::Result<Option<LinkAddress>> {
    let question = RouteNetlinkMessage::GetNeighbour(about(interface, address));
    // With an end behind the answer, which a single one has not by itself.
    let answers = match exchange(question, NLM_F_ACK) {
        Err(error) if is_unknown(&error) => return Ok(None),
        answers => answers?,
    };
    let Some(answer) = answers.first() else {
        return Ok(None);
    };
    let known = NeighbourMessage::parse(&answer.payload)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    if state(known.header.state) == NeighbourState::Unknown {
        return Ok(None);
    }
    let bytes = known.attributes.iter().find_map(|it| match it {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok(),
        _ => None,
    });
    let is_stale = known.header.state == Nud::Stale;
    Ok(bytes.map(|bytes| LinkAddress { bytes, is_stale }))
}

/// There is no such neighbour, nor any other by that interface, which is gone or does not speak the family.
fn is_unknown(error: &io::Error) -> bool {
    const NONE: [i32; 3] = [libc::ENOENT, libc::ENODEV, libc::EAFNOSUPPORT];
    error.raw_os_error().is_some_and(|it| NONE.contains(&it))
}

fn about(interface: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    message.header.ifindex = interface;
    message
        .attributes
        .push(NeighbourAttribute::Destination(address.into()));
    message
}

fn state(state: Nud) -> NeighbourState {
    match state {
        Nud::Reachable => NeighbourState::Reachable,
        Nud::Permanent | Nud::Noarp => NeighbourState::Fixed,
        Nud::Stale | Nud::Delay | Nud::Probe => NeighbourState::Unconfirmed,
        _ => NeighbourState::Unknown,
    }
}
