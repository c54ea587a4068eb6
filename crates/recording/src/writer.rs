//! Writing a recording: flows come as they end, and stand in the file as they start.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf, is_separator};
use std::rc::Rc;

use tempfile::NamedTempFile;

use super::input::Input;
use super::{FlowRecord, Header, MAGIC, ReadError, VERSION, WriteError};

/// Flows that are kept and sorted at a time: 6 MB.
const RUN_FLOWS: usize = 65_536;
/// A file has no more runs, for each takes a buffer while they are merged: 100 million flows, 25 MB.
const MAX_RUNS: usize = 1_526;
const RUN_BUFFER_BYTES: usize = 16 * 1024;

/// Writes a recording, in memory that does not grow with it.
///
/// Nothing is seen at its path before [`Writer::finish`] puts the whole file there. What it needs until
/// then lies beside that, in a file without a name that goes with the process; while the whole file is
/// put together the disk holds both.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    may_replace: bool,
    spool: File,
    spool_bytes: u64,
    runs: Vec<Run>,
    kept: Vec<FlowRecord>,
    flows: u64,
}

/// Sorted flows in the spool.
#[derive(Clone, Copy, Debug)]
struct Run {
    at: u64,
    bytes: u64,
    flows: u64,
}

impl Writer {
    /// Begins a recording that is to be at `path`; `may_replace` says whether a file there may go.
    ///
    /// # Errors
    /// When there is a file that may not go, or anything but a file, or the directory takes none.
    pub fn create(path: &Path, may_replace: bool) -> Result<Self, WriteError> {
        // The link itself and not what it leads to: it would be in the way, too.
        let there = path.symlink_metadata().ok();
        if names_a_directory(path) || there.as_ref().is_some_and(|it| it.is_dir()) {
            return Err(WriteError::NotAFile { path: path.into() });
        }
        match there {
            Some(_) if !may_replace => return Err(WriteError::Exists { path: path.into() }),
            Some(it) if !it.is_file() => return Err(WriteError::NotAFile { path: path.into() }),
            _ => {}
        }
        let spool =
            tempfile::tempfile_in(directory(path)).map_err(|source| WriteError::Create {
                path: path.into(),
                source,
            })?;
        Ok(Self {
            path: path.into(),
            may_replace,
            spool,
            spool_bytes: 0,
            runs: Vec::new(),
            kept: Vec::new(),
            flows: 0,
        })
    }

    /// Adds a flow, in any order. Times and counts beyond those that a reader takes become the largest
    /// that it takes. Returns false where the file is full, at 100 million flows.
    ///
    /// # Errors
    /// When the disk takes no more.
    pub fn add(&mut self, flow: &FlowRecord) -> Result<bool, WriteError> {
        if self.kept.len() == RUN_FLOWS {
            if self.runs.len() + 1 >= MAX_RUNS {
                return Ok(false);
            }
            self.spill().map_err(|source| self.failed(source))?;
        }
        self.kept.push(flow.clamped());
        self.flows += 1;
        Ok(true)
    }

    /// Returns how many flows were added.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// Puts the file into place, with this header; its number of flows is filled in, and what a reader
    /// would refuse of it becomes the nearest that it takes. Returns the header as it was written.
    ///
    /// # Errors
    /// When the disk takes no more. When a file is there meanwhile that may not go, or the whole file
    /// cannot be put there for another reason, it stays beside, under a name that the error says.
    pub fn finish(mut self, header: Header) -> Result<Header, WriteError> {
        let header = Header {
            flows: self.flows,
            ..header.clamped()
        };
        let file = self.write(&header).map_err(|source| self.failed(source))?;
        let placed = if self.may_replace {
            file.persist(&self.path).map(drop)
        } else {
            file.persist_noclobber(&self.path).map(drop)
        };
        placed.map_err(|error| {
            let source = error.error;
            match error.file.keep() {
                Ok((_, kept)) => WriteError::Place {
                    path: self.path.clone(),
                    kept,
                    source,
                },
                Err(_) => self.failed(source),
            }
        })?;
        Ok(header)
    }

    fn failed(&self, source: io::Error) -> WriteError {
        WriteError::Write {
            path: self.path.clone(),
            source,
        }
    }

    /// Moves what is kept into the spool, sorted.
    fn spill(&mut self) -> io::Result<()> {
        if self.kept.is_empty() {
            return Ok(());
        }
        self.kept.sort_by_key(|flow| flow.start_us);
        let mut bytes = Vec::with_capacity(self.kept.len() * 16);
        let mut before_us = 0;
        for flow in &self.kept {
            flow.encode(before_us, &mut bytes);
            before_us = flow.start_us;
        }
        self.spool.seek(SeekFrom::Start(self.spool_bytes))?;
        self.spool.write_all(&bytes)?;
        self.runs.push(Run {
            at: self.spool_bytes,
            bytes: bytes.len() as u64,
            flows: self.kept.len() as u64,
        });
        self.spool_bytes += bytes.len() as u64;
        self.kept.clear();
        Ok(())
    }

    /// Writes the whole file under another name.
    fn write(&mut self, header: &Header) -> io::Result<NamedTempFile> {
        self.spill()?;
        let spool = Rc::new(self.spool.try_clone()?);
        let mut merge = Merge::new(&self.runs, &spool)?;
        let file = temporary(directory(&self.path))?;
        let mut output = Output::new(BufWriter::with_capacity(1 << 16, file));
        let text = serde_json::to_vec(header)?;
        output.put(&MAGIC)?;
        output.put(&VERSION.to_le_bytes())?;
        output.put(&(text.len() as u32).to_le_bytes())?;
        output.put(&text)?;
        let (mut bytes, mut before_us) = (Vec::new(), 0);
        while let Some(flow) = merge.next()? {
            bytes.clear();
            flow.encode(before_us, &mut bytes);
            before_us = flow.start_us;
            output.put(&bytes)?;
        }
        output.finish()
    }
}

/// Places of the file and of what it needs meanwhile.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Says whether a file cannot have that name, whatever is there.
fn names_a_directory(path: &Path) -> bool {
    let last = path.as_os_str().as_encoded_bytes().last();
    path.file_name().is_none() || last.is_some_and(|it| is_separator(char::from(*it)))
}

/// A file that its owner alone may read: it says a lot of the users of a network.
fn temporary(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".flow-recording-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o600));
    }
    builder.tempfile_in(directory)
}

/// Hands out the flows of all runs in the order of their starts.
struct Merge {
    runs: Vec<RunReader>,
    /// The next flow of each run that has one, by its start.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    heads: Vec<Option<FlowRecord>>,
}

impl Merge {
    fn new(runs: &[Run], spool: &Rc<File>) -> io::Result<Self> {
        let mut merge = Self {
            runs: runs.iter().map(|run| RunReader::new(*run, spool)).collect(),
            next: BinaryHeap::new(),
            heads: vec![None; runs.len()],
        };
        for index in 0..runs.len() {
            merge.advance(index)?;
        }
        Ok(merge)
    }

    fn next(&mut self) -> io::Result<Option<FlowRecord>> {
        let Some(Reverse((_, index))) = self.next.pop() else {
            return Ok(None);
        };
        let flow = self.heads[index].take();
        self.advance(index)?;
        Ok(flow)
    }

    fn advance(&mut self, index: usize) -> io::Result<()> {
        if let Some(flow) = self.runs[index].next()? {
            self.next.push(Reverse((flow.start_us, index)));
            self.heads[index] = Some(flow);
        }
        Ok(())
    }
}

struct RunReader {
    input: Input<BufReader<Section>>,
    left: u64,
    before_us: u64,
}

impl RunReader {
    fn new(run: Run, spool: &Rc<File>) -> Self {
        let section = Section {
            file: Rc::clone(spool),
            at: run.at,
            end: run.at + run.bytes,
        };
        Self {
            input: Input::new(BufReader::with_capacity(RUN_BUFFER_BYTES, section)),
            left: run.flows,
            before_us: 0,
        }
    }

    fn next(&mut self) -> io::Result<Option<FlowRecord>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let flow = FlowRecord::decode(self.before_us, 0, &mut self.input).map_err(|error| {
            match error {
                ReadError::Io(error) => error,
                // It is our own: whoever changed it meanwhile has the disk.
                other => io::Error::other(other),
            }
        })?;
        self.before_us = flow.start_us;
        Ok(Some(flow))
    }
}

/// A part of a file that others read other parts of.
struct Section {
    file: Rc<File>,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let length = to.len().min(left);
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.read(&mut to[..length])?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Bytes that go out, with their checksum.
struct Output {
    to: BufWriter<NamedTempFile>,
    checksum: crc32fast::Hasher,
}

impl Output {
    fn new(to: BufWriter<NamedTempFile>) -> Self {
        Self {
            to,
            checksum: crc32fast::Hasher::new(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum.update(bytes);
        self.to.write_all(bytes)
    }

    fn finish(mut self) -> io::Result<NamedTempFile> {
        self.to.write_all(&self.checksum.finalize().to_le_bytes())?;
        let file = self.to.into_inner().map_err(|error| error.into_error())?;
        // The name must not be there before what it names.
        file.as_file().sync_all()?;
        Ok(file)
    }
}
