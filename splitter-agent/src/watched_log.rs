//! The log, with a look at what happens for the status page.

use flow_cli::LogFormat;

/// The newest events, where there is a page that shows them.
#[derive(Debug, Default)]
pub(crate) struct Events {
    #[cfg(feature = "page")]
    pub(crate) newest: splitter_history::Events,
}

impl Events {
    /// Starts logging; what is logged is an event, too.
    pub(crate) fn start_logging(&self, format: Option<LogFormat>) {
        #[cfg(feature = "page")]
        flow_cli::start_logging_also_to(format, self.newest.layer());
        #[cfg(not(feature = "page"))]
        flow_cli::start_logging(format);
    }
}
