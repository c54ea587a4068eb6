//! The HTTP endpoint: small, bounded, GET only.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::{
    net::TcpStream,
    sync::{Semaphore, watch},
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};

use crate::{
    Metrics, Readiness, StatusPage,
    connections::{ConnectionSlot, Connections},
    negotiation::Accepted,
    page::CONTENT_SECURITY_POLICY,
};

/// Reasons why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens there.
    #[error(
        "cannot serve metrics on {address}: another process listens on it; stop that process or choose another address (`ss -ltnp` shows who it is)"
    )]
    InUse {
        /// Address that was asked for.
        address: SocketAddr,
    },
    /// The address is not one of this machine's.
    #[error(
        "cannot serve metrics on {address}: no interface of this machine has that address; choose one that `ip address` shows, or 127.0.0.1"
    )]
    NotLocal {
        /// Address that was asked for.
        address: SocketAddr,
    },
    /// The port needs a privilege that the process has not.
    #[error(
        "cannot serve metrics on {address}: not permitted; choose a port of 1024 or above, or grant CAP_NET_BIND_SERVICE"
    )]
    NotPermitted {
        /// Address that was asked for.
        address: SocketAddr,
    },
    /// Any other error of the system.
    #[error("cannot serve metrics on {address}: {source}")]
    Other {
        /// Address that was asked for.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// The endpoint of one program: its metrics, its readiness and its status page.
#[derive(Clone, Debug)]
pub struct MetricsEndpoint {
    metrics: Arc<Metrics>,
    readiness: Readiness,
    page: Option<StatusPage>,
    /// One collection at a time, however many scrape: collectors walk kernel
    /// maps, and a second walk beside the first helps nobody.
    collecting: Arc<Semaphore>,
}

impl MetricsEndpoint {
    /// Serves `metrics`, complete by now, and `readiness`, which may change.
    pub fn new(metrics: Metrics, readiness: Readiness) -> Self {
        Self {
            metrics: Arc::new(metrics),
            readiness,
            page: None,
            collecting: Arc::new(Semaphore::new(1)),
        }
    }

    /// Shows `page` at `/`, and what fills it at `/status.json`. Without one `/` is a list of what
    /// is served.
    #[must_use]
    pub fn with_page(mut self, page: StatusPage) -> Self {
        self.page = Some(page);
        self
    }

    /// Collects the exposition, and makes something of it, on a thread for blocking work. `None`, with a
    /// record in the log, when a collector fails.
    pub(crate) async fn exposition<T: Send + 'static>(
        &self,
        then: impl FnOnce(String) -> T + Send + 'static,
    ) -> Option<T> {
        let permit = Arc::clone(&self.collecting).acquire_owned().await.ok()?;
        let metrics = Arc::clone(&self.metrics);
        let encoded = tokio::task::spawn_blocking(move || {
            // Held by the thread, not by the request: a collection that outlives its
            // time-out must still keep the next one waiting.
            let _permit = permit;
            metrics.encode().ok().map(then)
        });
        match encoded.await {
            Ok(Some(made)) => Some(made),
            Ok(None) => {
                tracing::error!(
                    event = "collector_failed",
                    "a metrics collector reported an error"
                );
                None
            }
            Err(error) => {
                tracing::error!(event = "collector_failed", %error, "a metrics collector panicked");
                None
            }
        }
    }
}

/// A socket that listens, before anything is served on it.
///
/// Binding is separate from serving so that a program can refuse to start, with
/// a reason, before it changes anything on the system.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Listens on `address`; port 0 lets the system choose one.
    ///
    /// # Errors
    /// A [`ListenError`] with the address, what was wrong and what to do.
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        listen().map_err(|source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { address },
            io::ErrorKind::AddrNotAvailable => ListenError::NotLocal { address },
            io::ErrorKind::PermissionDenied => ListenError::NotPermitted { address },
            _ => ListenError::Other { address, source },
        })
    }

    /// Returns the address it listens on, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` completes, then lets open requests finish for at
    /// most two seconds.
    ///
    /// # Errors
    /// When the socket cannot be handed to the runtime. A failed connection is
    /// logged and ends nothing but itself.
    pub async fn serve(
        self,
        endpoint: MetricsEndpoint,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let slots = Connections::new(MAX_CONNECTIONS);
        let (stop, stopping) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        // It is kept while others end: it may have a connection that waits for its slot.
        let mut accepting = pin!(accept(&listener, &slots));
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = &mut accepting => {
                    let (stream, slot) = accepted;
                    accepting.set(accept(&listener, &slots));
                    connections.spawn(connection(stream, endpoint.clone(), stopping.clone(), slot));
                    // It reads what has come before others can take its slot.
                    yield_now().await;
                }
                Some(_) = connections.join_next() => {}
            }
        }
        drop(stop);
        let _ = timeout(SHUTDOWN_GRACE, async {
            while connections.join_next().await.is_some() {}
        })
        .await;
        Ok(())
    }
}

/// Beyond the limit an idle connection is closed for the new one.
async fn accept(
    listener: &tokio::net::TcpListener,
    slots: &Connections,
) -> (TcpStream, ConnectionSlot) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slots.admit().await),
            Err(error) => {
                // Out of file descriptors, or the client went away: pause, so as
                // not to spin while the former lasts.
                tracing::warn!(event = "scrape_not_accepted", %error, "cannot accept a connection to the metrics endpoint");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    endpoint: MetricsEndpoint,
    mut stopping: watch::Receiver<()>,
    slot: ConnectionSlot,
) {
    let service = service_fn(|request| {
        let (endpoint, slot) = (endpoint.clone(), slot.clone());
        async move {
            let _busy = slot.busy();
            Ok::<_, Infallible>(respond(&request, &endpoint).await)
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service)
    );
    let finished = tokio::select! {
        result = &mut connection => Some(result),
        _ = stopping.changed() => None,
        () = sleep(CONNECTION_LIFETIME) => None,
        () = slot.evicted() => Some(Ok(())),
    };
    let result = match finished {
        Some(result) => result,
        None => {
            // Between two requests this closes at once; within one it lets the
            // response out, but a client that will not read it has had its time.
            connection.as_mut().graceful_shutdown();
            timeout(RESPONSE_GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection to the metrics endpoint failed");
    }
}

async fn respond(request: &Request<Incoming>, endpoint: &MetricsEndpoint) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n");
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    match (request.uri().path(), &endpoint.page) {
        ("/", Some(page)) => status_page(page, endpoint).await,
        ("/status.json", Some(page)) => status(page, endpoint).await,
        ("/", None) => respond_with(StatusCode::OK, HTML, index(endpoint)),
        ("/live", _) => text(StatusCode::OK, "live\n"),
        ("/ready", _) => ready(&endpoint.readiness),
        ("/metrics", _) => scrape(endpoint, Accepted::by(request.headers())).await,
        (path, page) => match page.as_ref().and_then(|page| page.document(path)) {
            Some(json) => respond_with(StatusCode::OK, JSON, json),
            None => text(StatusCode::NOT_FOUND, "not found; / lists what is served\n"),
        },
    }
}

fn ready(readiness: &Readiness) -> Response<Full<Bytes>> {
    let status = if readiness.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    text(status, format!("{readiness}\n"))
}

async fn status_page(page: &StatusPage, endpoint: &MetricsEndpoint) -> Response<Full<Bytes>> {
    match timeout(COLLECTION_TIMEOUT, page.html(&endpoint.readiness)).await {
        Ok(html) => respond_with(StatusCode::OK, HTML, html),
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, TOO_SLOW),
    }
}

async fn status(page: &StatusPage, endpoint: &MetricsEndpoint) -> Response<Full<Bytes>> {
    let (status, body) = match timeout(COLLECTION_TIMEOUT, page.json(&endpoint.readiness)).await {
        Ok(Ok(json)) => (StatusCode::OK, json),
        Ok(Err(problem)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            json!({ "error": problem }).to_string(),
        ),
        Err(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            json!({ "error": TOO_SLOW.trim_end() }).to_string(),
        ),
    };
    respond_with(status, JSON, body)
}

async fn scrape(endpoint: &MetricsEndpoint, accepted: Accepted) -> Response<Full<Bytes>> {
    match timeout(COLLECTION_TIMEOUT, collect(endpoint, accepted)).await {
        Ok(Some(body)) => {
            let mut response = respond_with(StatusCode::OK, accepted.content_type(), body);
            let headers = response.headers_mut();
            let vary = HeaderValue::from_static("accept, accept-encoding");
            headers.insert(header::VARY, vary);
            if let Some(encoding) = accepted.content_encoding() {
                let encoding = HeaderValue::from_static(encoding);
                headers.insert(header::CONTENT_ENCODING, encoding);
            }
            response
        }
        Ok(None) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "a collector failed; the program's log says why\n",
        ),
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, TOO_SLOW),
    }
}

async fn collect(endpoint: &MetricsEndpoint, accepted: Accepted) -> Option<Vec<u8>> {
    let body = endpoint
        .exposition(move |text| accepted.apply(text))
        .await?;
    body.inspect_err(|error| {
        tracing::error!(event = "scrape_not_compressed", %error, "cannot compress the figures");
    })
    .ok()
}

fn index(endpoint: &MetricsEndpoint) -> String {
    let name = endpoint.metrics.prefix();
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{name}</title>\
         <h1>{name}</h1><ul>\
         <li><a href=\"/metrics\">/metrics</a>: for Prometheus</li>\
         <li><a href=\"/live\">/live</a>: the process answers</li>\
         <li><a href=\"/ready\">/ready</a>: it does its work</li></ul></html>\n"
    )
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    respond_with(status, "text/plain; charset=utf-8", body)
}

fn respond_with(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // What other sites open in a browser here is none of their business.
        (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(policy) = HeaderValue::from_str(&CONTENT_SECURITY_POLICY) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const TOO_SLOW: &str = "collecting the figures took too long; try again later\n";
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// A handful of scrapers and a person or two.
const MAX_CONNECTIONS: usize = 64;
/// hyper's smallest buffer; Prometheus' request head takes about 300 bytes.
const MAX_HEAD_BYTES: usize = 8 * 1024;
const MAX_HEADERS: usize = 64;
/// A head fits one segment. It also ends an idle connection, after which a scraper simply opens
/// another.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Below Prometheus' default `scrape_timeout` of 10 s, so that it sees why.
const COLLECTION_TIMEOUT: Duration = Duration::from_secs(9);
const CONNECTION_LIFETIME: Duration = Duration::from_secs(120);
const RESPONSE_GRACE: Duration = Duration::from_secs(15);
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
