//! Counts of what was split, as `splitter status` shows them.

use std::fmt;

use serde::Serialize;
use splitter_config::{Balance, Balancers};
use splitter_datapath::connections::ANY_TUNNEL;
use splitter_policy::counters::{Counters, FlowEvent};
use splitter_policy::flow::{Class, TunnelRole};

/// Packets of a class that were marked for a tunnel, or for any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrafficRow {
    /// "short" or "long".
    pub class: &'static str,
    /// "short" or "long"; [any](ANY_TUNNEL) where packets of the class may take any.
    pub tunnel: &'static str,
    /// How each packet chooses its tunnel; `None` where they do not.
    #[serde(skip)]
    pub chosen_by: Option<Balance>,
    /// Packets so far.
    pub packets: u64,
    /// Bytes so far, Ethernet headers included.
    pub bytes: u64,
}

impl TrafficRow {
    /// Returns a row for each class and tunnel, and one for a class whose packets may take any.
    #[must_use]
    pub fn all(counters: &Counters, balancers: Option<Balancers>) -> Vec<Self> {
        let mut rows: Vec<Self> = Vec::new();
        for class in Class::ALL {
            let roams = balancers.is_some_and(|it| it.roam(class));
            let balance = balancers.map(|it| it.of(class));
            let [mut first, second] = TunnelRole::ALL.map(|tunnel| Self {
                class: class.name(),
                tunnel: if roams { ANY_TUNNEL } else { tunnel.name() },
                chosen_by: balance.filter(|it| *it != Balance::Placement),
                packets: counters.packets(class, tunnel),
                bytes: counters.bytes(class, tunnel),
            });
            if roams {
                first.packets += second.packets;
                first.bytes += second.bytes;
                rows.push(first);
            } else {
                rows.extend([first, second]);
            }
        }
        rows
    }
}

/// Names class and tunnel.
impl fmt::Display for TrafficRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, tunnel, .. } = self;
        match (*tunnel, self.chosen_by) {
            (ANY_TUNNEL, None) => write!(f, "{class} in any tunnel"),
            (ANY_TUNNEL, Some(balance)) => {
                write!(f, "{class} in any tunnel, each packet by {balance}")
            }
            (tunnel, _) => write!(f, "{class} in the {tunnel} tunnel"),
        }
    }
}

/// Counts of what happened to flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowCounts {
    /// Flows whose first packet was seen.
    pub started: u64,
    /// Flows that counted more than the threshold.
    pub became_long: u64,
    /// Long flows that changed tunnels once theirs had drained for them.
    pub moved_drained: u64,
    /// Long flows that changed tunnels because the longest wait was over.
    pub moved_at_max_wait: u64,
    /// Packets that were dropped so that their flow changed tunnels in order.
    pub packets_dropped_to_drain: u64,
    /// Long flows that had no more of the other tunnel.
    pub stayed: u64,
    /// Long flows that could not leave their tunnel in order.
    pub stayed_at_max_wait: u64,
    /// Changes of tunnels after a pause.
    pub moved_after_pause: u64,
    /// Flows that ended as short ones.
    pub finished_short: u64,
    /// Flows that ended as long ones.
    pub finished_long: u64,
}

impl FlowCounts {
    /// Takes them from the counters of all CPUs. Where packets choose, a flow changes its mark when it turns long, and no
    /// tunnel with it.
    #[must_use]
    pub fn new(counters: &Counters, balancers: Option<Balancers>) -> Self {
        let moved = |event| match balancers {
            Some(_) => 0,
            None => counters.events(event),
        };
        Self {
            started: counters.events(FlowEvent::Started),
            became_long: counters.events(FlowEvent::BecameLong),
            moved_drained: moved(FlowEvent::HandedOverDrained),
            moved_at_max_wait: moved(FlowEvent::HandedOverAtMaxWait),
            packets_dropped_to_drain: counters.events(FlowEvent::DroppedToDrain),
            stayed: counters.events(FlowEvent::KeptTunnel),
            stayed_at_max_wait: counters.events(FlowEvent::KeptTunnelAtMaxWait),
            moved_after_pause: counters.events(FlowEvent::ChangedTunnelLater),
            finished_short: counters.finished(Class::Short),
            finished_long: counters.finished(Class::Long),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Counters {
        let mut counters = Counters::ZERO;
        counters.count_sent(Class::Short, TunnelRole::Short, 1, 100);
        counters.count_sent(Class::Long, TunnelRole::Short, 2, 200);
        counters.count_sent(Class::Long, TunnelRole::Long, 4, 400);
        counters.count_event(FlowEvent::BecameLong);
        counters.count_event(FlowEvent::HandedOverDrained);
        counters.count_event(FlowEvent::HandedOverAtMaxWait);
        counters
    }

    fn rows(balancers: Option<Balancers>) -> Vec<(String, u64, u64)> {
        let rows = TrafficRow::all(&counters(), balancers);
        let rows = rows.iter().map(|it| (it.to_string(), it.packets, it.bytes));
        rows.collect()
    }

    fn row(name: &str, packets: u64) -> (String, u64, u64) {
        (name.to_owned(), packets, 100 * packets)
    }

    #[test]
    fn class_whose_packets_choose_has_one_row_of_any_tunnel() {
        assert_eq!(
            rows(None),
            [
                row("short in the short tunnel", 1),
                row("short in the long tunnel", 0),
                row("long in the short tunnel", 2),
                row("long in the long tunnel", 4),
            ]
        );
        let of = |short, long| rows(Some(Balancers { short, long }));
        let (tr, own) = (Balance::Tr, Balance::Placement);
        let [short, long] =
            ["short", "long"].map(|class| format!("{class} in any tunnel, each packet by tr"));
        assert_eq!(of(tr, tr), [row(&short, 1), row(&long, 6)]);
        let kept = ["short", "long"].map(|tunnel| format!("short in the {tunnel} tunnel"));
        assert_eq!(
            of(own, tr),
            [row(&kept[0], 1), row(&kept[1], 0), row(&long, 6)]
        );
        // A flow that turns long stays where it was for a while.
        assert_eq!(of(tr, own), [row(&short, 1), row("long in any tunnel", 6)]);
    }

    #[test]
    fn nothing_is_handed_over_where_packets_choose() {
        let of = |balancers| {
            let flows = FlowCounts::new(&counters(), balancers);
            (
                flows.became_long,
                flows.moved_drained,
                flows.moved_at_max_wait,
            )
        };
        assert_eq!(of(None), (1, 1, 1));
        let (short, long) = (Balance::Placement, Balance::Tr);
        assert_eq!(of(Some(Balancers { short, long })), (1, 0, 0));
    }
}
