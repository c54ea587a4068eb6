//! Keys of `[transport]`: congestion control, loss recovery, timeouts and priorities.

use serde::{Deserialize, Serialize};

use super::{CloudburstSettings, ExpressPassSettings};

/// The transport of hosts: congestion control, loss recovery, retransmission timeout, priorities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportSettings {
    /// Congestion control: it decides the size of the window.
    pub control: CongestionControl,
    /// Loss recovery: it decides which segments to retransmit.
    pub recovery: LossRecovery,
    /// Segments sent at once at the start.
    pub initial_window: u32,
    /// No window grows beyond this, in segments.
    pub max_window: u32,
    /// Duplicate ACKs that are taken for a loss.
    pub dupack_threshold: u32,
    /// A loss halves what was in flight before limited transmit (RFC 5681 §3.2 step 2); without, what that has
    /// sent is halved too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub excludes_limited_transmit: bool,
    /// With `rack` receivers discard what was sent before a retransmission that has come in order (PAWS, RFC 7323 §5).
    #[serde(skip_serializing_if = "is_true")]
    pub paws: bool,
    /// The least retransmission timeout, in microseconds.
    pub rto_min_us: u64,
    /// Connections begin with a handshake, which completion times include.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub handshake: bool,
    /// Bytes of data in a full segment.
    pub mss_bytes: u16,
    /// Bytes of headers on each packet; an ACK has nothing else.
    pub header_bytes: u16,
    /// DCTCP's estimation gain is 2 to the minus this.
    pub dctcp_gain_shift: u32,
    /// DCTCP's first estimate of the share of packets that are marked: with 1 a flow's first mark
    /// halves its window (RFC 8257 §3.3), with 0 it only ends slow start (ns-2).
    pub dctcp_initial_alpha: f64,
    /// Priorities by what a flow has sent so far: bytes at which it falls to the next (PIAS).
    pub pias_bytes: Vec<u64>,
    /// Copies of each message that is sent over different paths (RepFlow); 1 is none.
    pub replicas: u8,
    /// Only messages of at most so many bytes are replicated.
    pub replicate_bytes: u64,
    /// Subflows with coupled windows (MPTCP); 1 is plain TCP.
    pub subflows: u8,
    /// Round trips of the first subflow until the others join; 0 is all at once.
    pub join_round_trips: u8,
    /// Added to the priority of the traffic.
    pub priority: u8,
    /// A bound on what a host sends by this transport (QJump).
    pub pace: Option<PaceSettings>,
    /// Settings of the control `cloudburst`, which takes nothing else here but `priority`.
    pub cloudburst: CloudburstSettings,
    /// Settings of the control `expresspass`.
    pub expresspass: ExpressPassSettings,
}

impl TransportSettings {
    /// Returns the settings that a sender of TCP goes by.
    pub(crate) fn sender(&self) -> flow_tcp::Settings {
        flow_tcp::Settings {
            control: match self.control {
                CongestionControl::Reno => flow_tcp::CongestionControl::Reno,
                CongestionControl::Dctcp => flow_tcp::CongestionControl::Dctcp,
                CongestionControl::Cubic => flow_tcp::CongestionControl::Cubic,
                // Endpoints of Cloudburst have no senders, and flows with credits no windows.
                CongestionControl::Fixed
                | CongestionControl::Cloudburst
                | CongestionControl::ExpressPass => flow_tcp::CongestionControl::Fixed,
            },
            recovery: match self.recovery {
                LossRecovery::NewReno => flow_tcp::LossRecovery::NewReno,
                LossRecovery::Sack => flow_tcp::LossRecovery::Sack,
                LossRecovery::Rack => flow_tcp::LossRecovery::Rack,
            },
            initial_window: self.initial_window,
            max_window: self.max_window,
            dupack_threshold: self.dupack_threshold,
            excludes_limited_transmit: self.excludes_limited_transmit,
            paws: self.paws,
            rto_min_us: self.rto_min_us,
            handshake: false,
            dctcp_gain_shift: self.dctcp_gain_shift,
            dctcp_initial_alpha: self.dctcp_initial_alpha,
        }
    }
}

impl Default for TransportSettings {
    /// DCTCP in the papers' ns-2 mode.
    fn default() -> Self {
        Self {
            control: CongestionControl::Dctcp,
            recovery: LossRecovery::NewReno,
            initial_window: 10,
            max_window: 4096,
            dupack_threshold: 3,
            excludes_limited_transmit: false,
            paws: true,
            rto_min_us: 10_000,
            handshake: false,
            mss_bytes: 1460,
            header_bytes: 40,
            dctcp_gain_shift: 4,
            dctcp_initial_alpha: 1.0,
            pias_bytes: Vec::new(),
            replicas: 1,
            replicate_bytes: 100_000,
            subflows: 1,
            join_round_trips: 0,
            priority: 0,
            pace: None,
            cloudburst: CloudburstSettings::default(),
            expresspass: ExpressPassSettings::default(),
        }
    }
}

fn is_true(value: &bool) -> bool {
    *value
}

/// A bound on what a host sends, all its flows together, ACKs not counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaceSettings {
    /// So many bytes, headers included,
    pub bytes: u64,
    /// in each stretch of so many microseconds.
    pub every_us: f64,
}

/// Congestion control of flows: Reno, DCTCP, CUBIC, a fixed window, credits, or Cloudburst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CongestionControl {
    /// Slow start and congestion avoidance (RFC 5681); half the window at a loss.
    Reno,
    /// Reno that follows the share of marked packets (RFC 8257).
    Dctcp,
    /// CUBIC (RFC 9438) with HyStart, without ECN: what Linux does.
    Cubic,
    /// No control: a window that stays as it is (pFabric's at line rate).
    Fixed,
    /// No flows at all: Cloudburst's state machine, which sends coded datagrams over several paths.
    Cloudburst,
    /// No window: receivers send credits, and flows one segment for each (ExpressPass).
    #[serde(rename = "expresspass")]
    ExpressPass,
}

/// Loss recovery of flows: fast retransmit by duplicate ACKs (NewReno), SACK, or RACK-TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossRecovery {
    /// By duplicate and partial ACKs alone (RFC 6582): the papers' ns-2 mode.
    #[serde(rename = "newreno")]
    NewReno,
    /// With selective acknowledgements (RFC 6675).
    Sack,
    /// By time, with a probe of the tail (RACK-TLP, RFC 8985), and with reductions undone that prove needless: what
    /// Linux does.
    Rack,
}
