//! Processes that this program starts itself as, and what they say to each other, a line at a time.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;

use crate::process::Usage;

/// Another process of this program. It ends when this is dropped.
pub(crate) struct Worker {
    process: Child,
    /// Nothing once it is dropped; who reads its other end finds an end there.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn start(arguments: [&str; 2]) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let mut process = Command::new(own)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start another process of this program")?;
        let output = process.stdout.take().context("its output is not piped")?;
        Ok(Self {
            input: process.stdin.take(),
            output: BufReader::new(output),
            process,
        })
    }

    /// Writes a line to it.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("it is told nothing any more")?;
        writeln!(input, "{line}").context("a process of this program has ended")
    }

    /// Reads the next line of it, a value in JSON.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line)
            .context("a process of this program has ended, and says above why")
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.process.id())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
