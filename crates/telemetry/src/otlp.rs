//! Export over OTLP/HTTP (OpenTelemetry): the registry's metrics, spans, and events as log records.
//!
//! Metrics are declared once, for Prometheus; what is exported is made from the same exposition. A program
//! makes a [`Recorder`], hangs its layer into its log, counts with it ([`Recorder::register`]), reads an
//! [`Exporter`] from its configuration and the environment before it changes anything, and
//! [starts](Exporter::start) it next to its endpoint.
//!
//! A collector that is absent or slow holds nothing up: the exporter has a thread of its own, its queues
//! are bounded, and what does not fit is dropped and counted. Without the feature `otlp` all of this is
//! there and exports nothing; who asks for it is told so.
//!
//! ```
//! use flow_telemetry::{Metrics, MetricsEndpoint, Readiness, otlp};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let recorder = otlp::Recorder::new();
//! let asked = otlp::Request {
//!     endpoint: None,
//!     service: "splitter",
//!     version: env!("CARGO_PKG_VERSION"),
//!     instance: "default".to_owned(),
//!     sites: vec!["paris".to_owned()],
//! };
//! let exporter = otlp::Exporter::configured(&asked, &|name| std::env::var(name).ok())?;
//! let mut metrics = Metrics::new("splitter")?;
//! recorder.register(&mut metrics)?;
//! let endpoint = MetricsEndpoint::new(metrics, Readiness::new());
//! let _export = exporter.start(&recorder, &endpoint)?;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "otlp")]
mod bridge;
#[cfg(feature = "otlp")]
mod client;
#[cfg(feature = "otlp")]
mod delivery;
mod export;
#[cfg(feature = "otlp")]
mod queue;
mod recorder;
#[cfg(feature = "otlp")]
mod settings;
mod statistics;
#[cfg(feature = "otlp")]
mod worker;

pub use export::{Export, Exporter, Request};
pub use recorder::Recorder;
pub use statistics::{Lost, Signal, reference_rows};

/// Reasons why an export that was asked for cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The program has no OTLP export compiled in.
    #[error(
        "export over OTLP to {endpoint} was asked for, and this program was built without it; build it with `--features otlp`, or ask for none"
    )]
    NotBuilt {
        /// Endpoint that was asked for.
        endpoint: String,
    },
    /// An endpoint cannot be understood or reached from here.
    #[error(
        "{name} is `{value}`: {problem}; give the collector's address like http://127.0.0.1:4318"
    )]
    BadEndpoint {
        /// Where the endpoint was given: a variable's name, or `endpoint`.
        name: String,
        /// Endpoint as it was given.
        value: String,
        /// Fault that it has.
        problem: &'static str,
    },
    /// A variable asks for what this exporter does not have.
    #[error("{name} is `{value}`, and {remedy}")]
    Unsupported {
        /// Name of the variable.
        name: String,
        /// Value that it has.
        value: String,
        /// Values that it may have.
        remedy: &'static str,
    },
    /// The exporter's thread cannot be started.
    #[error("cannot start the thread that exports over OTLP: {0}")]
    NoThread(#[from] std::io::Error),
}
