//! `cloudburst send`: a file, as messages.

mod watch;

use std::{
    collections::VecDeque,
    io::{self, Read},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use cloudburst::{Endpoint, EndpointConfig, PeerId, RequestError};
use flow_cli::ExitCode;
use flow_cli::{Signals, print};
use serde_json::json;
use tokio::task::JoinHandle;

use self::watch::{Meter, STALLED, Watch, stalled};
use super::CLOSE_WITHIN;
use crate::{
    cli::SendArgs,
    progress::{Output, busy_to_json, busy_to_text},
    summary::ratio,
    transfer::{Answer, Chunk, MAX_DATA_BYTES},
};

pub(crate) async fn run(args: &SendArgs, output: Output) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let source = Source::open(args)?;
    let patient = |config: EndpointConfig| config.with_lifetime(LIFETIME);
    let connecting = args
        .endpoint
        .connect_with(&args.begin.ports, &args.peer, patient);
    let (endpoint, peer) = connecting.await?;
    let meter = Meter::new(output, source.total);
    let mut transfer = Transfer {
        endpoint: &endpoint,
        peer,
        timeout: args.timeout.0,
        window_bytes: window(args),
        under_way: VecDeque::new(),
        meter: &meter,
        stored: None,
        watch: Watch::new(),
    };
    let start = Instant::now();
    let blake3 = tokio::select! {
        result = transfer.run(source, args.chunk.0.min(MAX_DATA_BYTES)) => result?,
        Err(error) = meter.run(&endpoint, peer) => return Err(error),
        signal = signals.next() => bail!("{signal}: the file was not sent completely"),
    };
    let seconds = start.elapsed().as_secs_f64();
    let bytes = meter.bytes.get();
    let statistics = endpoint.statistics().await?.protocol;
    let (symbols, symbols_sent) = (statistics.symbols_delivered, statistics.symbols_sent);
    let busy = statistics.busy_received;
    if output.is_json() {
        output.print(&json!({
            "bytes": bytes,
            "seconds": seconds,
            "blake3": blake3.to_hex().as_str(),
            "symbols": symbols,
            "symbols_sent": symbols_sent,
            "busy": busy_to_json(&busy),
        }))?;
    } else {
        let mbit_per_s = bytes as f64 * 8e-6 / seconds;
        let overhead = ratio(symbols_sent, symbols) - 1.0;
        print(format_args!(
            "stored: {bytes} bytes in {seconds:.2} s, {mbit_per_s:.1} Mbit/s; {:.1} % more packets than the file has",
            overhead * 100.0
        ))?;
        if let Some(text) = busy_to_text(&busy) {
            print(text)?;
        }
    }
    endpoint.close(CLOSE_WITHIN).await;
    Ok(ExitCode::Ok)
}

/// How long a piece is tried for. It is [`Watch`] that ends what gets nowhere.
const LIFETIME: Duration = Duration::from_secs(60);
/// Bytes under way at first, if no rate is stated, and at most.
const FIRST_WINDOW_BYTES: usize = 512 << 10;
const MOST_WINDOW_BYTES: usize = 64 << 20;
/// More is put under way while pieces take less than this, and less when one takes longer than that:
/// far below the time that they are tried for.
const QUICK: Duration = Duration::from_secs(2);
const SLOW: Duration = Duration::from_secs(8);

/// As much under way as can be delivered in a fraction of the time that a message is tried for.
fn window(args: &SendArgs) -> usize {
    let bytes_per_s = args.endpoint.congestion().bytes_per_s();
    let bytes = bytes_per_s.map_or(FIRST_WINDOW_BYTES, |rate| (rate * 2.0) as usize);
    bytes.clamp(args.chunk.0, MOST_WINDOW_BYTES)
}

/// What is sent.
struct Source {
    reader: Box<dyn Read + Send>,
    name: String,
    total: Option<u64>,
}

impl Source {
    fn open(args: &SendArgs) -> anyhow::Result<Self> {
        let name_of = |file: &Path| file.file_name().map(|it| it.to_string_lossy().into_owned());
        if args.file == Path::new("-") {
            return Ok(Self {
                reader: Box::new(io::stdin()),
                name: args.name.clone().unwrap_or_else(|| "stdin".to_owned()),
                total: None,
            });
        }
        let shown = args.file.display();
        let file = std::fs::File::open(&args.file);
        let file = file.with_context(|| format!("cannot read {shown}"))?;
        let metadata = file
            .metadata()
            .with_context(|| format!("cannot read {shown}"))?;
        if metadata.is_dir() {
            bail!("{shown} is a directory; send its files, or `tar c {shown} | cloudburst send -`");
        }
        let name = args.name.clone().or_else(|| name_of(&args.file));
        Ok(Self {
            // Of a device or a pipe the length is not known.
            total: metadata.is_file().then_some(metadata.len()),
            reader: Box::new(file),
            name: name.unwrap_or_else(|| "unnamed".to_owned()),
        })
    }
}

struct Transfer<'a> {
    endpoint: &'a Endpoint,
    peer: PeerId,
    timeout: Duration,
    window_bytes: usize,
    under_way: VecDeque<(usize, Instant, Request)>,
    meter: &'a Meter,
    /// What the receiver says that it has stored.
    stored: Option<(u64, blake3::Hash)>,
    watch: Watch,
}

/// A piece on its way, and the answer to it.
type Request = JoinHandle<Result<Bytes, RequestError>>;

/// The peer does not have the file as it was sent.
#[derive(Debug, thiserror::Error)]
enum NotStored {
    #[error("the peer refuses the file: {0}")]
    Refused(String),
    #[error(
        "the peer has received a part of the file, but does not say within {0:?} that it is stored: \
         it is slow (see --timeout), or no `cloudburst recv` or `cloudburst serve --mode files` of this version"
    )]
    Silent(Duration),
    #[error("{}", stalled(*.bytes, *.was_heard))]
    Stalled { bytes: u64, was_heard: bool },
    #[error("the peer has taken each part of the file, but does not say that the whole is stored")]
    Incomplete,
    #[error(
        "the peer has stored {bytes} bytes of digest {blake3}, which is not what was sent: {sent} bytes of digest {sent_blake3}"
    )]
    Different {
        bytes: u64,
        blake3: blake3::Hash,
        sent: u64,
        sent_blake3: blake3::Hash,
    },
}

impl Transfer<'_> {
    /// Returns the file's digest when the receiver has stored the same.
    async fn run(&mut self, source: Source, chunk_bytes: usize) -> anyhow::Result<blake3::Hash> {
        let mut id = [0; 8];
        getrandom::fill(&mut id)
            .map_err(io::Error::other)
            .context("cannot draw random numbers")?;
        let Source {
            mut reader, name, ..
        } = source;
        let mut hasher = blake3::Hasher::new();
        let mut offset = 0;
        loop {
            // Reading may block for long, at a terminal or a pipe.
            let read = tokio::task::spawn_blocking(move || {
                let mut data = Vec::with_capacity(chunk_bytes);
                let result = reader
                    .by_ref()
                    .take(chunk_bytes as u64)
                    .read_to_end(&mut data);
                result.map(|_| (reader, data))
            });
            let (after, data) = read.await?.context("cannot read what is to be sent")?;
            reader = after;
            hasher.update(&data);
            let is_last = data.len() < chunk_bytes;
            let chunk = Chunk {
                transfer: u64::from_be_bytes(id),
                offset,
                // What a file's length was at first may not be what it has in the end.
                total: is_last.then_some(offset + data.len() as u64),
                name: &name,
                data: &data,
            };
            self.send(chunk).await?;
            offset += data.len() as u64;
            if is_last {
                break;
            }
        }
        self.wait_until(0).await?;
        self.meter.bar.finish_and_clear();
        let (sent, sent_blake3) = (offset, hasher.finalize());
        let (bytes, blake3) = self.stored.ok_or(NotStored::Incomplete)?;
        let different = NotStored::Different {
            bytes,
            blake3,
            sent,
            sent_blake3,
        };
        ensure!((bytes, blake3) == (sent, sent_blake3), different);
        Ok(blake3)
    }

    async fn send(&mut self, chunk: Chunk<'_>) -> anyhow::Result<()> {
        let bytes = chunk.data.len();
        self.wait_until(self.window_bytes.saturating_sub(bytes))
            .await?;
        if self.under_way.is_empty() {
            // What is read may have taken its time.
            self.watch.reset();
        }
        let (endpoint, peer) = (self.endpoint.clone(), self.peer);
        let timeout = LIFETIME + self.timeout;
        let message = chunk.to_message();
        let request = async move { endpoint.request(peer, message, timeout).await };
        self.under_way
            .push_back((bytes, Instant::now(), tokio::spawn(request)));
        Ok(())
    }

    /// A piece has taken so long, those before it included.
    fn adapt(&mut self, took: Duration, bytes: usize) {
        if took < QUICK {
            self.window_bytes = (self.window_bytes + bytes).min(MOST_WINDOW_BYTES);
        } else if took > SLOW {
            self.window_bytes = (self.window_bytes / 2).max(bytes);
        }
    }

    /// Waits until no more than so many bytes are under way.
    async fn wait_until(&mut self, bytes: usize) -> anyhow::Result<()> {
        let mut sum: usize = self.under_way.iter().map(|(bytes, ..)| bytes).sum();
        while sum > bytes || (bytes == 0 && !self.under_way.is_empty()) {
            let Some((first, began, mut request)) = self.under_way.pop_front() else {
                break;
            };
            let answer = loop {
                tokio::select! {
                    answer = &mut request => break answer?,
                    () = tokio::time::sleep(LOOK_PAUSE) => self.look().await?,
                }
            };
            let answer = match answer {
                Ok(answer) => Answer::parse(&answer)?,
                Err(RequestError::TimedOut {
                    delivered: true, ..
                }) => return Err(NotStored::Silent(self.timeout).into()),
                Err(error) => {
                    let reported = format!(
                        "cannot send to the peer, after {} bytes",
                        self.meter.bytes.get()
                    );
                    return Err(error).context(reported);
                }
            };
            match answer {
                Answer::Taken => {}
                Answer::Stored { bytes, blake3 } => self.stored = Some((bytes, blake3)),
                Answer::Refused(why) => return Err(NotStored::Refused(why).into()),
            }
            self.adapt(began.elapsed(), first);
            sum -= first;
            self.meter.add(first as u64);
            self.watch.reset();
        }
        Ok(())
    }

    /// Ends the transfer if it gets nowhere: nothing arrives any more, or all has and is not stored.
    async fn look(&mut self) -> anyhow::Result<()> {
        let paths = self.endpoint.paths(self.peer).await?;
        let waits = self.watch.see(&paths);
        let protocol = self.endpoint.statistics().await?.protocol;
        if protocol.outgoing_now == 0 {
            ensure!(waits < self.timeout, NotStored::Silent(self.timeout));
        } else {
            let (bytes, was_heard) = (self.meter.bytes.get(), self.watch.was_heard());
            ensure!(waits < STALLED, NotStored::Stalled { bytes, was_heard });
        }
        Ok(())
    }
}

/// How often it is looked at what arrives.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
