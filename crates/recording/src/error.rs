//! Errors of reading and of writing a recording.

use std::io;
use std::path::PathBuf;

use super::VERSION;

/// Says why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system could not read the file.
    #[error("cannot read the recording")]
    Io(#[from] io::Error),
    /// The first bytes are not those of a recording.
    #[error("this is no recording of flows; `splitter record` makes one")]
    NotARecording,
    /// Another version of the format.
    #[error(
        "the recording has format {found}, and this program reads format {VERSION}; use the one that wrote it"
    )]
    Version {
        /// The version that the file states.
        found: u16,
    },
    /// The file ends before all that it announces.
    #[error("the recording ends too early, after {flows} flows: it was cut off")]
    Truncated {
        /// Flows that were read before.
        flows: u64,
    },
    /// A header that is longer than any.
    #[error("the recording states a header of {bytes} bytes, which is more than any has")]
    HeaderTooLong {
        /// The length that the file states.
        bytes: u32,
    },
    /// A header that is not the JSON expected.
    #[error("the header of the recording is wrong")]
    Header(#[from] serde_json::Error),
    /// A header with numbers that no recording has.
    #[error("the header of the recording is wrong: {problem}")]
    HeaderNumber {
        /// Description of what is wrong with it.
        problem: &'static str,
    },
    /// A flow with numbers that no flow has.
    #[error("flow {flow} of the recording is wrong: {problem}")]
    Flow {
        /// Number of the flow in the file, from 0.
        flow: u64,
        /// Description of what is wrong with it.
        problem: &'static str,
    },
    /// The checksum at the end is not that of the file.
    #[error("the recording was changed or damaged: its checksum does not fit")]
    Checksum,
    /// Something follows the end.
    #[error("the recording is followed by something else")]
    Trailing,
}

/// Says why a recording cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file of that name is there.
    #[error("{} is there already; name another file, or say that it may be replaced", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A directory or a device has that name, or nothing but a directory can have it.
    #[error("{} is the name of something other than a file; name a file", path.display())]
    NotAFile {
        /// The name.
        path: PathBuf,
    },
    /// The directory does not take files.
    #[error("cannot make files beside {}: {source}", path.display())]
    Create {
        /// The file that was to be written.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is whole and could not be put into place.
    #[error(
        "cannot put the recording at {}: {source}; all of it is in {}",
        path.display(),
        kept.display()
    )]
    Place {
        /// The file that was to be there.
        path: PathBuf,
        /// The file that it is in now.
        kept: PathBuf,
        /// Why it is not there.
        source: io::Error,
    },
    /// The file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}
