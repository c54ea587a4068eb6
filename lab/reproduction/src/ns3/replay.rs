//! The first difference between the simulator's sender and ns-3's: what ns-3's sender met is told the simulator's,
//! ACK by ACK, and what each sends in answer is compared.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use flow_tcp::{Ack, ONE, Sender, Settings};
use serde::Serialize;

/// Bytes of a full segment, in both.
const MSS: u32 = 1_460;
/// Starts the lines of a trace in what ns-3's program prints.
pub(super) const TRACE: &str = "trace";

/// The cause of what a sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its connection stands.
    Start,
    /// An acknowledgement came: the first segment that is missing, and whether a mark is echoed.
    Ack {
        /// The first segment that is missing.
        missing: u32,
        /// It echoes a mark.
        marked: bool,
    },
    /// The retransmission timer went off.
    Timeout,
}

/// An event at ns-3's sender, and the segments that it sent in answer.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    cause: Cause,
    at_ns: u64,
    sent: Vec<u32>,
    /// State of the sender before it: congestion window in bytes, and ns-3's name for the state.
    window_bytes: u32,
    state: String,
}

/// The first event that senders of both answer differently.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// Name of the case.
    pub case: String,
    /// Events before it, which both answered alike.
    pub alike: usize,
    /// All events of the flow in ns-3.
    pub events: usize,
    /// The event itself; nothing when all were answered alike.
    pub first: Option<Parting>,
}

/// An event and its two answers.
#[derive(Debug, PartialEq, Serialize)]
pub struct Parting {
    /// Time of the event in ns-3, in microseconds.
    pub at_us: f64,
    /// The event that the sender answers.
    pub cause: Cause,
    /// Segments that the simulator's sender sends.
    pub netsim: Vec<u32>,
    /// Segments that ns-3's sent.
    pub ns3: Vec<u32>,
    /// Congestion windows before it, in segments.
    pub windows: (f64, f64),
    /// State of ns-3's sender before it, by its own name.
    pub state: String,
}

/// Reads the lines of a trace, without the word that they start with: event, time in ns, sequence number, mark, window,
/// threshold and state.
pub(super) fn steps<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for line in lines {
        let fields = line.split_whitespace().collect::<Vec<_>>();
        ensure!(
            fields.len() == 7,
            "ns-3 traced {line:?}, which is not seven fields"
        );
        let number = |at: usize| {
            let number = fields[at].parse::<u64>();
            number.with_context(|| format!("ns-3 traced {line:?}, whose field {at} is no number"))
        };
        let [at_ns, sequence, marked, window] = [number(1)?, number(2)?, number(3)?, number(4)?];
        // The SYN has number 0.
        let bytes = u32::try_from(sequence.saturating_sub(1))?;
        let cause = match fields[0] {
            "ack" => Cause::Ack {
                missing: bytes.div_ceil(MSS),
                marked: marked == 1,
            },
            "timeout" => Cause::Timeout,
            "sent" if !steps.is_empty() => {
                let sent = steps.last_mut().map(|it| &mut it.sent);
                sent.into_iter().for_each(|it| it.push(bytes / MSS));
                continue;
            }
            "sent" => Cause::Start,
            other => anyhow::bail!("ns-3 traced {other:?}, which no sender does"),
        };
        steps.push(Step {
            sent: Vec::from_iter((cause == Cause::Start).then_some(bytes / MSS)),
            cause,
            at_ns,
            window_bytes: u32::try_from(window)?,
            state: fields[6].to_owned(),
        });
    }
    ensure!(!steps.is_empty(), "ns-3 traced nothing");
    Ok(steps)
}

/// Tells a sender of so many bytes all that ns-3's met, until it answers otherwise.
pub(super) fn replay(case: &str, steps: &[Step], bytes: u64, settings: &Settings) -> Difference {
    let segments = u32::try_from(bytes.div_ceil(MSS.into())).unwrap_or(u32::MAX);
    let mut sender = Sender::new(segments, settings);
    let mut difference = Difference {
        case: case.to_owned(),
        alike: 0,
        events: steps.len(),
        first: None,
    };
    for step in steps {
        let window = sender.window.size() as f64 / ONE as f64;
        match step.cause {
            Cause::Start => {}
            Cause::Timeout => sender.on_timeout(),
            Cause::Ack { missing, marked } => {
                let ack = Ack {
                    missing,
                    trigger: missing.saturating_sub(1),
                    is_duplicate: false,
                    marked,
                    now_ns: step.at_ns,
                    round_trip_ns: 1,
                };
                sender.on_ack(ack, None);
            }
        }
        let sent: Vec<u32> = std::iter::from_fn(|| sender.poll().map(|it| it.number)).collect();
        if sent != step.sent {
            difference.first = Some(Parting {
                at_us: step.at_ns as f64 / 1e3,
                cause: step.cause,
                netsim: sent,
                ns3: step.sent.clone(),
                windows: (window, f64::from(step.window_bytes) / f64::from(MSS)),
                state: step.state.clone(),
            });
            break;
        }
        difference.alike += 1;
    }
    difference
}

impl Difference {
    /// Says it in a line.
    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{}: ", self.case);
        let Some(first) = &self.first else {
            let _ = write!(
                text,
                "one long flow's {} events are answered alike.",
                self.events
            );
            return text;
        };
        let cause = match first.cause {
            Cause::Start => "the start".to_owned(),
            Cause::Timeout => "a timeout".to_owned(),
            Cause::Ack { missing, marked } => format!(
                "an ACK{} that misses {missing}",
                if marked { " with a mark" } else { "" }
            ),
        };
        let segments = |sent: &[u32]| match sent {
            [] => "nothing".to_owned(),
            _ => sent
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        };
        let _ = write!(
            text,
            "senders part at event {} of {} of one long flow, {cause} at {:.1} us: netsim sends {} (window {:.2}), ns-3 {} ({:.2}, {}).",
            self.alike + 1,
            self.events,
            first.at_us,
            segments(&first.netsim),
            first.windows.0,
            segments(&first.ns3),
            first.windows.1,
            first.state,
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow_tcp::CongestionControl;

    const SETTINGS: Settings = Settings {
        control: CongestionControl::Reno,
        recovery: flow_tcp::LossRecovery::NewReno,
        initial_window: 2,
        max_window: 4096,
        dupack_threshold: 3,
        excludes_limited_transmit: false,
        paws: true,
        rto_min_us: 10_000,
        handshake: false,
        dctcp_gain_shift: 4,
        dctcp_initial_alpha: 1.0,
    };
    const TWO: &str = "sent 100 1 0 2920 4294967295 CA_OPEN\nsent 100 1461 0 2920 4294967295 CA_OPEN\n\
        ack 900 1461 0 2920 4294967295 CA_OPEN\nsent 900 2921 0 4380 4294967295 CA_OPEN\n";

    #[test]
    fn answers_are_alike_until_one_sends_what_the_other_does_not() {
        let alike = format!("{TWO}sent 900 4381 0 4380 4294967295 CA_OPEN\n");
        let both = steps(alike.lines()).expect("it is right");
        assert_eq!(both.len(), 2);
        assert_eq!(both[1].sent, [2, 3]);
        let found = replay("case", &both, 10_000, &SETTINGS);
        assert_eq!((found.alike, &found.first), (2, &None));
        assert!(found.to_text().contains("2 events are answered alike"));

        // Of several that differ it is the first.
        let fewer = format!("{TWO}ack 990 2921 0 4380 4294967295 CA_DISORDER\n");
        let other = format!("{TWO}sent 900 5841 0 4380 4294967295 CA_OPEN\n");
        for (trace, events, ns3) in [(fewer, 3, vec![2]), (other, 2, vec![2, 4])] {
            let found = replay(
                "case",
                &steps(trace.lines()).expect("right"),
                10_000,
                &SETTINGS,
            );
            assert_eq!((found.alike, found.events), (1, events));
            let parting = Parting {
                at_us: 0.9,
                cause: Cause::Ack {
                    missing: 1,
                    marked: false,
                },
                netsim: vec![2, 3],
                ns3,
                windows: (2.0, 2.0),
                state: "CA_OPEN".to_owned(),
            };
            assert_eq!(found.first, Some(parting));
        }
    }

    #[test]
    fn the_first_difference_is_said_in_a_line() {
        let of = |cause, netsim: &[u32], ns3: &[u32]| {
            let first = Parting {
                at_us: 12.34,
                cause,
                netsim: netsim.to_vec(),
                ns3: ns3.to_vec(),
                windows: (2.5, 3.75),
                state: "CA_LOSS".to_owned(),
            };
            let difference = Difference {
                case: "case".to_owned(),
                alike: 6,
                events: 9,
                first: Some(first),
            };
            difference.to_text()
        };
        let ack = |marked| Cause::Ack { missing: 4, marked };
        assert_eq!(
            of(ack(true), &[4, 7], &[]),
            "case: senders part at event 7 of 9 of one long flow, an ACK with a mark that misses 4 at 12.3 us: \
             netsim sends 4, 7 (window 2.50), ns-3 nothing (3.75, CA_LOSS)."
        );
        assert!(of(ack(false), &[], &[8]).contains(
            "an ACK that misses 4 at 12.3 us: netsim sends nothing (window 2.50), ns-3 8 (3.75"
        ));
        assert!(of(Cause::Timeout, &[], &[8]).contains("a timeout at"));
        assert!(of(Cause::Start, &[], &[8]).contains("the start at"));
    }

    /// Of two windows the one that a mark has halved lets nothing go.
    #[test]
    fn marks_are_told_too() {
        let of = |marked, sent: &str| {
            let trace = format!(
                "sent 100 1 0 2920 9 CA_OPEN\nsent 100 1461 0 2920 9 CA_OPEN\nack 900 1461 {marked} 2920 9 CA_OPEN\n{sent}"
            );
            let settings = Settings {
                control: CongestionControl::Dctcp,
                ..SETTINGS
            };
            let steps = steps(trace.lines()).expect("it is right");
            replay("case", &steps, 10_000, &settings).first
        };
        assert_eq!(of(1, ""), None);
        let two = "sent 900 2921 0 4380 9 CA_OPEN\nsent 900 4381 0 4380 9 CA_OPEN\n";
        assert_eq!(of(0, two), None);
    }

    #[test]
    fn the_last_segment_and_timeouts_are_told_too() {
        let trace = "sent 1 1 0 2920 9 CA_OPEN\nsent 1 1461 0 2920 9 CA_OPEN\ntimeout 5 1 0 2920 9 CA_OPEN\n\
            sent 5 1 0 1460 9 CA_LOSS\nack 9 2001 1 1460 9 CA_LOSS\n";
        let steps = steps(trace.lines()).expect("it is right");
        let causes = steps.iter().map(|it| it.cause).collect::<Vec<_>>();
        let ack = Cause::Ack {
            missing: 2,
            marked: true,
        };
        assert_eq!(causes, [Cause::Start, Cause::Timeout, ack]);
        assert_eq!(replay("case", &steps, 2_000, &SETTINGS).first, None);
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for wrong in [
            "",
            "sent 1 1 0 2920 9",
            "ack x 1 0 1 1 CA_OPEN",
            "flew 1 1 0 1 1 CA_OPEN",
        ] {
            assert!(steps(wrong.lines()).is_err(), "{wrong:?}");
        }
    }
}
