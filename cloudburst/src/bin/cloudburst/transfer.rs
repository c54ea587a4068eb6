//! Files as messages: what `send` writes and `recv` and `serve --mode files` read.
//!
//! ```text
//!  0       4          12       20      28         29     29 + n
//! +-------+----------+--------+-------+----------+------+------+
//! | CBF1  | transfer | offset | total | n (name) | name | data |
//! +-------+----------+--------+-------+----------+------+------+
//! ```
//!
//! Each message says where its data belong, so that they may arrive in any order.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{File, OpenOptions},
    io::{self, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use cloudburst::protocol::PeerId;
use serde::Serialize;

use crate::values::MAX_MESSAGE_BYTES;

const MAGIC: &[u8; 4] = b"CBF1";
/// Bytes in front of the name.
const HEADER_BYTES: usize = 29;
/// Longest name, which its length of one byte can state.
const MAX_NAME_BYTES: usize = 255;
/// Most data that a message has room for beside header and name.
pub(crate) const MAX_DATA_BYTES: usize = MAX_MESSAGE_BYTES - HEADER_BYTES - MAX_NAME_BYTES;
/// The total of a transfer whose end has not been seen yet.
const UNKNOWN: u64 = u64::MAX;
/// Files that may be incomplete at a time.
const MAX_OPEN: usize = 64;
/// How long an incomplete file is waited for.
const IDLE_AT_MOST: Duration = Duration::from_secs(60);

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    pub(crate) transfer: u64,
    pub(crate) offset: u64,
    pub(crate) total: Option<u64>,
    pub(crate) name: &'a str,
    pub(crate) data: &'a [u8],
}

/// What arrived is no piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is not from `cloudburst send`, or damaged")]
pub(crate) struct NotAChunk;

/// A piece of a file that there is no room for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("{MAX_OPEN} files are incomplete already; `{0}` is not taken")]
    TooManyFiles(String),
    #[error("another file comes already; `{0}` is not taken")]
    OneFileOnly(String),
}

impl<'a> Chunk<'a> {
    pub(crate) fn to_message(self) -> Vec<u8> {
        let mut ends = (0..=self.name.len().min(MAX_NAME_BYTES)).rev();
        let end = ends.find(|&end| self.name.is_char_boundary(end));
        let name = &self.name.as_bytes()[..end.unwrap_or(0)];
        let mut message = Vec::with_capacity(HEADER_BYTES + name.len() + self.data.len());
        message.extend_from_slice(MAGIC);
        message.extend_from_slice(&self.transfer.to_be_bytes());
        message.extend_from_slice(&self.offset.to_be_bytes());
        message.extend_from_slice(&self.total.unwrap_or(UNKNOWN).to_be_bytes());
        message.push(name.len() as u8);
        message.extend_from_slice(name);
        message.extend_from_slice(self.data);
        message
    }

    pub(crate) fn parse(message: &'a [u8]) -> Result<Self, NotAChunk> {
        let rest = message.strip_prefix(MAGIC).ok_or(NotAChunk)?;
        let mut rest = rest;
        let mut number = || {
            let (number, after) = rest.split_first_chunk().ok_or(NotAChunk)?;
            rest = after;
            Ok(u64::from_be_bytes(*number))
        };
        let (transfer, offset, total) = (number()?, number()?, number()?);
        let (&name_bytes, rest) = rest.split_first().ok_or(NotAChunk)?;
        let (name, data) = rest
            .split_at_checked(usize::from(name_bytes))
            .ok_or(NotAChunk)?;
        let total = (total != UNKNOWN).then_some(total);
        let end = offset.checked_add(data.len() as u64).ok_or(NotAChunk)?;
        if total.is_some_and(|total| end > total) {
            return Err(NotAChunk);
        }
        Ok(Self {
            transfer,
            offset,
            total,
            name: std::str::from_utf8(name).map_err(|_| NotAChunk)?,
            data,
        })
    }
}

/// A file that has arrived.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Arrived {
    pub(crate) file: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

/// Files on their way in, into a directory.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    open: HashMap<(PeerId, u64), Partial>,
}

#[derive(Debug)]
struct Partial {
    file: File,
    path: PathBuf,
    progress: Progress,
    start: Instant,
    newest: Instant,
}

/// How much of a file is there.
#[derive(Debug, Default)]
struct Progress {
    offsets: BTreeSet<u64>,
    bytes: u64,
    total: Option<u64>,
}

impl Progress {
    /// Whether the piece is new.
    fn add(&mut self, chunk: &Chunk<'_>) -> bool {
        self.total = self.total.or(chunk.total);
        let is_new = self.offsets.insert(chunk.offset);
        if is_new {
            self.bytes += chunk.data.len() as u64;
        }
        is_new
    }

    fn is_complete(&self) -> bool {
        self.total == Some(self.bytes)
    }
}

impl Files {
    /// # Errors
    ///
    /// When it is no directory.
    pub(crate) fn new(directory: &Path) -> anyhow::Result<Self> {
        let metadata = std::fs::metadata(directory);
        let metadata = metadata.with_context(|| format!("cannot use {}", directory.display()))?;
        anyhow::ensure!(metadata.is_dir(), "{} is no directory", directory.display());
        Ok(Self {
            directory: directory.to_owned(),
            open: HashMap::new(),
        })
    }

    /// Takes a message; the file if that was its last piece.
    pub(crate) fn take(&mut self, peer: PeerId, message: &[u8]) -> anyhow::Result<Option<Arrived>> {
        let chunk = Chunk::parse(message)?;
        let key = (peer, chunk.transfer);
        if !self.open.contains_key(&key) {
            self.forget_idle();
            if self.open.len() >= MAX_OPEN {
                return Err(NotTaken::TooManyFiles(harmless(chunk.name)).into());
            }
            let partial = self.create(chunk.transfer)?;
            self.open.insert(key, partial);
        }
        let Some(partial) = self.open.get_mut(&key) else {
            return Ok(None);
        };
        partial.write(&chunk)?;
        if !partial.progress.is_complete() {
            return Ok(None);
        }
        let Some(partial) = self.open.remove(&key) else {
            return Ok(None);
        };
        let arrived = Arrived {
            file: settle(&self.directory, &partial.path, chunk.name)?,
            bytes: partial.progress.bytes,
            seconds: partial.start.elapsed().as_secs_f64(),
        };
        Ok(Some(arrived))
    }

    fn create(&self, transfer: u64) -> anyhow::Result<Partial> {
        let path = self.directory.join(format!(".{transfer:016x}.part"));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        let now = Instant::now();
        Ok(Partial {
            file,
            path,
            progress: Progress::default(),
            start: now,
            newest: now,
        })
    }

    fn forget_idle(&mut self) {
        self.open.retain(|_, partial| {
            let is_alive = partial.newest.elapsed() < IDLE_AT_MOST;
            if !is_alive {
                tracing::warn!(file = %partial.path.display(), "gave up an incomplete file");
                let _ = std::fs::remove_file(&partial.path);
            }
            is_alive
        });
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for partial in self.open.values() {
            let _ = std::fs::remove_file(&partial.path);
        }
    }
}

impl Partial {
    fn write(&mut self, chunk: &Chunk<'_>) -> anyhow::Result<()> {
        self.newest = Instant::now();
        let write = |mut file: &File| {
            file.seek(SeekFrom::Start(chunk.offset))?;
            file.write_all(chunk.data)
        };
        write(&self.file).with_context(|| format!("cannot write {}", self.path.display()))?;
        // Only what is written counts: else a full disk would leave a hole in a complete file.
        self.progress.add(chunk);
        Ok(())
    }
}

/// Gives the file its name, or with a number behind it if that is taken.
fn settle(directory: &Path, from: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let name = harmless(name);
    for number in 0..1_000 {
        let to = match number {
            0 => directory.join(&name),
            _ => directory.join(format!("{name}.{number}")),
        };
        // Whoever creates it has the name; what it is then replaced by is ours.
        match OpenOptions::new().write(true).create_new(true).open(&to) {
            Ok(_) => {
                let renamed = std::fs::rename(from, &to);
                renamed.with_context(|| format!("cannot write {}", to.display()))?;
                return Ok(to);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot create {}", to.display()));
            }
        }
    }
    anyhow::bail!(
        "{name} and {name}.1 to {name}.999 exist in {}",
        directory.display()
    )
}

/// A name that stays in its directory, is not hidden, and does nothing to a terminal.
fn harmless(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let last = last.trim_start_matches('.');
    let name: String = last
        .chars()
        .map(|it| {
            if it.is_control() || it == ':' {
                '_'
            } else {
                it
            }
        })
        .collect();
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}

/// One file on its way to something that can only be written in order.
#[derive(Debug)]
pub(crate) struct Stream<W> {
    output: W,
    key: Option<(PeerId, u64)>,
    progress: Progress,
    written: u64,
    /// Pieces that others before them are missing of.
    waiting: HashMap<u64, Vec<u8>>,
    start: Instant,
}

/// Bytes that may wait for others before them.
const MAX_WAITING_BYTES: u64 = 256 << 20;

impl<W: io::Write> Stream<W> {
    pub(crate) fn new(output: W) -> Self {
        Self {
            output,
            key: None,
            progress: Progress::default(),
            written: 0,
            waiting: HashMap::new(),
            start: Instant::now(),
        }
    }

    /// Takes a message; what arrived if that was the last piece. Pieces of other files than the
    /// first are not taken.
    pub(crate) fn take(&mut self, peer: PeerId, message: &[u8]) -> anyhow::Result<Option<Arrived>> {
        let chunk = Chunk::parse(message)?;
        let key = (peer, chunk.transfer);
        if *self.key.get_or_insert(key) != key {
            return Err(NotTaken::OneFileOnly(harmless(chunk.name)).into());
        }
        if !self.progress.add(&chunk) {
            return Ok(None);
        }
        self.waiting.insert(chunk.offset, chunk.data.to_vec());
        while let Some(data) = self.waiting.remove(&self.written) {
            self.output
                .write_all(&data)
                .context("cannot write to standard output")?;
            self.written += data.len() as u64;
        }
        let waits = self.progress.bytes - self.written;
        anyhow::ensure!(
            waits <= MAX_WAITING_BYTES,
            "{waits} bytes wait for others before them that do not come"
        );
        if !self.progress.is_complete() {
            return Ok(None);
        }
        self.output
            .flush()
            .context("cannot write to standard output")?;
        Ok(Some(Arrived {
            file: PathBuf::from("-"),
            bytes: self.written,
            seconds: self.start.elapsed().as_secs_f64(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: Chunk<'_> = Chunk {
        transfer: 7,
        offset: 3,
        total: Some(6),
        name: "name",
        data: b"abc",
    };

    #[test]
    fn chunks_are_read_as_they_were_written() {
        let message = CHUNK.to_message();
        assert_eq!(Chunk::parse(&message), Ok(CHUNK));
        let open = Chunk {
            total: None,
            data: b"",
            ..CHUNK
        };
        assert_eq!(Chunk::parse(&open.to_message()), Ok(open));
        for end in 0..HEADER_BYTES + 4 {
            assert_eq!(Chunk::parse(&message[..end]), Err(NotAChunk), "{end}");
        }
    }

    #[test]
    fn chunks_that_contradict_themselves_are_refused() {
        let beyond = Chunk { offset: 4, ..CHUNK };
        assert_eq!(Chunk::parse(&beyond.to_message()), Err(NotAChunk));
        let beyond = Chunk {
            offset: u64::MAX,
            total: None,
            ..CHUNK
        };
        assert_eq!(Chunk::parse(&beyond.to_message()), Err(NotAChunk));
    }

    #[test]
    fn names_stay_in_their_directory() {
        for (name, expected) in [
            ("a.txt", "a.txt"),
            ("../../etc/passwd", "passwd"),
            ("c:\\x\\y", "y"),
            ("..", "unnamed"),
            (".bashrc", "bashrc"),
            ("a\u{1b}[2J", "a_[2J"),
            ("", "unnamed"),
        ] {
            assert_eq!(harmless(name), expected);
        }
    }

    fn somebody() -> PeerId {
        use cloudburst::protocol::{Config, Endpoint, Route, SocketId, Time};
        let route = Route {
            socket: SocketId(0),
            remote: ([127, 0, 0, 1], 9).into(),
        };
        let mut endpoint = Endpoint::new(Config::default(), [0; 32], Time::ZERO).unwrap();
        endpoint.connect(Time::ZERO, &[route]).unwrap()
    }

    #[test]
    fn a_second_file_does_not_end_the_first() {
        let mut output = Vec::new();
        let mut stream = Stream::new(&mut output);
        let peer = somebody();
        let take =
            |stream: &mut Stream<_>, chunk: Chunk<'_>| stream.take(peer, &chunk.to_message());
        assert!(take(&mut stream, CHUNK).unwrap().is_none());
        let other = Chunk {
            transfer: 8,
            ..CHUNK
        };
        assert!(take(&mut stream, other).unwrap_err().is::<NotTaken>());
        let first = Chunk { offset: 0, ..CHUNK };
        assert_eq!(take(&mut stream, first).unwrap().unwrap().bytes, 6);
        assert_eq!(output, b"abcabc");
    }

    #[test]
    fn what_could_not_be_written_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("part");
        std::fs::write(&path, "").unwrap();
        let now = Instant::now();
        let mut partial = Partial {
            // To write to it fails.
            file: File::open(&path).unwrap(),
            path,
            progress: Progress::default(),
            start: now,
            newest: now,
        };
        let whole = Chunk {
            offset: 0,
            total: Some(3),
            ..CHUNK
        };
        assert!(partial.write(&whole).is_err());
        assert!(!partial.progress.is_complete());
    }

    #[test]
    fn nothing_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        for expected in ["f", "f.1"] {
            let from = directory.path().join("from");
            std::fs::write(&from, expected).unwrap();
            let to = settle(directory.path(), &from, "f").unwrap();
            assert_eq!(to, directory.path().join(expected));
            assert_eq!(std::fs::read_to_string(to).unwrap(), expected);
        }
    }
}
