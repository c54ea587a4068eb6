//! `[flows]`: what is split, and when a flow is long.

use std::num::NonZeroU32;
use std::time::Duration;

use splitter_advise::ThresholdUnit;

use super::handover::Rates;
use crate::config::Given;
use crate::declaration::key;
use crate::declare::section;
use crate::key::Change::Set;
use crate::kind::{Enumeration, Kind as _, Word, enumeration, list, or_word, seconds, whole, word};
use crate::source::Source;
use crate::values::{InvalidValue, NumaNode, TableSize, Threshold};

const THRESHOLD: Threshold = Threshold::Fixed(NonZeroU32::new(40).unwrap());
/// Beyond a day the kernel's coarse clock could wrap round between two packets.
const MAX_IDLE_TIMEOUT_S: u32 = 86_400;
const PROTOCOLS: &str = "list \"tcp\" and any of \"udp\", \"esp\", \"gre\", each once";
const BY_MEMORY: &str = "Follows the memory of this machine, and grows when it is full.";
/// The most that the kernel can be built for (`NODES_SHIFT`).
const MAX_NUMA_NODE: u32 = 1_023;

section! {
    /// Says what is split, and when a flow is long.
    pub struct Flows, GivenFlows {
        /// A flow is long from packet (or byte) `threshold` + 1 on; "auto" follows what
        /// `splitter advise` recommends, within `[advise]`.
        threshold: Threshold = key(
            "threshold",
            Set,
            or_word(
                whole::<NonZeroU32>(1..=u32::MAX).except(
                    0,
                    "a threshold of 0 would make every packet long",
                    "give 1 or more (the default is 40)",
                ),
                "auto",
                "Follows what `splitter advise` recommends.",
                Threshold::Auto,
            ),
        )
        .default(THRESHOLD)
        .also("in `unit`")
        .trade_off(
            "`auto` follows [advice](../explanation/advise.md), and needs both `rate_mbit` and a \
             single tunnel for each class. Higher: more flows stay short to their end, and long \
             ones load the short tunnel for longer. SYN, acknowledgements and FIN count.",
        );

        /// The threshold counts packets, or bytes on the wire.
        unit: ThresholdUnit = key("unit", Set, word())
            .default(ThresholdUnit::Packets)
            .trade_off("Bytes treat many small packets more kindly; they include all headers.");

        /// These protocols are split: "tcp", and with it "udp" (QUIC among it), "esp", "gre". A
        /// flow of ESP is an SPI, one of GRE a key.
        protocols: Vec<Protocol> = key(
            "protocols",
            Set,
            list(
                word(),
                "a list of `\"tcp\"`, `\"udp\"`, `\"esp\"`, `\"gre\"`, with `\"tcp\"`",
                ["without a protocol nothing would be split", PROTOCOLS],
                PROTOCOLS,
            )
            .must(|list| has_tcp(list)),
        )
        .default(vec![Protocol::Tcp])
        .trade_off(
            "With `udp`, QUIC is split, and DNS takes an entry of the table for each question. GRE \
             without a key is one flow between two hosts: a tunnel that is busy is one long flow. \
             None of these tells its end, so that completion times are of TCP alone. \
             [Fragments](../explanation/classification.md#fragments) follow their flow.",
        );

        /// A flow that was silent for so long starts again as short.
        idle_timeout: Duration = key("idle_timeout_s", Set, seconds(1..=MAX_IDLE_TIMEOUT_S))
            .default(Duration::from_secs(30))
            .trade_off("Shorter: keep-alive connections start each request as short.");

        /// Sets how often the daemon frees the entries of flows that have ended.
        sweep_interval: Duration = key("sweep_interval_s", Set, seconds(1..=3_600))
            .default(Duration::from_secs(5))
            .trade_off(
                "Shorter: current totals and more complete advice, for some microseconds a flow \
                 each time.",
            );

        /// Flows that the flow table is made for, of each family; "auto" follows the memory of this
        /// machine, and IPv6 has a quarter of what IPv4 has.
        table_size: TableSize = key(
            "table_size",
            Set,
            or_word(
                whole::<NonZeroU32>(16..=1 << 24).unit("flows", "flows"),
                "auto",
                BY_MEMORY,
                TableSize::Auto,
            ),
        )
        .default(TableSize::Auto)
        .trade_off(
            "`auto` takes the smaller of 1 % of the memory (of the machine, or of a container with \
             less) and 1,048,576 flows of IPv4, and [grows when it is \
             full](../how-to/table.md). 66 bytes a flow of IPv4 and 130 of IPv6 are taken when the \
             maps are made. Smaller: with many flows, some are [not tracked or \
             forgotten](../explanation/classification.md#the-flow-table) and stay short. Another \
             size takes effect without a flow lost.",
        );

        /// Flows that the table of IPv6 is made for; "auto" is as many as `table_size` where that is a
        /// number, and else a quarter of IPv4's.
        table_size_ipv6: TableSize = key(
            "table_size_ipv6",
            Set,
            or_word(
                whole::<NonZeroU32>(16..=1 << 24).unit("flows", "flows"),
                "auto",
                BY_MEMORY,
                TableSize::Auto,
            ),
        )
        .default(TableSize::Auto)
        .trade_off("A site that speaks IPv6 alone states this one, or lets it grow.");

        /// Bounds the memory that flow tables which are full grow to, in percent of all; 0 lets
        /// none grow.
        table_growth_percent: u32 = key(
            "table_growth_percent",
            Set,
            whole(0..=50).unit("percent", "percent"),
        )
        .default(4)
        .trade_off(
            "Only what is `auto` grows, to twice its size each time; while it is copied both \
             take memory. Whoever opens flows without end makes it grow to this bound.",
        );

        /// The NUMA node whose memory holds the flow tables; "any" leaves it to the kernel.
        table_numa_node: NumaNode = key(
            "table_numa_node",
            Set,
            or_word(
                whole::<u32>(0..=MAX_NUMA_NODE),
                "any",
                "Leaves it to the kernel: the node of the CPU that makes them.",
                NumaNode::Any,
            ),
        )
        .default(NumaNode::Any)
        .trade_off(
            "Give the node of the network card \
             (`cat /sys/class/net/DEVICE/device/numa_node`) and have its queues served by CPUs \
             of that node. A node that this machine lacks is refused.",
        );
    }
}

enumeration! {
    /// A protocol whose flows are split.
    Protocol {
        /// A flow for each direction of a connection.
        Tcp = "tcp",
        /// A flow for each pair of addresses and ports: QUIC connections and all else.
        Udp = "udp",
        /// A flow for each SPI.
        Esp = "esp",
        /// A flow for each key, or all between two hosts without one.
        Gre = "gre",
    }
}

impl Enumeration for ThresholdUnit {
    const WORDS: &'static [Word<Self>] = &[
        Word {
            word: "packets",
            value: Self::Packets,
            meaning: "Counts packets.",
        },
        Word {
            word: "bytes",
            value: Self::Bytes,
            meaning: "Counts bytes on the wire.",
        },
    ];
}

fn has_tcp(protocols: &[Protocol]) -> Result<(), InvalidValue> {
    match protocols.is_empty() || protocols.contains(&Protocol::Tcp) {
        true => Ok(()),
        false => Err(InvalidValue::new("TCP is always split", PROTOCOLS)),
    }
}

/// A threshold that is `auto` needs what the model of queues needs.
pub(super) fn threshold_can_be_found(source: &Source<'_>, given: &Given) {
    let rates = Rates::of(given);
    if given.flows.threshold != Some(Threshold::Auto) || rates.both {
        return;
    }
    let (problem, remedy) = match rates.has_several {
        true => (
            "a threshold is recommended by a model of one tunnel for each class, and a class has \
             several",
            "give a number",
        ),
        false => (
            "without the rates of both tunnels no load is known to recommend a threshold for",
            "set short.rate_mbit and long.rate_mbit, or give a number",
        ),
    };
    let section = source.section("flows");
    section.contradiction("threshold", problem.to_owned(), remedy);
}
