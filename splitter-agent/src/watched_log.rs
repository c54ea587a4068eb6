//! The log, with a look at what happens for the status page and for an export.

use flow_cli::LogFormat;
use flow_telemetry::otlp::Recorder;
#[cfg(feature = "page")]
use tracing_subscriber::Layer as _;

/// The newest events, where there is a page that shows them, and what is exported.
#[derive(Debug, Default)]
pub(crate) struct Events {
    #[cfg(feature = "page")]
    pub(crate) newest: splitter_history::Events,
    pub(crate) recorder: Recorder,
}

impl Events {
    /// Starts logging; what is logged is an event, too.
    pub(crate) fn start_logging(&self, format: Option<LogFormat>) {
        let also = self.recorder.layer();
        #[cfg(feature = "page")]
        let also = also.and_then(self.newest.layer());
        flow_cli::start_logging_also_to(format, also);
    }
}
