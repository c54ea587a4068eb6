//! ExpressPass (Cho, Jang and Han, SIGCOMM 2017): receivers send credits, and senders one segment for each.
//!
//! A sender asks its receiver for credits. These come at the rate that [feedback] control sets, and are lost where links
//! would carry more data than they can: each port limits them, and data take the way of their credits back. When all
//! is sent, a stop follows it; what comes after that is wasted.
//!
//! Loss of data, which there is where a link fails, is known when the stop is there, for packets of a flow keep their
//! order. Then the receiver has it sent again, a segment each round trip.

mod feedback;

use flow_tcp::Segment;

use self::feedback::CreditFeedback;
use super::{Hosts, segment::data};
use crate::{
    engine::packet::{EntryKind, Packet, flag},
    fabric::Network,
    scenario::ExpressPassSettings,
};

/// Both ends of a flow, as far as it is about credits.
#[derive(Debug)]
pub(crate) struct CreditFlow {
    settings: ExpressPassSettings,
    /// At the sender: the first segment that was never sent.
    next: u32,
    /// A credit has come.
    is_credited: bool,
    /// When it has said stop.
    stopped_ns: Option<u64>,
    /// At the receiver, once it has been asked.
    feedback: Option<CreditFeedback>,
    /// Number of the credit that is sent next.
    credit: u16,
    /// It sends no more of them.
    is_complete: bool,
    /// Its sender has said stop.
    is_stopped: bool,
}

/// Credits of all flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CreditCounters {
    /// Those that receivers sent.
    pub(crate) sent: u64,
    /// Those that came to a sender which had nothing left.
    pub(crate) wasted: u64,
}

/// What a timer of a flow is for: `seq` of its event.
const REQUEST: u32 = 0;
const CREDIT: u32 = 1;

impl CreditFlow {
    pub(super) fn new(settings: ExpressPassSettings) -> Self {
        Self {
            settings,
            next: 0,
            is_credited: false,
            stopped_ns: None,
            feedback: None,
            credit: 0,
            is_complete: false,
            is_stopped: false,
        }
    }

    fn timeout_ns(&self) -> u64 {
        (self.settings.timeout_us * 1000.0) as u64
    }

    /// The segment that a credit lets go, if there is one left.
    fn take(&mut self, credit: &Packet, segments: u32) -> Option<Segment> {
        self.is_credited = true;
        if credit.has(flag::RETRANSMITTED) {
            return Some(Segment {
                number: credit.seq,
                is_retransmission: true,
            });
        }
        if self.next == segments {
            return None;
        }
        self.next += 1;
        Some(Segment {
            number: self.next - 1,
            is_retransmission: false,
        })
    }
}

impl Hosts {
    /// Returns whether the flow goes by credits.
    pub(super) fn has_credits(&self, number: u32) -> bool {
        self.flows[number as usize].credits.is_some()
    }

    /// A flow asks its receiver for credits, and looks later whether some have come.
    pub(super) fn request_credits(&mut self, network: &mut Network, number: u32) {
        let flow = &self.flows[number as usize];
        let Some(credits) = &flow.credits else {
            return;
        };
        let mut packet = control(EntryKind::CreditRequest, number, flow.priority, credits);
        packet.to = flow.to;
        let (from, after_ns) = (flow.from, credits.timeout_ns());
        let id = network.slab.insert(packet);
        network.inject(usize::from(from), id);
        set_timer(network, number, REQUEST, after_ns);
    }

    /// The event of a flow's timer has come: that of its sender or its receiver.
    pub(super) fn on_credit_timer(&mut self, network: &mut Network, id: u32) {
        let Packet {
            flow: number, seq, ..
        } = network.slab[id];
        network.slab.remove(id);
        if seq == CREDIT {
            return self.send_credit(network, number);
        }
        let flow = &mut self.flows[number as usize];
        if flow.credits.as_ref().is_some_and(|it| !it.is_credited) {
            flow.stats.timeouts += 1;
            self.request_credits(network, number);
        }
    }

    /// A receiver has been asked for credits, perhaps again.
    pub(super) fn on_credit_request(&mut self, network: &mut Network, id: u32) {
        let number = network.slab[id].flow;
        network.slab.remove(id);
        let flow = &mut self.flows[number as usize];
        let Some(credits) = flow.credits.as_mut().filter(|it| it.feedback.is_none()) else {
            return;
        };
        let settings = credits.settings;
        // Checked: ports of hosts have a queue for credits.
        let bytes_per_second = network.credit_bytes_per_second(flow.to).unwrap_or(1.0);
        let max_rate = bytes_per_second / f64::from(settings.credit_bytes);
        credits.feedback = Some(CreditFeedback::new(settings, max_rate));
        self.send_credit(network, number);
    }

    /// A receiver sends a credit, and sets the timer for the next.
    fn send_credit(&mut self, network: &mut Network, number: u32) {
        let flow = &mut self.flows[number as usize];
        let Some(credits) = flow.credits.as_mut().filter(|it| !it.is_complete) else {
            return;
        };
        let mut packet = control(EntryKind::Credit, number, flow.priority, credits);
        packet.to = flow.from;
        packet.stamp = network.events.now() as u32;
        packet.credit = credits.credit;
        if credits.is_stopped {
            packet.seq = flow.receiver.missing();
            packet.set(flag::RETRANSMITTED, true);
        }
        credits.credit = credits.credit.wrapping_add(1);
        let after_ns = credits.pause_ns(self.random.unit());
        self.credit_counters.sent += 1;
        let host = usize::from(flow.to);
        let id = network.slab.insert(packet);
        network.inject(host, id);
        set_timer(network, number, CREDIT, after_ns);
    }

    /// A sender has got a credit, which becomes data.
    pub(super) fn on_credit(&mut self, network: &mut Network, id: u32) {
        let now_ns = network.now();
        let credit = network.slab[id];
        let number = credit.flow;
        let flow = &mut self.flows[number as usize];
        let settings = &self.settings[usize::from(flow.transport)];
        let segments = flow.sender.segments;
        let Some(credits) = &mut flow.credits else {
            return;
        };
        let segment = credits.take(&credit, segments);
        let timeout_ns = credits.timeout_ns();
        let is_last = credits.next == segments;
        let is_silent = |at_ns: u64| now_ns - at_ns >= timeout_ns;
        let says_stop = is_last && credits.stopped_ns.is_none_or(is_silent);
        if says_stop {
            credits.stopped_ns = Some(now_ns);
        }
        let mut stop = control(EntryKind::CreditStop, number, flow.priority, credits);
        (stop.to, stop.seq) = (flow.to, segments);
        let host = usize::from(flow.from);
        match segment {
            Some(segment) => {
                flow.stats.sent += 1;
                flow.stats.retransmitted += u32::from(segment.is_retransmission);
                let mut packet = data(flow, number, segment, settings, credit.stamp);
                packet.credit = credit.credit;
                network.slab[id] = packet;
                network.inject(host, id);
            }
            None => {
                self.credit_counters.wasted += 1;
                network.slab.remove(id);
            }
        }
        if says_stop {
            let id = network.slab.insert(stop);
            network.inject(host, id);
        }
    }

    /// Data have come that were sent for a credit.
    pub(super) fn on_credited_data(&mut self, network: &mut Network, id: u32) {
        let packet = network.slab[id];
        network.slab.remove(id);
        let now_ns = network.now();
        let number = packet.flow;
        let flow = &mut self.flows[number as usize];
        flow.stats.count_arrival(&packet);
        let is_retransmission = packet.has(flag::RETRANSMITTED);
        let new = flow.receiver.on_segment(packet.seq, is_retransmission);
        if let Some(credits) = &mut flow.credits {
            let round_trip_ns = u64::from((now_ns as u32).wrapping_sub(packet.stamp));
            if let Some(feedback) = &mut credits.feedback {
                feedback.on_data(now_ns, packet.credit, round_trip_ns);
            }
            credits.is_complete =
                credits.is_stopped && flow.receiver.missing() == flow.sender.segments;
        }
        if new {
            self.on_new_segment(network, number);
        }
    }

    /// A sender has sent all there is. What has not come with it, on the same way, was lost.
    pub(super) fn on_credit_stop(&mut self, network: &mut Network, id: u32) {
        let Packet {
            flow: number,
            seq: segments,
            ..
        } = network.slab[id];
        network.slab.remove(id);
        let flow = &mut self.flows[number as usize];
        if let Some(credits) = &mut flow.credits {
            credits.is_stopped = true;
            credits.is_complete = flow.receiver.missing() == segments;
        }
    }
}

impl CreditFlow {
    /// The pause after a credit; `unit` is a draw from (0, 1].
    fn pause_ns(&self, unit: f64) -> u64 {
        let Some(feedback) = &self.feedback else {
            return 1;
        };
        let jitter = self.settings.jitter * (2.0 * unit - 1.0);
        let gap_ns = feedback.gap_ns() * (1.0 + jitter);
        let least_ns = if self.is_stopped {
            // The segment that is missing is sent again once, and not for each credit.
            feedback.round_trip_ns()
        } else {
            1
        };
        (gap_ns as u64).max(least_ns)
    }
}

/// A packet that carries no data.
fn control(kind: EntryKind, number: u32, priority: u8, credits: &CreditFlow) -> Packet {
    let mut packet = Packet::new(kind);
    packet.flow = number;
    packet.bytes = credits.settings.credit_bytes;
    packet.set_priority(priority);
    packet
}

fn set_timer(network: &mut Network, number: u32, purpose: u32, after_ns: u64) {
    let mut event = Packet::new(EntryKind::Timer);
    (event.flow, event.seq) = (number, purpose);
    let id = network.slab.insert(event);
    let at_ns = network.now() + after_ns;
    if !network.events.push(id, at_ns) {
        network.slab.remove(id);
    }
}
