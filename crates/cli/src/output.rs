//! Results and errors, for people and for programs.

use std::io::{self, Write as _};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::json;

use crate::ExitCode;

/// Prints a line to standard output. A reader that has seen enough, such as `head`, is no error but
/// ends the process: nobody is left to print for.
///
/// # Errors
/// When standard output cannot be written to.
pub fn print(text: impl std::fmt::Display) -> anyhow::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result.context("cannot write to standard output"),
    }
}

/// Prints a value to standard output as indented JSON.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(value).context("cannot express the result as JSON")?)
}

/// Prints a value to standard output as JSON on one line, for those who read line by line.
///
/// # Errors
/// As [`print()`].
pub fn print_json_line(value: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string(value).context("cannot express the result as JSON")?)
}

/// Expresses an error as the JSON object that commands print in place of a result.
#[must_use]
pub fn error_object(error: &anyhow::Error, code: ExitCode) -> serde_json::Value {
    json!({ "error": describe(error), "exit_code": code as u8 })
}

/// Reports an error of the command `program`: on standard error for people, on standard output as
/// JSON. Returns its exit code.
pub fn report_error(
    program: &str,
    error: &anyhow::Error,
    code: ExitCode,
    as_json: bool,
) -> ExitCode {
    if as_json {
        // There is nowhere left to complain about a failure to complain.
        let _ = print_json(&error_object(error, code));
    } else {
        let _ = writeln!(io::stderr(), "{program}: {}", describe(error));
    }
    code
}

/// Describes an error with its causes in one line; a cause that an error above it contains is left
/// out.
#[must_use]
pub fn describe(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Writes a number with its thousands grouped, as in 1,234,567.
#[must_use]
pub fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let grouped = [0, 999, 1_000, 1_234_567].map(group_thousands);
        assert_eq!(grouped, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn cause_that_is_contained_above_is_described_once() {
        let error = anyhow::anyhow!("no route").context("cannot send: no route");
        assert_eq!(describe(&error), "cannot send: no route");
        let error = anyhow::anyhow!("no route").context("cannot send");
        assert_eq!(describe(&error), "cannot send: no route");
    }
}
