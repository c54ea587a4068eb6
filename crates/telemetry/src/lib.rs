//! The Prometheus layer that the flow prioritisation tools share.
//!
//! - [`Metrics`] is a registry that knows its prefix and refuses a name that
//!   breaks the [naming rules](names).
//! - [`Descriptor`] applies the same rules to metrics that a
//!   [`Collector`](prometheus_client::collector::Collector) reads at scrape
//!   time, from BPF maps for instance.
//! - [`Exemplars`] shows single observations of a histogram that a collector reads.
//! - [`Server`] answers `/metrics`, `/live` and `/ready` over HTTP.
//! - [`page`] shows people what a program does, at `/`.
//! - [`Readiness`] is the handle that decides what `/ready` says.
//! - [`otlp`] exports the same metrics, and spans and events, to an OpenTelemetry collector.
//! - [`docs`] holds a page of documentation to what a live scrape shows.
//!
//! ```no_run
//! use flow_telemetry::{MetricsEndpoint, Metrics, Readiness, Server};
//! use prometheus_client::metrics::counter::Counter;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::bind("127.0.0.1:9461".parse()?)?;
//!
//! let mut metrics = Metrics::new("splitter")?;
//! metrics.build_info(env!("CARGO_PKG_VERSION"))?;
//! let handovers = metrics.register(
//!     "handovers_total",
//!     "Flows moved to the long tunnel",
//!     Counter::<u64>::default(),
//! )?;
//!
//! let readiness = Readiness::waiting_for("attach", "the program is being loaded");
//! let endpoint = MetricsEndpoint::new(metrics, readiness.clone());
//! let serving = tokio::spawn(server.serve(endpoint, async {
//!     let _ = tokio::signal::ctrl_c().await;
//! }));
//!
//! readiness.ok("attach");
//! handovers.inc();
//! serving.await??;
//! # Ok(())
//! # }
//! ```

mod connections;
pub mod docs;
mod exemplars;
pub mod names;
mod negotiation;
pub mod otlp;
pub mod page;
mod readiness;
mod registry;
mod server;

pub use exemplars::{Exemplar, Exemplars};
pub use names::{Kind, NameError};
pub use page::StatusPage;
pub use readiness::Readiness;
pub use registry::{Descriptor, Metrics};
pub use server::{ListenError, MetricsEndpoint, Server};

/// The library that metrics and collectors are written with, so that its
/// version has one owner.
pub use prometheus_client;
