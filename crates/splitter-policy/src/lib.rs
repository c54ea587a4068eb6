//! Policy of the splitter: everything that decides what happens to a packet.
//!
//! The crate has no I/O, no clock, no allocation and (outside [`buffer`]) no
//! unsafe code, so that the kernel programs, the agent, the simulator, the
//! fuzzers and the tests all run this very code.
//!
//! Read [`split`] first: it is the whole data path of a packet. Modules from the
//! bottom to the top; each uses only those above it in this table:
//!
//! | module | holds |
//! |---|---|
//! | [`buffer`] | bounds-checked access to a frame, the one place with unsafe code |
//! | [`pass_reason`] | reasons why a packet passes as it is |
//! | [`packet`] | the parser: Ethernet, VLAN, IPv4, IPv6, TCP, UDP, ESP, GRE |
//! | [`dscp`] | the DSCP, rewritten with an incremental checksum (RFC 1624) |
//! | [`fwmark`] | the bits of the kernel's mark that are ours |
//! | [`thresholds`] | thresholds of all flows, or by remote site |
//! | [`flow`] | 5-tuples, classes, tunnels, flow entries |
//! | [`sites`] | the remote sites that flows lead to |
//! | [`prefix_lengths`] | how many bits of a destination routing looks at |
//! | [`forward`] | forwarding without the network stack: FIB lookup, TTL |
//! | [`histogram`], [`counters`] | counts and flow completion times |
//! | [`clock`] | the clocks of a host |
//! | [`config`] | the settings of the policy |
//! | [`flow_packet`] | the part of a packet that classification looks at |
//! | [`fragments`] | the flow of a fragment without ports |
//! | [`packet_selection`] | the packets that two points observe both |
//! | [`headers`] | the headers of a frame, read as far as splitting needs them |
//! | [`steer`] | marks a packet for its tunnel, by DSCP or fwmark |
//! | [`table`] | the flow table: look-up, insertion, eviction, sweep |
//! | [`settings`] | the value of the settings map |
//! | [`egress`] | a tunnel and the queue class in front of it |
//! | [`routing_key`] | the part of a packet that routing may look at |
//! | [`next_hop`] | records of what the kernel's FIB lookup has answered |
//! | [`egress_counts`] | counts of what leaves by a tunnel's device |
//! | [`reverse`] | counts of what comes back to the site, by flow |
//! | [`cpu_queues`] | virtual queues that all CPUs share without losing a packet |
//! | [`dedicated`] | hand-over between tunnels of one class each |
//! | [`share`] | strict priority on tunnels that carry both classes |
//! | [`paths`] | the tunnels of a site as one list of paths |
//! | [`fabric`] | leaves and spines: the far backlog in the TTL of ACKs |
//! | [`queue_search`] | how the real queues are found |
//! | [`models`] | the virtual queues of both, as a host keeps them |
//! | [`classify`](mod@classify) | short or long, and the verdict on a packet |
//! | [`split`] | the data path: all of the above in order |
//!
//! [`flow_balance`] lies below all of them: it has the virtual queue and selects
//! paths, and [`share`] places long flows with it.
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

#[allow(unsafe_code, reason = "the one module that touches raw packet memory")]
pub mod buffer;
pub mod classify;
pub mod clock;
pub mod config;
pub mod counters;
pub mod cpu_queues;
pub mod dedicated;
pub mod dscp;
pub mod egress;
pub mod egress_counts;
pub mod fabric;
pub mod flow;
pub mod flow_packet;
pub mod forward;
pub mod fragments;
pub mod fwmark;
pub mod headers;
pub mod histogram;
pub mod models;
pub mod next_hop;
pub mod packet;
pub mod packet_selection;
pub mod pass_reason;
pub mod paths;
pub mod prefix_lengths;
pub mod queue_search;
pub mod reverse;
pub mod routing_key;
pub mod settings;
pub mod share;
pub mod sites;
pub mod split;
pub mod steer;
pub mod table;
pub mod thresholds;
