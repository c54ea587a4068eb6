//! How much of the machine was missing while a claim ran.

use std::{
    fmt, fs, thread,
    time::{Duration, Instant},
};

use super::witness::Witness;
use crate::cpu;

/// How much of the machine may be missing for a claim to be decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The largest share of the processor time that the host may have taken away, 0 to 1.
    pub stolen: f64,
    /// The largest share of the time that some task may have waited for a processor, 0 to 1.
    pub pressure: f64,
    /// The longest by which an emulated link's shaper may have been late once.
    pub late: Duration,
    /// The largest share of its rate that an emulated link may have lost, 0 to 1.
    pub shortfall: f64,
    /// The largest share of the processor time that may have been used, 0 to 1.
    pub busy: f64,
    /// The most packets for which a processor's input queue may have had no room.
    pub dropped: u64,
}

impl Bounds {
    /// Suits claims about times of a second, which a pause of a tenth can break.
    pub const DEFAULT: Self = Self {
        stolen: 0.02,
        pressure: 0.5,
        late: Duration::from_millis(100),
        shortfall: 0.1,
        busy: 1.0,
        dropped: u64::MAX,
    };

    /// Suits claims about the order or spacing of packets, which a pause of the length of a queue
    /// can break.
    pub const PACKETS: Self = Self {
        stolen: 0.01,
        pressure: 0.3,
        late: Duration::from_millis(2),
        shortfall: 0.02,
        busy: 1.0,
        dropped: u64::MAX,
    };

    /// Suits a machine on which nothing of ours runs yet but the witness.
    ///
    /// A tenth of a processor is what a desktop does beside; more would be missing in the comparison.
    pub const IDLE: Self = Self {
        stolen: 0.02,
        pressure: 0.2,
        late: Duration::from_millis(200),
        shortfall: 0.01,
        busy: 0.2,
        dropped: 0,
    };

    /// Suits a comparison of completion times, in which the links are to be the bottleneck.
    ///
    /// A pause of a hundredth of the time decides a 99th percentile. The traffic itself keeps tasks
    /// waiting, so pressure says little; processors that are never idle are the bottleneck.
    pub const COMPARISON: Self = Self {
        stolen: 0.02,
        pressure: 0.6,
        late: Duration::from_millis(200),
        shortfall: 0.01,
        busy: 0.9,
        dropped: 0,
    };
}

/// Measures what the machine lacked while a claim ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strain {
    /// How long it was watched.
    pub elapsed: Duration,
    /// The share of the processor time that the host took away.
    pub stolen: f64,
    /// The share of the time that some task waited for a processor (PSI `some`), where the kernel
    /// tells.
    pub pressure: Option<f64>,
    /// The longest by which the witness' shaper was late, where a witness could be had.
    pub late: Option<Duration>,
    /// The share of its rate that the witness' shaper lost, where a witness could be had.
    pub shortfall: Option<f64>,
    /// The share of the processor time that was used, by whomever.
    pub busy: f64,
    /// Packets for which a processor's input queue had no room, in any network namespace.
    pub dropped: u64,
}

impl Strain {
    /// Stands for a machine that lacked nothing.
    pub const NONE: Self = Self {
        elapsed: Duration::ZERO,
        stolen: 0.0,
        pressure: None,
        late: None,
        shortfall: None,
        busy: 0.0,
        dropped: 0,
    };

    /// Names what exceeded its bound, if anything did.
    pub fn exceeded(&self, bounds: &Bounds) -> Option<String> {
        let mut excesses = Vec::new();
        let mut check_share = |share: Option<f64>, bound: f64, of: &str| {
            if let Some(share) = share.filter(|share| *share > bound) {
                let (share, bound) = (share * 100.0, bound * 100.0);
                excesses.push(format!("{share:.1} % {of} (bound {bound:.1} %)"));
            }
        };
        check_share(
            Some(self.stolen),
            bounds.stolen,
            "of the processor time was stolen",
        );
        check_share(
            self.pressure,
            bounds.pressure,
            "of the time tasks waited for a processor",
        );
        check_share(
            self.shortfall,
            bounds.shortfall,
            "of its rate was lost by a shaper",
        );
        check_share(
            Some(self.busy),
            bounds.busy,
            "of the processor time was used",
        );
        if let Some(late) = self.late.filter(|late| *late > bounds.late) {
            let bound = bounds.late;
            excesses.push(format!("a shaper was {late:.1?} late (bound {bound:?})"));
        }
        if self.dropped > bounds.dropped {
            let (dropped, bound) = (self.dropped, bounds.dropped);
            excesses.push(format!(
                "{dropped} packets found no room in a processor's input queue (bound {bound})"
            ));
        }
        (!excesses.is_empty()).then(|| excesses.join(", "))
    }
}

impl fmt::Display for Strain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: Option<f64>| match share {
            Some(share) => format!("{:.1} %", share * 100.0),
            None => "unknown".to_owned(),
        };
        write!(
            f,
            "{:.1?} watched: stolen {}, pressure {}, shaper late by {}, short by {}, busy {}, {} dropped",
            self.elapsed,
            percent(Some(self.stolen)),
            percent(self.pressure),
            self.late
                .map_or("unknown".to_owned(), |late| format!("{late:.1?}")),
            percent(self.shortfall),
            percent(Some(self.busy)),
            self.dropped,
        )
    }
}

/// Watches the machine until it is ended.
pub struct Meter {
    begun: Instant,
    stolen: Duration,
    busy: Duration,
    pressure: Option<Duration>,
    dropped: u64,
    witness: Option<Witness>,
}

impl Meter {
    /// Begins to watch the machine.
    pub fn start() -> Self {
        let witness = Witness::start();
        Self {
            begun: Instant::now(),
            stolen: cpu::stolen().unwrap_or_default(),
            busy: cpu::busy().unwrap_or_default(),
            pressure: pressure(),
            dropped: cpu::dropped(),
            witness,
        }
    }

    /// Ends, and says what the machine lacked.
    pub fn end(self) -> Strain {
        let elapsed = self.begun.elapsed();
        let stolen = cpu::stolen().unwrap_or_default();
        let stolen = stolen.saturating_sub(self.stolen);
        let busy = cpu::busy().unwrap_or_default().saturating_sub(self.busy);
        let now = pressure();
        let waited = now
            .zip(self.pressure)
            .map(|(now, before)| now.saturating_sub(before));
        let dropped = cpu::dropped().saturating_sub(self.dropped);
        let spacing = self.witness.and_then(Witness::end);
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let seconds = elapsed.as_secs_f64();
        Strain {
            elapsed,
            // A tick more or less says nothing.
            stolen: stolen
                .saturating_sub(Duration::from_millis(10))
                .as_secs_f64()
                / (seconds * cpus as f64),
            pressure: waited.map(|waited| waited.as_secs_f64() / seconds),
            late: spacing.map(|it| it.late),
            shortfall: spacing.map(|it| it.shortfall),
            busy: busy.as_secs_f64() / (seconds * cpus as f64),
            dropped,
        }
    }
}

/// The time since boot in which some task was kept waiting for a processor.
///
/// The kernel's Documentation/accounting/psi.rst: `some avg10=0.00 ... total=N` in microseconds.
fn pressure() -> Option<Duration> {
    parse_pressure(&fs::read_to_string("/proc/pressure/cpu").ok()?)
}

fn parse_pressure(text: &str) -> Option<Duration> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = line.rsplit_once("total=")?;
    total.trim().parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_the_total_of_some() {
        let text = "some avg10=16.89 avg60=35.39 avg300=44.92 total=725599866\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(
            parse_pressure(text),
            Some(Duration::from_micros(725_599_866))
        );
        assert_eq!(parse_pressure("none"), None);
    }

    #[test]
    fn each_bound_is_named_with_what_exceeded_it() {
        let bounds = Bounds::PACKETS;
        assert_eq!(Strain::NONE.exceeded(&bounds), None);
        let all = Strain {
            elapsed: Duration::from_secs(1),
            stolen: 0.5,
            pressure: Some(0.9),
            late: Some(Duration::from_millis(30)),
            shortfall: Some(0.25),
            busy: 1.1,
            dropped: 3,
        };
        let bounds = Bounds {
            dropped: 0,
            ..bounds
        };
        let reported = all.exceeded(&bounds).expect("all are exceeded");
        for part in [
            "50.0 %",
            "90.0 %",
            "30.0ms late (bound 2ms)",
            "25.0 %",
            "110.0 %",
            "3 packets found no room",
        ] {
            assert!(reported.contains(part), "{reported}");
        }
        let just = Strain {
            late: Some(bounds.late),
            shortfall: Some(bounds.shortfall),
            ..Strain::NONE
        };
        assert_eq!(just.exceeded(&bounds), None);
    }
}
