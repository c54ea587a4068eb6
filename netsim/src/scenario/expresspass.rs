//! Keys of `[transport.expresspass]`: credits and the control of their rate.

use serde::{Deserialize, Serialize};

/// Settings of `control = "expresspass"`: receivers send credits, and senders a segment for each (Cho, Jang and Han,
/// SIGCOMM 2017).
///
/// Names are those of its Algorithm 1, by which a receiver follows the share of credits that get lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpressPassSettings {
    /// Rate at which a flow's credits begin, of the most that its receiver's port lets pass.
    pub alpha: f64,
    /// Aggressiveness *w* at first: the part of the way to the greatest rate that an increase goes.
    pub w_init: f64,
    /// The least *w*, to which each decrease halves it.
    pub w_min: f64,
    /// The greatest *w*, half of the way to which each increase after another goes.
    pub w_max: f64,
    /// Share of credits whose loss is no reason to slow down.
    pub target_loss: f64,
    /// Pauses between credits are drawn from this much shorter to this much longer, as a share: credits of several flows
    /// that come in step would have one flow's dropped again and again.
    pub jitter: f64,
    /// Bytes of a credit, and of what asks for them and stops them, on the wire.
    pub credit_bytes: u16,
    /// A sender that has heard nothing for so long asks again, in microseconds; so long after it has stopped credits, one
    /// that comes has it stop them again.
    pub timeout_us: f64,
}

impl Default for ExpressPassSettings {
    /// A target of a tenth. Of the authors' simulations of large fabrics are all values of *w*, the jitter and the timeout;
    /// `alpha` is as careful as `w_init`, where these have flows begin at a half, and short ones at less.
    fn default() -> Self {
        Self {
            alpha: 1.0 / 16.0,
            w_init: 1.0 / 16.0,
            w_min: 0.01,
            w_max: 0.5,
            target_loss: 0.1,
            jitter: 0.1,
            credit_bytes: 84,
            timeout_us: 100.0,
        }
    }
}
