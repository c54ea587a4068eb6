//! One run of a scheme: transfers settle, then count, then short flows run beside them.

use std::{
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use flow_report::Summary;
use flow_testbed::{
    namespace::Counters,
    order::{Arrivals, Capture},
    traffic,
    workload::{Role, Schedule, ShortFlows, Workload},
};
use tokio_util::sync::CancellationToken;

use crate::{
    bulk::{Noted, PORT, Transfers},
    cell::Cell,
    rig::{Rig, address_of_tunnel},
    scheme::Scheme,
};

/// How long each part of a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Transfers run for so long before they count.
    pub(crate) settling: Duration,
    /// They count for so long, by themselves.
    pub(crate) counting: Duration,
    /// Short flows start beside them for so long.
    pub(crate) beside: Duration,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) noted: Noted,
    pub(crate) arrivals: Arrivals,
    pub(crate) tcp: TcpEvents,
    /// The mean completion time of short flows beside, if any has completed.
    pub(crate) short_mean_ms: Option<f64>,
}

/// What the ends of transfers counted while they counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpEvents {
    /// Segments sent again.
    pub(crate) retransmits: u64,
    /// Segments of which the receiver said, by D-SACK, that it had them already (RFC 2883).
    pub(crate) spurious_retransmits: u64,
    /// Segments that the receiver dropped for a timestamp older than one before.
    pub(crate) paws: u64,
    /// Acknowledgements that the sender dropped for that, which later ones make up for.
    pub(crate) paws_at_sender: u64,
    /// Retransmission timeouts.
    pub(crate) timeouts: u64,
    /// Timeouts found to have been needless (F-RTO, RFC 5682).
    pub(crate) spurious_timeouts: u64,
}

/// The longest wait for short flows under way at the end.
const DRAIN: Duration = Duration::from_secs(2);
/// From the start of both ends of `iperf3` to the first data, about.
const HANDSHAKE: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(20);

impl Timing {
    pub(crate) const FULL: Self = Self {
        settling: Duration::from_secs(3),
        counting: Duration::from_secs(6),
        beside: Duration::from_secs(4),
    };
    pub(crate) const QUICK: Self = Self {
        settling: Duration::from_millis(1_500),
        counting: Duration::from_secs(3),
        beside: Duration::from_secs(1),
    };

    /// The same with another time that counts, and short flows beside for no longer than that.
    pub(crate) fn counting_for(self, counting: Duration) -> Self {
        Self {
            counting,
            beside: self.beside.min(counting),
            ..self
        }
    }

    pub(crate) fn whole(self) -> Duration {
        self.settling + self.counting + self.beside
    }
}

/// Runs a scheme in a cell, on a testbed built for it.
pub(crate) fn run(
    cell: &Cell,
    scheme: Scheme,
    seed: u64,
    timing: Timing,
    splitter: &Path,
    cancel: &CancellationToken,
) -> Result<Outcome> {
    let rig = Rig::build(cell, seed)?;
    let applied = scheme.apply(&rig, splitter, cancel)?;
    let [near, far] = &rig.bulk;
    let own_address = match scheme {
        Scheme::Mptcp => address_of_tunnel(0),
        _ => near.ipv4,
    };
    let (sender, receiver) = match cell.direction {
        flow_testbed::parallel::Direction::Up => (near, far),
        flow_testbed::parallel::Direction::Down => (far, near),
    };
    let capture = Capture::start(&receiver.namespace, PORT)?;
    let bulk = Transfers {
        client: (&near.namespace, &own_address.to_string()),
        server: (&far.namespace, &far.ipv4.to_string()),
        flows: cell.flows,
        direction: cell.direction,
        // So that short flows under way have something beside them to their end.
        length: timing.whole() + Duration::from_secs(1),
        multipath: scheme == Scheme::Mptcp,
    }
    .start(cancel)?;
    let counters = || -> Result<[Counters; 2]> {
        Ok([sender.namespace.counters()?, receiver.namespace.counters()?])
    };
    pause(HANDSHAKE + timing.settling, cancel)?;
    let before = counters()?;
    capture.count(true);
    pause(timing.counting / 2, cancel)?;
    if let Some(tunnel) = cell.cut {
        rig.cut(tunnel.into())?;
    }
    pause(timing.counting / 2, cancel)?;
    capture.count(false);
    let after = counters()?;
    if cell.cut.is_some() {
        rig.mend()?;
    }
    let short_mean_ms = short_flows(&rig, seed, timing.beside, cancel)?;
    let noted = bulk.end(timing.settling..timing.settling + timing.counting, cancel)?;
    let arrivals = capture.end()?.context("cannot look at what arrives")?;
    applied.remove()?;
    Ok(Outcome {
        noted,
        arrivals,
        tcp: TcpEvents::between(&before, &after),
        short_mean_ms,
    })
}

fn pause(length: Duration, cancel: &CancellationToken) -> Result<()> {
    let end = Instant::now() + length;
    while Instant::now() < end {
        if cancel.is_cancelled() {
            bail!("cancelled");
        }
        thread::sleep(POLL.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Runs short flows beside; their mean completion time. One that has not completed counts as long as it was
/// waited for.
fn short_flows(
    rig: &Rig,
    seed: u64,
    length: Duration,
    cancel: &CancellationToken,
) -> Result<Option<f64>> {
    let workload = Workload {
        short: ShortFlows {
            // 2 Mbit/s in each direction: beside, not instead of the transfers.
            per_second: 20.0,
            ..ShortFlows::mixed()
        },
        background: None,
        length,
        seed,
    };
    let schedule: Arc<Schedule> = Arc::new(workload.schedule());
    let hosts = [(Role::Client, &rig.client), (Role::Server, &rig.server)];
    let outcomes = traffic::run_between(&hosts, &schedule, DRAIN, cancel, &mut |_| {})?;
    let waited = |at| length.saturating_sub(at) + DRAIN;
    let completions = outcomes
        .iter()
        .map(|it| it.completion.unwrap_or_else(|| waited(it.at)));
    let summary = Summary::new(completions.map(|it| it.as_secs_f64() * 1e3));
    Ok((summary.count() > 0).then(|| summary.mean()))
}

impl TcpEvents {
    /// What has been counted between two readings of the sender's and the receiver's counters.
    fn between(before: &[Counters; 2], after: &[Counters; 2]) -> Self {
        let rise = |end: usize, name: &str| after[end].since(&before[end], name);
        Self {
            retransmits: rise(0, "TcpRetransSegs"),
            spurious_retransmits: rise(0, "TcpExtTCPDSACKRecv") + rise(0, "TcpExtTCPDSACKOfoRecv"),
            paws: rise(1, "TcpExtPAWSEstab"),
            paws_at_sender: rise(0, "TcpExtPAWSEstab"),
            timeouts: rise(0, "TcpExtTCPTimeouts"),
            spurious_timeouts: rise(0, "TcpExtTCPSpuriousRTOs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_those_of_the_end_that_counts_them() {
        let read = |text: &str| -> Counters { text.parse().expect("as the kernel prints it") };
        let names = "TcpExt: TCPDSACKRecv TCPDSACKOfoRecv PAWSEstab TCPTimeouts TCPSpuriousRTOs";
        let counters = |values: &str, segments: u32| {
            read(&format!(
                "{names}\nTcpExt: {values}\nTcp: RetransSegs\nTcp: {segments}\n"
            ))
        };
        let before = [counters("1 1 1 1 1", 1), counters("9 9 9 9 9", 9)];
        let after = [counters("3 2 5 5 2", 11), counters("10 10 11 10 10", 10)];
        assert_eq!(
            TcpEvents::between(&before, &after),
            TcpEvents {
                retransmits: 10,
                spurious_retransmits: 3,
                paws: 2,
                paws_at_sender: 4,
                timeouts: 4,
                spurious_timeouts: 1,
            }
        );
    }
}
