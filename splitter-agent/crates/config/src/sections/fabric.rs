//! `[fabric]`: the role of a machine among the leaves and spines of a fabric.

use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::{Value as Json, json};
use splitter_netlink::InterfaceName;
use splitter_policy::fabric::{Agreement, MAX_LEAVES};

use super::MAX_TUNNELS;
use crate::config::Given;
use crate::declaration::key;
use crate::declare::{Section as _, section};
use crate::key::Change::Restart;
use crate::key::Key;
use crate::kind::{
    Kind, Refusals, Value, boolean, enumeration, interface, list, milliseconds, prefix, whole, word,
};
use crate::schema;
use crate::source::Section;
use crate::values::Dscp;

/// The most ports of a leaf or a spine.
const MAX_PORTS: usize = MAX_TUNNELS;
/// The most prefixes of all leaves.
const MAX_PREFIXES: usize = 4_096;

const AGAIN: &str = "end `splitter fabric run` and start it again";

enumeration! {
    /// The role of a machine in a fabric.
    FabricRole {
        /// Hosts are behind it; it writes and restores their ACKs.
        Leaf = "leaf",
        /// Leaves are at its ports; it reports how full these are.
        Spine = "spine",
    }
}

section! {
    /// Says what the machine is in the fabric, and what all leaves and spines have agreed on.
    pub struct Fabric, GivenFabric {
        /// The machine is a "leaf" (hosts are behind it) or a "spine" (leaves are at its ports).
        role: FabricRole = key("role", Restart(AGAIN), word())
            .required("say what the machine is: role = \"leaf\" or role = \"spine\"")
            .trade_off("A machine between spines is neither: a router without a role only decrements the hops left, as it does the TTL.");

        /// ACKs that a leaf has written have this DSCP in the fabric.
        dscp: Dscp = key(
            "dscp",
            Restart(AGAIN),
            whole(1..=63).except(
                0,
                "ACKs that no leaf has written have DSCP 0",
                "give a number from 1 to 63 that nothing else in the fabric uses, such as 41",
            ),
        )
        .required("give the DSCP that all leaves and spines have agreed on, such as dscp = 41")
        .trade_off(
            "The same everywhere, and nobody else's: queues and filters of the fabric treat it as \
             best effort. For `pfifo_fast` and `prio` of Linux one is that leaves a rest of 0 or 1 by 8, \
             such as 41: they go by old meanings of these bits (TOS), and 42 waits behind all other \
             traffic. A leaf takes it off hosts' own ACKs.",
        );

        /// So many routers are between two hosts of different leaves at most, both leaves counted.
        hops: u32 = key(
            "hops",
            Restart(AGAIN),
            whole(Agreement::LEAST_HOPS.into()..=Agreement::MOST_HOPS.into()),
        )
        .default(3)
        .trade_off(
            "The same everywhere. What has come further is not taken for written; a field counts at \
             most six.",
        );

        /// The highest level of a report stands for a port that takes so long to drain.
        queue: Duration = key("queue_ms", Restart(AGAIN), milliseconds(1..=10_000))
            .default(Duration::from_millis(25))
            .trade_off(
                "The same everywhere: what the fullest port holds. A report is right to a 31st of it.",
            );

        /// A leaf restores what other leaves write, and writes nothing itself.
        restore_only: bool = key("restore_only", Restart(AGAIN), boolean())
            .default(false)
            .trade_off(
                "For the time in which [not all leaves are in place](../how-to/fabric.md#order): what one \
                 leaf writes another has to restore. A spine restores nothing.",
            );

        /// Lists the machine's ports: a leaf's uplinks to spines, or a spine's ports to leaves.
        ports: Vec<FabricPort> = key("ports", Restart(AGAIN), PortList)
            .required("list the devices that lead to the other leaves and spines, each with a line [[fabric.ports]] and its `device`")
            .trade_off("A leaf's in the order in which it chooses among them.");

        /// Lists the leaves of the fabric, with the hosts behind them.
        leaves: Vec<FabricLeaf> = key("leaves", Restart(AGAIN), LeafList)
            .derived("none, for a spine", |_| Vec::new())
            .trade_off(
                "The same list on all leaves, with their own: what one of them writes the other has to \
                 restore. A spine has none.",
            );
    }
}

section! {
    /// Describes a port of a leaf or a spine.
    pub struct FabricPort, GivenPort {
        /// The port is this device, which is Ethernet.
        device: InterfaceName = key("device", Restart(AGAIN), interface())
            .required("name the device, such as device = \"eth1\"")
            .trade_off("No two ports have the same.");

        /// A spine's port carries so much.
        rate_mbit: Option<NonZeroU32> = key(
            "rate_mbit",
            Restart(AGAIN),
            whole(1..=1_000_000).unit("Mbit/s", "Mbit/s").except(
                0,
                "a port of rate 0 would never drain",
                "give its rate in Mbit/s",
            ),
        )
        .optional("not known, for a leaf")
        .trade_off(
            "How full the port is follows from it and from what is sent, and is held against the \
             queueing discipline. Required of a spine's ports, and of no use to a leaf.",
        );
    }
}

section! {
    /// Describes a leaf and the hosts behind it.
    pub struct FabricLeaf, GivenLeaf {
        /// The leaf has this number among all leaves.
        number: u32 = key("number", Restart(AGAIN), whole(0..=MAX_LEAVES as u32 - 1))
            .required("number the leaves from 0, such as number = 0")
            .trade_off("No two leaves have the same.");

        /// The hosts behind the leaf have addresses in these prefixes.
        prefixes: Vec<IpNet> = key(
            "prefixes",
            Restart(AGAIN),
            list(
                prefix(),
                "prefixes, each once, no bits beyond their length",
                [
                    "without a prefix no ACK would be written",
                    "name the prefixes of the hosts behind the leaf",
                ],
                "name each prefix once",
            ),
        )
        .required("name the prefixes of the hosts behind the leaf, such as prefixes = [\"10.1.0.0/16\"]")
        .trade_off("The longest that an address lies in decides.");
    }
}

/// Reads the lists of the section, whose tables are sections of their own.
pub(crate) fn read_lists(section: &Section<'_, '_>, given: &mut GivenFabric) {
    let nothing = Given::default();
    given.ports = section.tables("ports", "fabric.ports").and_then(|tables| {
        let read = |it| FabricPort::complete(&FabricPort::read(it), &nothing);
        // All of them first, so that each mistake is noted.
        let ports: Vec<_> = tables.iter().map(read).collect();
        ports.into_iter().collect()
    });
    given.leaves = match section.tables("leaves", "fabric.leaves") {
        None => Some(Vec::new()),
        Some(tables) => {
            let read = |it| FabricLeaf::complete(&FabricLeaf::read(it), &nothing);
            let leaves: Vec<_> = tables.iter().map(read).collect();
            leaves.into_iter().collect()
        }
    };
}

/// Holds the keys of the section against each other.
pub(crate) fn role_is_possible(section: &Section<'_, '_>, fabric: &Fabric) {
    let refuse = |key, problem: String, remedy| section.contradiction(key, problem, remedy);
    let (ports, leaves) = (&fabric.ports, &fabric.leaves);
    if !(1..=MAX_PORTS).contains(&ports.len()) {
        let problem = format!("the list has {} ports", ports.len());
        refuse("ports", problem, "name 1 to 16 ports");
    }
    if let Some(device) = repeated(ports.iter().map(|it| &it.device)) {
        refuse(
            "ports",
            format!("{device} is listed twice"),
            "name each device once",
        );
    }
    let with_rate = |has_rate| ports.iter().find(|it| it.rate_mbit.is_some() == has_rate);
    match fabric.role {
        FabricRole::Spine => {
            if fabric.restore_only {
                let problem = "a spine restores nothing".to_owned();
                refuse(
                    "restore_only",
                    problem,
                    "leave it out, or set role = \"leaf\"",
                );
            }
            if let Some(port) = with_rate(false) {
                let problem = format!("of {} it is not said what it carries", port.device);
                refuse("ports", problem, "give each port of a spine its rate_mbit");
            }
            if !leaves.is_empty() {
                let problem = "a spine does not look at who is behind a leaf".to_owned();
                refuse(
                    "leaves",
                    problem,
                    "leave the list out, or set role = \"leaf\"",
                );
            }
        }
        FabricRole::Leaf => {
            if let Some(port) = with_rate(true) {
                let problem = format!("nobody looks at what {} of a leaf carries", port.device);
                refuse(
                    "ports",
                    problem,
                    "leave out rate_mbit, or set role = \"spine\"",
                );
            }
            leaves_are_distinct(section, leaves);
        }
    }
}

fn leaves_are_distinct(section: &Section<'_, '_>, leaves: &[FabricLeaf]) {
    let refuse = |problem: String, remedy| section.contradiction("leaves", problem, remedy);
    if !(2..=MAX_LEAVES).contains(&leaves.len()) {
        let problem = format!("the list has {} leaves", leaves.len());
        refuse(
            problem,
            "list all leaves of the fabric, 2 to 16, the same on each of them",
        );
    }
    if let Some(number) = repeated(leaves.iter().map(|it| &it.number)) {
        let problem = format!("two leaves have the number {number}");
        refuse(problem, "give each leaf a number of its own");
    }
    let prefixes = || leaves.iter().flat_map(|it| &it.prefixes);
    if prefixes().count() > MAX_PREFIXES {
        let problem = format!("the leaves have {} prefixes", prefixes().count());
        refuse(problem, "summarise them to at most 4096");
    } else if let Some(prefix) = repeated(prefixes()) {
        let problem = format!("{prefix} is listed twice");
        refuse(
            problem,
            "name each prefix at the one leaf that it lies behind",
        );
    }
}

fn repeated<'a, T: Ord>(all: impl Iterator<Item = &'a T>) -> Option<&'a T> {
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    all.windows(2).find(|it| it[0] == it[1]).map(|it| it[0])
}

/// The kind of the list of ports, which [`read_lists`] reads.
struct PortList;

impl Kind for PortList {
    type Value = Vec<FabricPort>;

    fn read(&self, _: &Value<'_>, _: &mut Refusals) -> Option<Vec<FabricPort>> {
        None
    }

    fn write(&self, ports: &Vec<FabricPort>) -> Json {
        tables(&FabricPort::keys(""), ports)
    }

    fn values(&self) -> String {
        format!("1 to {MAX_PORTS} ports")
    }

    fn schema(&self) -> Json {
        list_of(&FabricPort::keys(""), 1, MAX_PORTS)
    }
}

/// The kind of the list of leaves, which [`read_lists`] reads.
struct LeafList;

impl Kind for LeafList {
    type Value = Vec<FabricLeaf>;

    fn read(&self, _: &Value<'_>, _: &mut Refusals) -> Option<Vec<FabricLeaf>> {
        None
    }

    fn write(&self, leaves: &Vec<FabricLeaf>) -> Json {
        tables(&FabricLeaf::keys(""), leaves)
    }

    fn values(&self) -> String {
        format!("2 to {MAX_LEAVES} leaves")
    }

    fn schema(&self) -> Json {
        list_of(&FabricLeaf::keys(""), 2, MAX_LEAVES)
    }
}

fn tables<S: 'static>(keys: &[Key<S>], of: &[S]) -> Json {
    let table = |it: &S| -> Json {
        let values = keys.iter().map(|key| (key.name.clone(), key.value(it)));
        Json::Object(values.filter(|(_, value)| !value.is_null()).collect())
    };
    of.iter().map(table).collect()
}

fn list_of<S: 'static>(keys: &[Key<S>], least: usize, most: usize) -> Json {
    json!({ "type": "array", "items": schema::table(keys), "minItems": least, "maxItems": most })
}
