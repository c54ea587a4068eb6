//! The workload: which messages are sent, by whom and when.

mod collectives;
mod pairs;

use std::rc::Rc;

pub use self::collectives::IterationRecord;
use self::{collectives::Collectives, pairs::Pairs};
use crate::{
    engine::random::{Purpose, Random},
    message::{Message, Pool, UNFINISHED},
    scenario::{Experiment, Sizes, Traffic},
};

/// The messages of a run that are still to come.
#[derive(Debug)]
pub(crate) struct Workload {
    /// Messages in the order in which they are due.
    due: Vec<Message>,
    next: usize,
    background: Vec<Background>,
    pub(crate) collectives: Collectives,
    /// Messages that are measured: those after the warm-up.
    pub(crate) measured: u64,
}

/// One sender that keeps one message in flight.
#[derive(Debug)]
struct Background {
    origin: u16,
    from: u16,
    bytes: u64,
    priority: u8,
    pairs: Rc<Pairs>,
    random: Random,
}

impl Workload {
    /// Draws everything that does not depend on how the run goes.
    pub(crate) fn new(experiment: &Experiment) -> Self {
        let mut due = Vec::new();
        let mut background = Vec::new();
        for (origin, traffic) in experiment.scenario.traffic.iter().enumerate() {
            match traffic {
                Traffic::Poisson { .. } => poisson(experiment, origin, traffic, &mut due),
                Traffic::Background { .. } => senders(experiment, origin, traffic, &mut background),
                Traffic::Incast { .. } => incast(experiment, origin, traffic, &mut due),
                Traffic::Message {
                    from,
                    to,
                    bytes,
                    at_us,
                    priority,
                } => due.push(Message {
                    priority: *priority,
                    ..message(origin, *from, *to, *bytes, ns(*at_us))
                }),
                Traffic::List {
                    from_us, priority, ..
                } => listed(experiment, origin, ns(*from_us), *priority, &mut due),
                Traffic::RingAllReduce(_) | Traffic::TreeAllReduce(_) | Traffic::AllToAll(_) => (),
            }
        }
        let collectives = Collectives::new(experiment);
        // Stable: what is due at the same time stays in the order of the file.
        due.sort_by_key(|it| it.start_ns);
        let warm_up_ns = experiment.scenario.warm_up_ns();
        let measured = due.iter().filter(|it| it.start_ns >= warm_up_ns);
        Self {
            measured: measured.count() as u64 + collectives.transfers(),
            due,
            next: 0,
            background,
            collectives,
        }
    }

    /// Returns the time at which the next message is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let listed = self.due.get(self.next).map(|it| it.start_ns);
        let begins = self.collectives.next_ns();
        listed.into_iter().chain(begins).min()
    }

    /// Returns the time at which the last message is due; 0 without any.
    pub(crate) fn last_ns(&self) -> u64 {
        let due = self.due.last().map_or(0, |it| it.start_ns);
        due.max(self.collectives.last_ns())
    }

    /// Takes what is due at that time.
    pub(crate) fn take(&mut self, now_ns: u64, out: &mut Vec<Message>) {
        let rest = &self.due[self.next..];
        let due = rest.partition_point(|it| it.start_ns <= now_ns);
        out.extend_from_slice(&rest[..due]);
        self.next += due;
        self.collectives.begin(now_ns, out);
    }

    /// The first messages of those who always send.
    pub(crate) fn background(&mut self) -> Vec<Message> {
        self.background.iter_mut().map(|it| it.next(0)).collect()
    }

    /// Returns the message that follows one which has arrived.
    pub(crate) fn after(&mut self, message: &Message, now_ns: u64) -> Option<Message> {
        let same = |it: &&mut Background| it.origin == message.origin && it.from == message.from;
        self.background
            .iter_mut()
            .find(same)
            .map(|it| it.next(now_ns))
    }
}

impl Background {
    fn next(&mut self, now_ns: u64) -> Message {
        let to = self.pairs.receiver(self.from, &mut self.random);
        Message {
            priority: self.priority,
            is_background: true,
            ..message(usize::from(self.origin), self.from, to, self.bytes, now_ns)
        }
    }
}

fn poisson(experiment: &Experiment, origin: usize, traffic: &Traffic, due: &mut Vec<Message>) {
    let Traffic::Poisson {
        sizes,
        messages,
        hosts,
        request_bytes,
        priority,
        ..
    } = traffic
    else {
        return;
    };
    let stream = |purpose| Random::new(experiment.seed, purpose, origin as u64);
    let (mut size, mut arrival, mut host) = (
        stream(Purpose::Sizes),
        stream(Purpose::Arrivals),
        stream(Purpose::Hosts),
    );
    let pairs = Pairs::new(&experiment.hosts, *hosts, &mut host);
    let gap_ns = 1e9 / messages_per_second(experiment, origin, traffic);
    let warm_up_ns = experiment.scenario.warm_up_ns();
    let (mut at, mut measured) = (0.0, 0);
    due.reserve(*messages as usize);
    while measured < *messages {
        at += gap_ns * arrival.exponential();
        measured += u32::from(at as u64 >= warm_up_ns);
        let bytes = match sizes {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::OneOf(all) => all[size.below(all.len() as u32) as usize],
            Sizes::Distribution(_) | Sizes::File(_) => match &experiment.distributions[origin] {
                Some(distribution) => distribution.at(size.unit()),
                None => 1,
            },
        };
        let from = pairs.sender(&mut host);
        let to = pairs.receiver(from, &mut host);
        due.push(Message {
            priority: *priority,
            request_bytes: *request_bytes,
            ..message(origin, from, to, bytes, at as u64)
        });
    }
}

/// Messages a second over all senders; 0 for what is no Poisson traffic. The load is the share of
/// the senders' links that is offered, with headers (A-T1).
pub(crate) fn messages_per_second(
    experiment: &Experiment,
    origin: usize,
    traffic: &Traffic,
) -> f64 {
    let Traffic::Poisson {
        sizes,
        load,
        per_second,
        hosts,
        ..
    } = traffic
    else {
        return 0.0;
    };
    if let Some(per_second) = per_second {
        return *per_second;
    }
    let transport = &experiment.scenario.transport;
    let mss = f64::from(transport.mss_bytes);
    let header = f64::from(transport.header_bytes);
    let wire = |bytes: u64| bytes as f64 + header * bytes.div_ceil(mss as u64).max(1) as f64;
    let mean_wire_bytes = match sizes {
        Sizes::Fixed(bytes) => wire(*bytes),
        Sizes::OneOf(all) => all.iter().map(|it| wire(*it)).sum::<f64>() / all.len() as f64,
        Sizes::Distribution(_) | Sizes::File(_) => match &experiment.distributions[origin] {
            Some(it) => it.mean() + header * it.mean_segments(transport.mss_bytes),
            None => 1.0,
        },
    };
    let senders = Pairs::sender_count(&experiment.hosts, *hosts) as f64;
    let capacity = senders * experiment.hosts.gbps() * 1e9;
    load.unwrap_or(0.0) * capacity / (8.0 * mean_wire_bytes)
}

/// Flows of a list, from a time on that becomes the beginning.
fn listed(
    experiment: &Experiment,
    origin: usize,
    from_ns: u64,
    priority: u8,
    due: &mut Vec<Message>,
) {
    let flows = experiment.lists.get(&origin).map(|it| &it.flows[..]);
    for flow in flows.unwrap_or_default() {
        let Some(start_ns) = flow.start_ns.checked_sub(from_ns) else {
            continue;
        };
        // Checked: hosts are below their number.
        let [from, to] = [flow.from, flow.to].map(|it| it as u16);
        due.push(Message {
            priority: priority + flow.priority,
            ..message(origin, from, to, flow.bytes, start_ns)
        });
    }
}

fn senders(experiment: &Experiment, origin: usize, traffic: &Traffic, all: &mut Vec<Background>) {
    let Traffic::Background {
        bytes,
        hosts,
        priority,
    } = traffic
    else {
        return;
    };
    let mut random = Random::new(experiment.seed, Purpose::Hosts, origin as u64);
    let pairs = Rc::new(Pairs::new(&experiment.hosts, *hosts, &mut random));
    for from in &pairs.senders {
        let part = (origin as u64) << 32 | u64::from(*from);
        all.push(Background {
            origin: origin as u16,
            from: *from,
            bytes: *bytes,
            priority: *priority,
            pairs: Rc::clone(&pairs),
            random: Random::new(experiment.seed, Purpose::Background, part),
        });
    }
}

fn incast(experiment: &Experiment, origin: usize, traffic: &Traffic, due: &mut Vec<Message>) {
    let Traffic::Incast {
        senders,
        to,
        bytes,
        at_us,
        rounds,
        every_us,
        priority,
    } = traffic
    else {
        return;
    };
    let all = pairs::in_turn_without(&experiment.hosts, *to);
    for round in 0..*rounds {
        let start_ns = ns(at_us + f64::from(round) * every_us);
        for index in 0..usize::from(*senders) {
            let from = all[index % all.len()];
            due.push(Message {
                priority: *priority,
                ..message(origin, from, *to, *bytes, start_ns)
            });
        }
    }
}

fn message(origin: usize, from: u16, to: u16, bytes: u64, start_ns: u64) -> Message {
    Message {
        from,
        to,
        priority: 0,
        flows: 0,
        origin: origin as u16,
        bytes,
        request_bytes: None,
        transfer: None,
        is_background: false,
        needed: 0,
        sent_by_end: 0,
        start_ns,
        end_ns: UNFINISHED,
        first_flow: 0,
        pool: Pool::default(),
    }
}

fn ns(us: f64) -> u64 {
    (us * 1000.0) as u64
}
