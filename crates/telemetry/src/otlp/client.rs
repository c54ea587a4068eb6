//! One request to a collector: OTLP/HTTP with protobuf.
//!
//! Each has a connection of its own: there are few, and a collector behind a load balancer may be
//! another one each time.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Request, StatusCode,
    body::Bytes,
    client::conn::http1,
    header::{self, HeaderMap, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::settings::Destination;

/// What a collector made of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It took it, but for what its response says.
    Taken(Bytes),
    /// It takes none of it, ever.
    Refused(StatusCode),
    /// It may take it later, but not before the time that it asks for.
    Later(StatusCode, Option<Duration>),
}

/// Reasons why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("the connection failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("its answer is too long or breaks off")]
    BadBody,
    #[error("cannot make the request: {0}")]
    Request(#[from] hyper::http::Error),
}

/// Posts `message` and reads the answer, within the destination's time.
///
/// # Errors
/// A [`RequestError`] when there is no answer; what was sent may have arrived all the same.
pub(crate) async fn post(to: &Destination, message: Vec<u8>) -> Result<Answer, RequestError> {
    let answered = timeout(to.timeout, exchange(to, message)).await;
    answered.map_err(|_| RequestError::TimedOut(to.timeout))?
}

async fn exchange(to: &Destination, message: Vec<u8>) -> Result<Answer, RequestError> {
    let request = request(to, message)?;
    let stream = TcpStream::connect((to.host.as_str(), to.port))
        .await
        .map_err(RequestError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let respond = async {
        let response = sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(|_| RequestError::BadBody)?.to_bytes();
        Ok(answer(head.status, &head.headers, body))
    };
    // The response needs the connection to be driven; it ends with the response.
    tokio::pin!(respond, connection);
    tokio::select! {
        biased;
        answer = &mut respond => answer,
        ended = &mut connection => {
            ended?;
            respond.await
        }
    }
}

fn request(to: &Destination, message: Vec<u8>) -> Result<Request<Full<Bytes>>, RequestError> {
    let compressed = to.is_compressed.then(|| compress(&message)).transpose();
    let compressed = compressed.map_err(RequestError::Connect)?;
    let mut request = Request::post(&to.path)
        .header(header::HOST, to.authority.as_str())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONTENT_TYPE, "application/x-protobuf");
    if compressed.is_some() {
        request = request.header(header::CONTENT_ENCODING, "gzip");
    }
    let body = compressed.unwrap_or(message);
    let mut request = request.body(Full::new(Bytes::from(body)))?;
    for (name, value) in &to.headers {
        request.headers_mut().insert(name, value.clone());
    }
    Ok(request)
}

fn compress(message: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(message)?;
    encoder.finish()
}

/// OTLP 1.x, "OTLP/HTTP Response" and "Retryable Response Codes".
fn answer(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Answer {
    match status.as_u16() {
        200..=299 => Answer::Taken(body),
        429 | 502 | 503 | 504 => {
            Answer::Later(status, headers.get(header::RETRY_AFTER).and_then(seconds))
        }
        _ => Answer::Refused(status),
    }
}

/// A date (RFC 9110 §10.2.3) is not understood; the exporter's own pace is as good.
fn seconds(value: &HeaderValue) -> Option<Duration> {
    let seconds = value.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// An answer has a few counts and a sentence in it.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
const USER_AGENT: &str = concat!(
    "OTel-OTLP-Exporter-flow-telemetry/",
    env!("CARGO_PKG_VERSION")
);
