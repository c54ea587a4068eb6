//! Runs programs: says what is run, and what failed with which status.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, bail};

/// A command line with an environment, checked when it is run.
pub(crate) struct Run(Command);

/// The cargo that runs this task, without what it says of this task's package: build scripts that look at that
/// would run anew, and half of all dependencies after them, whenever plain cargo has built in between.
pub(crate) fn cargo() -> Run {
    without_own_package(Run::new(cargo_program()))
}

/// The program of [`cargo`].
pub(crate) fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

pub(crate) fn without_own_package(run: Run) -> Run {
    let own = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    own.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        .fold(run, |run, name| run.env_remove(&name))
}

impl Run {
    /// Runs `program`, found in `PATH` unless it has a directory.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self(Command::new(program))
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.0.arg(argument);
        self
    }

    pub(crate) fn args<I: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = I>) -> Self {
        self.0.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    pub(crate) fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.0.current_dir(directory);
        self
    }

    /// Sends all that it prints to a file.
    pub(crate) fn output_to(mut self, file: File) -> Result<Self> {
        let copy = file
            .try_clone()
            .context("cannot open an output file twice")?;
        self.0.stdout(file).stderr(copy);
        Ok(self)
    }

    /// Whether it can be run and succeeds; its output is dropped.
    pub(crate) fn succeeds(mut self) -> bool {
        self.0
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    /// What it prints on standard output.
    pub(crate) fn read(self) -> Result<String> {
        self.read_with_input(Stdio::null())
    }

    /// What it prints on standard output when this is its standard input.
    pub(crate) fn read_with_input(mut self, input: impl Into<Stdio>) -> Result<String> {
        let output = self
            .0
            .stdin(input)
            .output()
            .with_context(|| format!("cannot run `{self}`"))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("`{self}` failed with {}: {}", output.status, stderr.trim());
        }
        String::from_utf8(output.stdout)
            .with_context(|| format!("`{self}` printed what is not UTF-8"))
    }

    /// Runs it with its output sent to standard error, so that standard output
    /// stays free for results, and fails when it fails.
    pub(crate) fn run(mut self) -> Result<()> {
        self.0.stdout(std::io::stderr());
        let status = self.status()?;
        self.check(status)
    }

    /// Runs it with inherited output.
    pub(crate) fn status(&mut self) -> Result<ExitStatus> {
        self.0
            .status()
            .with_context(|| format!("cannot run `{self}`"))
    }

    /// Runs it and hands each line of its standard output to `on_line` as soon
    /// as it is there. Standard error is inherited.
    pub(crate) fn stream(&mut self, mut on_line: impl FnMut(&str)) -> Result<ExitStatus> {
        let mut child = self
            .0
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run `{self}`"))?;
        if let Some(stdout) = child.stdout.take() {
            each_line(stdout, &mut on_line)
                .with_context(|| format!("cannot read from `{self}`"))?;
        }
        child
            .wait()
            .with_context(|| format!("cannot wait for `{self}`"))
    }

    /// Turns an unsuccessful status into an error.
    pub(crate) fn check(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            bail!("`{self}` failed with {status}");
        }
        Ok(())
    }

    /// Replaces this process, so that signals and the exit code are the
    /// program's own. Returns only when it cannot be started.
    pub(crate) fn replace(mut self) -> anyhow::Error {
        use std::os::unix::process::CommandExt;
        let error = self.0.exec();
        anyhow::Error::new(error).context(format!("cannot run `{self}`"))
    }
}

/// The command line without its environment.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.get_program().to_string_lossy())?;
        for argument in self.0.get_args() {
            write!(f, " {}", argument.to_string_lossy())?;
        }
        Ok(())
    }
}

/// Lines need not be UTF-8: a test may print anything.
fn each_line(output: impl Read, on_line: &mut impl FnMut(&str)) -> std::io::Result<()> {
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        on_line(text.trim_end_matches(['\n', '\r']));
        line.clear();
    }
    Ok(())
}
