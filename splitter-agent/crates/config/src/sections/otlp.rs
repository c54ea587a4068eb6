//! `[otlp]`: the OpenTelemetry collector that metrics, spans and events are exported to.

use crate::declaration::{NEW_START, key};
use crate::declare::section;
use crate::key::Change::Restart;
use crate::kind::collector_url;
use crate::values::CollectorUrl;

section! {
    /// Says where metrics, spans and events are exported to, besides being served.
    pub struct Otlp, GivenOtlp {
        /// Metrics, spans and events go to the OpenTelemetry collector at this URL.
        endpoint: Option<CollectorUrl> = key("endpoint", Restart(NEW_START), collector_url())
            .optional("no export, unless `OTEL_EXPORTER_OTLP_ENDPOINT` or another such variable names a collector")
            .examples(&["\"http://127.0.0.1:4318\""])
            .off()
            .trade_off(
                "[OpenTelemetry](../how-to/prometheus.md#opentelemetry); refused by a build without the \
                 feature `otlp`. There is no TLS: to a collector elsewhere, let one on this machine \
                 pass it on.",
            );
    }
}
