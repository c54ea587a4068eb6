//! Takes files from the network, and answers those who send them.

use std::{
    future::Future,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cloudburst::{Endpoint, Failure, PeerId, Received};
use tokio::task::JoinSet;

use crate::transfer::{Answer, Arrived, Files, IDLE_AT_MOST, NotAChunk, NotTaken, Stream};

/// Where files go.
#[derive(Debug)]
pub(crate) enum Output {
    /// Each under its name.
    Directory(Files),
    /// One, in order.
    Standard(Box<Stream<io::Stdout>>),
}

impl Output {
    fn take(&mut self, peer: PeerId, message: &[u8]) -> anyhow::Result<Option<Arrived>> {
        match self {
            Self::Directory(files) => files.take(peer, message),
            Self::Standard(stream) => stream.take(peer, message),
        }
    }
}

/// Takes files from the network, and answers those who send them.
#[derive(Debug)]
pub(crate) struct Intake {
    endpoint: Endpoint,
    output: Arc<Mutex<Output>>,
    answers: JoinSet<()>,
}

impl Intake {
    pub(crate) fn new(endpoint: &Endpoint, output: Output) -> Self {
        Self {
            endpoint: endpoint.clone(),
            output: Arc::new(Mutex::new(output)),
            answers: JoinSet::new(),
        }
    }

    /// The next file that is complete.
    ///
    /// # Errors
    ///
    /// When the endpoint is closed, or something cannot be stored. One can go on after that.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Arrived> {
        loop {
            let mut received = self.endpoint.recv().await?;
            let message = std::mem::take(&mut received.message);
            let (output, peer) = (Arc::clone(&self.output), received.peer);
            // The caller that reads standard output may be slow, and the endpoint has to answer meanwhile.
            let store = move || lock(&output).take(peer, &message);
            let result = tokio::task::spawn_blocking(store).await?;
            self.answer(received, &result);
            match result {
                Ok(Some(arrived)) => {
                    report(&arrived);
                    return Ok(arrived);
                }
                Ok(None) => {}
                // The caller that sends something else must not end what others send.
                // It was reported when it failed.
                Err(error) if matches!(error.downcast_ref(), Some(NotTaken::Failed(_))) => {}
                Err(error) if error.is::<NotAChunk>() || error.is::<NotTaken>() => {
                    tracing::warn!(event = "message_ignored", %error, "ignored a message");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Abandons files of which nothing has come for long, for ever.
    pub(crate) fn tidied(&self) -> impl Future<Output = ()> + use<> {
        let output = Arc::clone(&self.output);
        async move {
            let mut ticks = tokio::time::interval(IDLE_AT_MOST);
            loop {
                ticks.tick().await;
                if let Output::Directory(files) = &mut *lock(&output) {
                    files.forget_idle();
                }
            }
        }
    }

    /// Waits until the answers are there, but not for long. What is incomplete is removed.
    pub(crate) async fn finish(mut self, within: Duration) {
        let answered = async { while self.answers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(within, answered).await;
    }

    /// Says what became of a piece, apart from all else: nobody waits for it here.
    fn answer(&mut self, received: Received, result: &anyhow::Result<Option<Arrived>>) {
        while self.answers.try_join_next().is_some() {}
        let answer = match result {
            // A version that asks for no answers.
            _ if !received.is_request() => return,
            Err(error) if error.is::<NotAChunk>() => {
                // Who asks for something else, as `cloudburst ping` does, learns why there is no reply.
                let failure = Failure::refused("files are taken here, and nothing else");
                if let Err(error) = self.endpoint.fail(&received, failure) {
                    tracing::debug!(%error, "a request was not refused");
                }
                return;
            }
            Ok(None) => Answer::Taken,
            Ok(Some(arrived)) => Answer::Stored {
                bytes: arrived.bytes,
                blake3: arrived.blake3,
            },
            Err(error) => Answer::Refused(format!("{error:#}")),
        };
        let endpoint = self.endpoint.clone();
        self.answers.spawn(async move {
            if let Err(error) = endpoint.reply(&received, answer.to_message()).await {
                tracing::debug!(%error, "an answer was not delivered");
            }
        });
    }
}

/// What is stored is right after each piece, whatever became of a thread.
fn lock(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

/// On standard error: standard output may be the file.
fn report(arrived: &Arrived) {
    let Arrived {
        file,
        bytes,
        seconds,
        blake3,
    } = arrived;
    tracing::info!(event = "file_received", file = %file.display(), bytes, seconds, %blake3, "received");
}
