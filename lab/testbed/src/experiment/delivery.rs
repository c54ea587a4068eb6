//! Watches whether tunnels deliver their rate while they have something to send.
//!
//! A shaper whose timer is late loses rate, and a machine that is too slow never lets a queue form:
//! either way it is not the link that is measured.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::net::if_::if_nametoindex;
use splitter_netlink::{RootQueue, root_queues};

use crate::{namespace::NamespaceError, topology::Topology};

/// How often queues are looked at. A queue of 250 kB lasts 20 ms at 100 Mbit/s.
const INTERVAL: Duration = Duration::from_millis(5);
/// A look that took longer than this does not tell when it was.
const PRECISE: Duration = Duration::from_millis(1);
/// What says nothing about a rate: the first packets after a pause leave at once.
const LEAST_QUEUED: Duration = Duration::from_millis(200);

/// Counts what the tunnels sent while they had a queue, summed over all their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delivery {
    /// How long there was a queue.
    pub queued: Duration,
    /// What the tunnels' rates come to in that time, in bytes.
    pub due_bytes: f64,
    /// What they sent in that time.
    pub sent_bytes: u64,
}

impl Delivery {
    /// The share of their rate that the tunnels lost, 0 to 1; `None` where they hardly ever had a
    /// queue, so that the link was not the bottleneck.
    pub fn shortfall(&self) -> Option<f64> {
        let lost = 1.0 - self.sent_bytes as f64 / self.due_bytes;
        (self.queued >= LEAST_QUEUED).then(|| lost.max(0.0))
    }
}

impl std::ops::AddAssign for Delivery {
    fn add_assign(&mut self, other: Self) {
        self.queued += other.queued;
        self.due_bytes += other.due_bytes;
        self.sent_bytes += other.sent_bytes;
    }
}

/// Looks at the tunnels' queues until it is ended.
pub(super) struct DeliveryWatch {
    stop: Arc<AtomicBool>,
    borders: Vec<JoinHandle<Result<io::Result<Delivery>, NamespaceError>>>,
}

impl DeliveryWatch {
    pub(super) fn start(topology: &Topology) -> Result<Self, NamespaceError> {
        let stop = Arc::new(AtomicBool::new(false));
        let tunnels = topology.shaped_tunnels();
        let mut borders = Vec::new();
        for border in &topology.borders {
            let (stop, tunnels) = (Arc::clone(&stop), tunnels.clone());
            let watching = border.namespace.spawn(move || watch(&tunnels, &stop))?;
            borders.push(watching);
        }
        Ok(Self { stop, borders })
    }

    /// Sums up all borders. A kernel that does not tell leaves nothing, as if there were no queue.
    pub(super) fn end(mut self) -> Delivery {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Delivery::default();
        for border in self.borders.drain(..) {
            if let Ok(Ok(Ok(delivery))) = border.join() {
                all += delivery;
            }
        }
        all
    }
}

impl Drop for DeliveryWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Watches the tunnels of the border whose namespace this thread is in.
fn watch(tunnels: &[(String, u32)], stop: &AtomicBool) -> io::Result<Delivery> {
    let mut meters = Vec::new();
    for (device, mbit) in tunnels {
        meters.push(TunnelMeter::new(if_nametoindex(device.as_str())?, *mbit));
    }
    while !stop.load(Ordering::Relaxed) {
        let at = Instant::now();
        let queues = root_queues()?;
        if at.elapsed() < PRECISE {
            for meter in &mut meters {
                meter.look(at, &queues);
            }
        }
        thread::sleep(INTERVAL);
    }
    let mut all = Delivery::default();
    meters.into_iter().for_each(|it| all += it.delivery);
    Ok(all)
}

/// Follows one end of a tunnel.
struct TunnelMeter {
    interface: u32,
    bytes_per_second: f64,
    before: Option<(Instant, RootQueue)>,
    delivery: Delivery,
}

impl TunnelMeter {
    fn new(interface: u32, mbit: u32) -> Self {
        Self {
            interface,
            bytes_per_second: f64::from(mbit) * 1e6 / 8.0,
            before: None,
            delivery: Delivery::default(),
        }
    }

    /// Counts the time since the look before, if what waited then was enough to fill it: only then
    /// was there something to send all the time.
    fn look(&mut self, at: Instant, queues: &[RootQueue]) {
        let Some(now) = queues.iter().find(|it| it.interface == self.interface) else {
            self.before = None;
            return;
        };
        let Some((earlier, before)) = self.before.replace((at, *now)) else {
            return;
        };
        // It counts from zero again where it was replaced.
        let Some(sent_bytes) = now.sent_bytes.checked_sub(before.sent_bytes) else {
            return;
        };
        let queued = at - earlier;
        let due_bytes = self.bytes_per_second * queued.as_secs_f64();
        if f64::from(before.backlog_bytes) >= due_bytes {
            self.delivery += Delivery {
                queued,
                due_bytes,
                sent_bytes,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a tunnel of 80 Mbit/s comes to: every 5 ms, in which it can send 50,000 bytes, it is
    /// seen with so many bytes waiting and so many sent since the look before.
    fn delivery(looks: &[(u32, u64)]) -> Delivery {
        let mut meter = TunnelMeter::new(7, 80);
        let (mut at, mut sent_bytes) = (Instant::now(), 0);
        for &(backlog_bytes, sent) in looks {
            sent_bytes += sent;
            let own = RootQueue {
                interface: 7,
                sent_bytes,
                backlog_bytes,
                backlog_packets: backlog_bytes.div_ceil(1_500),
                drops: 0,
                ecn_marks: 0,
            };
            let other = RootQueue {
                interface: 8,
                sent_bytes: 0,
                backlog_bytes: 0,
                backlog_packets: 0,
                drops: 0,
                ecn_marks: 0,
            };
            meter.look(at, &[other, own]);
            at += INTERVAL;
        }
        meter.delivery
    }

    #[test]
    fn tunnel_that_keeps_its_rate_has_no_shortfall() {
        let full = delivery(&[(100_000, 50_000); 101]);
        assert_eq!(full.queued, INTERVAL * 100);
        assert!(full.shortfall().is_some_and(|it| it < 1e-9), "{full:?}");
    }

    #[test]
    fn rate_that_is_lost_while_packets_wait_is_shortfall() {
        let slow = delivery(&[(100_000, 45_000); 101]);
        let shortfall = slow.shortfall().expect("half a second of queue");
        assert!((shortfall - 0.1).abs() < 1e-9, "{shortfall}");
    }

    #[test]
    fn time_in_which_the_queue_may_have_run_dry_does_not_count() {
        let dry = delivery(&[(49_000, 10_000); 101]);
        assert_eq!(dry, Delivery::default());
        assert_eq!(dry.shortfall(), None);
        let short = delivery(&[(100_000, 45_000); 20]);
        assert_eq!(short.shortfall(), None, "95 ms say nothing");
    }
}
