//! The way in: what is asked for, what is made of it, and the handle of what runs.

use super::{OtlpError, Recorder};
use crate::MetricsEndpoint;

/// An export as a program asks for it, and the names that it exports under.
#[derive(Clone, Debug)]
pub struct Request {
    /// Base URL of the collector from a configuration or a flag, such as `http://127.0.0.1:4318`. It
    /// goes before the variables; without one they decide.
    pub endpoint: Option<String>,
    /// The resource's `service.name`, unless a variable has another.
    pub service: &'static str,
    /// The resource's `service.version`.
    pub version: &'static str,
    /// The name of this instance among those of the machine: `service.instance.id`, behind the name of
    /// the machine.
    pub instance: String,
    /// The remote sites: the resource's `sites`, left out if there are none.
    pub sites: Vec<String>,
}

/// An export that can be started, or none.
#[derive(Debug)]
pub struct Exporter {
    #[cfg(feature = "otlp")]
    settings: Option<super::settings::Settings>,
}

/// Looks up a variable of the environment.
pub(super) type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

/// Variables that ask for an export by naming an endpoint.
const ENDPOINTS: [&str; 4] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
];

impl Exporter {
    /// Reads what is to be exported, and where to. Nothing is, where neither the request nor a variable
    /// names an endpoint, or `OTEL_SDK_DISABLED` is `true`.
    ///
    /// # Errors
    /// An [`OtlpError`] where the request has an endpoint that is none, a variable asks for what is not
    /// there besides, or the build is one without the feature `otlp`. Where variables alone ask, which may
    /// be meant for another program, it is logged, and nothing is exported.
    pub fn configured(request: &Request, variables: Variables<'_>) -> Result<Self, OtlpError> {
        // An empty variable is like none (OpenTelemetry, "Environment Variable Specification").
        let variable = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
        let is_disabled = variable("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
        let is_asked =
            request.endpoint.is_some() || ENDPOINTS.iter().any(|name| variable(name).is_some());
        match is_asked && !is_disabled {
            true => Self::asked(request, &variable),
            false => Ok(Self::none()),
        }
    }

    #[cfg(feature = "otlp")]
    fn none() -> Self {
        Self { settings: None }
    }

    #[cfg(not(feature = "otlp"))]
    fn none() -> Self {
        Self {}
    }

    #[cfg(feature = "otlp")]
    fn asked(request: &Request, variables: Variables<'_>) -> Result<Self, OtlpError> {
        match super::settings::Settings::read(request, variables) {
            Ok(settings) => Ok(Self {
                settings: Some(settings),
            }),
            Err(error) if request.endpoint.is_none() => {
                tracing::warn!(
                    event = "otlp_variable_ignored",
                    %error,
                    "the environment asks for an export over OTLP that is not to be had; nothing is exported"
                );
                Ok(Self::none())
            }
            Err(error) => Err(error),
        }
    }

    #[cfg(not(feature = "otlp"))]
    fn asked(request: &Request, _: Variables<'_>) -> Result<Self, OtlpError> {
        if let Some(endpoint) = request.endpoint.clone() {
            return Err(OtlpError::NotBuilt { endpoint });
        }
        tracing::warn!(
            event = "otlp_not_built",
            "the environment asks for export over OTLP, and this program was built without it; build it with `--features otlp`"
        );
        Ok(Self::none())
    }

    /// Exports from now on, on a thread of its own: the metrics of `endpoint`, and what comes by the
    /// layer of `recorder`.
    ///
    /// # Errors
    /// [`OtlpError::NoThread`] when there can be no thread.
    #[cfg(feature = "otlp")]
    pub fn start(
        self,
        recorder: &Recorder,
        endpoint: &MetricsEndpoint,
    ) -> Result<Export, OtlpError> {
        let running = self.settings.map(|settings| {
            super::worker::Worker::start(settings, recorder.clone(), endpoint.clone())
        });
        Ok(Export {
            worker: running.transpose()?,
        })
    }

    /// Exports from now on, on a thread of its own: the metrics of `endpoint`, and what comes by the
    /// layer of `recorder`.
    ///
    /// # Errors
    /// None in a build without the feature `otlp`, which exports nothing.
    #[cfg(not(feature = "otlp"))]
    pub fn start(self, _: &Recorder, _: &MetricsEndpoint) -> Result<Export, OtlpError> {
        Ok(Export {})
    }
}

/// A running export. Dropped, it ends without a last request.
#[derive(Debug)]
pub struct Export {
    #[cfg(feature = "otlp")]
    worker: Option<super::worker::Worker>,
}

impl Export {
    /// Sends what there is to send, and ends. Takes two seconds at most: a collector that is slower
    /// does not get it.
    pub async fn finish(self) {
        #[cfg(feature = "otlp")]
        if let Some(worker) = self.worker {
            worker.finish().await;
        }
    }
}
