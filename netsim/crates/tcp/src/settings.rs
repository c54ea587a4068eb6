//! Settings of a sender.

/// The settings of a sender: congestion control, loss recovery, window and timeout.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Congestion control: it decides the size of the window.
    pub control: CongestionControl,
    /// Loss recovery: it decides which segments to retransmit.
    pub recovery: LossRecovery,
    /// Segments sent at once at the start.
    pub initial_window: u32,
    /// No window grows beyond this, in segments.
    pub max_window: u32,
    /// Duplicate ACKs that are taken for a loss; RACK-TLP has its own rule.
    pub dupack_threshold: u32,
    /// A loss halves what was in flight before limited transmit, as RFC 5681 §3.2 step 2 has it; without, what
    /// that has sent is halved too.
    pub excludes_limited_transmit: bool,
    /// With RACK-TLP a receiver discards what its time stamp makes too old (PAWS, RFC 7323 §5): what a retransmission has
    /// overtaken that came in order.
    pub paws: bool,
    /// The least retransmission timeout, in microseconds.
    pub rto_min_us: u64,
    /// The first segment is a SYN, which goes alone: the rest follows when it is acknowledged. It is one of the
    /// segments that a sender has.
    pub handshake: bool,
    /// DCTCP's estimation gain is 2 to the minus this.
    pub dctcp_gain_shift: u32,
    /// DCTCP's first estimate of the share of packets that are marked (RFC 8257 §3.3).
    pub dctcp_initial_alpha: f64,
}

impl Default for Settings {
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
            dctcp_gain_shift: 4,
            dctcp_initial_alpha: 1.0,
        }
    }
}

/// The congestion control of a sender: Reno, DCTCP, CUBIC, or a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// Slow start and congestion avoidance (RFC 5681); half the window at a loss.
    Reno,
    /// Reno that follows the share of marked packets (RFC 8257).
    Dctcp,
    /// CUBIC (RFC 9438) with HyStart, which ends slow start before queues are full: what Linux does.
    Cubic,
    /// No control: a window that stays as it is.
    Fixed,
}

/// The loss recovery of a sender: fast retransmit by duplicate ACKs (NewReno), SACK, or RACK-TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossRecovery {
    /// By duplicate and partial ACKs alone (RFC 6582).
    NewReno,
    /// With selective acknowledgements (RFC 6675).
    Sack,
    /// By time, with a probe of the tail (RACK-TLP, RFC 8985), and with reductions undone that prove needless: what
    /// Linux does.
    Rack,
}
