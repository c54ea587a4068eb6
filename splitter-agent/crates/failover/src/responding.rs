//! The answers to the peer's probes.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use splitter_health::{DATAGRAM_BYTES, KeyMismatch, KeyNews, Responder};
use splitter_instance::report::SharedReport;
use splitter_netlink::InterfaceName;

use super::socket::ResponderSocket;

/// After an error that a socket does not get over by itself, so that it does not spin.
const PAUSE: Duration = Duration::from_millis(100);

/// What answers probes of a tunnel. It runs next to the loop that judges the tunnels, so that a wait
/// there does not look like a dead tunnel from the other side.
pub(super) struct Responding {
    pub(super) device: InterfaceName,
    pub(super) peer: IpAddr,
    pub(super) responder: Arc<Mutex<Responder>>,
    pub(super) start: Instant,
    pub(super) report: SharedReport,
}

impl Responding {
    /// Answers for ever.
    pub(super) async fn run(self, socket: ResponderSocket) {
        let mut buffer = [0; DATAGRAM_BYTES + 1];
        let mut mismatch = KeyMismatch::default();
        loop {
            let request = match socket.receive(&mut buffer).await {
                Ok(request) => request,
                Err(error) => {
                    tracing::debug!(%error, "cannot receive probes");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (now, source) = (self.start.elapsed(), request.source.ip());
            let answer = {
                let mut responder = self
                    .responder
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let bytes = &buffer[..request.length.min(buffer.len())];
                responder.answer(bytes, source, now, || request.stay())
            };
            let result = answer.map(drop);
            if source == self.peer
                && let Some(news) = mismatch.note(result, now)
            {
                log_key(&self.device, self.peer, news);
            }
            match answer {
                Ok(reply) => {
                    if let Err(error) = socket.reply(request, &reply) {
                        tracing::debug!(%error, "cannot answer a probe");
                    }
                }
                Err(refusal) => self.report.refused(refusal),
            }
        }
    }
}

/// The peer's probes bear another key's code, or one of ours again.
fn log_key(device: &InterfaceName, peer: IpAddr, news: KeyNews) {
    match news {
        KeyNews::Differs => tracing::warn!(
            event = "peer_key_differs",
            %device,
            %peer,
            "the peer has another key, so that probes are not answered: health.key_file must hold the \
             same at both borders (`splitter doctor` shows the fingerprints of its keys)"
        ),
        KeyNews::OtherVersion => tracing::warn!(
            event = "peer_version_differs",
            %device,
            %peer,
            "the peer's probes are of another version, so that they are not answered: both borders need releases that \
             probe alike"
        ),
        KeyNews::Fits => {
            tracing::info!(event = "peer_key_fits", %device, %peer, "the peer has one of our keys again")
        }
    }
}
