//! Keys of `[port]` and `[host_port]`: buffers, ECN marking, queueing disciplines.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A port: its buffer, its ECN marking, and the queueing discipline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortSettings {
    /// Bytes that the port holds; what comes on top is dropped.
    pub buffer_bytes: u32,
    /// What the port holds as the time that it takes to send, in microseconds, in the place of `buffer_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_us: Option<f64>,
    /// Bytes that leave at once after a pause, ahead of the rate: a token bucket's, of the discipline `fifo` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_bytes: Option<u32>,
    /// Packets that find more bytes than this waiting are marked (ECN); without it none are.
    pub ecn_bytes: Option<u32>,
    /// The order in which packets leave.
    pub discipline: Discipline,
    /// Queues of the disciplines `priority` and `wrr`, the most urgent first.
    pub queue: Vec<QueueSettings>,
    /// A buffer that all ports of a switch share.
    pub shared: Option<SharedBufferSettings>,
    /// A queue of its own for credits, with a limit of their rate: what `control = "expresspass"` takes of ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit: Option<CreditQueueSettings>,
}

impl PortSettings {
    /// No buffer that is stated as a time holds less: the largest packet.
    const LEAST_BUFFER_BYTES: f64 = 9_216.0;

    /// Returns the settings of a port of that rate, whose buffer is one of bytes.
    pub(crate) fn at_rate(&self, bits_per_second: u64) -> Cow<'_, Self> {
        let Some(buffer_us) = self.buffer_us else {
            return Cow::Borrowed(self);
        };
        let bytes = bits_per_second as f64 / 8e6 * buffer_us;
        Cow::Owned(Self {
            buffer_bytes: bytes.max(Self::LEAST_BUFFER_BYTES) as u32,
            ..self.clone()
        })
    }
}

impl Default for PortSettings {
    /// 250 packets of 1,500 bytes, marked above 65, first come first served.
    fn default() -> Self {
        Self {
            buffer_bytes: 375_000,
            buffer_us: None,
            burst_bytes: None,
            ecn_bytes: Some(97_500),
            discipline: Discipline::Fifo,
            queue: Vec::new(),
            shared: None,
            credit: None,
        }
    }
}

/// The order in which packets leave a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// First come, first served.
    #[default]
    Fifo,
    /// Strict priority among queues.
    Priority,
    /// Deficit round robin among queues, by weight.
    Wrr,
    /// Shortest remaining flow first; the longest remaining is dropped first (pFabric).
    Pfabric,
}

/// One queue of a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSettings {
    /// Share of the port under `wrr`.
    pub weight: u32,
    /// Bytes that the queue holds; without it as many as the port.
    pub buffer_bytes: Option<u32>,
    /// Marks above this; without it the queue does not mark.
    pub ecn_bytes: Option<u32>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            weight: 1,
            buffer_bytes: None,
            ecn_bytes: None,
        }
    }
}

/// A buffer shared by the ports of a switch: a port may hold `alpha` times what is free (Choudhury
/// and Hahne 1998).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedBufferSettings {
    /// Bytes that the switch holds.
    pub buffer_bytes: u64,
    /// Share of what is free that a port may take.
    #[serde(default = "one_f64")]
    pub alpha: f64,
}

fn one_f64() -> f64 {
    1.0
}

/// A port's queue for credits (ExpressPass): credits leave before data, but no faster than stated, and what does
/// not fit is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CreditQueueSettings {
    /// Share of the port's rate that credits may take.
    pub share: f64,
    /// Rate of credits in Mbit/s, whatever that of the port, in the place of `share`.
    pub mbps: Option<f64>,
    /// Bytes that the queue holds.
    pub buffer_bytes: u32,
    /// Bytes of credits that may leave in a row after a pause.
    pub burst_bytes: u32,
}

impl Default for CreditQueueSettings {
    /// As many credits as let full frames of data fill what they leave of the link: 84 bytes of 84 + 1,538, each with
    /// preamble and gap. Eight of them wait.
    fn default() -> Self {
        Self {
            share: 84.0 / (84.0 + 1538.0),
            mbps: None,
            buffer_bytes: 8 * 84,
            burst_bytes: 2 * 84,
        }
    }
}
