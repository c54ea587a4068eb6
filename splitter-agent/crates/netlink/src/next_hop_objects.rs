//! Next hop objects, to which routes refer by number.
//!
//! Routing daemons such as FRR make them. The kernel lists the devices and gateways of such routes
//! beside the number, unless `net.ipv4.nexthop_compat_mode` is 0.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use rtnetlink::packet_core::{NLM_F_DUMP, NlasIterator};

use crate::blocking;

/// Holds the next hop objects of a network namespace by their numbers.
#[derive(Debug, Default)]
pub struct NextHopObjects(HashMap<u32, Object>);

/// Names where a next hop object leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectHop {
    /// The number of the device that packets leave by.
    pub device: u32,
    /// The address of the next router, if there is one.
    pub gateway: Option<IpAddr>,
}

#[derive(Debug, PartialEq, Eq)]
enum Object {
    Hop(ObjectHop),
    Group(Vec<u32>),
    /// It drops, or is of a kind that is not known.
    Other,
}

impl NextHopObjects {
    /// Lists them for the network namespace of this thread. Blocks for as long as the kernel takes.
    ///
    /// # Errors
    /// The kernel's; `EOPNOTSUPP` before Linux 5.3.
    pub fn read() -> io::Result<Self> {
        let answers = blocking::exchange_raw(RTM_GETNEXTHOP, &[0; NHMSG_BYTES], NLM_F_DUMP)?;
        let objects = answers.iter().filter(|it| it.kind == RTM_NEWNEXTHOP);
        Ok(Self(objects.filter_map(|it| object(&it.payload)).collect()))
    }

    /// Tells whether there was an object of this number when they were listed.
    #[must_use]
    pub fn holds(&self, id: u32) -> bool {
        self.0.contains_key(&id)
    }

    /// Returns where routes with this number lead: several ways for a group, and none for an object
    /// that drops or is not there.
    #[must_use]
    pub fn hops(&self, id: u32) -> Vec<ObjectHop> {
        let single = |id: &u32| match self.0.get(id) {
            Some(Object::Hop(hop)) => Some(*hop),
            _ => None,
        };
        match self.0.get(&id) {
            // The kernel has no groups in groups.
            Some(Object::Group(members)) => members.iter().filter_map(single).collect(),
            _ => single(&id).into_iter().collect(),
        }
    }
}

fn object(message: &[u8]) -> Option<(u32, Object)> {
    let (mut id, mut device, mut gateway, mut members) = (None, None, None, None);
    let attributes = NlasIterator::new(message.get(NHMSG_BYTES..)?);
    for attribute in attributes.filter_map(Result::ok) {
        let value = attribute.value();
        match attribute.kind() {
            NHA_ID => id = word(value),
            NHA_OIF => device = word(value),
            NHA_GATEWAY => gateway = address(value),
            NHA_GROUP => {
                let entries = value.chunks_exact(NEXTHOP_GRP_BYTES);
                members = Some(entries.filter_map(word).collect());
            }
            _ => {}
        }
    }
    let object = match (members, device) {
        (Some(members), _) => Object::Group(members),
        (None, Some(device)) => Object::Hop(ObjectHop { device, gateway }),
        (None, None) => Object::Other,
    };
    Some((id?, object))
}

fn word(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_ne_bytes)
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(value).map(IpAddr::from);
    v4.or_else(|_| v6()).ok()
}

// Of linux/rtnetlink.h and linux/nexthop.h; the message library does not know them.
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_GETNEXTHOP: u16 = 106;
/// `struct nhmsg`: family, scope, protocol, a byte of padding, flags.
const NHMSG_BYTES: usize = 8;
/// `struct nexthop_grp`: the number, two bytes of weight and two of padding.
const NEXTHOP_GRP_BYTES: usize = 8;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = vec![0; NHMSG_BYTES];
        for (kind, value) in attributes {
            let length = u16::try_from(4 + value.len()).unwrap();
            message.extend(length.to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(*value);
        }
        message
    }

    #[test]
    fn group_leads_where_its_members_do() {
        let id = |id: u32| id.to_ne_bytes();
        let members: Vec<u8> = [7_u32, 0, 8, 0, 9, 0]
            .iter()
            .flat_map(|it| it.to_ne_bytes())
            .collect();
        let messages = [
            message(&[
                (NHA_ID, &id(7)),
                (NHA_OIF, &id(3)),
                (NHA_GATEWAY, &[192, 0, 2, 1]),
            ]),
            message(&[(NHA_ID, &id(8)), (NHA_OIF, &id(4))]),
            message(&[(NHA_ID, &id(9))]),
            message(&[(NHA_ID, &id(10)), (NHA_GROUP, &members)]),
        ];
        let objects = messages.iter().filter_map(|it| object(it));
        let objects = NextHopObjects(objects.collect());
        let near = ObjectHop {
            device: 3,
            gateway: Some("192.0.2.1".parse().unwrap()),
        };
        let far = ObjectHop {
            device: 4,
            gateway: None,
        };
        assert_eq!(objects.hops(7), [near]);
        assert_eq!(objects.hops(10), [near, far]);
        assert_eq!(objects.hops(9), [], "one that drops");
        assert_eq!(objects.hops(11), [], "one that is not there");
    }
}
