//! The last hour of an instance, in bounded memory: [figures over time](Samples), which can be
//! [drawn](Samples::plots), and [what happened](Events).
//!
//! Nothing here reads a clock or a counter: times and figures come from the caller. Nothing is
//! written to disk, so that a restart forgets all of it; for longer times there is Prometheus.

mod events;
mod plots;
mod samples;

pub use events::{Event, EventLayer, Events, MOST_EVENTS, NAMES};
pub use samples::{
    ClassSample, MOST_BYTES, MOST_SAMPLES, MOST_TUNNELS, SPACING, Samples, TunnelName, TunnelSample,
};
