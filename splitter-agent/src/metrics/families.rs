//! The families of metrics, each declared once: name, kind, unit, labels, help text, and what the
//! reference page says beyond that. Descriptors and the page's tables come from it.

use flow_telemetry::{Descriptor, Kind, NameError};
use splitter_control::stats::{ChangeResult, ChangeSource, ControlResult};
use splitter_datapath::AttachedMode;
use splitter_health::{LinkKind, OverloadReason, Refusal, Untimed};
use splitter_instance::{ByClass, ByMark};
use splitter_policy::forward::Fallback;
use splitter_policy::pass_reason::PassReason;
use splitter_steering::routes::UnsplitReason;

use super::reference::{self, Label, Row, class, family, of, open, place, site, tunnel};

/// Declares families by the sections of the reference page: field, name without prefix, kind,
/// unit, labels, help, and more in Markdown for the page.
macro_rules! families {
    ($($section:literal {
        $($field:ident: $name:literal, $kind:ident, $unit:literal, $labels:expr,
            $help:literal, $more:literal;)*
    })*) => {
        #[derive(Clone, Debug)]
        pub(super) struct Families { $($(pub(super) $field: Descriptor,)*)* }

        impl Families {
            pub(super) fn new() -> Result<Self, NameError> {
                Ok(Self { $($($field: Descriptor::new($name, Kind::$kind, $help)?,)*)* })
            }

            pub(super) fn all(&self) -> Vec<&Descriptor> {
                vec![$($(&self.$field,)*)*]
            }
        }

        fn rows() -> Vec<Row> {
            vec![$($(Row {
                section: $section,
                name: $name,
                kind: stringify!($kind),
                unit: $unit,
                labels: Vec::<Label>::from($labels),
                help: $help,
                more: $more,
            },)*)*]
        }
    };
}
pub(super) use families;

families! {
    "traffic" {
        packets: "packets_total", Counter, "packets", [class(), tunnel()],
            "TCP packets that were split, by class of the flow and tunnel",
            "`class` long with `tunnel` short: a long flow that [has not moved \
             yet](../explanation/handover.md). The segments of a GRO aggregate count one each.";
        bytes: "bytes_total", Counter, "bytes", [class(), tunnel()],
            "Bytes of TCP packets that were split, Ethernet headers included",
            "";
        passed: "passed_packets_total", Counter, "packets",
            [of("reason", PassReason::ALL.map(PassReason::name))],
            "Packets that passed untreated",
            "By why they were not split. They are routed like short flows.";
        dropped: "dropped_packets_total", Counter, "packets", [of("reason", ["hand_over"])],
            "Packets that were dropped",
            "`hand_over`: of a long flow that never paused, so that it [changes tunnels in \
             order](../explanation/handover.md#the-longest-wait). Nothing else is dropped here.";
        overridden: "marks_overridden_total", Counter, "packets", [],
            "Packets that were not split and carried a mark of ours",
            "They came with the mark of long flows; they were given the short one, for only the \
             splitter may send into the long tunnel.";
        mark_failures: "mark_failures_total", Counter, "packets", [],
            "Packets whose mark could not be written",
            "They passed as they were.";
        redirected: "redirected_packets_total", Counter, "packets", [],
            "Packets that were put into a tunnel without the network stack",
            "Only with `steering.mode = \"redirect\"`.";
        fib_lookups: "redirect_fib_lookups_total", Counter, "packets", [],
            "Packets that were to be redirected and for which the kernel's routing was asked",
            "For other redirected packets a kept record of the next hop [answered](../how-to/steering.md#past-the-network-stack).";
        fallbacks: "redirect_fallbacks_total", Counter, "packets",
            [of("reason", Fallback::ALL.map(Fallback::name))],
            "Packets that were to be redirected and went by the network stack",
            "By [why](../how-to/steering.md#past-the-network-stack).";
    }
    "flows" {
        flows: "flows", Gauge, "flows", [class()],
            "Flows that are neither finished nor idle, as of the last sweep",
            "Sweeps are `flows.sweep_interval_s` apart.";
        started: "flows_started_total", Counter, "flows", [],
            "Flows whose first packet was seen",
            "";
        restarted: "flows_restarted_total", Counter, "flows", [of("reason", ["idle", "syn"])],
            "Flows that started again under a known 5-tuple",
            "They are short again: after the idle timeout, or with a SYN after FIN or RST.";
        long: "flows_long_total", Counter, "flows", [],
            "Flows that counted more than the threshold",
            "They became long.";
        finished: "flows_finished_total", Counter, "flows", [class()],
            "Flows that ended with FIN or RST",
            "By their class then.";
        handovers: "handovers_total", Counter, "flows",
            [of("reason", ["drained", "max_wait", "stayed", "stayed_at_max_wait", "paused"])],
            "Long flows that were handed over to the long class or changed tunnels later, by how",
            "`drained`: changed tunnels when their last packet in the one before had drained. \
             `max_wait`: because the longest wait was over. Both stay 0 with `balance`, where each \
             packet chooses and nothing is handed over. The others with `policy = \"share\"` only. `stayed`: they had no more of the other tunnel. `stayed_at_max_wait`: they could not \
             leave theirs in order within the longest wait, or before they had sent as much again \
             as made them long. `paused`: placed before, they changed tunnels after a pause, which \
             a flow does seven times at most.";
        completion: "flow_completion_seconds", Histogram, "seconds", [class()],
            "Time from a flow's first packet to its first FIN or RST at this border",
            "By its class then. Two buckets to each doubling, from 1 µs to 137 s; times are exact \
             to a microsecond, and beyond some thousand new flows a second to a tick of the \
             kernel (1 to 10 ms).";
    }
    "table" {
        entries: "flow_table_entries", Gauge, "flows", [family()],
            "Entries in the flow table, as of the last sweep",
            "Finished flows are included.";
        capacity: "flow_table_capacity", Gauge, "flows", [family()],
            "Flows that the table is made for; it holds twice as many",
            "It is `flows.table_size` (of IPv6 `flows.table_size_ipv6`), rounded up to a multiple of \
             4, or follows the memory and grows. Up to this number less than 1 % of flows find no \
             room.";
        evictions: "evictions_total", Counter, "flows", [],
            "Young flows that the table forgot for want of room",
            "[They](../explanation/classification.md#the-flow-table) count from one again. If it \
             rises much and there is no flood, [enlarge the table](../how-to/table.md).";
        untracked: "flows_untracked_total", Counter, "flows", [],
            "Flows whose SYN found no room in the table, or passed it by in a flood",
            "Packets of those without room pass as short, and count as `table_full`. A flow that \
             [passed the table by](../explanation/classification.md#the-flow-table) and goes on \
             is admitted later, and then also counts as started. If it rises and there is no \
             flood, [enlarge the table](../how-to/table.md).";
    }
    "tunnels" {
        tunnel_up: "tunnel_up", Gauge, "-", [tunnel(), open("device"), site()],
            "1 while a tunnel is alive, else 0",
            "It is alive while it is `up`, `suspect` or `unknown`, and not while it is `down` or \
             `returning`.";
        tunnel_unknown: "tunnel_unknown", Gauge, "-", [tunnel(), open("device"), site()],
            "1 while it is unknown whether a tunnel is alive, else 0",
            "No answer comes, and this machine is \
             [overloaded](../how-to/health.md#when-the-border-itself-is-overloaded), so that this \
             proves nothing; the tunnel keeps its flows.";
        overloads: "overload_signs_total", Counter, "-",
            [of("reason", OverloadReason::ALL.map(OverloadReason::name))],
            "How often it showed that this machine is overloaded",
            "`agent_late`: the agent was woken so late that a tunnel would have become suspect. \
             `backlog_dropped`: a CPU dropped a tenth of the packets that had arrived, or more. \
             `backlog_stuck`: packets wait at a CPU that takes none. `socket_dropped`: answers \
             found no room at the agent's socket. The kernel is asked ten times a second.";
        tunnel_link: "tunnel_link", Gauge, "-",
            [tunnel(), open("device"), site(), of("state", LinkKind::ALL.map(LinkKind::name))],
            "1 for the state that a tunnel's device is in, 0 for the others",
            "`no_address`: it is up, but has no address in the network of its gateway. `down`: or it \
             has no carrier. A tunnel whose device is not `up` [carries \
             nothing](../how-to/health.md#at-boot).";
        tunnel_in_use: "tunnel_in_use", Gauge, "-", [tunnel(), open("device"), site()],
            "1 while a tunnel carries packets of a class, else 0",
            "Its own class or the other one; in a shadow always 0.";
        tunnel_downs: "tunnel_downs_total", Counter, "-", [tunnel(), open("device"), site()],
            "How often a tunnel was given up",
            "";
        probes_sent: "probes_sent_total", Counter, "datagrams", [tunnel(), open("device"), site()],
            "Probes that were sent to the peer",
            "";
        probes_lost: "probes_lost_total", Counter, "datagrams", [tunnel(), open("device"), site()],
            "Probes that the peer did not answer within 3 s",
            "Loss of either direction counts.";
        loss: "tunnel_loss_ratio", Gauge, "ratio", [tunnel(), open("device"), site()],
            "Lost share of the last 100 probes",
            "From 0 to 1. A suspect is probed faster, so that times of loss weigh more than calm \
             ones.";
        round_trip: "tunnel_round_trip_seconds", Gauge, "seconds", [tunnel(), open("device"), site()],
            "Smoothed round-trip time of probes",
            "As RFC 6298 has it, with the queue in front of the tunnel. With `balance` without the agents' wake-ups, which \
             the kernels tell.";
        untimed_answers: "tunnel_untimed_answers_total", Counter, "datagrams",
            [tunnel(), open("device"), site(), of("part", Untimed::ALL.map(Untimed::name))],
            "Answers to probes whose round trip has more in it than the path, by what nobody told",
            "`departure`, `arrival`: the kernel did not tell when the probe left and the answer came. `stay`: the peer \
             did not tell for how long it had the probe. `impossible_stay`: it said longer than the round trip took, which \
             is not used. Only with `balance` kernels are asked, and do these stand still.";
        jitter: "tunnel_jitter_seconds", Gauge, "seconds", [tunnel(), open("device"), site()],
            "Smoothed difference between a probe's round-trip time and the next one's",
            "The estimator of RFC 3550, on round trips.";
        unsplit: "unsplit_prefixes", Gauge, "prefixes",
            [family(), of("reason", UnsplitReason::ALL.map(UnsplitReason::name))],
            "Prefixes of which a class does not leave by its tunnels, as the kernel says when asked",
            "[Asked](../how-to/routes.md) whenever rules or routes change. `specific_route`: the \
             main table has one by the other class's tunnel. `rule`: somebody's rule comes before \
             ours. `no_next_hop`: a tunnel has none of this family. `no_route`: the class's table \
             has none. `dropped`: the kernel drops it. Above 0, `/ready` answers 503 and \
             `splitter status` says which.";
        followed: "followed_prefixes", Gauge, "prefixes", [site(), family()],
            "Prefixes that lead into the tunnels to a site because the main table leads there",
            "0 without [`routes.follow`](../how-to/follow.md).";
        egress_packets: "tunnel_egress_packets_total", Counter, "packets",
            [tunnel(), open("device"), site(), family(), of("class", ByMark::NAMES)],
            "Packets that left by a tunnel, as its device was handed them",
            "By what their mark says there: that of short or of long flows; `unmarked`: of the site \
             and of a protocol that is split, and yet without a mark; `other`: not split. What was \
             marked is `splitter_packets_total`. Those that were redirected are among them. Read \
             once a second.";
        egress_bytes: "tunnel_egress_bytes_total", Counter, "bytes",
            [tunnel(), open("device"), site(), family(), of("class", ByMark::NAMES)],
            "Bytes of these packets",
            "With an Ethernet header on each, also where the device has none.";
        chosen_packets: "tunnel_chosen_packets_total", Counter, "packets",
            [open("device"), site(), of("class", ByClass::NAMES)],
            "Packets that chose a tunnel, with `balance`",
            "`other`: what is not split, such as UDP. Of redirected packets, those that were put into it. \
             0 where packets do not choose. Read once a second.";
        chosen_bytes: "tunnel_chosen_bytes_total", Counter, "bytes", [open("device"), site()],
            "Bytes of these packets",
            "As the tunnel's device counts them.";
        chosen_changes: "tunnel_chosen_changes_total", Counter, "packets", [open("device"), site()],
            "Packets that chose another tunnel than the one before of their flow",
            "By the tunnel that they chose; a redirected packet that went by the stack after all has chosen, too, \
             for the one after it. Over `splitter_tunnel_chosen_packets_total` it is how often flows \
             change tunnels.";
        chosen_refusals: "tunnel_chosen_refusals_total", Counter, "packets", [open("device"), site()],
            "Packets that arrive later for the sake of order",
            "By another tunnel they would have arrived earlier, and overtaken their flow. By the tunnel that they \
             chose. Only with `balance = \"tr\"`, else 0.";
        chosen_by_reports: "tunnel_chosen_by_reports_total", Counter, "packets", [open("device"), site()],
            "Packets that chose by what a fabric's spines report",
            "By the tunnel that they chose. Only with `fabric`, while the leaf's role is in place, to \
             destinations at a leaf of its list; each of `splitter_tunnel_chosen_packets_total` else chose by \
             the machine's own queues.";
        hears: "tunnel_hears_spine", Gauge, "-", [open("device"), site()],
            "1 where packets go by what the spine behind a tunnel reports, else 0",
            "0: the configuration names no `fabric`, the leaf's role is not in place, or the tunnel is none of its \
             uplinks.";
        report_age: "tunnel_spine_report_age_seconds", Gauge, "seconds", [open("device"), site()],
            "Time since the spine behind a tunnel has last reported of a port to any leaf",
            "With `fabric` alone; nothing is shown before the first report. A report counts for nothing once \
             the port would have drained.";
        model_looks: "tunnel_model_looks_total", Counter, "looks", [open("device"), site()],
            "Times that the model of a tunnel's queue was held against the queue, with `balance`",
            "Every 10 ms while something waits there, else every 100 ms. Only with `policy = \"share\"`: the \
             queue has to be the agent's.";
        model_error: "tunnel_model_error_seconds_total", Counter, "seconds", [open("device"), site()],
            "By how much the model was found wrong then, and mended, in sum",
            "Without signs. Over `splitter_tunnel_model_looks_total` it is what the model is wrong by \
             from one look to the next.";
        tunnel_capacity: "tunnel_capacity_bytes_per_second", Gauge, "bytes per second",
            [tunnel(), open("device"), site()],
            "Bytes a second that may leave by a tunnel",
            "Its `rate_mbit`, or with `policy = \"share\"` what it is shaped to. Nothing is shown \
             where no rate is stated. The rate of `splitter_tunnel_egress_bytes_total` over it is \
             its utilisation.";
        queue_sent: "tunnel_queue_sent_bytes_total", Counter, "bytes",
            [tunnel(), open("device"), site()],
            "Bytes that the outermost queueing discipline of a tunnel's device has sent",
            "Whoever sent them, with headers of the link layer. Without one that counts (`noqueue`) 0.";
        queue_backlog: "tunnel_queue_backlog_bytes", Gauge, "bytes",
            [tunnel(), open("device"), site()],
            "Bytes that wait in the outermost queueing discipline of a tunnel's device",
            "";
        queue_drops: "tunnel_queue_drops_total", Counter, "packets",
            [tunnel(), open("device"), site()],
            "Packets that the outermost queueing discipline of a tunnel's device has dropped",
            "The kernel counts them with 32 bits.";
        queue_ecn_marks: "tunnel_queue_ecn_marks_total", Counter, "packets",
            [tunnel(), open("device"), site()],
            "Packets that queueing disciplines of a tunnel's device have marked as congested (ECN)",
            "Instead of dropping them. Those within the outermost one, such as the `fq_codel` of \
             `share.long_queue`, are counted, too. 0 for kinds that mark nothing: FIFOs, HTB, TBF.";
        misrouted: "misrouted", Gauge, "-", [tunnel(), site(), family()],
            "1 while packets that are meant for the tunnels of a class leave by others, else 0",
            "[As counted where they leave](../how-to/routes.md#what-really-leaves), whatever the \
             kernel says when it is asked. Meanwhile `/ready` answers 503.";
        placed: "class_in_tunnel", Gauge, "-", [class(), place(), site()],
            "1 for the class whose tunnels a class is in, else 0",
            "With several tunnels: whose of them. `main`: no tunnel is alive, packets follow the \
             main table.";
        class_moves: "class_moves_total", Counter, "-", [class(), place(), site()],
            "How often a class was moved, by where to",
            "That it left or took up one of several is no move.";
        class_jitter: "class_jitter_seconds", Histogram, "seconds", [class(), site()],
            "Differences between a probe's round-trip time and the next one's, by the class whose tunnel it took",
            "Delay variation (RFC 3393, on round trips) of probes, which have the mark of their tunnel's class; no packet \
             of the site is timed. Of a class that was moved, in the tunnels that it was in then. It is empty without a \
             `peer`. Two buckets to each doubling, from 1 µs to 137 s. It costs nothing for a packet, and one count \
             for each answer to a probe.";
        refused_probes: "refused_probes_total", Counter, "datagrams",
            [of("reason", Refusal::ALL.map(Refusal::name))],
            "Datagrams on the probes' port that were refused",
            "`malformed`: another length or form. `forged`: its code is not that of the \
             key. `reflected`: one of our own. `replayed`: it was there before. `unasked`: it \
             answers nothing outstanding. `rate_limited`: its source sent too many. `version`: \
             of another version of probes, as another release sends them. None is answered.";
    }
    "agent" {
        reconciliations: "reconciliations_total", Counter, "reconciliations", [],
            "Times that rules, routes, settings or attachments were changed by somebody else and \
             restored, since the agent started",
            "The log says what. If it rises steadily, another program manages the same things.";
        attached: "attached_interfaces", Gauge, "interfaces",
            [of("mode", AttachedMode::ALL.map(AttachedMode::as_str))],
            "Interfaces that the program is attached to",
            "By the mode in which it really runs.";
        threshold: "threshold", Gauge, "packets or bytes", [open("unit")],
            "Packets or bytes up to which a flow is short",
            "What is in force, also where it is `auto`.";
        shadow: "shadow", Gauge, "0 or 1", [],
            "Whether packets are only classified and counted, and not marked",
            "All that is counted by tunnel is then what would have been.";
        changes: "config_changes_total", Counter, "changes",
            [of("source", ChangeSource::ALL.map(ChangeSource::name)),
             of("result", ChangeResult::ALL.map(ChangeResult::name))],
            "Changes of configuration that the running agent was asked for",
            "Since it started: by SIGHUP, by a command, by a threshold that is `auto`, or because \
             what was applied was not confirmed (`revert`). Dry runs are not counted.";
        refused: "config_refused", Gauge, "0 or 1", [],
            "Whether the last change that somebody asked for was refused",
            "What was in force before still is.";
        control: "control_requests_total", Counter, "lines",
            [of("result", ControlResult::ALL.map(ControlResult::name))],
            "Lines on the control socket",
            "By what became of them since the agent started; `silent`: none came, and the \
             connection was closed.";
        sweep: "sweep_seconds", Gauge, "seconds", [],
            "How long the last sweep of the flow table took",
            "Sweeps are `flows.sweep_interval_s` apart.";
        scrape: "scrape_seconds", Gauge, "seconds", [],
            "How long it took to read what this page shows",
            "From the kernel's maps, its queues and the agent, for this very page.";
        cpu: "process_cpu_seconds_total", Counter, "seconds", [],
            "Processor time of the agent, in user space and in the kernel",
            "Without what its programs in the kernel take of packets' time.";
        resident: "process_resident_memory_bytes", Gauge, "bytes", [],
            "Memory of the agent that is resident",
            "The flow tables are the kernel's and not in it.";
        open_files: "process_open_fds", Gauge, "files", [],
            "Files and sockets that the agent has open",
            "";
        started_at: "process_start_time_seconds", Gauge, "seconds", [],
            "Time at which the agent started, since 1970",
            "";
        instance: "instance_info", Info, "-", [open("name")],
            "Name of this instance among those of the machine",
            "`name` of the configuration; `instance` is the address that Prometheus scrapes. \
             `splitter_tunnel_up * on (instance) group_left (name) splitter_instance_info` has both.";
    }
}

/// Fills the tables of the reference page again, between `<!-- metrics: SECTION -->` and
/// `<!-- end -->`.
///
/// # Errors
/// In words, when a marker names no section or has no end.
pub fn fill_reference(page: &str) -> Result<String, String> {
    reference::fill(page, &rows())
}
