//! What an endpoint did, counted by those who watched, and what it may do.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use cloudburst_code::wire;
use cloudburst_proto::{TransportConfig, TransportStatistics};

use super::{
    path::{MICRO, MILLI},
    scenario::HostPlan,
};

/// What may be sent on top of the rate within any window.
const BURST_BYTES: u64 = 128 << 10;
const WINDOW_NS: u64 = 100 * MILLI;
/// A timer that is due sooner is hardly worth setting: waking for it takes as long.
pub(crate) const SHORT_TIMER_NS: u64 = 50 * MICRO;

/// Of one incarnation of a host.
pub(crate) struct HostTotals {
    limits: TransportConfig,
    is_paper: bool,
    window_bytes: u64,
    recent: VecDeque<(u64, u64)>,
    recent_bytes: u64,
    /// How often its timer has woken it.
    pub(crate) timers: u64,
    /// How often it was set for less than [`SHORT_TIMER_NS`], and not for what was due already.
    pub(crate) short_timers: u64,
    /// Calls that send: one for each path and each length of datagrams that leave at the same time.
    pub(crate) sends: u64,
    pub(crate) datagrams_sent: u64,
    bytes_sent: u64,
    datagrams_received: u64,
    bytes_received: u64,
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
    pub(crate) undelivered: u64,
    pub(crate) received: u64,
    addresses: BTreeMap<IpAddr, Exchange>,
    before: TransportStatistics,
}

#[derive(Default)]
struct Exchange {
    bytes_in: u64,
    bytes_out: u64,
    /// It was connected to, or it has answered: there is somebody.
    is_trusted: bool,
}

impl HostTotals {
    pub(crate) fn new(plan: &HostPlan) -> Self {
        let config = &plan.config;
        let per_s = config.congestion.bytes_per_s();
        let per_s = per_s.unwrap_or(plan.link_bits_per_s() as f64 / 8.0);
        Self {
            limits: config.clone(),
            is_paper: plan.is_paper,
            window_bytes: (per_s / 10.0) as u64 + BURST_BYTES,
            recent: VecDeque::new(),
            recent_bytes: 0,
            timers: 0,
            short_timers: 0,
            sends: 0,
            datagrams_sent: 0,
            bytes_sent: 0,
            datagrams_received: 0,
            bytes_received: 0,
            accepted: 0,
            delivered: 0,
            undelivered: 0,
            received: 0,
            addresses: BTreeMap::new(),
            before: TransportStatistics::default(),
        }
    }

    pub(crate) fn trust(&mut self, address: IpAddr) {
        self.addresses.entry(address).or_default().is_trusted = true;
    }

    pub(crate) fn take_in(&mut self, from: IpAddr, datagram: &[u8]) {
        self.datagrams_received += 1;
        self.bytes_received += datagram.len() as u64;
        let exchange = self.addresses.entry(from).or_default();
        exchange.bytes_in += datagram.len() as u64;
        exchange.is_trusted |= !self.is_paper && is_answer(false, datagram);
    }

    pub(crate) fn give_out(&mut self, now: u64, to: IpAddr, datagram: &[u8]) {
        let bytes = datagram.len() as u64;
        self.datagrams_sent += 1;
        self.bytes_sent += bytes;
        let exchange = self.addresses.entry(to).or_default();
        exchange.bytes_out += bytes;
        assert!(
            exchange.is_trusted || exchange.bytes_out <= 3 * exchange.bytes_in,
            "{to} got {} bytes, sent {} and has shown nothing",
            exchange.bytes_out,
            exchange.bytes_in
        );
        // Answers are no longer than what they answer, and wait for nothing.
        if !is_answer(self.is_paper, datagram) {
            self.check_rate(now, bytes);
        }
    }

    fn check_rate(&mut self, now: u64, bytes: u64) {
        self.recent.push_back((now, bytes));
        self.recent_bytes += bytes;
        while let Some((at, bytes)) = self.recent.front()
            && at + WINDOW_NS <= now
        {
            self.recent_bytes -= bytes;
            self.recent.pop_front();
        }
        assert!(
            self.recent_bytes <= self.window_bytes,
            "{} bytes were sent within 100 ms, {} are allowed",
            self.recent_bytes,
            self.window_bytes
        );
    }

    /// Quotas, and counters against what was seen.
    pub(crate) fn check(&mut self, statistics: &TransportStatistics) {
        let now = statistics;
        let quotas = &self.limits.quotas;
        let within = [
            ("peers", now.peers_now, quotas.peers),
            ("incoming", now.incoming_now, quotas.messages),
            ("incoming bytes", now.incoming_bytes_now, quotas.bytes),
            ("outgoing", now.outgoing_now, quotas.outgoing_messages),
            (
                "outgoing bytes",
                now.outgoing_bytes_now,
                quotas.outgoing_bytes,
            ),
        ];
        for (name, value, quota) in within {
            assert!(
                value <= quota as u64,
                "{name}: {value}, the quota is {quota}"
            );
        }
        let alike = [
            ("datagrams sent", now.datagrams_sent, self.datagrams_sent),
            ("bytes sent", now.bytes_sent, self.bytes_sent),
            (
                "datagrams received",
                now.datagrams_received,
                self.datagrams_received,
            ),
            ("bytes received", now.bytes_received, self.bytes_received),
            ("accepted", now.messages_accepted, self.accepted),
            ("delivered", now.messages_delivered, self.delivered),
            ("undelivered", now.messages_undelivered, self.undelivered),
            ("received", now.messages_received, self.received),
            (
                "under way",
                now.outgoing_now,
                self.accepted - self.delivered - self.undelivered,
            ),
        ];
        for (name, counted, seen) in alike {
            assert_eq!(
                counted, seen,
                "{name}: the endpoint says {counted}, {seen} were seen"
            );
        }
        assert!(now.symbols_wasted <= now.symbols_received);
        assert!(now.stops_sent + now.queries_sent <= now.datagrams_sent);
        let refused: u64 = now.refused.iter().map(|reason| reason.1).sum();
        let refused_before: u64 = self.before.refused.iter().map(|reason| reason.1).sum();
        assert!(refused >= refused_before, "refusals were forgotten");
        self.before = *now;
    }
}

/// Only who got something can say this. In the native format the kind is in the
/// lower half of the first byte: stop, have, busy, pong, token; an offer, form 2, may bring a token
/// from a retry. In the paper's
/// a stop is a header alone, which proves nothing.
fn is_answer(is_paper: bool, datagram: &[u8]) -> bool {
    if is_paper {
        return datagram.len() == wire::HEADER_BYTES;
    }
    let kind = datagram.first().map_or(0, |first| first & 15);
    let token = datagram.get(28..68).filter(|_| datagram[1] == 2);
    let has_token = token.is_some_and(|token| token.iter().any(|byte| *byte != 0));
    matches!(kind, 2 | 4 | 5 | 7 | 9) || has_token
}
