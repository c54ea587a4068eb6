//! The export as a collector sees it: OTLP/HTTP over a real socket, decoded with OpenTelemetry's own types.

mod arriving;
mod collector;
mod decoded;
mod failing;
mod program;

use std::time::Duration;

/// Something that is to happen has not happened after this time.
const PATIENCE: Duration = Duration::from_secs(20);
