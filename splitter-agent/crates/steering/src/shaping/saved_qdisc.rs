//! What a device has in front of it, ours or not.

use std::fmt;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::TcMessage;
use serde::{Deserialize, Serialize};
use splitter_config::{Config, Tunnel};
use splitter_netlink::{InterfaceName, Netlink, NetlinkError};

use super::wanted::{BFIFO, CLASS_QUEUES, FQ_CODEL, id};
use super::{TcKind, TcObject, handle_text};

const ROOT: u32 = u32::MAX;

/// Kinds without classes of their own, which their options describe whole, so that the same can
/// be made again. `tbf` has one class, whose queue is looked at apart.
const REPEATABLE: [&str; 11] = [
    "tbf", "fq", "fq_codel", "codel", "pie", "fq_pie", "pfifo", "bfifo", "sfq", "cake", "mq",
];

/// The root that a device had before it was shaped, to be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedQdisc {
    /// The device.
    pub device: InterfaceName,
    /// Its root, or nothing where that was the kernel's own choice.
    pub root: Option<SavedRoot>,
}

/// A root that somebody had chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedRoot {
    /// Such as `tbf`.
    pub kind: String,
    /// Its number.
    pub handle: u32,
    /// Its options, in the kernel's bytes.
    pub options: Vec<u8>,
}

/// Everything in front of a device.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    objects: Vec<TcObject>,
}

impl Snapshot {
    pub(super) async fn take(netlink: &Netlink, device: u32) -> Result<Self, NetlinkError> {
        let index = device.cast_signed();
        let mut snapshot = Self::default();
        let ask = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index));
        for answer in netlink.list("list the qdiscs", ask).await? {
            if let RouteNetlinkMessage::NewQueueDiscipline(message) = answer
                && message.header.index == index
            {
                snapshot.add(TcKind::Qdisc, &message);
            }
        }
        if !snapshot.has_our_root() {
            return Ok(snapshot);
        }
        let ask = RouteNetlinkMessage::GetTrafficClass(TcMessage::with_index(index));
        for answer in netlink.list("list the classes of a qdisc", ask).await? {
            if let RouteNetlinkMessage::NewTrafficClass(message) = answer {
                snapshot.add(TcKind::Class, &message);
            }
        }
        let mut message = TcMessage::with_index(index);
        message.header.parent = id(0).into();
        let ask = RouteNetlinkMessage::GetTrafficFilter(message);
        for answer in netlink.list("list the filters of a qdisc", ask).await? {
            if let RouteNetlinkMessage::NewTrafficFilter(message) = answer {
                snapshot.add(TcKind::Filter, &message);
            }
        }
        Ok(snapshot)
    }

    fn add(&mut self, tc_kind: TcKind, message: &TcMessage) {
        let object = TcObject::from_message(tc_kind, message);
        // The kernel lists a chain of filters before the filters in it.
        let is_whole =
            |object: &TcObject| tc_kind != TcKind::Filter || !object.fingerprint.is_empty();
        // A fair queue has a class for each flow that waits, which nobody made.
        let is_made = |object: &TcObject| tc_kind != TcKind::Class || object.kind != FQ_CODEL;
        self.objects
            .extend(object.filter(|it| is_whole(it) && is_made(it)));
    }

    /// Whether all that is wanted is there, and nothing else below our root.
    pub(super) fn has(&self, wanted: &[TcObject]) -> bool {
        let ours = || self.objects.iter().filter(|object| !is_ingress(object));
        ours().count() == wanted.len()
            && wanted
                .iter()
                .all(|object| ours().any(|it| it.is_like(object)))
    }

    pub(super) fn has_our_root(&self) -> bool {
        self.root()
            .is_some_and(|root| root.handle == id(0) && root.kind == "htb")
    }

    /// Whether this is a shape of ours, of whichever configuration: besides the root there are the
    /// queues of both classes, by their numbers.
    pub(super) fn is_ours(&self) -> bool {
        let has_queue = |handle: u32| {
            let mut qdiscs = self.objects.iter().filter(|it| it.tc_kind == TcKind::Qdisc);
            qdiscs.any(|it| it.handle == handle && [BFIFO, FQ_CODEL].contains(&it.kind.as_str()))
        };
        self.has_our_root() && CLASS_QUEUES.into_iter().all(has_queue)
    }

    /// What is to be restored later; the error says why that could not be done.
    pub(super) fn to_saved(&self, device: &InterfaceName) -> Result<SavedQdisc, String> {
        let chosen = self.root().filter(|root| root.handle != 0);
        if let Some(root) = chosen {
            let number = handle_text(root.handle);
            let below = self
                .objects
                .iter()
                .find(|it| it.parent >> 16 == root.handle >> 16);
            let is_plain = root.kind == "mq" || below.is_none();
            if !REPEATABLE.contains(&root.kind.as_str()) || !is_plain {
                return Err(format!("qdisc {} {number}", root.kind));
            }
        }
        Ok(SavedQdisc {
            device: device.clone(),
            root: chosen.map(|root| SavedRoot {
                kind: root.kind.clone(),
                handle: root.handle,
                options: root.options.clone(),
            }),
        })
    }

    fn root(&self) -> Option<&TcObject> {
        self.objects
            .iter()
            .find(|object| object.tc_kind == TcKind::Qdisc && object.parent == ROOT)
    }
}

/// Programs at the device's own hooks (`clsact`) are none of our business.
fn is_ingress(object: &TcObject) -> bool {
    const INGRESS: u32 = 0xffff_fff1;
    object.tc_kind == TcKind::Qdisc && object.parent == INGRESS
}

impl SavedQdisc {
    /// Returns what to go by when nothing was noted: the kernel's own choice for each shared tunnel.
    pub fn defaults(config: &Config) -> Vec<Self> {
        let default = |tunnel: &Tunnel| Self {
            device: tunnel.device.clone(),
            root: None,
        };
        let tunnels = config.tunnels();
        tunnels.map(|(_, tunnel)| default(tunnel)).collect()
    }

    /// The object that puts a chosen root back.
    pub(super) fn object(&self) -> Option<TcObject> {
        let root = self.root.as_ref()?;
        Some(TcObject {
            tc_kind: TcKind::Qdisc,
            parent: ROOT,
            handle: root.handle,
            kind: root.kind.clone(),
            options: root.options.clone(),
            fingerprint: root.options.clone(),
        })
    }
}

impl fmt::Display for SavedQdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.root {
            Some(root) => write!(f, "qdisc {} {}", root.kind, handle_text(root.handle)),
            None => f.write_str("the default qdisc"),
        }
    }
}
