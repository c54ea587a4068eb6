//! Hostile frames for the splitter's parser, policy and flow table, on the host and with overflow checks.
//!
//! The fuzz targets `parser` and `split` of `lab/fuzz` look for what is new, for hours and with a
//! compiler of their own; this pushes what an attacker's generator makes, in numbers, through the same
//! checks in any build: frames of every shape that the parser knows, mutated, cut short, spliced, with
//! headers nested in each other and lengths that lie. And through a border whose table is much too
//! small for them, whose time goes on, and whose flows live on from frame to frame.

mod border;
mod frames;

#[allow(dead_code, reason = "the tests of the policy need the rest of it")]
#[path = "../../../crates/splitter-policy/tests/support/checks.rs"]
mod checks;
#[allow(dead_code, reason = "the tests of the policy need the rest of it")]
#[path = "../../../crates/splitter-policy/tests/support/host.rs"]
mod host;
#[allow(dead_code, reason = "the tests of the policy need the rest of it")]
#[path = "../../../crates/splitter-policy/tests/support/oracle.rs"]
mod oracle;
#[allow(dead_code, reason = "the tests of the policy need the rest of it")]
#[path = "../../../crates/splitter-policy/tests/support/packet.rs"]
mod packet;
#[allow(dead_code, reason = "the tests of the policy need the rest of it")]
#[path = "../../../crates/splitter-policy/tests/support/shapes.rs"]
mod shapes;

pub use border::Border;
pub use frames::Frames;

/// Counts of frames by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Frames that were counted in a flow.
    pub split: u64,
    /// Frames that passed untreated.
    pub passed: u64,
    /// Frames that were dropped so that a flow changes tunnels in order.
    pub dropped: u64,
}

impl Outcomes {
    /// The sum of all frames.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.split + self.passed + self.dropped
    }
}

/// One frame in so many goes through the checks that look at each bit; the others through the border.
const CHECKED: u64 = 8;

/// Pushes so many frames, always the same for a seed.
///
/// # Panics
/// Where a check does not hold: that is what is looked for.
#[must_use]
pub fn push(frames: u64, seed: u64) -> Outcomes {
    let mut made = Frames::new(seed);
    let mut border = Border::new(seed);
    for number in 0..frames {
        let frame = made.next();
        if number.is_multiple_of(CHECKED) {
            checks::parser(frame);
            // Its first byte chooses the settings.
            checks::split(frame);
        }
        border.split(frame);
    }
    border.check();
    border.outcomes
}
