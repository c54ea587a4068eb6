//! Holds what the commands `splitter`, `cloudburst` and `splitter-demo` share, so that scripts can treat
//! them alike: [exit codes](ExitCode), results and errors as text or JSON, logging on standard
//! error, manual pages and completions made from the parser, and the signals that end a command.

mod exit;
mod logging;
mod output;
pub mod pages;
mod signals;
mod time;

pub use exit::{ExitCode, exit_code};
pub use logging::{LogFormat, start_logging, start_logging_also_to};
pub use output::{
    describe, error_object, group_thousands, print, print_json, print_json_line, report_error,
};
pub use signals::Signals;
pub use time::{age_in_words, seconds};
