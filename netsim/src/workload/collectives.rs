//! Collective operations: iteration after iteration, transfers that wait for others.

use flow_workload::{Collective, Transfer};
use serde::Serialize;

use super::{message, ns};
use crate::{
    engine::random::{Purpose, Random},
    message::Message,
    scenario::{Experiment, Placement},
};

/// The record of one iteration of a collective operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IterationRecord {
    /// Which of the scenario's traffic it belongs to.
    pub traffic: u16,
    /// Its number, from 0.
    pub iteration: u32,
    /// Start time: when its first transfers were due.
    pub start_ns: u64,
    /// Completion time, from the start until the last byte of the last transfer had arrived; nothing if the run
    /// ended before.
    pub completion_ns: Option<u64>,
}

/// All collective operations of a run.
#[derive(Debug, Default)]
pub(crate) struct Collectives {
    jobs: Vec<Job>,
    transfers: Vec<Transfer>,
}

/// One operation and its iterations.
#[derive(Debug)]
struct Job {
    origin: u16,
    priority: u8,
    collective: Collective,
    /// Hosts by rank.
    hosts: Vec<u16>,
    /// Ranks by host.
    ranks: Vec<u32>,
    compute_ns: u64,
    left: u32,
    /// Start of the next iteration, unless one is under way.
    begins_ns: Option<u64>,
    records: Vec<IterationRecord>,
}

impl Collectives {
    /// The experiment has been checked.
    pub(super) fn new(experiment: &Experiment) -> Self {
        let traffic = experiment.scenario.traffic.iter().enumerate();
        let jobs = traffic.filter_map(|(origin, traffic)| {
            let (operation, settings) = traffic.collective()?;
            let all = experiment.hosts.count();
            let extent = settings.settings(all);
            let count = extent.ranks as usize;
            let hosts: Vec<u16> = match settings.placement {
                Placement::InOrder => (0..count as u16).collect(),
                Placement::Shuffled => {
                    let mut random = Random::new(experiment.seed, Purpose::Hosts, origin as u64);
                    let drawn = random.sample(all, count);
                    drawn.into_iter().map(|it| it as u16).collect()
                }
            };
            let mut ranks = vec![0; all];
            for (rank, host) in (0..).zip(&hosts) {
                ranks[usize::from(*host)] = rank;
            }
            Some(Job {
                origin: origin as u16,
                priority: settings.priority,
                collective: Collective::new(operation, extent).ok()?,
                hosts,
                ranks,
                compute_ns: ns(settings.compute_us),
                left: settings.iterations,
                begins_ns: Some(ns(settings.at_us)),
                records: Vec::new(),
            })
        });
        Self {
            jobs: jobs.collect(),
            transfers: Vec::new(),
        }
    }

    /// How many transfers there are in all iterations.
    pub(super) fn transfers(&self) -> u64 {
        let of = |it: &Job| u64::from(it.left) * it.collective.transfers();
        self.jobs.iter().map(of).sum()
    }

    /// Returns the time at which the next iteration begins.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.jobs.iter().filter_map(|it| it.begins_ns).min()
    }

    /// Returns the time at which the last operation begins; 0 without any.
    pub(super) fn last_ns(&self) -> u64 {
        let begins = self.jobs.iter().filter_map(|it| it.begins_ns);
        begins.max().unwrap_or(0)
    }

    /// Begins iterations that are due.
    pub(super) fn begin(&mut self, now_ns: u64, out: &mut Vec<Message>) {
        for job in &mut self.jobs {
            if job.begins_ns.is_none_or(|it| it > now_ns) {
                continue;
            }
            job.begins_ns = None;
            job.left -= 1;
            job.records.push(IterationRecord {
                traffic: job.origin,
                iteration: job.records.len() as u32,
                start_ns: now_ns,
                completion_ns: None,
            });
            job.collective.begin(&mut self.transfers);
            job.send(&mut self.transfers, now_ns, out);
        }
    }

    /// A transfer has arrived: others may start, or the iteration is complete.
    pub(crate) fn arrived(&mut self, arrived: &Message, now_ns: u64, out: &mut Vec<Message>) {
        let job = self.jobs.iter_mut().find(|it| it.origin == arrived.origin);
        let (Some(job), Some(tag)) = (job, arrived.transfer) else {
            return;
        };
        let rank = |host: u16| job.ranks[usize::from(host)];
        let transfer = Transfer {
            from: rank(arrived.from),
            to: rank(arrived.to),
            bytes: arrived.bytes,
            tag,
        };
        job.collective.arrived(transfer, &mut self.transfers);
        job.send(&mut self.transfers, now_ns, out);
        if job.collective.is_complete() {
            if let Some(record) = job.records.last_mut() {
                record.completion_ns = Some(now_ns - record.start_ns);
            }
            job.begins_ns = (job.left > 0).then(|| now_ns + job.compute_ns);
        }
    }

    /// The records of all iterations that have begun.
    pub(crate) fn into_iterations(self) -> Vec<IterationRecord> {
        self.jobs.into_iter().flat_map(|it| it.records).collect()
    }
}

impl Job {
    fn send(&self, transfers: &mut Vec<Transfer>, now_ns: u64, out: &mut Vec<Message>) {
        let host = |rank: u32| self.hosts[rank as usize];
        out.extend(transfers.drain(..).map(|it| Message {
            priority: self.priority,
            transfer: Some(it.tag),
            ..message(
                self.origin.into(),
                host(it.from),
                host(it.to),
                it.bytes,
                now_ns,
            )
        }));
    }
}
