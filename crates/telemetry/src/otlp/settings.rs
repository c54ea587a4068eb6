//! Where to export to, and how: the request, and the variables of OpenTelemetry's specification
//! ("OpenTelemetry Protocol Exporter", "Environment Variable Specification").

use std::{borrow::Cow, fs, time::Duration};

use hyper::{
    Uri,
    header::{HeaderMap, HeaderName, HeaderValue},
    http::uri::Authority,
};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, ArrayValue, KeyValue, any_value::Value},
    resource::v1::Resource,
};
use percent_encoding::percent_decode_str;

use super::{OtlpError, export::Request, export::Variables, statistics::Signal};

/// Everything that an export is configured with.
#[derive(Debug)]
pub(crate) struct Settings {
    /// By signal; `None` for one that is not exported.
    pub(crate) destinations: [Option<Destination>; 3],
    pub(crate) resource: Resource,
    /// Name and version of the program, as the scope of what it exports.
    pub(crate) scope: (&'static str, &'static str),
    /// Time from one export of all metrics to the next.
    pub(crate) metric_interval: Duration,
    /// The longest time that spans wait for others.
    pub(crate) span_delay: Duration,
    /// The longest time that events wait for others.
    pub(crate) log_delay: Duration,
}

/// Where the requests of a signal go, and how.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What the request's head names.
    pub(crate) authority: Authority,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    /// Time for all of a request, from the look-up of the name to the end of the response.
    pub(crate) timeout: Duration,
    pub(crate) is_compressed: bool,
}

impl Settings {
    /// Reads them; an endpoint of the request stands above those of variables.
    ///
    /// # Errors
    /// An [`OtlpError`] for an endpoint that is none, and for a protocol or compression that is not
    /// there. A number that is none is logged, and its default is taken.
    pub(crate) fn read(request: &Request, variables: Variables<'_>) -> Result<Self, OtlpError> {
        let mut destinations = [None, None, None];
        for signal in Signal::ALL {
            destinations[signal as usize] = destination(signal, request, variables)?;
        }
        let duration = |name, default_ms| milliseconds(name, default_ms, variables);
        Ok(Self {
            destinations,
            resource: resource(request, variables),
            scope: (request.service, request.version),
            metric_interval: duration("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
            span_delay: duration("OTEL_BSP_SCHEDULE_DELAY", 5_000),
            log_delay: duration("OTEL_BLRP_SCHEDULE_DELAY", 1_000),
        })
    }
}

/// Where a signal goes; `None` where it is turned off, or no endpoint is named for it.
fn destination(
    signal: Signal,
    request: &Request,
    variables: Variables<'_>,
) -> Result<Option<Destination>, OtlpError> {
    let upper = signal.as_str().to_uppercase();
    let selector = format!("OTEL_{upper}_EXPORTER");
    match variables(&selector).as_deref().map(str::trim) {
        None | Some("otlp") => {}
        Some("none") => return Ok(None),
        Some(value) => {
            return Err(OtlpError::Unsupported {
                name: selector,
                value: value.to_owned(),
                remedy: "it can be `otlp` or `none` (Prometheus is served all the same)",
            });
        }
    }
    // Each of the general ones has a special one for each signal, which goes first.
    let special = |name: &str| {
        let special = format!("OTEL_EXPORTER_OTLP_{upper}_{name}");
        let general = format!("OTEL_EXPORTER_OTLP_{name}");
        let found = |name: String| variables(&name).map(|value| (name, value.trim().to_owned()));
        found(special).or_else(|| found(general))
    };
    let endpoint = match &request.endpoint {
        Some(base) => Some(("endpoint".to_owned(), base.clone())),
        None => special("ENDPOINT"),
    };
    let Some((name, value)) = endpoint else {
        return Ok(None);
    };
    // The special one is taken as it is; the path of the signal is appended to the general one.
    let is_whole = name.ends_with(&format!("_{upper}_ENDPOINT"));
    if let Some((name, value)) = special("PROTOCOL").filter(|(_, it)| it != "http/protobuf") {
        let remedy = "this program speaks `http/protobuf` alone";
        return Err(OtlpError::Unsupported {
            name,
            value,
            remedy,
        });
    }
    let is_compressed = match special("COMPRESSION") {
        None => false,
        Some((_, value)) if value == "none" => false,
        Some((_, value)) if value == "gzip" => true,
        Some((name, value)) => {
            let remedy = "it can be `gzip` or `none`";
            return Err(OtlpError::Unsupported {
                name,
                value,
                remedy,
            });
        }
    };
    let timeout = match special("TIMEOUT") {
        Some((name, _)) => milliseconds(&name, DEFAULT_TIMEOUT_MS, variables),
        None => Duration::from_millis(DEFAULT_TIMEOUT_MS),
    };
    let headers =
        special("HEADERS").map_or_else(HeaderMap::new, |(name, value)| headers(&name, &value));
    let (authority, path) = parse_endpoint(&value).map_err(|problem| OtlpError::BadEndpoint {
        name,
        value,
        problem,
    })?;
    let path = match is_whole {
        true => path,
        false => format!("{}/v1/{}", path.trim_end_matches('/'), signal.as_str()),
    };
    Ok(Some(Destination {
        host: authority.host().trim_matches(['[', ']']).to_owned(),
        port: authority.port_u16().unwrap_or(DEFAULT_PORT),
        authority,
        path,
        headers,
        timeout,
        is_compressed,
    }))
}

/// Splits a URL into its authority and its path, or says what is wrong with it.
fn parse_endpoint(url: &str) -> Result<(Authority, String), &'static str> {
    let uri: Uri = url.parse().map_err(|_| "that is no URL")?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(
                "this program has no TLS; let it speak to a collector on this machine, which does",
            );
        }
        _ => return Err("it has to begin with http://"),
    }
    let authority = uri.authority().ok_or("it names no host")?;
    if authority.host().is_empty() {
        return Err("it names no host");
    }
    if authority.as_str().contains('@') {
        return Err("it names a user; put `authorization=...` into OTEL_EXPORTER_OTLP_HEADERS");
    }
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    Ok((authority.clone(), path.to_owned()))
}

/// Reads `name=value,name=value`, with values percent-encoded. A pair that is none is left out and
/// logged, without its value, which may be a secret.
fn headers(variable: &str, list: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for pair in list.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let parsed = pair.split_once('=').and_then(|(name, value)| {
            let name: HeaderName = name.trim().parse().ok()?;
            let mut value = HeaderValue::from_str(&decoded(value.trim())).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        match parsed {
            Some((name, value)) => _ = headers.insert(name, value),
            None => tracing::warn!(
                event = "otlp_variable_ignored",
                variable,
                "one of the headers is not of the form name=value; it is left out"
            ),
        }
    }
    headers
}

fn milliseconds(name: &str, default_ms: u64, variables: Variables<'_>) -> Duration {
    let Some(value) = variables(name) else {
        return Duration::from_millis(default_ms);
    };
    match value.trim().parse::<u64>() {
        Ok(number @ 1..=MAX_MS) => Duration::from_millis(number),
        _ => {
            tracing::warn!(
                event = "otlp_variable_ignored",
                variable = name,
                value,
                default_ms,
                "not a number of milliseconds from 1 to a day; the default is taken"
            );
            Duration::from_millis(default_ms)
        }
    }
}

/// Describes who exports: OTEL_SERVICE_NAME above OTEL_RESOURCE_ATTRIBUTES above what the program says.
fn resource(request: &Request, variables: Variables<'_>) -> Resource {
    let host = host_name();
    let id = match &host {
        Some(host) => format!("{host}/{}", request.instance),
        None => request.instance.clone(),
    };
    let mut attributes = vec![
        text("service.name", request.service),
        text("service.version", request.version),
        text("service.instance.id", &id),
        text("instance", &request.instance),
    ];
    attributes.extend(host.map(|host| text("host.name", &host)));
    if !request.sites.is_empty() {
        let values = request.sites.iter().map(|site| AnyValue {
            value: Some(Value::StringValue(site.clone())),
        });
        let sites = Value::ArrayValue(ArrayValue {
            values: values.collect(),
        });
        attributes.push(attribute("sites", sites));
    }
    let mut set = |stated: KeyValue| {
        attributes.retain(|it| it.key != stated.key);
        attributes.push(stated);
    };
    let list = variables("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    for (name, value) in list.split(',').filter_map(|pair| pair.split_once('=')) {
        set(text(&decoded(name.trim()), &decoded(value.trim())));
    }
    if let Some(name) = variables("OTEL_SERVICE_NAME") {
        set(text("service.name", name.trim()));
    }
    Resource {
        attributes,
        ..Resource::default()
    }
}

/// Linux tells it in a file; elsewhere shells and services have it in their environment, or not.
fn host_name() -> Option<String> {
    let read = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = read.or_else(|| std::env::var("HOSTNAME").ok())?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// OTEL_EXPORTER_OTLP_TIMEOUT's default.
const DEFAULT_TIMEOUT_MS: u64 = 10_000;
const MAX_MS: u64 = 24 * 3600 * 1000;
/// OTLP/HTTP's.
const DEFAULT_PORT: u16 = 4318;

#[cfg(test)]
pub(crate) fn destination_for_tests() -> Destination {
    Destination {
        host: "127.0.0.1".to_owned(),
        port: DEFAULT_PORT,
        authority: Authority::from_static("127.0.0.1:4318"),
        path: "/".to_owned(),
        headers: HeaderMap::new(),
        timeout: Duration::from_secs(1),
        is_compressed: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(endpoint: Option<&str>, variables: &[(&str, &str)]) -> Result<Settings, OtlpError> {
        let request = Request {
            endpoint: endpoint.map(str::to_owned),
            service: "splitter",
            version: "1.2.3",
            instance: "north".to_owned(),
            sites: vec!["paris".to_owned(), "rome".to_owned()],
        };
        let find = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&request, &find)
    }

    fn to(settings: &Settings, signal: Signal) -> Option<String> {
        let it = settings.destinations[signal as usize].as_ref()?;
        Some(format!("{} {} {}", it.host, it.port, it.path))
    }

    #[test]
    fn general_endpoint_gets_the_path_of_the_signal_and_a_special_one_does_not() {
        let settings = read(
            None,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]/base/"),
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:80/in?x=1"),
                ("OTEL_LOGS_EXPORTER", "none"),
            ],
        )
        .unwrap();
        let metrics = to(&settings, Signal::Metrics).unwrap();
        assert_eq!(metrics, "::1 4318 /base/v1/metrics");
        assert_eq!(to(&settings, Signal::Traces).unwrap(), "t 80 /in?x=1");
        assert_eq!(to(&settings, Signal::Logs), None);
    }

    #[test]
    fn endpoint_that_was_asked_for_stands_above_variables() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://other"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other"),
        ];
        let settings = read(Some("http://here:1"), &variables).unwrap();
        for signal in Signal::ALL {
            let expected = format!("here 1 /v1/{}", signal.as_str());
            assert_eq!(to(&settings, signal).unwrap(), expected);
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_the_name_of_who_asks() {
        let refusal = |endpoint, variables: &[(&str, &str)]| {
            read(endpoint, variables).unwrap_err().to_string()
        };
        assert!(refusal(Some("https://a"), &[]).contains("no TLS"));
        assert!(refusal(Some("a:4318"), &[]).contains("http://"));
        assert!(refusal(Some("http://me:secret@a"), &[]).contains("HEADERS"));
        assert!(refusal(Some("http://a b"), &[]).contains("no URL"));
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "zstd"),
            ("OTEL_METRICS_EXPORTER", "prometheus"),
        ] {
            let refusal = refusal(Some("http://a"), &[(name, value)]);
            assert!(
                refusal.starts_with(&format!("{name} is `{value}`")),
                "{refusal}"
            );
        }
    }

    #[test]
    fn headers_are_decoded_and_times_that_are_none_are_the_default() {
        let variables = [
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Basic%20eA%3D%3D, broken,x-a=b",
            ),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "250"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "soon"),
            ("OTEL_BSP_SCHEDULE_DELAY", "0"),
        ];
        let settings = read(Some("http://a"), &variables).unwrap();
        let [Some(metrics), Some(traces), _] = &settings.destinations else {
            panic!("{settings:?}");
        };
        assert_eq!(metrics.headers["authorization"], "Basic eA==");
        assert_eq!(
            (metrics.headers.len(), &metrics.headers["x-a"]),
            (2, &"b".parse().unwrap())
        );
        assert!(!format!("{settings:?}").contains("eA=="));
        assert_eq!(metrics.timeout, Duration::from_millis(250));
        assert_eq!(traces.timeout, Duration::from_secs(10));
        assert_eq!(settings.metric_interval, Duration::from_secs(60));
        assert_eq!(settings.span_delay, Duration::from_secs(5));
    }

    #[test]
    fn resource_says_who_exports_and_the_environment_may_say_otherwise() {
        let attributes = |variables: &[(&str, &str)]| {
            let settings = read(Some("http://a"), variables).unwrap();
            settings.resource.attributes
        };
        let find = |attributes: &[KeyValue], key: &str| {
            let found: Vec<_> = attributes.iter().filter(|it| it.key == key).collect();
            assert_eq!(found.len(), 1, "{key}");
            found[0].value.clone().unwrap().value.unwrap()
        };
        let own = attributes(&[]);
        let string = |value: &str| Value::StringValue(value.to_owned());
        assert_eq!(find(&own, "service.name"), string("splitter"));
        assert_eq!(find(&own, "instance"), string("north"));
        let Value::ArrayValue(sites) = find(&own, "sites") else {
            panic!("{own:?}");
        };
        assert_eq!(sites.values[1].value, Some(string("rome")));
        let stated = attributes(&[
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=a,instance=b%2Cc,x=y",
            ),
            ("OTEL_SERVICE_NAME", "border"),
        ]);
        assert_eq!(find(&stated, "service.name"), string("border"));
        assert_eq!(find(&stated, "instance"), string("b,c"));
        assert_eq!(find(&stated, "x"), string("y"));
    }
}
