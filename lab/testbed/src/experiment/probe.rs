//! What is read around the measured part of a slice.

use std::time::Duration;

use super::{SliceError, TcpEvents};
use crate::{cpu, namespace::Counters, topology::Topology};

/// Reads counters when the measured part begins and ends.
pub(super) struct Probe<'a> {
    topology: &'a Topology,
    begin: Duration,
    end: Duration,
    at_begin: Option<(Vec<Counters>, Duration)>,
    cpu_at_end: Option<Duration>,
    failed: Option<SliceError>,
}

impl<'a> Probe<'a> {
    pub(super) fn new(topology: &'a Topology, begin: Duration, end: Duration) -> Self {
        Self {
            topology,
            begin,
            end,
            at_begin: None,
            cpu_at_end: None,
            failed: None,
        }
    }

    /// Hears how long traffic has been flowing.
    pub(super) fn at(&mut self, now: Duration) {
        let read = if self.at_begin.is_none() && now >= self.begin {
            self.read().map(|both| self.at_begin = Some(both))
        } else if self.cpu_at_end.is_none() && now >= self.end {
            cpu::busy()
                .map(|busy| self.cpu_at_end = Some(busy))
                .map_err(Into::into)
        } else {
            Ok(())
        };
        if let Err(error) = read {
            self.failed.get_or_insert(error);
        }
    }

    fn read(&self) -> Result<(Vec<Counters>, Duration), SliceError> {
        let counters = self
            .topology
            .hosts()
            .into_iter()
            .map(|host| host.namespace.counters());
        Ok((counters.collect::<Result<_, _>>()?, cpu::busy()?))
    }

    /// What has changed, up to now for TCP and up to the end of the measured part for the CPU.
    pub(super) fn finish(self) -> Result<(TcpEvents, Duration), SliceError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (now, busy) = self.read()?;
        let (before, busy_before) = self.at_begin.unwrap_or_else(|| (now.clone(), busy));
        let rise = |name: &str| {
            now.iter()
                .zip(&before)
                .map(|(now, before)| now.since(before, name))
                .sum()
        };
        let tcp = TcpEvents {
            paws_estab: rise("TcpExtPAWSEstab"),
            timeouts: rise("TcpExtTCPTimeouts"),
            retrans: rise("TcpRetransSegs"),
            spurious_host_queue: rise("TcpExtTCPSpuriousRtxHostQueues"),
        };
        Ok((
            tcp,
            self.cpu_at_end.unwrap_or(busy).saturating_sub(busy_before),
        ))
    }
}
