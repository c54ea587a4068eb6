//! What programs and maps are called in the object.

pub(super) const SETTINGS: &str = "SETTINGS";
pub(super) const COUNTERS: &str = "COUNTERS";
pub(super) const TUNNELS: &str = "TUNNELS";
pub(super) const TARGETS: &str = "TARGETS";
pub(super) const TARGET_SLOTS: &str = "TARGET_SLOTS";
pub(super) const REDIRECTED: &str = "REDIRECTED";
pub(super) const ROUTING_GENERATION: &str = "ROUTING_GENERATION";
pub(super) const VOUCHED_UNTIL: &str = "VOUCHED_UNTIL";
pub(super) const PREFIX_LENGTHS: &str = "PREFIX_LENGTHS";
pub(super) const NEIGHBOURS: &str = "NEIGHBOURS";
pub(super) const TUNNEL_HOPS: &str = "TUNNEL_HOPS";
/// All that only a program that redirects has.
pub(super) const REDIRECTING: [&str; 9] = [
    TARGETS,
    TARGET_SLOTS,
    REDIRECTED,
    LAN_ADDRESSES,
    ROUTING_GENERATION,
    VOUCHED_UNTIL,
    PREFIX_LENGTHS,
    NEIGHBOURS,
    TUNNEL_HOPS,
];
pub(super) const LAN_ADDRESSES: &str = "LAN_ADDRESSES";
pub(super) const CLOCK_READING: &str = "CLOCK_READING";
pub(super) const FLOWS_V4: &str = "FLOWS_V4";
pub(super) const FLOWS_V6: &str = "FLOWS_V6";
pub(super) const TAGS: &str = "TAGS";
/// All that holds flows.
pub(super) const FLOW_TABLES: [&str; 3] = [FLOWS_V4, FLOWS_V6, TAGS];
pub(super) const CLOCK_PROGRAM: &str = "read_clocks";
pub(super) const SHORT_QUEUES: &str = "SHORT_QUEUES";
pub(super) const QUEUE_SEARCH: &str = "QUEUE_SEARCH";
pub(super) const READS_QUEUES: &str = "READS_QUEUES";
pub(super) const COUNT_EGRESS: &str = "count_egress";
pub(super) const EGRESS: &str = "EGRESS";
pub(super) const SITES: &str = "SITES";
pub(super) const REVERSE: &str = "REVERSE";
pub(super) const TAPPED: &str = "TAPPED";
pub(super) const PACKET_SELECTION: &str = "PACKET_SELECTION";
pub(super) const PACKETS_SELECTED: &str = "PACKETS_SELECTED";
pub(super) const PACKET_PASSAGES: &str = "PACKET_PASSAGES";
pub(super) const SITE_DEVICES: &str = "SITE_DEVICES";
/// What each CPU has put into the modelled queues and not published yet.
pub(super) const OWN_SHARE: &str = "OWN_SHARE";
pub(super) const SHARED: &str = "SHARED";
/// The same of shared tunnels.
pub(super) const OWN_QUEUES: &str = "OWN_QUEUES";
pub(super) const FRAGMENTED: &str = "FRAGMENTED";
/// Where programs that log write to, which whoever reads it has open.
pub(super) const LOGS: &str = "AYA_LOGS";
pub(super) const BALANCED: &str = "mark_balanced";
pub(super) const BALANCED_BY_DSCP: &str = "split_balanced";
pub(super) const BALANCED_PAST_STACK: &str = "redir_balanced";
pub(super) const BALANCER: &str = "BALANCER";
pub(super) const LONG_BALANCER: &str = "LONG_BALANCER";
pub(super) const SITE_PATHS: &str = "SITE_PATHS";
pub(super) const PATH_COUNTERS: &str = "PATH_COUNTERS";
pub(super) const PATH_FLOWS: &str = "PATH_FLOWS";
pub(super) const PATH_QUEUES: &str = "PATH_QUEUES";
pub(super) const PATH_SHORT_FLOWS: &str = "PATH_SHORT_FLOWS";
pub(super) const HEARD: &str = "HEARD";
pub(super) const HEARD_LEAVES: &str = "HEARD_LEAVES";
pub(super) const HEARD_UPLINKS: &str = "HEARD_UPLINKS";
pub(super) const HEARD_CHOICES: &str = "HEARD_CHOICES";
pub(super) const PATH_FLOW_MASK: &str = "PATH_FLOW_MASK";
/// All that only a program has that chooses among tunnels.
pub(super) const BALANCING: [&str; 9] = [
    SITE_PATHS,
    PATH_COUNTERS,
    PATH_FLOWS,
    PATH_SHORT_FLOWS,
    PATH_QUEUES,
    HEARD,
    HEARD_LEAVES,
    HEARD_UPLINKS,
    HEARD_CHOICES,
];
/// What programs of the same build go on with when their tables are made anew: all that holds
/// something longer than for a packet, besides the tables and the settings, which say how these lie.
pub(super) const CARRIED: [&str; 27] = [
    COUNTERS,
    TUNNELS,
    OWN_SHARE,
    SHARED,
    OWN_QUEUES,
    FRAGMENTED,
    EGRESS,
    REVERSE,
    SITE_DEVICES,
    SITES,
    TARGETS,
    TARGET_SLOTS,
    REDIRECTED,
    LAN_ADDRESSES,
    NEIGHBOURS,
    TUNNEL_HOPS,
    SHORT_QUEUES,
    LOGS,
    SITE_PATHS,
    PATH_COUNTERS,
    PATH_FLOWS,
    PATH_SHORT_FLOWS,
    PATH_QUEUES,
    HEARD,
    HEARD_LEAVES,
    HEARD_UPLINKS,
    HEARD_CHOICES,
];

/// The name of a map in the object, where pins and messages call it by another: what programs have the
/// address of is a section, and a BPF file system takes no dots.
///
/// No section is [`CARRIED`]: it would be written anew when the object is loaded.
pub(super) fn in_object(name: &'static str) -> &'static str {
    match name {
        SETTINGS => ".data.settings",
        ROUTING_GENERATION => ".data.routing",
        VOUCHED_UNTIL => ".data.vouched",
        PREFIX_LENGTHS => ".data.prefixes",
        name => name,
    }
}
