//! Watches a transfer: whether it gets anywhere, and how far it has got.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use cloudburst::{Endpoint, PathReport, PeerId};
use indicatif::ProgressBar;
use serde_json::json;

use crate::progress::{Output, PathTotals, bits_per_s, in_seconds, seconds};

/// For how long nothing may arrive.
pub(super) const STALLED: Duration = Duration::from_secs(10);

/// Follows what arrives: a link may be as slow as it likes, as long as something does.
pub(super) struct Watch {
    /// Datagrams that the peer has reported.
    delivered: u64,
    changed_at: Instant,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            delivered: 0,
            changed_at: Instant::now(),
        }
    }

    pub(super) fn reset(&mut self) {
        self.changed_at = Instant::now();
    }

    pub(super) fn was_heard(&self) -> bool {
        self.delivered > 0
    }

    /// Takes what paths report. Returns for how long nothing has arrived by any.
    pub(super) fn see(&mut self, paths: &[PathReport]) -> Duration {
        let delivered = paths.iter().map(|path| path.delivered).sum();
        if delivered != self.delivered {
            self.delivered = delivered;
            self.reset();
        }
        self.changed_at.elapsed()
    }
}

/// Says why a transfer that stands still has ended.
pub(super) fn stalled(bytes: u64, was_heard: bool) -> String {
    let seconds = STALLED.as_secs();
    if was_heard {
        format!("nothing has reached the peer for {seconds} s, after {bytes} bytes were stored")
    } else {
        format!("nothing was heard of the peer for {seconds} s: is it there, and do the keys fit?")
    }
}

/// Shows how far a transfer has got.
pub(super) struct Meter {
    output: Output,
    pub(super) bar: ProgressBar,
    total: Option<u64>,
    /// Bytes that the peer has taken.
    pub(super) bytes: Cell<u64>,
}

impl Meter {
    pub(super) fn new(output: Output, total: Option<u64>) -> Self {
        let style = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left, {msg}";
        let bar = output.bar(total, style);
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self {
            output,
            bar,
            total,
            bytes: Cell::new(0),
        }
    }

    /// The peer has taken more.
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
        self.bar.set_position(self.bytes.get());
    }

    /// Tells each second how far it has got, until that fails.
    pub(super) async fn run(&self, endpoint: &Endpoint, peer: PeerId) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut seconds = seconds().await;
        let (mut told_at, mut told_bytes, mut told_busy) = (start, 0, 0);
        loop {
            seconds.tick().await;
            let paths = PathTotals::of(&endpoint.paths(peer).await?);
            self.bar.set_message(paths.words());
            let busy = endpoint.statistics().await?.protocol.busy_received.total();
            let (now, bytes) = (Instant::now(), self.bytes.get());
            let mut progress = json!({
                "seconds": in_seconds(now - start),
                "bytes": bytes,
                "total_bytes": self.total,
                "goodput_bits_per_s": bits_per_s(bytes - told_bytes, now - told_at),
                "busy": busy - told_busy,
            });
            (told_at, told_bytes, told_busy) = (now, bytes, busy);
            paths.add_to(&mut progress);
            self.output.print_progress(&progress)?;
        }
    }
}
