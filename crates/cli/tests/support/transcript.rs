//! What a command says, case by case, as one text for one snapshot a command.
//!
//! The tests of every command include this file. A difference fails; `CONTRIBUTING.md` says how a
//! change that is meant is accepted.

use std::fmt::{Display, Write as _};
use std::path::Path;
use std::process::{Command, Output};

/// Cases of one command, each with its arguments, exit code and output.
pub(crate) struct Transcript {
    program: &'static str,
    /// Names the snapshot.
    command: &'static str,
    text: String,
    hidden: Vec<(String, &'static str)>,
    masks: Vec<(&'static str, &'static str)>,
}

impl Transcript {
    /// Starts the transcript of a command of `program`.
    pub(crate) fn new(program: &'static str, command: &'static str) -> Self {
        Self {
            program,
            command,
            text: String::new(),
            hidden: Vec::new(),
            masks: vec![(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "TIME")],
        }
    }

    /// Shows `name` in the place of a value that differs from run to run, from the next case on.
    pub(crate) fn hide(&mut self, value: impl Display, name: &'static str) {
        self.hidden.push((value.to_string(), name));
    }

    /// Shows `name` in the place of whatever this regular expression matches.
    pub(crate) fn mask(&mut self, pattern: &'static str, name: &'static str) {
        self.masks.push((pattern, name));
    }

    /// Adds a case: what it is about, the arguments as they were given, and what came of them.
    pub(crate) fn add(&mut self, case: &str, arguments: &[&str], output: &Output) {
        self.add_lines(case, arguments, output, |_| true);
    }

    /// Adds a case, but for the lines that depend on the machine.
    pub(crate) fn add_lines(
        &mut self,
        case: &str,
        arguments: &[&str],
        output: &Output,
        is_pinned: impl Fn(&str) -> bool,
    ) {
        let line = format!("{} {}", self.program, arguments.join(" "));
        let mut added = format!("## {case}\n$ {}\n", line.trim_end());
        for (stream, bytes) in [("", &output.stdout), ("! ", &output.stderr)] {
            let printed = String::from_utf8_lossy(bytes);
            for line in printed.lines().filter(|line| is_pinned(line)) {
                let _ = writeln!(added, "{}", format!("{stream}{line}").trim_end());
            }
        }
        let code = output.status.code();
        let code = code.map_or("a signal".to_owned(), |it| it.to_string());
        let _ = writeln!(added, "ends with {code}\n");
        for (value, name) in &self.hidden {
            added = added.replace(value, name);
        }
        self.text += &added;
    }

    /// Compares with the snapshot of the command.
    pub(crate) fn compare(self) {
        let mut settings = insta::Settings::new();
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots");
        settings.set_snapshot_path(directory);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.set_filters(self.masks);
        settings.bind(|| insta::assert_snapshot!(self.command, self.text));
    }
}

/// Takes the settings of whoever runs the test from a command: its width, colours and log level.
pub(crate) fn plain(command: &mut Command) -> &mut Command {
    command
        .env_remove("COLUMNS")
        .env_remove("CLICOLOR_FORCE")
        .env("RUST_LOG", "warn")
}
