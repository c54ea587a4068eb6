//! The control socket: how a command speaks to the agent that runs.
//!
//! A Unix stream socket, `control.sock` in the instance's directory, open to its owner alone.
//! Each request is one line of JSON, and so is each answer:
//!
//! ```text
//! {"version":1,"request":{"set":{"values":{"flows.threshold":60},"dry_run":true}}}
//! {"version":1,"answer":{"changed":{"applied":false,...}}}
//! ```
//!
//! A line has at most [`MAX_LINE_BYTES`]. Requests of other versions are refused by name, so that
//! a command and an agent of different builds tell each other so.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use splitter_advise::Advice;
use splitter_config::{Diagnostic, KeyChange, Overrides};

mod client;
mod confirm;
mod server;
pub mod stats;

pub use client::{ControlError, ask};
pub use confirm::{ConfirmedCommit, Unconfirmed};
pub use server::{BindError, Call, Peer, Socket};

/// Version of the protocol that both ends have to agree in.
pub const VERSION: u32 = 1;

/// Returns the path of the control socket of the instance whose directory this is.
#[must_use]
pub fn control_socket(directory: &Path) -> PathBuf {
    directory.join("control.sock")
}

/// The longest line that either end takes, its end included. The file of a hub with hundreds of
/// sites fits in.
pub const MAX_LINE_BYTES: usize = 512 * 1024;

/// Lists what an agent can be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Take the file again.
    Reload {
        /// The file that is meant; refused where the agent has another one.
        file: Option<PathBuf>,
        /// Say what would change, and change nothing.
        dry_run: bool,
    },
    /// Replace values until the next reload.
    Set {
        /// By key, with its section.
        values: Overrides,
        /// Say what would change, and change nothing.
        dry_run: bool,
    },
    /// Put the text of a file in force, in the place of the agent's own.
    Apply {
        /// Where it is from, for messages.
        source: PathBuf,
        /// What it says.
        text: String,
        /// Take it back after so many seconds, unless it is confirmed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_within_s: Option<u32>,
        /// Say what would change, and change nothing.
        dry_run: bool,
    },
    /// Keep what was applied.
    Confirm {
        /// The change that is meant.
        id: u64,
    },
    /// Take back at once what was applied.
    Revert {},
    /// Tell what is in force.
    Show {},
    /// Recommend a threshold for the flows that ended lately.
    Advise {},
}

impl Request {
    /// The name of what is asked, as it is sent.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reload { .. } => "reload",
            Self::Set { .. } => "set",
            Self::Apply { .. } => "apply",
            Self::Confirm { .. } => "confirm",
            Self::Revert {} => "revert",
            Self::Show {} => "show",
            Self::Advise {} => "advise",
        }
    }
}

/// Lists what an agent answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To a reload, to values that are set, and to a file that is applied or taken back.
    Changed(Changed),
    /// What was applied stays.
    Confirmed {},
    /// What is in force.
    Shown(Shown),
    /// A recommendation.
    Advised(Box<Advice>),
    /// Nothing was done.
    Refused(Refusal),
}

/// Says what a change of configuration came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Whether it is in force now; false for a dry run.
    pub applied: bool,
    /// The keys that changed, or would.
    pub changes: Vec<KeyChange>,
    /// What changed in the system, as `splitter plan` shows it; what stays is left out.
    pub steps: Vec<String>,
    /// The file that the agent has.
    pub file: PathBuf,
    /// The seconds after which it is taken back unless it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_s: Option<u32>,
}

/// Shows the configuration that an agent runs by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// The file that it has.
    pub file: PathBuf,
    /// What was set since it took the file.
    pub overrides: Overrides,
    /// The threshold in force.
    pub threshold: u64,
    /// The change that is in force and awaits its confirmation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<Unconfirmed>,
}

/// Why nothing was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// In a word.
    pub reason: Reason,
    /// In words.
    pub message: String,
    /// What is wrong with the file, where it is.
    #[serde(default)]
    pub diagnostics: Vec<Diagnostic>,
}

/// Why nothing was done, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The configuration would be wrong, or asks for what this kernel lacks.
    Configuration,
    /// A key would change that cannot at run time.
    Frozen,
    /// Something that is not ours is in the way, or the agent has another file.
    Conflict,
    /// The agent lacks a permission.
    NotPermitted,
    /// It was tried and failed; what was there before is in force.
    Failed,
    /// The line is no request.
    Malformed,
    /// The line is longer than any request.
    TooLong,
    /// The request is of another version.
    Version,
}

impl Refusal {
    /// For a reason, in words.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            diagnostics: Vec::new(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct RequestLine {
    version: u32,
    request: Request,
}

#[derive(Serialize, Deserialize)]
struct AnswerLine {
    version: u32,
    answer: Answer,
}

/// What every version begins with.
#[derive(Deserialize)]
struct AnyLine {
    version: u32,
}

/// Reads a line as a request; says what is wrong with it otherwise.
fn parse_request(line: &[u8]) -> Result<Request, Refusal> {
    let malformed = |error: serde_json::Error| {
        Refusal::new(Reason::Malformed, format!("this is not a request: {error}"))
    };
    let AnyLine { version } = serde_json::from_slice(line).map_err(malformed)?;
    if version != VERSION {
        let message = format!(
            "the request has version {version} and this agent ({}) speaks {VERSION}; use the command of the agent's build",
            env!("CARGO_PKG_VERSION")
        );
        return Err(Refusal::new(Reason::Version, message));
    }
    let line: RequestLine = serde_json::from_slice(line).map_err(malformed)?;
    Ok(line.request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_documented() {
        let line =
            br#"{"version":1,"request":{"set":{"values":{"flows.threshold":60},"dry_run":true}}}"#;
        let values = Overrides::from([("flows.threshold".to_owned(), 60.into())]);
        let request = Request::Set {
            values,
            dry_run: true,
        };
        assert_eq!(parse_request(line).unwrap(), request);
        let written = serde_json::to_string(&RequestLine {
            version: 1,
            request,
        });
        assert_eq!(written.unwrap().as_bytes(), line);
        for line in [
            r#"{"show":{}}"#,
            r#"{"advise":{}}"#,
            r#"{"apply":{"source":"/a.toml","text":"","confirm_within_s":60,"dry_run":false}}"#,
            r#"{"apply":{"source":"/a.toml","text":"","dry_run":true}}"#,
            r#"{"confirm":{"id":1}}"#,
            r#"{"revert":{}}"#,
        ] {
            let line = format!(r#"{{"version":1,"request":{line}}}"#);
            assert!(parse_request(line.as_bytes()).is_ok(), "{line}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_by_name() {
        let cases: [(&[u8], Reason); 7] = [
            (b"", Reason::Malformed),
            (b"reload", Reason::Malformed),
            (b"{\"version\":1}", Reason::Malformed),
            (b"{\"version\":1,\"request\":\"stop\"}", Reason::Malformed),
            (
                b"{\"version\":1,\"request\":{\"show\":{\"x\":1}}}",
                Reason::Malformed,
            ),
            (b"\xff\xfe", Reason::Malformed),
            (
                b"{\"version\":2,\"request\":{\"levitate\":{}}}",
                Reason::Version,
            ),
        ];
        for (line, reason) in cases {
            let refusal = parse_request(line).unwrap_err();
            assert_eq!(refusal.reason, reason, "{refusal}");
        }
        // Deeper than any request; must not exhaust the stack.
        let deep = "[".repeat(MAX_LINE_BYTES);
        assert!(parse_request(deep.as_bytes()).is_err());
    }
}
