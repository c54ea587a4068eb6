//! Files on their way into a directory.

use std::{
    collections::{HashMap, VecDeque},
    ffi::OsStr,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use cloudburst::PeerId;

use super::{Arrived, Chunk, NotTaken, harmless, progress::Progress};

/// Files that may be incomplete at a time.
pub(super) const MAX_OPEN: usize = 64;
/// Transfers that are known to have failed: pieces of them that were under way are not to begin
/// them again.
const MAX_FAILED: usize = 256;
/// How long an incomplete file is waited for.
pub(crate) const IDLE_AT_MOST: Duration = Duration::from_secs(60);

/// Files on their way into a directory. Dropping it removes what is incomplete.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    open: HashMap<(PeerId, u64), Partial>,
    /// And why.
    failed: VecDeque<((PeerId, u64), String)>,
}

impl Files {
    /// Removes what a process that was killed has left there.
    ///
    /// # Errors
    ///
    /// That it is no directory, with what to do, or those of the system.
    pub(crate) fn new(directory: &Path) -> anyhow::Result<Self> {
        check_directory(directory)?;
        remove_orphans(directory)
            .with_context(|| format!("cannot look through {}", directory.display()))?;
        Ok(Self {
            directory: directory.to_owned(),
            open: HashMap::new(),
            failed: VecDeque::new(),
        })
    }

    /// Takes a message; the file if that was its last piece. A file of which a piece cannot be
    /// stored is abandoned.
    pub(crate) fn take(&mut self, peer: PeerId, message: &[u8]) -> anyhow::Result<Option<Arrived>> {
        let chunk = Chunk::parse(message)?;
        let key = (peer, chunk.transfer);
        if let Some((_, why)) = self.failed.iter().find(|(failed, _)| *failed == key) {
            return Err(NotTaken::Failed(why.clone()).into());
        }
        let taken = self.store(key, &chunk);
        if let Err(error) = &taken {
            self.open.remove(&key);
            self.failed.truncate(MAX_FAILED - 1);
            self.failed.push_front((key, format!("{error:#}")));
        }
        taken
    }

    /// Abandons files of which nothing has come for long.
    pub(crate) fn forget_idle(&mut self) {
        self.open.retain(|_, partial| {
            let is_alive = partial.newest.elapsed() < IDLE_AT_MOST;
            if !is_alive {
                tracing::warn!(event = "file_given_up", file = %partial.path.display(), "gave up an incomplete file");
            }
            is_alive
        });
    }

    fn store(&mut self, key: (PeerId, u64), chunk: &Chunk<'_>) -> anyhow::Result<Option<Arrived>> {
        if !self.open.contains_key(&key) {
            self.forget_idle();
            if self.open.len() >= MAX_OPEN {
                return Err(NotTaken::TooManyFiles(harmless(chunk.name)).into());
            }
            let path = self.directory.join(partial_name(chunk.transfer));
            self.open.insert(key, Partial::create(path)?);
        }
        let Some(partial) = self.open.get_mut(&key) else {
            return Ok(None);
        };
        partial.write(chunk)?;
        if !partial.progress.is_complete() {
            return Ok(None);
        }
        let file = settle(&self.directory, &partial.path, chunk.name)?;
        let arrived = Arrived {
            file,
            bytes: partial.progress.contiguous,
            seconds: partial.start.elapsed().as_secs_f64(),
            blake3: partial.progress.blake3(),
        };
        self.open.remove(&key);
        Ok(Some(arrived))
    }
}

/// A directory that is not there is not made: where files go is for who runs this to say.
fn check_directory(directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    match std::fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => anyhow::bail!(
            "--output: there is no directory {shown}; make it (`mkdir -p {shown}`), or name another"
        ),
        Err(error) => Err(error).with_context(|| format!("--output: cannot use {shown}")),
        Ok(metadata) => {
            anyhow::ensure!(
                metadata.is_dir(),
                "--output: {shown} is no directory; name one for files to be written into"
            );
            Ok(())
        }
    }
}

/// Name of a transfer's file while it is incomplete.
fn partial_name(transfer: u64) -> String {
    format!(".{transfer:016x}.part")
}

/// Tells if a file may be an incomplete one of ours.
fn is_partial(name: &OsStr) -> bool {
    let name = name
        .to_str()
        .and_then(|it| it.strip_prefix('.')?.strip_suffix(".part"));
    name.is_some_and(|it| it.len() == 16 && u64::from_str_radix(it, 16).is_ok())
}

/// Removes incomplete files whose process has ended without removing them. A process that lives
/// holds a lock on each of its own.
fn remove_orphans(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let is_ours = is_partial(&entry.file_name()) && entry.file_type()?.is_file();
        // Held until it is gone: others that start now leave it alone.
        if is_ours && let Ok(_held) = orphan(&entry.path()) {
            let file = entry.path();
            match std::fs::remove_file(&file) {
                Ok(()) => tracing::info!(
                    event = "leftover_removed",
                    file = %file.display(),
                    "removed an incomplete file of a process that was killed"
                ),
                // It takes room, and is in nobody's way.
                Err(error) => tracing::warn!(
                    event = "leftover_stays",
                    file = %file.display(),
                    %error,
                    "cannot remove an incomplete file of a process that was killed"
                ),
            }
        }
    }
    Ok(())
}

/// Opens an incomplete file that no process has any more, and locks it.
fn orphan(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.try_lock()?;
    Ok(file)
}

/// A file that is incomplete, under a name of its own, and locked. Dropping it removes what is
/// still there by that name.
#[derive(Debug)]
struct Partial {
    file: File,
    path: PathBuf,
    progress: Progress,
    start: Instant,
    newest: Instant,
}

impl Partial {
    fn create(path: PathBuf) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        let created = options.read(true).write(true).create_new(true).open(&path);
        let file = created.with_context(|| format!("cannot create {}", path.display()))?;
        // Where a file system has no locks, nobody can take it for an orphan either.
        let _ = file.try_lock();
        let now = Instant::now();
        Ok(Self {
            file,
            path,
            progress: Progress::default(),
            start: now,
            newest: now,
        })
    }

    fn write(&mut self, chunk: &Chunk<'_>) -> anyhow::Result<()> {
        self.newest = Instant::now();
        if self.progress.has(chunk) {
            return Ok(());
        }
        let cannot = |what| format!("cannot {what} {}", self.path.display());
        let write = |mut file: &File| {
            file.seek(SeekFrom::Start(chunk.offset))?;
            file.write_all(chunk.data)
        };
        write(&self.file).with_context(|| cannot("write"))?;
        // Only what is written counts: else a full disk would leave a hole in a complete file.
        self.progress.add(chunk);
        while let Some((offset, bytes)) = self.progress.next() {
            if offset == chunk.offset {
                self.progress.grow(chunk.data);
                continue;
            }
            // It came before its turn; the system still has it in memory.
            let read = |mut file: &File| {
                let mut data = vec![0; bytes];
                file.seek(SeekFrom::Start(offset))?;
                file.read_exact(&mut data).map(|()| data)
            };
            let data = read(&self.file).with_context(|| cannot("read back"))?;
            self.progress.grow(&data);
        }
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // A file that is complete has another name by now.
        let _ = std::fs::remove_file(&self.path);
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
        // The caller that creates it has the name; what it is then replaced by is ours.
        match OpenOptions::new().write(true).create_new(true).open(&to) {
            Ok(_) => {
                let renamed = std::fs::rename(from, &to);
                if renamed.is_err() {
                    let _ = std::fs::remove_file(&to);
                }
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

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{CHUNK, somebody},
        *,
    };

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn pieces_become_a_file_with_its_digest() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::new(directory.path()).unwrap();
        let peer = somebody();
        assert_eq!(files.take(peer, &CHUNK.to_message()).unwrap(), None);
        let first = Chunk { offset: 0, ..CHUNK };
        let arrived = files.take(peer, &first.to_message()).unwrap().unwrap();
        assert_eq!(arrived.blake3, blake3::hash(b"abcabc"));
        assert_eq!(std::fs::read(arrived.file).unwrap(), b"abcabc");
        assert_eq!(names(directory.path()), ["name"]);
    }

    #[test]
    fn what_is_incomplete_is_removed_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::new(directory.path()).unwrap();
        files.take(somebody(), &CHUNK.to_message()).unwrap();
        assert_eq!(names(directory.path()).len(), 1);
        drop(files);
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn what_a_killed_process_left_goes_at_the_next_start_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let mut living = Files::new(directory.path()).unwrap();
        living.take(somebody(), &CHUNK.to_message()).unwrap();
        let [of_living] = names(directory.path()).try_into().unwrap();
        let others = [
            ".part",
            ".00ff.part",
            ".zzzzzzzzzzzzzzzz.part",
            "0123456789abcdef.part",
        ];
        for name in others.into_iter().chain([".0123456789abcdef.part"]) {
            std::fs::write(directory.path().join(name), "left").unwrap();
        }
        std::fs::create_dir(directory.path().join(".fedcba9876543210.part")).unwrap();
        Files::new(directory.path()).unwrap();
        let mut expected: Vec<String> = others.map(str::to_owned).into();
        expected.extend([of_living, ".fedcba9876543210.part".to_owned()]);
        expected.sort();
        let mut left = names(directory.path());
        left.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn what_could_not_be_stored_leaves_nothing_and_does_not_begin_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::new(directory.path()).unwrap();
        let peer = somebody();
        files.take(peer, &CHUNK.to_message()).unwrap();
        for partial in files.open.values_mut() {
            // To write to it fails.
            partial.file = File::open(&partial.path).unwrap();
        }
        let first = Chunk { offset: 0, ..CHUNK };
        let reported = files.take(peer, &first.to_message()).unwrap_err();
        assert!(reported.to_string().contains("cannot write"), "{reported}");
        assert!(names(directory.path()).is_empty());
        let reported = files.take(peer, &first.to_message()).unwrap_err();
        let Some(NotTaken::Failed(why)) = reported.downcast_ref() else {
            panic!("{reported}");
        };
        assert!(why.contains("cannot write"), "{why}");
        assert!(names(directory.path()).is_empty());
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
