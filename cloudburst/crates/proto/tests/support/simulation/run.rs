//! A whole run: messages, their ends, and then peace.

use std::time::Duration;

use cloudburst_proto::{CongestionControl, MAX_LIFETIME, Reason, TransportStatistics};

use super::{
    messages::{Fate, Message, MessageRecords},
    path::{Loss, MILLI, SECOND},
    scenario::Scenario,
    world::World,
};

/// Receivers forget what was never completed after a minute.
const CALM_NS: u64 = 90 * SECOND;
/// Datagrams that a host may send to look after its paths until then, each.
const PROBES_PER_ROUTE: u64 = 24;
/// And then it must be quiet for so long.
const PEACE_NS: u64 = 300 * SECOND;

/// What a run came to.
pub(crate) struct Outcome {
    pub(crate) log_hash: u64,
    pub(crate) world: World,
    /// When the last message had its end.
    pub(crate) ended: u64,
}

/// Prints how to see a failure again.
struct Announce(u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "seed {0} fails; to see it:\n  CLOUDBURST_SEED={0} CLOUDBURST_TRACE=1 cargo test -p cloudburst-proto --test it replay -- --nocapture",
                self.0
            );
        }
    }
}

pub(crate) fn run_seed(seed: u64) -> Outcome {
    run(Scenario::generate(seed))
}

pub(crate) fn run(scenario: Scenario) -> Outcome {
    let _announce = (scenario.is_generated).then(|| Announce(scenario.seed));
    let mut world = World::new(scenario);
    world.finish()
}

impl World {
    /// Runs to the end and checks all that can only be checked there.
    pub(crate) fn finish(&mut self) -> Outcome {
        let last = self.last_moment();
        while self.now < last && (self.to_come > 0 || self.records.unresolved > 0) {
            self.run_until((self.now + 100 * MILLI).min(last));
        }
        let ended = self.now;
        for message in &self.records.messages {
            assert!(message.fate.is_some(), "no end was told of {message:?}");
            assert!(
                message.has_one_end(),
                "cancelled, and ended otherwise: {message:?}"
            );
        }
        self.log.say(ended, format_args!("all messages have ended"));
        self.calm_down();
        if self.scenario.must_deliver {
            self.check_all_delivered();
        }
        let nothing = Scenario {
            hosts: Vec::new(),
            sends: Vec::new(),
            faults: Vec::new(),
            ..self.scenario.clone()
        };
        Outcome {
            log_hash: self.log.hash(),
            world: std::mem::replace(self, Self::new(nothing)),
            ended,
        }
    }

    fn last_moment(&self) -> u64 {
        let scenario = &self.scenario;
        let sends = scenario.sends.iter().map(|send| send.at);
        let faults = scenario.faults.iter().map(|(at, _)| *at);
        let budgets = scenario
            .hosts
            .iter()
            .map(|host| host.config.budget.lifetime);
        let lifetime = budgets.max().unwrap_or(Duration::ZERO) + MAX_LIFETIME;
        let lifetime = lifetime.as_nanos() as u64;
        // A request's and then its reply's.
        sends.chain(faults).max().unwrap_or(0) + 2 * lifetime + 2 * SECOND
    }

    fn calm_down(&mut self) {
        let sent = |world: &Self| -> Vec<u64> {
            let hosts = world.hosts.iter();
            hosts.map(|host| host.totals.datagrams_sent).collect()
        };
        // What is in queues leads to answers for a while.
        self.run_until(self.now + 5 * SECOND);
        let before = sent(self);
        self.run_until(self.now + CALM_NS);
        let calm = sent(self);
        self.run_until(self.now + PEACE_NS);
        let peace = sent(self);
        for number in 0..self.hosts.len() {
            let four_tuples: u64 = self
                .scenario
                .hosts
                .iter()
                .map(|host| u64::from(host.sockets))
                .sum();
            let most = four_tuples * four_tuples * PROBES_PER_ROUTE;
            let probes = calm[number] - before[number];
            assert!(
                probes <= most,
                "host {number} sent {probes} datagrams in a calm of {CALM_NS} ns"
            );
            let late = peace[number] - calm[number];
            assert_eq!(late, 0, "host {number} sends for ever");
            let statistics = self.hosts[number].endpoint.statistics();
            assert_eq!(
                statistics.incoming_now, 0,
                "host {number} keeps incomplete messages"
            );
            assert_eq!(
                statistics.incoming_bytes_now, 0,
                "host {number} keeps their memory"
            );
            assert_eq!(statistics.outgoing_now, 0);
            assert_eq!(statistics.outgoing_bytes_now, 0);
        }
    }

    /// What the slowest path takes for all messages.
    fn time_for_all(&self) -> Duration {
        let bytes: usize = self
            .records
            .messages
            .iter()
            .map(|message| message.bytes)
            .sum();
        let paths = self.network.paths.iter();
        let links = paths.flat_map(|path| path.directions.iter().map(|it| it.link.bits_per_s()));
        let slowest = links.min().unwrap_or(u64::MAX).max(1);
        Duration::from_secs_f64(bytes as f64 * 8.0 / slowest as f64)
    }

    /// Whether a direction loses more than a tenth: a window has a fifth of what such a path carries
    /// (RFC 5348 §3.1).
    fn loses_much(&self) -> bool {
        let directions = self.network.paths.iter().flat_map(|path| &path.directions);
        let mut losses = directions.map(|direction| direction.usual.loss);
        losses.any(|loss| matches!(loss, Loss::Each(share) if share > 0.1))
    }

    /// Messages from a host to another, which wait for each other.
    fn sent_between(&self, from: usize, to: usize) -> u32 {
        let between = |it: &&Message| (it.from, it.to) == (from, to);
        self.records.messages.iter().filter(between).count() as u32
    }

    fn check_all_delivered(&self) {
        assert_eq!(self.not_accepted, [], "a quota is too small");
        for message in &self.records.messages {
            let config = &self.scenario.hosts[message.from].config;
            // A window takes some seconds for 300 kB where a tenth is lost in round trips of
            // 100 ms; where more is, several such messages take longer than they may, and each lifetime
            // runs from its first datagram, when those before it are out.
            let is_adaptive = config.congestion == CongestionControl::Adaptive;
            let is_hindered = is_adaptive && self.loses_much();
            let quarters = match (is_adaptive, is_hindered) {
                (_, true) => 4 * self.sent_between(message.from, message.to),
                (true, false) => 3,
                (false, _) => 1,
            };
            let most = config.budget.lifetime * quarters / 4 + self.time_for_all();
            match message.fate {
                Some(Fate::Delivered(receipt)) => assert!(
                    receipt.completion < most,
                    "{:?} is long for nothing in the way: {message:?}",
                    receipt.completion
                ),
                Some(Fate::Undelivered(failure)) if failure.reason == Reason::Cancelled => {}
                Some(Fate::Undelivered(failure))
                    if failure.reason == Reason::TimedOut && is_hindered => {}
                _ => panic!("nothing was in the way of {message:?}"),
            }
        }
    }
}

impl Outcome {
    pub(crate) fn records(&self) -> &MessageRecords {
        &self.world.records
    }

    pub(crate) fn statistics(&self, host: usize) -> TransportStatistics {
        self.world.hosts[host].endpoint.statistics()
    }

    pub(crate) fn delivered(&self) -> usize {
        let messages = self.records().messages.iter();
        messages
            .filter(|message| message.receipt().is_some())
            .count()
    }

    pub(crate) fn all_delivered(&self) -> &Self {
        let messages = &self.records().messages;
        let mut failed = messages
            .iter()
            .filter(|message| message.receipt().is_none());
        let count = failed.clone().count();
        let (first, refused) = (failed.next(), self.statistics(1).refused);
        assert_eq!(
            count,
            0,
            "of {} were not delivered; the first: {first:#?}, {refused:#?}",
            messages.len()
        );
        self
    }

    /// Of messages that were abandoned, each once.
    pub(crate) fn reasons(&self) -> Vec<Reason> {
        let messages = self.records().messages.iter();
        messages
            .filter_map(|message| message.undelivered())
            .map(|failure| failure.reason)
            .collect()
    }

    /// Completions in ms, shortest first.
    pub(crate) fn completions_ms(&self) -> Vec<f64> {
        let receipts = self
            .records()
            .messages
            .iter()
            .filter_map(|message| message.receipt());
        let mut all: Vec<_> = receipts
            .map(|receipt| receipt.completion.as_secs_f64() * 1e3)
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    pub(crate) fn percentile_ms(&self, share: f64) -> f64 {
        let all = self.completions_ms();
        all[((all.len() - 1) as f64 * share).round() as usize]
    }
}
