//! A collector that takes what comes, or does not.

use std::{
    convert::Infallible,
    io::Read as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use flate2::read::GzDecoder;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Incoming},
    header::HeaderMap,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use crate::PATIENCE;

/// Answers requests, and shows them.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    pub(crate) requests: UnboundedReceiver<Received>,
    body: Arc<Mutex<Vec<u8>>>,
    last: Option<HeaderMap>,
    /// Requests to other paths than those looked for so far.
    later: Vec<Received>,
}

pub(crate) struct Received {
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// The status for the nth request; `None` for no answer at all.
pub(crate) type Answers = fn(usize) -> Option<StatusCode>;

pub(crate) fn always(status: StatusCode) -> Answers {
    match status {
        StatusCode::OK => |_| Some(StatusCode::OK),
        StatusCode::BAD_REQUEST => |_| Some(StatusCode::BAD_REQUEST),
        other => panic!("{other}"),
    }
}

impl Collector {
    pub(crate) async fn listen(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = unbounded_channel();
        let body = Arc::new(Mutex::new(Vec::new()));
        let counter = Arc::new(Mutex::new(0));
        let answer = Arc::clone(&body);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (sender, answer, counter) = (sender.clone(), answer.clone(), counter.clone());
                let service = service_fn(move |request: hyper::Request<Incoming>| {
                    let (sender, answer) = (sender.clone(), answer.clone());
                    let index = {
                        let mut counter = counter.lock().unwrap();
                        *counter += 1;
                        *counter - 1
                    };
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes().to_vec();
                        let _ = sender.send(Received {
                            path: head.uri.path().to_owned(),
                            headers: head.headers,
                            body,
                        });
                        let Some(status) = answers(index) else {
                            return std::future::pending().await;
                        };
                        let body = Bytes::from(answer.lock().unwrap().clone());
                        let mut response = Response::new(Full::new(body));
                        *response.status_mut() = status;
                        Ok::<_, Infallible>(response)
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            address,
            requests,
            body,
            last: None,
            later: Vec::new(),
        }
    }

    pub(crate) fn answer_with(&self, body: Vec<u8>) {
        *self.body.lock().unwrap() = body;
    }

    /// The next request to this path, decoded.
    pub(crate) async fn next<M: Message + Default>(&mut self, path: &str) -> M {
        loop {
            let kept = self.later.iter().position(|it| it.path == path);
            let received = match kept {
                Some(index) => self.later.remove(index),
                None => {
                    let received = timeout(PATIENCE, self.requests.recv()).await;
                    received.expect("a request in time").unwrap()
                }
            };
            if received.path != path {
                self.later.push(received);
                continue;
            }
            let body = match received.headers.get("content-encoding") {
                Some(encoding) if encoding == "gzip" => {
                    let mut unpacked = Vec::new();
                    GzDecoder::new(&*received.body)
                        .read_to_end(&mut unpacked)
                        .unwrap();
                    unpacked
                }
                _ => received.body,
            };
            self.last = Some(received.headers);
            return M::decode(&*body).expect("it is OTLP");
        }
    }

    /// A header of the last request that was looked at.
    pub(crate) fn head(&self, name: &str) -> &str {
        self.last.as_ref().unwrap()[name].to_str().unwrap()
    }
}
